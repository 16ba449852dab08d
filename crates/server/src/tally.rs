//! Counts of verdicts by their reason.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cache::{Reason, Verdict};
use engine::{Histogram, Timings};

/// What was counted of the verdicts with one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Count {
    pub(crate) verdicts: u64,
    pub(crate) ram_tokens: u64,
    pub(crate) disk_tokens: u64,
    pub(crate) computed_tokens: u64,
    /// Of the computed ones, as far as known.
    pub(crate) lost_tokens: u64,
    /// The time that these took, as estimated.
    pub(crate) lost_ms: f64,
}

/// Counts for each reason since the server's start, and how long reading from disk took.
pub(crate) struct Tally(Mutex<Counts>);

struct Counts {
    by_reason: [Count; Reason::ALL.len()],
    restored: Histogram,
}

impl Default for Tally {
    fn default() -> Self {
        let by_reason = [Count::default(); Reason::ALL.len()];
        Self(Mutex::new(Counts { by_reason, restored: Histogram::new(Histogram::READS_S) }))
    }
}

impl Tally {
    /// Counts a verdict, with its lost time if that is known.
    pub(crate) fn add(&self, verdict: &Verdict, timings: &Timings) {
        let mut counts = self.lock();
        if let Some(restore_ms) = timings.restore_ms.filter(|_| verdict.reused_from.disk > 0) {
            counts.restored.count(restore_ms / 1e3);
        }
        let count = &mut counts.by_reason[verdict.stop.reason as usize];
        count.verdicts += 1;
        count.ram_tokens += verdict.reused_from.ram as u64;
        count.disk_tokens += verdict.reused_from.disk as u64;
        count.computed_tokens += verdict.computed_tokens as u64;
        count.lost_tokens += verdict.lost_tokens().unwrap_or(0) as u64;
        count.lost_ms += timings.lost_ms.unwrap_or(0.0);
    }

    /// The counts of all reasons, also of those that have not occurred.
    pub(crate) fn counts(&self) -> Vec<(Reason, Count)> {
        Reason::ALL.into_iter().zip(self.lock().by_reason).collect()
    }

    /// How long reading from disk took, of each prompt for which something was.
    pub(crate) fn restored(&self) -> Histogram {
        self.lock().restored.clone()
    }

    /// Numbers are whole after each statement, so that a lock which a panic poisoned is as good as
    /// another.
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_count() {
        let tally = Tally::default();
        for (reason, number) in Reason::ALL.into_iter().zip(1..) {
            let mut verdict = Verdict::disabled_by_request(10);
            verdict.stop.reason = reason;
            let timings = Timings { lost_ms: Some(0.5), ..Timings::default() };
            (0..number).for_each(|_| tally.add(&verdict, &timings));
        }
        for ((reason, count), (wanted, number)) in
            tally.counts().iter().zip(Reason::ALL.iter().zip(1..))
        {
            assert_eq!((reason, count.verdicts), (wanted, number));
            assert_eq!((count.computed_tokens, count.lost_ms), (10 * number, 0.5 * number as f64));
        }
    }
}
