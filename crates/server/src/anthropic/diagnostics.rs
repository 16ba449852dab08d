//! `diagnostics`, which `diagnostics.previous_message_id` asks for.

use serde_json::{Value, json};

use crate::diagnostics::{Change, Diagnosis};

/// A diagnosis in Anthropic's words.
pub(super) fn in_their_words(diagnosis: Diagnosis) -> Value {
    let reason = match diagnosis {
        Diagnosis::Hit => Value::Null,
        Diagnosis::NotFound => json!({"type": "previous_message_not_found"}),
        Diagnosis::Unavailable => json!({"type": "unavailable"}),
        Diagnosis::Miss { change, missed_tokens, .. } => {
            let kind = match change {
                Change::Model => "model_changed",
                Change::Tools => "tools_changed",
                Change::System => "system_changed",
                Change::Compacted | Change::Messages => "messages_changed",
            };
            json!({"type": kind, "cache_missed_input_tokens": missed_tokens})
        }
    };
    json!({"cache_miss_reason": reason})
}
