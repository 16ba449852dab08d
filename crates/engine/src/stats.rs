//! Counters and gauges of the engine.

use cache::disk::DiskStats;
use serde::Serialize;

use crate::page_ages::AgeFigures;

/// What the engine did since its start, and what it holds now.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EngineStats {
    /// Requests being computed.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Of these, requests that wait for a prefix which another one is computing.
    pub waiting_for_prefix: usize,
    /// Answers that gave up their pages and wait for memory to go on.
    pub preempted: usize,
    /// Pages of the KV memory.
    pub pages: usize,
    /// Pages that running requests hold.
    pub pages_in_use: usize,
    /// Of these, pages that more than one answer holds: a prefix that they have in common.
    pub pages_shared: usize,
    /// Pages that nobody holds.
    pub pages_free: usize,
    /// Pages in the prompt cache, shared with running requests or not.
    pub pages_cached: usize,
    /// Tokens in the prompt cache.
    pub tokens_cached: usize,
    /// Evicted pages that are remembered to explain misses.
    pub ghosts: usize,
    /// Pages that the prompt cache gave up to make room.
    pub evicted_pages: u64,
    /// Pages in the prompt cache whose life ended.
    pub expired_pages: u64,
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
    /// Requests that failed because their caller did not read the answer.
    pub requests_unread: u64,
    /// Requests whose turn did not come in time.
    pub requests_expired: u64,
    /// Answers that gave up their pages for others, each time counted, and requests that did so
    /// while their prefix was being read from disk.
    pub preemptions: u64,
    /// Of [`reused_tokens`](Self::reused_tokens), those that another request computed while this
    /// one waited for them.
    pub shared_prefix_tokens: u64,
    /// Prompt tokens of admitted requests.
    pub prompt_tokens: u64,
    /// Of these, tokens that were reused.
    pub reused_tokens: u64,
    /// Of these, tokens whose K/V came from disk.
    pub restored_tokens: u64,
    /// Tokens drawn.
    pub output_tokens: u64,
    /// Tokens that were guessed and computed before they were drawn, or not.
    pub proposed_tokens: u64,
    /// Of these, tokens that were drawn, and so came without a step of their own.
    pub accepted_tokens: u64,
    /// Time in which the engine computed for each request that ended, in seconds: the
    /// inverse of its throughput while busy. A mean in which the last twenty or so requests
    /// weigh most; `None` before the first.
    pub request_s: Option<f64>,
    /// How old pages of the prompt cache in memory are when they are reused or make room.
    #[serde(skip)]
    pub ages: AgeFigures,
    /// Figures of the prompt cache on disk; `None` where there is none.
    #[serde(skip)]
    pub disk: Option<DiskStats>,
}
