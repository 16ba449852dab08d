//! What a response counted, in the Responses API's words.

use engine::TokenCounts;
use serde_json::{Value, json};

/// `usage`: `input_tokens` includes the cached ones. Every token that was computed for the prompt
/// is written to the prompt cache, unless the request keeps out of it.
pub(super) fn usage(tokens: TokenCounts, reasoning_tokens: usize, use_cache: bool) -> Value {
    let input = tokens.input + tokens.cached_input;
    let written = if use_cache { tokens.input } else { 0 };
    json!({
        "input_tokens": input,
        "input_tokens_details": {
            "cached_tokens": tokens.cached_input,
            "cache_write_tokens": written,
        },
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": input + tokens.output,
    })
}
