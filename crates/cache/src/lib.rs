//! The prompt cache: which prefixes of earlier requests are held, page by page, and why a
//! request could reuse no more than it did.
//!
//! The crate is generic over the handle `P` of a page, so it knows no tensor; it is told the time,
//! so it has no clock; and it knows nothing of HTTP.
//!
//! ```
//! use cache::{Limits, Namespace, PromptCache, Reason, Timestamp};
//!
//! let (everyone, now) = (Namespace::public(), Timestamp(0));
//! let mut cache = PromptCache::new(Limits::default(), now);
//! let free = cache.insert(&everyone, &[464, 3797, 3332], &["page 0"], "first", now, None);
//! assert!(free.is_empty());
//!
//! let hit = cache.lookup(&everyone, &[464, 3797, 1816, 1363], "second", now, None);
//! assert_eq!((hit.reused_tokens, hit.pages), (2, vec!["page 0"]));
//! assert_eq!(hit.verdict.stop.reason, Reason::DifferentToken);
//! assert_eq!(hit.verdict.compared_with.as_deref(), Some("first"));
//! cache.unpin(hit.pin);
//! ```

mod arena;
mod changes;
mod children;
mod compare;
mod difference;
pub mod disk;
mod disk_page;
mod ends;
mod insert;
mod lookup;
mod namespace;
mod node;
mod operator;
mod orders;
mod prompt_cache;
mod stored;
mod timestamp;
mod token_page;
mod tree;
mod verdict;

pub use changes::Freed;
pub use compare::compare;
pub use difference::{Difference, DifferenceKind};
pub use disk_page::DiskPage;
pub use lookup::{Held, Hit, Restorable};
pub use namespace::Namespace;
pub use operator::{Entry, PinRefused, Pinnable, Pinned};
pub use prompt_cache::{Limits, Pin, PromptCache, Stats};
pub use timestamp::Timestamp;
pub use token_page::PAGE_TOKENS;
pub use verdict::{Loss, Reason, ReusedFrom, Stop, TokenText, Verdict};
