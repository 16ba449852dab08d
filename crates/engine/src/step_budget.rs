//! How many prompt rows a step may have while answers are decoded, so that their next tokens do
//! not come late. What rows cost is measured as they are computed.

use std::time::Duration;

/// By default a step with prompt rows takes so many times as long as one without. One in a hundred
/// takes half as long again, which is still under four times.
pub const STEP_BUDGET_ORDINARY: f64 = 2.0;
/// Prompt rows of a step beside decoding, however long they take: a prompt always goes on.
const ROWS_MIN: usize = 4;
/// Prompt rows beside decoding before anything was measured; they at most double from step to
/// step.
const ROWS_FIRST: usize = 16;
/// A step without prompt rows is measured again after so many with them.
const STEPS_UNMEASURED_MAX: u32 = 64;
/// A shorter step moves what is taken for usual by this share of it at most, and a longer one by
/// half of it: what other programs held up says little.
const USUAL_MOVES: f64 = 1.0 / 32.0;
/// At each measured step, those before keep so much of their weight.
const WEIGHT_KEPT: f64 = 0.95;
/// Assumed depth, in positions, at which a row costs twice as much as at the beginning; it weighs
/// as little as one measured step.
const DOUBLE_DEPTH_GUESS: f64 = 2048.0;
/// Buckets of decode rows, by powers of two.
const BUCKETS: usize = 16;

/// The rows of a step, as far as its time depends on them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepRows {
    /// Answers that are decoded.
    pub(crate) decoded: usize,
    /// Other rows.
    pub(crate) prompt: usize,
    /// The positions of those, summed.
    pub(crate) prompt_depths: usize,
}

/// Measures steps and says what the next may hold.
#[derive(Debug)]
pub(crate) struct StepBudget {
    /// Of a step beside decoding; `None` is a multiple of one without prompt rows.
    limit: Option<Duration>,
    /// Prompt rows of a step at most.
    rows_max: usize,
    /// Seconds of a usual step without prompt rows, by the logarithm of its rows.
    ordinary: [Option<f64>; BUCKETS],
    cost: RowCost,
    /// Prompt rows of the last step beside decoding.
    last_rows: usize,
    /// Steps with prompt rows since one without.
    unmeasured: u32,
}

impl StepBudget {
    /// A budget that nothing was measured for. A `limit` of [`Duration::MAX`] is none.
    pub(crate) fn new(limit: Option<Duration>, rows_max: usize) -> Self {
        StepBudget {
            limit,
            rows_max,
            ordinary: [None; BUCKETS],
            cost: RowCost::default(),
            last_rows: ROWS_FIRST / 2,
            unmeasured: 0,
        }
    }

    /// Takes note of how long a step took.
    pub(crate) fn note(&mut self, rows: StepRows, took: Duration) {
        let took_s = took.as_secs_f64();
        if rows.prompt == 0 {
            self.unmeasured = 0;
            let usual = &mut self.ordinary[bucket(rows.decoded)];
            let most = usual.map_or(f64::INFINITY, |usual| usual * USUAL_MOVES);
            *usual = Some(
                usual.map_or(took_s, |usual| usual + (took_s - usual).clamp(-most, most / 2.0)),
            );
            return;
        }
        let mut extra_s = took_s;
        if rows.decoded > 0 {
            self.unmeasured += 1;
            self.last_rows = rows.prompt;
            // A step cannot be faster with more rows; where it seems so, it was measured badly.
            extra_s = (took_s - self.ordinary_s(rows.decoded)).max(took_s * 0.05);
        }
        self.cost.note(rows.prompt as f64, rows.prompt_depths as f64, extra_s);
    }

