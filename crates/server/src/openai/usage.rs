//! What an answer counted, in OpenAI's words.

use engine::TokenCounts;
use serde_json::{Value, json};

/// `usage`: `prompt_tokens` includes the cached ones.
pub(crate) fn usage(tokens: TokenCounts) -> Value {
    let prompt = tokens.input + tokens.cached_input;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": tokens.output,
        "total_tokens": prompt + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached_input},
    })
}
