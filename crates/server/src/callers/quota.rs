//! Keeping callers within the limits of their names.
//!
//! Requests and tokens are counted in buckets that hold a minute's worth and fill evenly, so that
//! who was silent may begin at once. What a request computes is only known at its end: it may then
//! leave its bucket below zero, and the next request waits until that is made good.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::limits::KeyLimits;

/// What all names have used. Names are those of the file of keys, so there are not many.
#[derive(Default)]
pub(crate) struct Quotas {
    used: Mutex<HashMap<Arc<str>, Used>>,
}

#[derive(Default)]
struct Used {
    requests: Bucket,
    tokens: Bucket,
    running: u32,
}

/// How much is missing from a full bucket, as of a moment.
#[derive(Default)]
struct Bucket {
    missing: f64,
    at: Option<Instant>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverLimit {
    /// What there is too much of.
    pub(crate) what: &'static str,
    /// The limit.
    pub(crate) limit: u32,
    /// When to come again, in whole seconds; at least one.
    pub(crate) retry_after_s: u64,
}

impl Quotas {
    /// Counts a request of `name` at `now`, if its limits allow one more. Its
    /// [`leave`](Self::leave) must follow.
    pub(crate) fn enter(
        &self,
        name: &Arc<str>,
        limits: KeyLimits,
        now: Instant,
    ) -> Result<(), OverLimit> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let used = used.entry(Arc::clone(name)).or_default();
        if let Some(limit) = limits.running.filter(|&limit| used.running >= limit) {
            return Err(OverLimit { what: "requests at the same time", limit, retry_after_s: 1 });
        }
        if let Some(limit) = limits.tokens {
            used.tokens.room(limit, 0.0, "tokens in a minute", now)?;
        }
        if let Some(limit) = limits.requests {
            used.requests.room(limit, 1.0, "requests in a minute", now)?;
            used.requests.missing += 1.0;
        }
        used.running += 1;
        Ok(())
    }

    /// Takes note that a request has ended, after so many tokens.
    pub(crate) fn leave(&self, name: &str, tokens: usize) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = used.get_mut(name) {
            used.running = used.running.saturating_sub(1);
            used.tokens.missing += tokens as f64;
        }
    }
}

impl Bucket {
    /// Whether `wanted` are there; a bucket is never asked for more than it holds.
    fn room(
        &mut self,
        limit: u32,
        wanted: f64,
        what: &'static str,
        now: Instant,
    ) -> Result<(), OverLimit> {
        let in_a_second = f64::from(limit) / 60.0;
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.missing = (self.missing - passed.as_secs_f64() * in_a_second).max(0.0);
        self.at = Some(now);
        let over = self.missing + wanted - f64::from(limit);
        // What is used up to the last has no room for a request of unknown size.
        if over < 0.0 || (over == 0.0 && wanted > 0.0) {
            return Ok(());
        }
        let retry_after_s = (over / in_a_second).ceil().max(1.0) as u64;
        Err(OverLimit { what, limit, retry_after_s })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits(requests: Option<u32>, tokens: Option<u32>, running: Option<u32>) -> KeyLimits {
        KeyLimits { requests, tokens, running }
    }

    #[test]
    fn running_requests_are_counted_until_they_leave() {
        let (quotas, name, now) = (Quotas::default(), Arc::from("a"), Instant::now());
        let two = limits(None, None, Some(2));
        assert!(quotas.enter(&name, two, now).is_ok() && quotas.enter(&name, two, now).is_ok());
        assert_eq!(quotas.enter(&name, two, now).unwrap_err().limit, 2);
        assert!(quotas.enter(&Arc::from("b"), two, now).is_ok(), "another name");
        quotas.leave(&name, 0);
        assert!(quotas.enter(&name, two, now).is_ok());
    }

    #[test]
    fn tokens_beyond_the_limit_are_made_good_by_time() {
        let (quotas, name, now) = (Quotas::default(), Arc::from("a"), Instant::now());
        let limits = limits(None, Some(600), None);
        quotas.enter(&name, limits, now).unwrap();
        quotas.leave(&name, 900);
        // 300 too many, of which ten come back in a second.
        assert_eq!(quotas.enter(&name, limits, now).unwrap_err().retry_after_s, 30);
        let later = |s| now + Duration::from_secs(s);
        assert!(quotas.enter(&name, limits, later(29)).is_err());
        assert!(quotas.enter(&name, limits, later(31)).is_ok());
    }

    proptest! {
        /// In any minute no more requests pass than two buckets hold: a full one, and what fills
        /// it meanwhile; and who comes again when it was told to, passes.
        #[test]
        fn requests_keep_to_their_rate(
            limit in 1u32..30,
            waits in prop::collection::vec(0u64..4000, 1..200),
        ) {
            let (quotas, name, begin) = (Quotas::default(), Arc::from("a"), Instant::now());
            let limits = limits(Some(limit), None, None);
            let (mut now, mut passed) = (begin, Vec::new());
            for wait in waits {
                now += Duration::from_millis(wait);
                match quotas.enter(&name, limits, now) {
                    Ok(()) => passed.push(now),
                    Err(over) => {
                        now += Duration::from_secs(over.retry_after_s);
                        prop_assert!(quotas.enter(&name, limits, now).is_ok());
                        passed.push(now);
                    }
                }
            }
            for (index, first) in passed.iter().enumerate() {
                let minute = passed[index..].iter();
                let count = minute.take_while(|at| **at - *first < Duration::from_secs(60)).count();
                prop_assert!(count as u32 <= 2 * limit, "{count} of {limit}");
            }
        }
    }
}
