//! Replaying a trace: what a prompt cache of a given capacity would have reused of requests that
//! were made some time, and why not more.
//!
//! The requests go through [`cache::PromptCache`], the same tree that serves, at the time that the
//! trace says. What is counted is prompts alone: a server also keeps its answers, which a trace
//! does not have.

mod error;
mod lines;
mod mooncake;
mod report;
mod requests;
mod simulation;
mod trace;

pub use error::ReplayError;
pub use report::{AtCapacity, Replay, StopCount, TraceFormat};
pub use trace::Trace;

use cache::{Namespace, Timestamp};

/// A request of a trace, as the tree gets it.
pub(crate) struct Request {
    /// What it is called in verdicts.
    pub(crate) name: String,
    /// When it came.
    pub(crate) at: Timestamp,
    /// Whose prefixes it may reuse.
    pub(crate) namespace: Namespace,
    /// The ids that are looked up; the tree leaves the last of them to be computed.
    pub(crate) ids: Vec<u32>,
    /// How many of `ids` are published once they are computed.
    pub(crate) published: usize,
    /// Tokens of its prompt, as the trace counts them.
    pub(crate) prompt_tokens: u64,
    /// Whether it reads and feeds the cache.
    pub(crate) use_cache: bool,
    /// Whether it wants logits of all its rows, which reuse does not have.
    pub(crate) wants_rows: bool,
}
