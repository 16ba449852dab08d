//! The order of all requests.

use std::time::{Duration, Instant};

use crate::request::{PRIORITY_MAX, Request};

/// What one priority is worth in waiting: a request goes before another of the next lower
/// priority that came at most so much earlier. Since it is time, nobody waits for ever.
const PRIORITY_WORTH: Duration = Duration::from_secs(10);
/// A request's place in the order of all requests, the first served first. It never changes,
/// so that whoever is first comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    due: Instant,
    arrival: u64,
}

impl Rank {
    /// The rank of a request that came at `submitted` as number `arrival`.
    pub(crate) fn new(request: &Request, submitted: Instant, arrival: u64) -> Self {
        let worse = request.priority.saturating_add(PRIORITY_MAX).max(0) as u32;
        Rank { due: submitted + PRIORITY_WORTH * worse, arrival }
    }

    /// The rank of a request that came so much later.
    pub(crate) fn later(self, by: Duration) -> Self {
        Rank { due: self.due + by, ..self }
    }
}
