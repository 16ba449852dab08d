//! The verdict on one prompt after another, without a server.

use cache::{Limits, PAGE_TOKENS, PromptCache, Timestamp, Verdict};

use crate::conversation::PromptMaker;
use crate::difference::DIFFERENCE_TOKENS_MAX;
use crate::prompt::Prompt;
use crate::rendering::note_rendering;
use crate::verdict::{Compared, complete};

/// The verdict that a server gives on `second` when it has computed the prompt `first`, which it
/// had not seen before, and nothing since.
///
/// It is of the prompts alone. A server also keeps the answer to `first`, so a `second` that goes
/// on from that answer reuses more, and one that goes on otherwise may stop with
/// `different_token` where this says `end_of_cached`. What only a running server knows is left
/// out: `since`, and evictions. `maker` is what made both prompts.
pub fn why(first: &Prompt, second: &Prompt, maker: PromptMaker<'_>) -> Verdict {
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
    let compared = Compared { prompt, map, cached: &cached };
    complete(&mut verdict, compared, maker.tokenizer);
    if let Some(rendered) = second.rendered_as(first, maker) {
        // As a server counts it: what is held to the last token is, though that is never reused.
        let held = cache.held(&second.namespace, &rendered.tokens).tokens;
        let held = held.max(cache.alive_tokens(&second.namespace, &rendered.tokens));
        note_rendering(&mut verdict, compared, &rendered, held, maker.tokenizer);
    }
    verdict
}
