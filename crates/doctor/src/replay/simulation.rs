//! One prompt cache of one capacity, and what the requests of a trace reuse of it.

use cache::{Limits, PAGE_TOKENS, PromptCache, Reason, Timestamp};

use super::Request;
use super::report::{AtCapacity, Outcome, StopCount};

/// Memory for what was evicted, to tell what is missed because of it from what was never held:
/// some 300,000 pages.
const GHOST_BYTES: usize = 128 << 20;

/// A prompt cache, and the outcomes of the requests so far.
pub(crate) struct Simulation {
    /// Nobody computes K/V here, so a page is nothing but its place in the tree.
    cache: PromptCache<()>,
    capacity: Option<u64>,
    /// Pages that the tree may hold.
    pages_max: usize,
    /// Tokens that one page of the tree stands for.
    block_tokens: u64,
    outcomes: Vec<Outcome>,
    stops: Vec<StopCount>,
}

impl Simulation {
    /// An empty cache for `capacity` tokens; without a bound if that is `None`.
    pub(crate) fn new(capacity: Option<u64>, block_tokens: u64) -> Self {
        let pages = capacity.map_or(u64::MAX, |capacity| capacity / block_tokens);
        let pages_max = usize::try_from(pages).unwrap_or(usize::MAX);
        let limits = Limits { pages: pages_max, ghost_bytes: GHOST_BYTES, ..Limits::default() };
        let cache = PromptCache::new(limits, Timestamp(0));
        let (outcomes, stops) = (Vec::new(), Vec::new());
        Self { cache, capacity, pages_max, block_tokens, outcomes, stops }
    }

    /// Serves a request: finds its prefix, makes room for the rest, and keeps all of it.
    pub(crate) fn serve(&mut self, request: &Request) {
        let (reason, reused) = if !request.use_cache {
            (Reason::DisabledByRequest, 0)
        } else if request.wants_rows {
            self.make_room(request, 0);
            self.publish(request);
            (Reason::RowsRequested, 0)
        } else {
            let (name, at) = (&request.name, request.at);
            let hit = self.cache.lookup(&request.namespace, &request.ids, name, at, None);
            self.make_room(request, hit.reused_tokens / PAGE_TOKENS);
            self.cache.unpin(hit.pin);
            self.publish(request);
            (hit.verdict.stop.reason, hit.reused_tokens)
        };
        let reused = reused as u64 * self.block_tokens / PAGE_TOKENS as u64;
        let prompt_tokens = request.prompt_tokens;
        self.note(reason, Outcome { prompt_tokens, reused_tokens: reused.min(prompt_tokens) });
    }

    /// Evicts until the pages that are not held yet fit in, or nothing is left to evict.
    fn make_room(&mut self, request: &Request, held: usize) {
        let wanted = request.published.div_ceil(PAGE_TOKENS).saturating_sub(held);
        let free = self.pages_max.saturating_sub(self.cache.stats().pages);
        let missing = wanted.saturating_sub(free);
        if missing > 0 {
            // There is nothing to free in what is evicted.
            let _ = self.cache.evict(missing, &request.name, request.at);
        }
    }

    fn publish(&mut self, request: &Request) {
        let tokens = &request.ids[..request.published];
        let pages = vec![(); tokens.len().div_ceil(PAGE_TOKENS)];
        // Nor is there in what finds no room.
        let _ =
            self.cache.insert(&request.namespace, tokens, &pages, &request.name, request.at, None);
    }

    fn note(&mut self, reason: Reason, outcome: Outcome) {
        self.outcomes.push(outcome);
        let of_reason = self.stops.iter().position(|count| count.reason == reason);
        let index = of_reason.unwrap_or_else(|| {
            self.stops.push(StopCount::new(reason));
            self.stops.len() - 1
        });
        self.stops[index].add(outcome);
    }

    /// What came of it.
    pub(crate) fn into_report(mut self) -> AtCapacity {
        self.stops.sort_by_key(|count| (std::cmp::Reverse(count.computed_tokens), count.requests));
        let stats = self.cache.stats();
        let tokens = |pages: u64| pages * self.block_tokens;
        AtCapacity::new(
            self.capacity,
            self.outcomes,
            self.stops,
            tokens(stats.pages as u64),
            tokens(stats.evicted_pages),
        )
    }
}
