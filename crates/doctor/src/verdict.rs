//! Verdicts: completing one with what only somebody with the prompt knows.

use cache::{Reason, Stop, TokenText, Verdict};
use package::{PromptMap, Tokenizer};

use crate::difference::explain;
use crate::retokenized::same_text;

/// What of a verdict only somebody with the prompt knows.
#[derive(Clone, Copy)]
pub struct Compared<'a> {
    /// The prompt's token ids.
    pub prompt: &'a [u32],
    /// Which message each came from; only conversations have one.
    pub map: Option<&'a PromptMap>,
    /// With `different_token`: what is held from the stop on, as
    /// [`PromptCache::continuation`] gives it; as much as [`DIFFERENCE_TOKENS_MAX`] is read.
    ///
    /// [`DIFFERENCE_TOKENS_MAX`]: crate::DIFFERENCE_TOKENS_MAX
    /// [`PromptCache::continuation`]: cache::PromptCache::continuation
    pub cached: &'a [u32],
}

/// Fills in what the cache does not know, since it knows ids only: the texts of the tokens, the
/// message that the stop lies in, and what changed there.
pub fn complete(verdict: &mut Verdict, compared: Compared<'_>, tokenizer: &Tokenizer) {
    let stop = &mut verdict.stop;
    for token in [&mut stop.cached, &mut stop.request].into_iter().flatten() {
        token.text = text(tokenizer, token);
    }
    if stop.reason != Reason::DifferentToken {
        return;
    }
    locate(stop, compared.map, stop.at);
    let Compared { prompt, map, cached } = compared;
    if cached.is_empty() || stop.at >= prompt.len() {
        return;
    }
    if let Some(covered) = same_text(cached, &prompt[stop.at..], tokenizer) {
        stop.reason = Reason::Retokenized;
        stop.held_tokens = Some(stop.at + covered);
        return;
    }
    explain(stop, prompt, map, cached, tokenizer);
}

/// Says where the prompt's token at `at` came from.
pub(crate) fn locate(stop: &mut Stop, map: Option<&PromptMap>, at: usize) {
    let Some(map) = map else { return };
    let location = map.locate(at..at + 1);
    stop.message = location.message;
    stop.role = Some(location.role);
    stop.chars = location.chars;
}

/// A token's text; bytes that are no whole characters show as U+FFFD.
pub(crate) fn text(tokenizer: &Tokenizer, token: &TokenText) -> Option<String> {
    let bytes = tokenizer.bytes(token.id)?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}
