//! Counts of verdicts by their reason.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cache::{Reason, Verdict};

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

/// Counts for each reason since the server's start.
#[derive(Default)]
pub(crate) struct Tally(Mutex<[Count; Reason::ALL.len()]>);

impl Tally {
    /// Counts a verdict, and its lost time if that is known.
    pub(crate) fn add(&self, verdict: &Verdict, lost_ms: Option<f64>) {
        let mut counts = self.lock();
        let count = &mut counts[verdict.stop.reason as usize];
        count.verdicts += 1;
        count.ram_tokens += verdict.reused_from.ram as u64;
        count.disk_tokens += verdict.reused_from.disk as u64;
        count.computed_tokens += verdict.computed_tokens as u64;
        count.lost_tokens += verdict.lost_tokens().unwrap_or(0) as u64;
        count.lost_ms += lost_ms.unwrap_or(0.0);
    }

    /// The counts of all reasons, also of those that have not occurred.
    pub(crate) fn counts(&self) -> Vec<(Reason, Count)> {
        Reason::ALL.into_iter().zip(*self.lock()).collect()
    }

    /// Numbers are whole after each statement, so that a lock which a panic poisoned is as good as
    /// another.
    fn lock(&self) -> MutexGuard<'_, [Count; Reason::ALL.len()]> {
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
            (0..number).for_each(|_| tally.add(&verdict, Some(0.5)));
        }
        for ((reason, count), (wanted, number)) in
            tally.counts().iter().zip(Reason::ALL.iter().zip(1..))
        {
            assert_eq!((reason, count.verdicts), (wanted, number));
            assert_eq!((count.computed_tokens, count.lost_ms), (10 * number, 0.5 * number as f64));
        }
    }
}
