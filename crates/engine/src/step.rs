//! A step: successive rows of some choices, computed together.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kernels::KvStore;

use crate::model::{Batch, Model};
use crate::request::EngineError;
use crate::running::Running;
use crate::step_budget::StepRows;
use crate::taps::NoTaps;

/// Part of a step: successive rows of one choice.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Place among the running requests.
    pub(crate) running: usize,
    pub(crate) choice: usize,
    pub(crate) positions: Range<usize>,
    /// Those rows whose logits are wanted, at the end of `positions`.
    pub(crate) logits: Range<usize>,
    /// Whether tokens are computed that were not just drawn.
    pub(crate) prefill: bool,
    /// Tokens that may come after `positions`; the logits of their rows are wanted too.
    pub(crate) guessed: Vec<u32>,
}

impl Part {
    /// The next `rows` rows of a choice.
    pub(crate) fn new(running: &Running, index: usize, choice: usize, rows: usize) -> Self {
        let sequence = &running.choices[choice].sequence;
        let (start, end) = (sequence.computed(), sequence.computed() + rows);
        let logits = if running.wants_prompt_rows() {
            // Rows that a preemption took back were handed out before.
            start.max(running.prompt_logprobs.len()).min(end)..end
        } else if end == sequence.tokens().len() {
            end - 1..end
        } else {
            end..end
        };
        let prefill = sequence.pending() > 1;
        let guessed = Vec::new();
        Part { running: index, choice, positions: start..end, logits, prefill, guessed }
    }

    /// All its rows.
    pub(crate) fn rows(&self) -> usize {
        self.positions.len() + self.guessed.len()
    }
}

/// The rows of a step without those of guesses.
pub(crate) fn rows(plan: &[Part]) -> StepRows {
    let mut rows = StepRows::default();
    for part in plan {
        if part.prefill {
            rows.prompt += part.positions.len();
            rows.prompt_depths += part.positions.clone().sum::<usize>();
        } else {
            rows.decoded += 1;
        }
    }
    rows
}

/// What an observer is shown of a step.
pub(crate) enum Seen<'a> {
    /// The rows that are computed together.
    Step(&'a [Rows<'a>]),
    /// The logits that a token is drawn from.
    Logits { request: &'a str, logits: &'a [f32] },
}

/// Rows of one choice in a step.
pub(crate) struct Rows<'a> {
    pub(crate) request: &'a str,
    pub(crate) positions: Range<usize>,
}

/// Looks at steps from outside; changes nothing.
pub(crate) type Observer<'o> = dyn FnMut(Seen<'_>) + 'o;

/// Shows the observer what is about to be computed.
pub(crate) fn show(plan: &[Part], running: &[Running], observer: &mut Observer<'_>) {
    let rows = |part: &Part| {
        let start = part.positions.start;
        (&running[part.running].request.id, start..start + part.rows())
    };
    let rows: Vec<Rows<'_>> =
        plan.iter().map(rows).map(|(request, positions)| Rows { request, positions }).collect();
    observer(Seen::Step(&rows));
}

/// Computes a step's rows. A panic is caught like an error: the rows may be wrong, but the
/// next step overwrites whatever scratch it left.
pub(crate) fn forward<'m>(
    model: &'m mut Model,
    store: &mut KvStore,
    running: &[Running],
    plan: &[Part],
) -> Result<&'m [f32], EngineError> {
    let rows = plan.iter().map(Part::rows).sum();
    let mut tokens = Vec::with_capacity(rows);
    let mut places = Vec::with_capacity(rows);
    let mut logit_rows = Vec::with_capacity(plan.len());
    for part in plan {
        let sequence = &running[part.running].choices[part.choice].sequence;
        for position in part.positions.clone() {
            if part.logits.contains(&position) {
                logit_rows.push(tokens.len());
            }
            tokens.push(sequence.tokens()[position]);
            places.push(sequence.place(position));
        }
        for (&guessed, position) in part.guessed.iter().zip(part.positions.end..) {
            logit_rows.push(tokens.len());
            tokens.push(guessed);
            places.push(sequence.place(position));
        }
    }
    let batch = Batch { tokens: &tokens, places: &places, logit_rows: &logit_rows };
    let logits = catch(move || model.forward(store, &batch, &mut NoTaps))
        .ok_or_else(|| EngineError::Step("a kernel panicked".to_string()))?;
    logits.map_err(|error| EngineError::Step(error.to_string()))
}

/// What `step` returns, or `None` if it panics.
fn catch<R>(step: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(step)).ok()
}
