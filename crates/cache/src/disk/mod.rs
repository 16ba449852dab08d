//! The disk tier: full pages in a directory, for later processes and for others that run now.
//!
//! It is generic over bytes: what a page holds, which model it belongs to and when it is worth
//! storing is its caller's business. Time comes in as an argument; a clock is read only to measure
//! how long reading and writing take.

mod catalog;
mod chain;
mod damage;
mod delete;
mod directory;
mod event;
mod format;
mod index;
mod keeper;
mod lengthen;
mod mailbox;
mod message;
mod options;
mod reader;
mod record;
mod secret;
mod segment;
mod shared;
mod stats;
mod store;
mod texts;
mod writing;

pub use damage::{Damage, DamageKind};
pub use event::{DiskEvent, DropReason};
pub use lengthen::lasts_long_enough;
pub use options::DiskOptions;
pub use reader::{DiskReader, NextPage, ReadError, ReadRun};
pub use record::{NewPage, SequencePage, StoredRun, Wanted};
pub use secret::secret;
pub use stats::DiskStats;
pub use store::{DiskStore, OpenError, Opened};
pub use texts::keep_text;
