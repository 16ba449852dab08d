//! Verdicts: completing one, and giving one without a server.

use cache::{Limits, PAGE_TOKENS, PromptCache, Reason, Timestamp, TokenText, Verdict};
use package::{PromptMap, Tokenizer};

use crate::difference::{DIFFERENCE_TOKENS_MAX, difference};
use crate::prompt::Prompt;

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
    if let Some(map) = compared.map {
        let location = map.locate(stop.at..stop.at + 1);
        stop.message = location.message;
        stop.role = Some(location.role);
        stop.chars = location.chars;
    }
    let template = stop.role.is_some() && stop.message.is_none();
    if !compared.cached.is_empty() && stop.at < compared.prompt.len() {
        let Compared { prompt, cached, .. } = compared;
        stop.difference = Some(difference(stop.at, cached, prompt, template, tokenizer));
    }
}

/// A token's text; bytes that are no whole characters show as U+FFFD.
fn text(tokenizer: &Tokenizer, token: &TokenText) -> Option<String> {
    let bytes = tokenizer.bytes(token.id)?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

/// The verdict that a server gives on `second` when it has computed the prompt `first`, which it
/// had not seen before, and nothing since.
///
/// It is of the prompts alone. A server also keeps the answer to `first`, so a `second` that goes
/// on from that answer reuses more, and one that goes on otherwise may stop with
/// `different_token` where this says `end_of_cached`. What only a running server knows is left
/// out: `since`, and evictions.
pub fn why(first: &Prompt, second: &Prompt, tokenizer: &Tokenizer) -> Verdict {
    let tokens = second.tokens.len();
    if !second.use_cache {
        return Verdict::disabled_by_request(tokens);
    }
    if second.wants_rows {
        return Verdict::rows_requested(tokens);
    }
    let now = Timestamp(0);
    let mut cache = PromptCache::new(Limits::default(), now);
    if first.use_cache {
        let pages: Vec<usize> = (0..first.tokens.len().div_ceil(PAGE_TOKENS)).collect();
        // An empty cache without a limit takes every page.
        let _ = cache.insert(&first.namespace, &first.tokens, &pages, &first.name, now, None);
    }
    let hit = cache.lookup(&second.namespace, &second.tokens, &second.name, now, None);
    cache.unpin(hit.pin);
    let mut verdict = hit.verdict;
    verdict.stop.since = None;
    let same = &second.tokens[..verdict.stop.at];
    let cached = cache.continuation(&second.namespace, same, DIFFERENCE_TOKENS_MAX);
    let (prompt, map) = (second.tokens.as_slice(), second.map.as_ref());
    complete(&mut verdict, Compared { prompt, map, cached: &cached }, tokenizer);
    verdict
}
