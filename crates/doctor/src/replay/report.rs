//! What a replay found, in figures.

use cache::Reason;
use serde::Serialize;

/// What the lines of a trace are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceFormat {
    /// Lengths and hash ids, one for each 512 tokens.
    Mooncake,
    /// The bodies of requests.
    Requests,
}

/// What prompt caches of several capacities would have reused of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replay {
    /// What the lines were read as.
    pub format: TraceFormat,
    /// Requests in the trace, without those for embeddings.
    pub requests: usize,
    /// Requests for embeddings, which are left out: no prompt cache has to do with them.
    pub embeddings: usize,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Tokens that are held and evicted together.
    pub block_tokens: u64,
    /// Milliseconds from the first request to the last; `None` where lines tell no time.
    pub duration_ms: Option<u64>,
    /// For each capacity, in the order in which they were given.
    pub capacities: Vec<AtCapacity>,
}

/// What a prompt cache of one capacity would have reused.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AtCapacity {
    /// Tokens that it holds at most; `None` is without a bound.
    pub capacity_tokens: Option<u64>,
    /// Tokens reused, as a share of all prompts' tokens; 0 to 1.
    pub hit_rate: f64,
    /// The same of the second half of the requests, when the cache has long been filled.
    pub last_half_hit_rate: f64,
    /// Prompt tokens reused.
    pub reused_tokens: u64,
    /// Prompt tokens computed.
    pub computed_tokens: u64,
    /// Tokens held at the end, counted in whole blocks.
    pub held_tokens: u64,
    /// Tokens evicted on the way, counted in whole blocks.
    pub evicted_tokens: u64,
    /// By the reason why reuse stopped; those that made most be computed first.
    pub stops: Vec<StopCount>,
    /// For each request, its prompt's tokens and those that were reused.
    #[serde(skip)]
    outcomes: Vec<Outcome>,
}

/// The requests whose reuse stopped for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StopCount {
    /// Why.
    pub reason: Reason,
    /// How many they are.
    pub requests: u64,
    /// Tokens of their prompts that were reused.
    pub reused_tokens: u64,
    /// Tokens of their prompts that were computed.
    pub computed_tokens: u64,
}

/// What of a prompt was reused, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) prompt_tokens: u64,
    pub(crate) reused_tokens: u64,
}

impl StopCount {
    pub(crate) fn new(reason: Reason) -> Self {
        Self { reason, requests: 0, reused_tokens: 0, computed_tokens: 0 }
    }

    pub(crate) fn add(&mut self, outcome: Outcome) {
        self.requests += 1;
        self.reused_tokens += outcome.reused_tokens;
        self.computed_tokens += outcome.prompt_tokens - outcome.reused_tokens;
    }
}

impl AtCapacity {
    pub(crate) fn new(
        capacity_tokens: Option<u64>,
        outcomes: Vec<Outcome>,
        stops: Vec<StopCount>,
        held_tokens: u64,
        evicted_tokens: u64,
    ) -> Self {
        let [prompt_tokens, reused_tokens] = sums(&outcomes);
        Self {
            capacity_tokens,
            hit_rate: rate(&outcomes),
            last_half_hit_rate: rate(&outcomes[outcomes.len() / 2..]),
            reused_tokens,
            computed_tokens: prompt_tokens - reused_tokens,
            held_tokens,
            evicted_tokens,
            stops,
            outcomes,
        }
    }

    /// The hit rate over the trace, in at most `parts` parts of about as many requests: how many
    /// requests there were up to a part's end, and the hit rate in it.
    pub fn over_trace(&self, parts: usize) -> Vec<(usize, f64)> {
        let of_each = self.outcomes.len().div_ceil(parts.max(1)).max(1);
        let parts = self.outcomes.chunks(of_each).enumerate();
        parts.map(|(index, part)| (index * of_each + part.len(), rate(part))).collect()
    }
}

/// Prompt tokens, and those of them that were reused.
fn sums(outcomes: &[Outcome]) -> [u64; 2] {
    let prompt_tokens = outcomes.iter().map(|one| one.prompt_tokens).sum();
    [prompt_tokens, outcomes.iter().map(|one| one.reused_tokens).sum()]
}

fn rate(outcomes: &[Outcome]) -> f64 {
    let [prompt_tokens, reused_tokens] = sums(outcomes);
    reused_tokens as f64 / prompt_tokens.max(1) as f64
}
