//! Verdicts: completing one, and giving one without a server.

use cache::{Limits, PAGE_TOKENS, PromptCache, Reason, Timestamp, TokenText, Verdict};
use package::{PromptMap, Tokenizer};

use crate::prompt::Prompt;

/// Fills in what the cache does not know, since it knows ids only: the texts of the tokens, and
/// the message that the stop lies in.
pub fn complete(verdict: &mut Verdict, tokenizer: &Tokenizer, map: Option<&PromptMap>) {
    let stop = &mut verdict.stop;
    for token in [&mut stop.cached, &mut stop.request].into_iter().flatten() {
        token.text = text(tokenizer, token);
    }
    if stop.reason != Reason::DifferentToken {
        return;
    }
    if let Some(map) = map {
        let location = map.locate(stop.at..stop.at + 1);
        stop.message = location.message;
        stop.role = Some(location.role);
        stop.chars = location.chars;
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
    complete(&mut verdict, tokenizer, second.map.as_ref());
    verdict
}
