//! Counters and gauges of the engine.

use std::time::Duration;

use serde::Serialize;

/// What the engine did since its start, and what it holds now.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EngineStats {
    /// Requests being computed.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Pages of the KV memory.
    pub pages: usize,
    /// Pages that nobody holds.
    pub pages_free: usize,
    /// Pages in the prompt cache, shared with running requests or not.
    pub pages_cached: usize,
    /// Tokens in the prompt cache.
    pub tokens_cached: usize,
    /// Evicted pages that are remembered to explain misses.
    pub ghosts: usize,
    /// K/V elements that were too large for their type and were stored as its largest number.
    pub kv_saturated: u64,
    /// Steps run.
    pub steps: u64,
    /// Requests answered in full.
    pub requests_done: u64,
    /// Requests that failed.
    pub requests_failed: u64,
    /// Requests whose caller went away.
    pub requests_cancelled: u64,
    /// Prompt tokens of admitted requests.
    pub prompt_tokens: u64,
    /// Of these, tokens that were reused.
    pub reused_tokens: u64,
    /// Tokens drawn.
    pub output_tokens: u64,
    /// How long answered requests ran, in seconds: a mean in which recent ones weigh more;
    /// `None` before the first.
    pub request_s: Option<f64>,
}

impl EngineStats {
    /// A request was answered in full.
    pub(crate) fn note_done(&mut self, ran: Duration) {
        self.requests_done += 1;
        let ran_s = ran.as_secs_f64();
        self.request_s = Some(self.request_s.map_or(ran_s, |mean| 0.8 * mean + 0.2 * ran_s));
    }
}
