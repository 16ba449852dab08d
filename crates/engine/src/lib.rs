//! Inference: the transformer over packed weights and paged K/V.
//!
//! An architecture is written once, over the operations of `ops`; [`Reference`] runs it in plain
//! f32, [`Model`] on the kernels. [`Taps`] let every tensor inside be seen; [`trace`] looks at all
//! of them on one prompt's way.
//!
//! [`Engine`] serves requests on a model: a scheduler forms steps of many requests' rows, a sampler
//! draws from their logits, and the prompt cache keeps what was computed. Reuse, neighbours, chunks
//! and threads never change a bit of an answer, which [`check_exact`] checks.
//!
//! ```no_run
//! use engine::{Engine, EngineOptions, Event, Request};
//! use std::{path::Path, sync::Arc};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let package = Arc::new(package::Package::open(Path::new("model.gguf"))?);
//! let prompt = package.tokenizer.encode("Once upon a time", true)?.ids;
//! let engine = Engine::start(package, EngineOptions::default(), &|_, _| {})?;
//! let mut events = engine.submit(Request::new("first", prompt, cache::Namespace::public()))?;
//! while let Some(event) = events.blocking_recv() {
//!     match event {
//!         Event::Delta { text, .. } => print!("{text}"),
//!         Event::Done { verdict, .. } => println!("\n{} tokens reused", verdict.reused_tokens),
//!         Event::Failed(error) => return Err(error.into()),
//!         Event::Started { .. } | Event::Progress { .. } => {}
//!         Event::Finished { .. } | Event::PromptLogprobs(_) => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod admission;
mod architecture;
mod disk_tier;
mod drain;
mod engine;
mod error;
mod exact;
mod exact_run;
mod fast;
mod fault;
mod guessing;
mod histogram;
mod kv_memory;
mod kv_pool;
mod limits;
mod machine;
mod memory_need;
mod model;
mod operator;
mod ops;
mod options;
mod order;
mod order_error;
mod output;
mod page_ages;
mod prefill_order;
mod random;
mod rank;
mod reference;
mod request;
mod restoring;
mod room;
mod rows;
mod running;
mod sampler;
mod scheduler;
mod sequence;
mod shared_prefix;
#[cfg(test)]
mod source_digest;
#[cfg(test)]
mod source_digest_tests;
mod speculation;
mod speculation_worth;
mod stats;
mod step;
mod step_budget;
mod taps;
pub mod trace;
mod verdict;

pub use disk_tier::DiskTierOptions;
pub use engine::Engine;
pub use error::{ForwardError, LoadError};
pub use exact::{
    Cell, ExactOptions, ExactProgress, ExactReport, LENGTHS, Outcome, SelfTest, check_exact,
};
pub use exact_run::Difference;
#[doc(hidden)]
pub use fault::Fault;
pub use histogram::Histogram;
pub use kernels::KvType;
pub use kv_memory::GivenUp;
pub use limits::{Limits, Work};
pub use machine::Machine;
pub use memory_need::MemoryNeed;
pub use model::{Batch, Model};
pub use operator::PrefixPinned;
pub use options::{
    ANSWER_TOKENS, CHUNK_TOKENS, EngineInfo, EngineOptions, KV_MEMORY_SHARE, MAX_QUEUE,
    MAX_RUNNING, MAX_WAIT, StartError,
};
pub use order_error::{OrderError, PinError};
pub use page_ages::AgeFigures;
pub use reference::{Reference, dequantize};
pub use request::{
    CHOICES_MAX, EVENTS_UNREAD_MAX, EngineError, Event, Events, FinishReason, LOGIT_BIAS_MAX,
    LOGPROB_NEVER, PRIORITY_MAX, Request, STOP_IDS_MAX, STOP_STRING_BYTES_MAX, STOP_STRINGS_MAX,
    Sampling, SubmitError, TOP_LOGPROBS_MAX, Timings, TokenCounts, TokenInfo, TokenLogprobs,
    whole_nanoseconds,
};
pub use stats::EngineStats;
pub use step_budget::STEP_BUDGET_ORDINARY;
pub use taps::{NoTaps, Site, TapPoint, Taps};
