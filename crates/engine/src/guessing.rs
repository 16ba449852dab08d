//! Adds guessed rows to a step.

use std::time::Duration;

use cache::Timestamp;

use crate::kv_memory::{By, KvMemory};
use crate::random;
use crate::running::{Choice, Running};
use crate::speculation::{GUESSED_MAX, HELD_MAX};
use crate::speculation_worth::StepTimes;
use crate::step::Part;

/// Whether tokens are guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speculation {
    Off,
    /// Where it pays.
    Adaptive,
    /// In every step, right or wrong, for checks.
    Forced,
}

/// Decides which guesses are computed.
#[derive(Debug)]
pub(crate) struct Guessing {
    pub(crate) speculation: Speculation,
    times: StepTimes,
}

impl Guessing {
    /// Before anything was measured.
    pub(crate) fn new(speculation: Speculation) -> Self {
        Guessing { speculation, times: StepTimes::default() }
    }

    /// Takes note of how long a step without prompt rows took.
    pub(crate) fn note(&mut self, rows: usize, took: Duration) {
        self.times.note(rows, took);
    }

    /// Gives the parts of a step their guessed rows. It gets none as long as a prompt is to be
    /// computed, which can use all the rows that a step has time for. Pages are taken only where
    /// the prompt cache can give them: nobody is preempted for a guess.
    pub(crate) fn guess(
        &mut self,
        plan: &mut [Part],
        running: &mut [Running],
        (memory, prompt_cache): (&mut KvMemory, bool),
        now: Timestamp,
    ) {
        let forced = self.speculation == Speculation::Forced;
        if self.speculation == Speculation::Off || !forced && is_prompt_left(running) {
            return;
        }
        let mut chances = Vec::with_capacity(plan.len());
        for part in plan.iter() {
            let running = &mut running[part.running];
            chances.push(match part.prefill {
                true => Vec::new(),
                false => self.propose(running, part.choice, memory, prompt_cache),
            });
        }
        let counts = match forced {
            true => chances.iter().map(Vec::len).collect(),
            false => self.times.worth(plan.len(), &chances),
        };
        for (part, count) in plan.iter_mut().zip(counts).filter(|(_, count)| *count > 0) {
            let Running { request, choices, .. } = &mut running[part.running];
            let Choice { sequence, guesses, .. } = &mut choices[part.choice];
            let by = By::of(request, now);
            if sequence.make_room(part.rows() + count, memory, by).is_ok() {
                part.guessed = guesses.tokens()[..count].to_vec();
            }
        }
    }

    /// Lets a choice think of its next tokens; returns their chances.
    fn propose(
        &self,
        running: &mut Running,
        choice: usize,
        memory: &KvMemory,
        prompt_cache: bool,
    ) -> Vec<f64> {
        let Running { request, choices, answer_tokens, .. } = running;
        let Choice { sequence, guesses, drawn, .. } = &mut choices[choice];
        // After the last guess a token is drawn too.
        let most = GUESSED_MAX.min(answer_tokens.saturating_sub(*drawn + 1));
        let cached = request.use_cache && prompt_cache;
        guesses.propose(sequence.tokens(), most, |tokens| match cached {
            true => memory.cache().continuation(&request.namespace, tokens, HELD_MAX),
            false => Vec::new(),
        });
        if self.speculation == Speculation::Forced && most > 0 {
            let length = sequence.tokens().len();
            let pick = |below: usize| (random::uniform(3, below, length) * below as f64) as usize;
            guesses.spoil(sequence.tokens(), most, pick);
        }
        guesses.chances().collect()
    }
}

/// Whether an answer has more tokens to be computed than the one drawn last.
fn is_prompt_left(running: &[Running]) -> bool {
    let mut open = running.iter().flat_map(Running::open_choices);
    open.any(|(_, choice)| choice.sequence.is_attached() && choice.sequence.pending() > 1)
}
