//! The text around the place where reuse stopped.

use cache::{Reason, Verdict};
use package::Tokenizer;
use serde::Serialize;

use crate::prompt::Prompt;

/// What stands in two prompts around the first token that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Excerpt {
    /// The text before, which is the same in both, at most its last 24 characters.
    pub before: String,
    /// The text after it in the prompt that was held, at most its first 24 characters.
    pub cached_after: String,
    /// The text after it in the prompt that the verdict is on, at most its first 24 characters.
    pub after: String,
}

impl Excerpt {
    /// Characters shown on either side; fewer are all that there is.
    pub const CHARS: usize = 24;

    /// The text around the stop of the `verdict` that `second` gets after `first`; `None` unless
    /// that is a `different_token` or `retokenized`.
    pub fn of(
        verdict: &Verdict,
        first: &Prompt,
        second: &Prompt,
        tokenizer: &Tokenizer,
    ) -> Option<Excerpt> {
        if !matches!(verdict.stop.reason, Reason::DifferentToken | Reason::Retokenized) {
            return None;
        }
        let at = verdict.stop.at;
        let before = second.tokens.get(..at)?;
        // A character takes at most four tokens.
        let near = 4 * Self::CHARS;
        let before = tokenizer.decode(&before[at.saturating_sub(near)..], true);
        let skipped = before.chars().count().saturating_sub(Self::CHARS);
        let after = |prompt: &Prompt| {
            let after = prompt.tokens.get(at + 1..)?;
            let text = tokenizer.decode(&after[..after.len().min(near)], true);
            Some(text.chars().take(Self::CHARS).collect())
        };
        Some(Excerpt {
            before: before.chars().skip(skipped).collect(),
            cached_after: after(first)?,
            after: after(second)?,
        })
    }
}
