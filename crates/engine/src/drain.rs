//! How fast a queue drains, measured.

use std::time::Duration;

/// At each request's end, what was noted before keeps so much of its weight: the last twenty
/// requests make most of the mean.
const WEIGHT_KEPT: f64 = 0.95;
/// Assumed of a place to run before a request has ended, in seconds per request.
const PLACE_S_GUESS: f64 = 1.0;
/// Longest wait that a caller is told, in seconds.
const RETRY_AFTER_S_MAX: f64 = 60.0;

/// Time in which the engine computed, per request that ended. Requests that run together
/// share that time, and time without work does not count, so that its inverse is the
/// throughput of an engine with a queue.
#[derive(Debug, Default)]
pub(crate) struct DrainRate {
    busy_s: f64,
    ended: f64,
    /// Time since a request ended last, not yet in `busy_s`.
    since_s: f64,
}

impl DrainRate {
    /// Takes note of a step, and of how many requests ended with it.
    pub(crate) fn note(&mut self, step: Duration, ended: usize) {
        self.since_s += step.as_secs_f64();
        if ended > 0 {
            let kept = WEIGHT_KEPT.powf(ended as f64);
            self.busy_s = self.busy_s * kept + std::mem::take(&mut self.since_s);
            self.ended = self.ended * kept + ended as f64;
        }
    }

    /// Seconds per request; `None` before the first ended.
    pub(crate) fn request_s(&self) -> Option<f64> {
        // As if one ended now, if that is more: long requests are noticed while they run.
        let now = (self.busy_s + self.since_s) / (self.ended + 1.0);
        (self.ended > 0.0).then(|| now.max(self.busy_s / self.ended))
    }
}

/// When a caller whom a full queue refused should come again, in whole seconds from 1 to 60:
/// when half of the `waiting` requests will have left the queue. A place is free as soon as
/// one has; but where many were refused, all would come back for that one place.
pub(crate) fn retry_after_s(request_s: Option<f64>, waiting: usize, places: usize) -> u64 {
    let request_s = request_s.unwrap_or(PLACE_S_GUESS / places.max(1) as f64);
    let leaving = (waiting as f64 / 2.0).max(1.0);
    (request_s * leaving).ceil().clamp(1.0, RETRY_AFTER_S_MAX) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rate after `requests` that ended one by one, each after `steps` of 10 ms.
    fn measured(rate: &mut DrainRate, requests: usize, steps: usize) {
        for _ in 0..requests {
            for step in 1..=steps {
                rate.note(Duration::from_millis(10), usize::from(step == steps));
            }
        }
    }

    #[test]
    fn the_wait_is_half_the_queue_at_the_measured_throughput() {
        let mut rate = DrainRate::default();
        measured(&mut rate, 100, 5);
        let request_s = rate.request_s().unwrap();
        assert!((0.045..0.055).contains(&request_s), "{request_s}");
        // 256 waiting requests drain in 12.8 s.
        assert!((6..=7).contains(&retry_after_s(rate.request_s(), 256, 16)));
        assert_eq!(retry_after_s(rate.request_s(), 0, 16), 1);
        // 16 at a time, in 10 times the time.
        for _ in 0..10 {
            for step in 1..=50 {
                rate.note(Duration::from_millis(10), if step == 50 { 16 } else { 0 });
            }
        }
        let request_s = rate.request_s().unwrap();
        assert!((0.025..0.04).contains(&request_s), "{request_s}");
    }

    #[test]
    fn slower_requests_are_noticed_within_twenty() {
        let mut rate = DrainRate::default();
        measured(&mut rate, 1000, 1);
        measured(&mut rate, 20, 100);
        let request_s = rate.request_s().unwrap();
        assert!((0.5..1.0).contains(&request_s), "{request_s}");
    }

    #[test]
    fn a_wait_is_between_a_second_and_a_minute() {
        assert_eq!(DrainRate::default().request_s(), None);
        assert_eq!(retry_after_s(None, 256, 16), 8);
        assert_eq!(retry_after_s(Some(30.0), 256, 1), 60);
        assert_eq!(retry_after_s(Some(f64::MIN_POSITIVE), 1, 1), 1);
    }
}
