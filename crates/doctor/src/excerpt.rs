//! The text around the place where reuse stopped.

use cache::{Reason, Verdict};
use package::Tokenizer;
use serde::Serialize;

use crate::prompt::Prompt;

/// What stands in a prompt before and after a token that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Excerpt {
    /// The text before, at most its last 24 characters.
    pub before: String,
    /// The text after, at most its first 24 characters.
    pub after: String,
}

impl Excerpt {
    /// Characters shown on either side; fewer are all that there is.
    pub const CHARS: usize = 24;

    /// The text of `prompt` around its verdict's stop; `None` unless that is a
    /// `different_token`.
    pub fn of(verdict: &Verdict, prompt: &Prompt, tokenizer: &Tokenizer) -> Option<Excerpt> {
        if verdict.stop.reason != Reason::DifferentToken {
            return None;
        }
        let at = verdict.stop.at;
        let (before, after) = (prompt.tokens.get(..at)?, prompt.tokens.get(at + 1..)?);
        // A character takes at most four tokens.
        let near = 4 * Self::CHARS;
        let before = tokenizer.decode(&before[at.saturating_sub(near)..], true);
        let skipped = before.chars().count().saturating_sub(Self::CHARS);
        let after = tokenizer.decode(&after[..after.len().min(near)], true);
        Some(Excerpt {
            before: before.chars().skip(skipped).collect(),
            after: after.chars().take(Self::CHARS).collect(),
        })
    }
}
