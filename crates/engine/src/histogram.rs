//! Counts of times by their length.

/// So many times of each length, as Prometheus's histograms have them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    bounds_s: &'static [f64],
    /// One more than there are bounds: the last is of those beyond.
    counts: Vec<u64>,
    sum_s: f64,
}

impl Histogram {
    /// Lengths in which pages live: from a second to a week.
    pub const LIVES_S: &'static [f64] =
        &[1.0, 10.0, 60.0, 300.0, 1_800.0, 3_600.0, 21_600.0, 86_400.0, 259_200.0, 604_800.0];
    /// Lengths in which pages are read: from a millisecond to ten seconds.
    pub const READS_S: &'static [f64] =
        &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

    /// Nothing counted yet; the bounds, in seconds, grow.
    pub fn new(bounds_s: &'static [f64]) -> Self {
        Self { bounds_s, counts: vec![0; bounds_s.len() + 1], sum_s: 0.0 }
    }

    /// Counts a time in seconds; with its bucket's bound, if it equals that.
    pub fn count(&mut self, time_s: f64) {
        let bucket = self.bounds_s.partition_point(|&bound| bound < time_s);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
            self.sum_s += time_s;
        }
    }

    /// For each bound, in seconds, how many times are no longer than that; the last is infinity,
    /// and all.
    pub fn at_most(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds_s.iter().copied().chain([f64::INFINITY]);
        let mut sum = 0;
        bounds.zip(&self.counts).map(move |(bound, count)| {
            sum += count;
            (bound, sum)
        })
    }

    /// The sum of all times, in seconds.
    pub fn sum_s(&self) -> f64 {
        self.sum_s
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_time_is_within_its_bounds(times in prop::collection::vec(0.0_f64..1e6, 0..50)) {
            let mut histogram = Histogram::new(Histogram::LIVES_S);
            times.iter().for_each(|&time| histogram.count(time));
            for (bound, count) in histogram.at_most() {
                let wanted = times.iter().filter(|&&time| time <= bound).count();
                prop_assert_eq!(count, wanted as u64);
            }
            prop_assert_eq!(histogram.at_most().count(), Histogram::LIVES_S.len() + 1);
            prop_assert!((histogram.sum_s() - times.iter().sum::<f64>()).abs() < 1e-3);
        }
    }
}
