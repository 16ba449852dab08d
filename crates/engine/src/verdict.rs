//! What a verdict's stop cost, which takes a clock.

use std::time::Duration;

use cache::Verdict;

/// This server's measured prefill time per token: recent steps weigh more, larger steps
/// weigh by their rows.
#[derive(Debug, Default)]
pub(crate) struct PrefillRate {
    rows: f64,
    time_ms: f64,
}

/// So many rows are remembered at full weight before older ones fade.
const ROWS_REMEMBERED: f64 = 4096.0;

impl PrefillRate {
    /// Takes note of a step's prefill rows.
    pub(crate) fn note(&mut self, rows: usize, took: Duration) {
        self.rows += rows as f64;
        self.time_ms += took.as_secs_f64() * 1e3;
        if self.rows > ROWS_REMEMBERED {
            self.rows /= 2.0;
            self.time_ms /= 2.0;
        }
    }

    /// Milliseconds for each; `None` before the first.
    pub(crate) fn ms_per_token(&self) -> Option<f64> {
        (self.rows > 0.0).then(|| self.time_ms / self.rows)
    }

    /// What the verdict's stop cost: the tokens that it lost, at this rate. `None` where that is
    /// not known.
    pub(crate) fn lost_ms(&self, verdict: &Verdict) -> Option<f64> {
        match verdict.lost_tokens()? {
            0 => Some(0.0),
            tokens => Some(tokens as f64 * self.ms_per_token()?),
        }
    }
}

#[cfg(test)]
mod tests {
    use cache::Reason;

    use super::*;

    #[test]
    fn lost_time_is_tokens_times_the_measured_rate_or_not_known() {
        let mut rate = PrefillRate::default();
        let mut verdict = Verdict::disabled_by_request(24);
        assert_eq!(rate.lost_ms(&verdict), None);
        verdict.stop.reason = Reason::DifferentToken;
        verdict.stop.identical_after = Some(3);
        assert_eq!(rate.lost_ms(&verdict), None);
        rate.note(4, Duration::from_millis(8));
        assert_eq!(rate.lost_ms(&verdict), Some(6.0));
        verdict.stop.reason = Reason::Evicted;
        verdict.stop.held_tokens = Some(40);
        verdict.stop.at = 16;
        assert_eq!(rate.lost_ms(&verdict), Some(14.0));
        verdict.stop.reason = Reason::EndOfCached;
        assert_eq!(rate.lost_ms(&verdict), Some(0.0));
    }
}
