//! What a request counted, in Anthropic's words: `input_tokens` leaves out what was read from the
//! prompt cache and what was written to it.

use std::time::Duration;

use cache::Verdict;
use serde_json::{Value, json};

/// What decides how a prompt's tokens are counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counting {
    /// Tokens up to the last breakpoint; `None` without one.
    pub(super) marked_tokens: Option<usize>,
    /// How long they were asked to live.
    pub(super) lifetime: Option<Duration>,
}

impl Counting {
    /// `usage`, after so many tokens of the answer.
    pub(super) fn usage(self, verdict: &Verdict, output_tokens: usize) -> Value {
        let read = verdict.reused_tokens;
        let marked = self.marked_tokens.unwrap_or(0).min(verdict.prompt_tokens);
        let written = marked.saturating_sub(read);
        let is_long = self.lifetime.is_some_and(|lifetime| lifetime > Duration::from_secs(300));
        let (short, long) = if is_long { (0, written) } else { (written, 0) };
        json!({
            "input_tokens": verdict.computed_tokens - written,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": short,
                "ephemeral_1h_input_tokens": long,
            },
            "output_tokens": output_tokens,
            "service_tier": "standard",
        })
    }
}