    /// Room for prompt rows beside `decoded` answers. It is empty now and then, so that a step
    /// without prompt rows is measured.
    pub(crate) fn room(&self, decoded: usize) -> Room {
        let unlimited = Room { rows: self.rows_max, budget_s: f64::INFINITY, cost: self.cost };
        if decoded == 0 || self.limit == Some(Duration::MAX) {
            return unlimited;
        }
        let known = self.ordinary[bucket(decoded)].is_some();
        if !known || self.unmeasured >= STEPS_UNMEASURED_MAX {
            return Room { rows: 0, ..unlimited };
        }
        let ordinary_s = self.ordinary_s(decoded);
        let limit_s = match self.limit {
            Some(limit) => limit.as_secs_f64(),
            None => STEP_BUDGET_ORDINARY * ordinary_s,
        };
        let rows = self.rows_max.min((2 * self.last_rows).max(ROWS_MIN));
        Room { rows, budget_s: (limit_s - ordinary_s).max(0.0), cost: self.cost }
    }

    /// Time of a step without prompt rows.
    fn ordinary_s(&self, decoded: usize) -> f64 {
        let bucket = bucket(decoded);
        let measured = (0..BUCKETS).filter_map(|other| Some((other, self.ordinary[other]?)));
        let nearest = measured.min_by_key(|(other, _)| other.abs_diff(bucket));
        nearest.map_or(0.0, |(_, usual_s)| usual_s)
    }
}

fn bucket(rows: usize) -> usize {
    (rows.max(1).next_power_of_two().ilog2() as usize).min(BUCKETS - 1)
}

/// Time of prompt rows: so much for each, and so much for each position before it. Both are
/// fitted to the measured steps by least squares of the relative errors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowCost {
    // Sums over steps: rows and depths, each divided by the step's time.
    rows_rows: f64,
    rows_depths: f64,
    depths_depths: f64,
    rows: f64,
    depths: f64,
}

impl RowCost {
    fn note(&mut self, rows: f64, depths: f64, took_s: f64) {
        let (rows, depths) = (rows / took_s.max(1e-9), depths / took_s.max(1e-9));
        let keep = |sum: &mut f64, value: f64| *sum = *sum * WEIGHT_KEPT + value;
        keep(&mut self.rows_rows, rows * rows);
        keep(&mut self.rows_depths, rows * depths);
        keep(&mut self.depths_depths, depths * depths);
        keep(&mut self.rows, rows);
        keep(&mut self.depths, depths);
    }

    /// Seconds of a row, and of a position before it; `None` before the first measured step.
    fn per_row_and_depth_s(&self) -> Option<(f64, f64)> {
        if self.rows_rows <= 0.0 {
            return None;
        }
        // The guess is another step: its row costs what all do on average, half of it for depth.
        let row_s = self.rows / self.rows_rows;
        let (rows, depths) = (0.5 / row_s, 0.5 * DOUBLE_DEPTH_GUESS / row_s);
        let rr = self.rows_rows + rows * rows;
        let rd = self.rows_depths + rows * depths;
        let dd = self.depths_depths + depths * depths;
        let (r, d) = (self.rows + rows, self.depths + depths);
        let determinant = rr * dd - rd * rd;
        let solved = ((r * dd - d * rd) / determinant, (d * rr - r * rd) / determinant);
        match solved {
            (row, depth) if row >= 0.0 && depth >= 0.0 => Some((row, depth)),
            (_, depth) if depth > 0.0 => Some((0.0, d / dd)),
            _ => Some((r / rr, 0.0)),
        }
    }

    /// How many rows from position `depth` on can be computed in `budget_s`.
    fn rows_within(&self, budget_s: f64, depth: usize) -> f64 {
        let Some((row_s, depth_s)) = self.per_row_and_depth_s() else { return f64::INFINITY };
        if budget_s.is_infinite() {
            return budget_s;
        }
        // n rows take n (row + depth · start) + depth · n² / 2.
        let linear = row_s + depth_s * depth as f64;
        if depth_s * budget_s <= 1e-9 * linear * linear {
            return budget_s / linear;
        }
        ((linear * linear + 2.0 * depth_s * budget_s).sqrt() - linear) / depth_s
    }

    fn seconds(&self, rows: usize, depth: usize) -> f64 {
        let (row_s, depth_s) = self.per_row_and_depth_s().unwrap_or_default();
        let rows = rows as f64;
        rows * (row_s + depth_s * (depth as f64 + rows / 2.0))
    }
}

/// What is left for prompt rows in a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    rows: usize,
    budget_s: f64,
    cost: RowCost,
}

