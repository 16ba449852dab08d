//! `prompt_cache_diagnostics`, which `prompt_cache_options.comparison_response_id` asks for.

use serde_json::{Value, json};

use crate::diagnostics::{Change, Diagnosis};

/// A diagnosis in OpenAI's words.
pub(super) fn in_their_words(diagnosis: Diagnosis) -> Value {
    match diagnosis {
        Diagnosis::Hit => json!({"type": "cache_hit"}),
        Diagnosis::NotFound => json!({"type": "comparison_response_not_found"}),
        Diagnosis::Unavailable => json!({"type": "unavailable"}),
        Diagnosis::Miss { change, missed_tokens, reusable_tokens } => {
            let reason = match change {
                Change::Model => "model_changed",
                Change::Tools => "tools_changed",
                Change::Compacted => "context_compacted",
                Change::System | Change::Messages => "input_changed",
            };
            json!({
                "type": "cache_miss",
                "reason": reason,
                "cache_missed_tokens": missed_tokens,
                "comparison_reusable_tokens": reusable_tokens,
            })
        }
    }
}
