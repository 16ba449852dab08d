//! A moment, as the caller of the cache counts it.

use serde::Serialize;

/// Milliseconds since the Unix epoch, or of a trace's own clock in a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);