impl Room {
    /// Room for so many rows, however long they take.
    #[cfg(test)]
    pub(crate) fn of_rows(rows: usize) -> Self {
        Room { rows, budget_s: f64::INFINITY, cost: RowCost::default() }
    }

    /// Whether it is too small to be shared.
    pub(crate) fn is_small(&self) -> bool {
        self.rows <= ROWS_MIN || self.cost.rows_within(self.budget_s, 0) <= ROWS_MIN as f64
    }

    /// Takes a share of the room for up to `wanted` rows from position `depth` on, and says for
    /// how many. The first taker gets some rows, whatever they cost.
    pub(crate) fn take(&mut self, share: f64, depth: usize, wanted: usize) -> usize {
        if self.rows == 0 {
            return 0;
        }
        let by_time = self.cost.rows_within(self.budget_s * share, depth);
        let by_rows = (self.rows as f64 * share).ceil();
        let least = ROWS_MIN.min(self.rows);
        let rows = wanted.min((by_time.min(by_rows) as usize).max(least));
        self.rows -= rows;
        if self.budget_s.is_finite() {
            self.budget_s -= self.cost.seconds(rows, depth);
            // Who comes later gets only what is left, and nothing of nothing.
            if self.budget_s <= 0.0 {
                self.rows = 0;
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine: 10 ms for a step, and for each prompt row 0.5 ms and 1 ms for 4,096 positions.
    fn took(rows: StepRows) -> Duration {
        let depths = rows.prompt_depths as f64;
        let ms = 10.0 + 0.5 * rows.prompt as f64 + depths / 4096.0;
        Duration::from_secs_f64(ms / 1e3)
    }

    fn step(budget: &mut StepBudget, decoded: usize, depth: usize) -> StepRows {
        let prompt = budget.room(decoded).take(1.0, depth, usize::MAX);
        let prompt_depths = (depth..depth + prompt).sum();
        let rows = StepRows { decoded, prompt, prompt_depths };
        budget.note(rows, took(rows));
        rows
    }

    #[test]
    fn a_step_keeps_to_its_multiple_at_every_depth() {
        let mut budget = StepBudget::new(None, 256);
        let (mut depth, mut steps) = (0, Vec::new());
        while depth < 6000 {
            let rows = step(&mut budget, 4, depth);
            depth += rows.prompt;
            steps.push((rows.prompt, took(rows).as_secs_f64() * 1e3));
        }
        assert_eq!(steps[0].0, 0, "an ordinary step is measured first");
        assert!(steps.iter().all(|&(_, ms)| ms < 30.0), "{steps:?}");
        let full = steps[10..].iter().filter(|&&(rows, _)| rows > 0);
        assert!(full.clone().all(|&(_, ms)| ms > 16.0 && ms < 23.0), "{steps:?}");
        assert!(steps.len() < 900, "{} steps", steps.len());
    }

    #[test]
    fn a_budget_in_time_is_kept_and_a_prompt_goes_on_without_one() {
        let mut budget = StepBudget::new(Some(Duration::from_millis(60)), 256);
        let last = (0..50).map(|_| step(&mut budget, 4, 100)).last().unwrap();
        assert!((90..=100).contains(&last.prompt), "{last:?}");
        let mut budget = StepBudget::new(Some(Duration::from_millis(1)), 256);
        let last = (0..50).map(|_| step(&mut budget, 4, 100)).last().unwrap();
        assert_eq!(last.prompt, ROWS_MIN);
    }

    #[test]
    fn with_nobody_decoding_chunks_are_whole() {
        let mut budget = StepBudget::new(None, 256);
        for _ in 0..10 {
            assert_eq!(step(&mut budget, 0, 0).prompt, 256);
        }
        let mut unlimited = StepBudget::new(Some(Duration::MAX), 256);
        assert_eq!(step(&mut unlimited, 4, 0).prompt, 256);
    }

    #[test]
    fn ordinary_steps_are_measured_now_and_then() {
        let mut budget = StepBudget::new(None, 256);
        let steps = (0..200).map(|_| step(&mut budget, 4, 100)).filter(|rows| rows.prompt == 0);
        assert!((3..=5).contains(&steps.count()));
    }
}
