//! How many guessed rows a step is worth: what rows cost is measured, what they bring is known from
//! how often guesses were right.

use std::time::Duration;

/// Rows of a step that has guessed ones, at most; bounds the memory of their logits too.
pub(crate) const ROWS_MAX: usize = 64;
/// A row more than was measured is taken to cost this share of what was. Eight rows cost little
/// more than one as long as reading the weights is what takes the time.
const ROW_COST_GUESS: f64 = 1.0 / 32.0;
/// A step with guessed rows must promise so many times the tokens per second of one without.
const GAIN_MIN: f64 = 1.05;
/// A longer step moves what is taken for usual by this share of it at most: what other programs
/// held up says little. A shorter one moves it half of the way.
const USUAL_RISE_MAX: f64 = 1.0 / 16.0;
/// After so many steps in which likely guesses seemed too costly, they are measured anew.
const STEPS_UNMEASURED_MAX: u32 = 64;
/// A guess is likely from this probability on.
const LIKELY: f64 = 0.5;

/// The usual time of steps without prompt rows, by their rows.
#[derive(Debug)]
pub(crate) struct StepTimes {
    /// Seconds; the first is of one row.
    usual_s: [Option<f64>; ROWS_MAX],
    unmeasured: u32,
}

impl Default for StepTimes {
    fn default() -> Self {
        StepTimes { usual_s: [None; ROWS_MAX], unmeasured: 0 }
    }
}

impl StepTimes {
    /// Takes note of how long a step of so many rows took.
    pub(crate) fn note(&mut self, rows: usize, took: Duration) {
        let Some(usual_s) = rows.checked_sub(1).and_then(|at| self.usual_s.get_mut(at)) else {
            return;
        };
        let took_s = took.as_secs_f64();
        *usual_s = Some(usual_s.map_or(took_s, |usual| match took_s < usual {
            true => (usual + took_s) / 2.0,
            false => took_s.min(usual * (1.0 + USUAL_RISE_MAX)),
        }));
    }

    /// The time of a step, in seconds or, before anything was measured, in a unit of its own.
    fn usual_s(&self, rows: usize) -> f64 {
        let at = rows - 1;
        let measured = |at: usize| self.usual_s[at].map(|usual_s| (at, usual_s));
        let below = (0..=at).rev().find_map(measured);
        let above = (at..ROWS_MAX).find_map(measured);
        let more = |rows: usize| 1.0 + ROW_COST_GUESS * rows as f64;
        let usual_s = match (below, above) {
            (Some((low, below)), Some((high, above))) if high > low => {
                let part = (at - low) as f64 / (high - low) as f64;
                below + (above - below) * part
            }
            (Some((low, below)), _) => below * more(at - low),
            (None, Some((high, above))) => above / more(high - at),
            (None, None) => more(at),
        };
        // Fewer rows never take longer than more; where it seems so, they were measured badly.
        self.usual_s[at..].iter().flatten().copied().fold(usual_s, f64::min)
    }

    /// How many guessed rows of each answer to compute beside `decoded` others. `chances` has, for
    /// each answer, how probable it is that a guess and all before it are right; they fall.
    pub(crate) fn worth(&mut self, decoded: usize, chances: &[Vec<f64>]) -> Vec<usize> {
        let mut counts = vec![0; chances.len()];
        if decoded == 0 || decoded >= ROWS_MAX {
            return counts;
        }
        let answers = chances.iter().enumerate();
        let mut rows: Vec<(f64, usize)> =
            answers.flat_map(|(at, chances)| chances.iter().map(move |&it| (it, at))).collect();
        // Stable, so that an answer's rows stay in order.
        rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        rows.truncate(ROWS_MAX - decoded);
        let likely = rows.iter().filter(|(chance, _)| *chance >= LIKELY).count();
        let mut best = self.most_worth(decoded, &rows);
        if best > 0 || likely == 0 {
            self.unmeasured = 0;
        } else {
            self.unmeasured += 1;
            if self.unmeasured >= STEPS_UNMEASURED_MAX {
                (self.unmeasured, best) = (0, likely);
            }
        }
        rows[..best].iter().for_each(|&(_, at)| counts[at] += 1);
        counts
    }

    /// How many of the rows bring most tokens per second.
    fn most_worth(&self, decoded: usize, rows: &[(f64, usize)]) -> usize {
        let mut tokens = decoded as f64;
        let (mut best, mut best_rate) = (0, tokens / self.usual_s(decoded) * GAIN_MIN);
        for (index, (chance, _)) in rows.iter().enumerate() {
            tokens += chance;
            let rate = tokens / self.usual_s(decoded + index + 1);
            if rate > best_rate {
                (best, best_rate) = (index + 1, rate);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    /// A machine on which a row more costs so much of the first.
    fn measured(row_cost: f64) -> StepTimes {
        let mut times = StepTimes::default();
        for rows in [1, 2, 3, 5, 9, 16, 32, 64] {
            times.note(rows, ms(10.0 * (1.0 + row_cost * (rows - 1) as f64)));
        }
        times
    }

    #[test]
    fn likely_guesses_are_worth_cheap_rows_and_unlikely_ones_are_not() {
        let copied: Vec<f64> = (1..=8).map(|n| 0.95f64.powi(n)).collect();
        let rare: Vec<f64> = (1..=8).map(|n| 0.02f64.powi(n)).collect();
        let one = [copied.clone()];
        assert_eq!(measured(0.03).worth(2, &[copied.clone(), rare]), [8, 0]);
        assert_eq!(measured(1.0).worth(1, &one), [0]);
        assert_eq!(StepTimes::default().worth(1, &one), [8], "before a measurement");
        assert_eq!(measured(0.03).worth(64, &one), [0], "beside many others");
        let counts = measured(0.03).worth(60, &vec![copied; 60]);
        assert!(counts.iter().sum::<usize>() <= 4);
    }

    #[test]
    fn a_row_is_worth_it_when_its_chance_is_above_its_cost() {
        for (row_cost, chance, expected) in
            [(0.05, 0.08, 0), (0.05, 0.15, 1), (0.2, 0.15, 0), (0.2, 0.3, 1)]
        {
            assert_eq!(measured(row_cost).worth(1, &[vec![chance]]), [expected], "{row_cost}");
        }
    }

    #[test]
    fn a_wrong_measurement_is_forgotten() {
        let mut times = measured(0.03);
        for rows in 2..=ROWS_MAX {
            (0..300).for_each(|_| times.note(rows, ms(1e4)));
        }
        let sure = vec![vec![1.0; 8]];
        let mut refused = 0;
        for _ in 0..2000 {
            let count = times.worth(1, &sure)[0];
            refused += usize::from(count == 0);
            times.note(1 + count, ms(10.0 + 0.3 * count as f64));
        }
        assert!(times.worth(1, &sure)[0] >= 4, "{times:?}");
        assert!(refused > STEPS_UNMEASURED_MAX as usize && refused < 1900, "{refused}");
    }
}
