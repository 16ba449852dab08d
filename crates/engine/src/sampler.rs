//! From a row of logits to a token.
//!
//! All sums are f64 in one fixed order, and a draw is keyed by (seed, choice, position), so
//! that equal logits give equal tokens whatever else the engine does. Nothing here panics
//! on NaN or infinity: NaN is never taken, and +∞ counts as the largest f32.

use std::cmp::Ordering;

use grammar::{Constraint, Failure};

use crate::random;
use crate::request::{LOGPROB_NEVER, Request, Sampling};

/// What one choice has drawn so far, as far as drawing depends on it.
#[derive(Clone, Debug)]
pub(crate) struct ChoiceState {
    seed: u64,
    choice: usize,
    history: Option<History>,
    constraint: Option<Constraint>,
}

impl ChoiceState {
    /// The state before the first token. `seed` was resolved once for the whole request.
    pub(crate) fn new(request: &Request, seed: u64, choice: usize, vocab: usize) -> Self {
        let Request { sampling, prompt, constraint, .. } = request;
        let penalized = sampling.repetition_penalty != 1.0
            || sampling.presence_penalty != 0.0
            || sampling.frequency_penalty != 0.0;
        let history = penalized.then(|| History::new(prompt, vocab));
        ChoiceState { seed, choice, history, constraint: constraint.clone() }
    }

    /// Takes note of a token that became part of the answer.
    fn accept(&mut self, token: u32) -> Result<(), Failure> {
        if let Some(history) = &mut self.history {
            history.note(token, true);
        }
        self.constraint.as_mut().map_or(Ok(()), |constraint| constraint.advance(token))
    }
}

/// Which tokens occurred, and how often in the answer.
#[derive(Clone, Debug)]
struct History {
    /// Each token that occurred, once.
    tokens: Vec<u32>,
    /// By id: 0 if the token never occurred, otherwise 1 + its count in the answer.
    marks: Vec<u32>,
}

impl History {
    fn new(prompt: &[u32], vocab: usize) -> Self {
        let mut history = History { tokens: Vec::new(), marks: vec![0; vocab] };
        for &token in prompt {
            history.note(token, false);
        }
        history
    }

    fn note(&mut self, token: u32, answer: bool) {
        let Some(mark) = self.marks.get_mut(token as usize) else { return };
        if *mark == 0 {
            *mark = 1;
            self.tokens.push(token);
        }
        *mark = mark.saturating_add(u32::from(answer));
    }

    fn penalize(&self, sampling: &Sampling, logits: &mut [f32]) {
        for &token in &self.tokens {
            let Some(logit) = logits.get_mut(token as usize) else { continue };
            let penalty = sampling.repetition_penalty;
            let mut value = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            let count = self.marks[token as usize] - 1;
            if count > 0 {
                value -= sampling.presence_penalty + sampling.frequency_penalty * count as f32;
            }
            *logit = tame(value);
        }
    }
}

/// Draws tokens; owns the scratch that a draw needs, so that decoding does not allocate.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    adjusted: Vec<f32>,
    weights: Vec<f64>,
    ranked: Vec<Ranked>,
}

#[derive(Clone, Copy, Debug)]
struct Ranked {
    logit: f32,
    id: u32,
}

/// Higher logits first, then lower ids: a total order, NaN having been removed.
fn by_rank(a: &Ranked, b: &Ranked) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

impl Sampler {
    /// The token for `position` (the number of tokens before it) from a row of logits, which
    /// becomes part of the answer.
    ///
    /// # Errors
    /// Where the choice's constraint lets none follow.
    pub(crate) fn sample(
        &mut self,
        logits: &[f32],
        sampling: &Sampling,
        state: &mut ChoiceState,
        position: usize,
    ) -> Result<u32, Failure> {
        let token = self.draw_token(logits, sampling, state, position)?;
        state.accept(token)?;
        Ok(token)
    }

    fn draw_token(
        &mut self,
        logits: &[f32],
        sampling: &Sampling,
        state: &mut ChoiceState,
        position: usize,
    ) -> Result<u32, Failure> {
        let plain =
            state.history.is_none() && state.constraint.is_none() && sampling.logit_bias.is_empty();
        if plain && sampling.temperature == 0.0 {
            return Ok(argmax(logits));
        }
        self.adjust(logits, sampling, state)?;
        let best = argmax(&self.adjusted);
        let peak = self.adjusted.get(best as usize).copied().unwrap_or(f32::NEG_INFINITY);
        if sampling.temperature == 0.0 || peak == f32::NEG_INFINITY {
            return Ok(best);
        }
        let uniform = random::uniform(state.seed, state.choice, position);
        let heat = Heat { peak: f64::from(peak), temperature: f64::from(sampling.temperature) };
        let drawn = if sampling.top_k == 0 && sampling.top_p >= 1.0 {
            self.draw_unranked(heat, sampling.min_p, uniform)
        } else {
            self.draw_ranked(heat, sampling, uniform)
        };
        Ok(drawn.unwrap_or(best))
    }

    /// Fills `adjusted`: the logits without NaN and +∞, with penalties and bias, of those tokens
    /// that may follow.
    fn adjust(
        &mut self,
        logits: &[f32],
        sampling: &Sampling,
        state: &mut ChoiceState,
    ) -> Result<(), Failure> {
        self.adjusted.clear();
        self.adjusted.extend(logits.iter().map(|&logit| tame(logit)));
        if let Some(history) = &state.history {
            history.penalize(sampling, &mut self.adjusted);
        }
        for &(id, bias) in &sampling.logit_bias {
            if let Some(logit) = self.adjusted.get_mut(id as usize) {
                *logit = tame(*logit + bias);
            }
        }
        if let Some(constraint) = &mut state.constraint {
            keep_allowed(&mut self.adjusted, constraint.allowed()?.words());
        }
        Ok(())
    }

    /// A draw over the whole vocabulary in the order of the ids: no sorting needed.
    fn draw_unranked(&mut self, heat: Heat, min_p: f32, uniform: f64) -> Option<u32> {
        let floor = f64::from(min_p);
        self.weights.clear();
        self.weights.extend(self.adjusted.iter().map(|&logit| {
            let weight = heat.weight(logit);
            if weight >= floor { weight } else { 0.0 }
        }));
        draw(&self.weights, uniform).map(|id| id as u32)
    }

    /// A draw over the likeliest tokens, best first.
    fn draw_ranked(&mut self, heat: Heat, sampling: &Sampling, uniform: f64) -> Option<u32> {
        self.ranked.clear();
        let tokens = self.adjusted.iter().zip(0..);
        self.ranked.extend(tokens.map(|(&logit, id)| Ranked { logit, id }));
        if sampling.top_k > 0 && sampling.top_k < self.ranked.len() {
            self.ranked.select_nth_unstable_by(sampling.top_k - 1, by_rank);
            self.ranked.truncate(sampling.top_k);
            self.ranked.sort_unstable_by(by_rank);
        }
        if sampling.top_p < 1.0 {
            self.keep_top_p(heat, f64::from(sampling.top_p));
        } else {
            self.ranked.sort_unstable_by(by_rank);
        }
        let floor = f64::from(sampling.min_p);
        self.weights.clear();
        let weights = self.ranked.iter().map(|ranked| heat.weight(ranked.logit));
        self.weights.extend(weights.take_while(|&weight| weight >= floor));
        draw(&self.weights, uniform).map(|index| self.ranked[index].id)
    }

    /// Keeps the shortest sorted prefix of `ranked` that holds `top_p` of the weight. Only
    /// as much as is needed is sorted, since usually a few hundred tokens hold nearly all.
    fn keep_top_p(&mut self, heat: Heat, top_p: f64) {
        let total: f64 = self.ranked.iter().map(|ranked| heat.weight(ranked.logit)).sum();
        let mut sorted = 0;
        let mut reached = 0.0;
        while sorted < self.ranked.len() {
            let rest = &mut self.ranked[sorted..];
            let next = (sorted * 7).max(128).min(rest.len());
            if next < rest.len() {
                rest.select_nth_unstable_by(next - 1, by_rank);
            }
            rest[..next].sort_unstable_by(by_rank);
            for (index, ranked) in rest[..next].iter().enumerate() {
                reached += heat.weight(ranked.logit);
                if reached >= top_p * total {
                    self.ranked.truncate(sorted + index + 1);
                    return;
                }
            }
            sorted += next;
        }
    }
}

/// Leaves logits as they are whose bits are set, 32 to a word, and no others.
fn keep_allowed(logits: &mut [f32], words: &[u32]) {
    let words = words.iter().copied().chain(std::iter::repeat(0));
    for (logits, word) in logits.chunks_mut(32).zip(words) {
        for (bit, logit) in logits.iter_mut().enumerate() {
            if word >> bit & 1 == 0 {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

/// What turns a logit into a weight relative to the likeliest token.
#[derive(Clone, Copy)]
struct Heat {
    peak: f64,
    temperature: f64,
}

impl Heat {
    /// exp((logit − peak) / temperature), in [0, 1].
    fn weight(self, logit: f32) -> f64 {
        exp_nonpositive((f64::from(logit) - self.peak) / self.temperature)
    }
}

/// The index whose share of the summed weights `uniform` falls into; `None` if all are
/// zero.
fn draw(weights: &[f64], uniform: f64) -> Option<usize> {
    let target = uniform * weights.iter().sum::<f64>();
    let mut reached = 0.0;
    let mut last = None;
    for (index, &weight) in weights.iter().enumerate() {
        if weight > 0.0 {
            reached += weight;
            last = Some(index);
            if reached > target {
                break;
            }
        }
    }
    last
}

/// NaN becomes −∞, which is never drawn, and +∞ the largest finite number.
fn tame(logit: f32) -> f32 {
    if logit.is_nan() { f32::NEG_INFINITY } else { logit.min(f32::MAX) }
}

/// Whether a token can be drawn from a row of logits: none is NaN, and one at least is finite.
pub(crate) fn are_numbers(logits: &[f32]) -> bool {
    // Without an early end, so that the compiler makes vector code of it.
    let (nan, finite) = logits.iter().fold((false, false), |(nan, finite), logit| {
        (nan | logit.is_nan(), finite | logit.is_finite())
    });
    finite && !nan
}

/// The index of the highest logit; ties go to the lowest index, NaN loses to everything,
/// and a row without a number gives 0.
pub(crate) fn argmax(logits: &[f32]) -> u32 {
    const LANES: usize = 16;
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane = if logit > *lane { logit } else { *lane };
        }
    }
    let peak = lanes
        .iter()
        .chain(rest)
        .fold(f32::NEG_INFINITY, |peak, &logit| if logit > peak { logit } else { peak });
    logits.iter().position(|&logit| logit == peak).unwrap_or(0) as u32
}

/// e^x for x ≤ 0, within 2 units in the last place; NaN gives 0. An own polynomial, because
/// the C library's may differ between machines. Range reduction and coefficients are the
/// textbook ones: x = k·ln 2 + r, e^r by its Taylor series to r¹³ / 13!.
fn exp_nonpositive(x: f64) -> f64 {
    // ln 2 in two parts, the first short enough that k times it is exact (fdlibm's e_exp.c).
    const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    // Adding and subtracting 1.5·2⁵² rounds to an integer that sits in the low bits.
    const ROUNDER: f64 = 6_755_399_441_055_744.0;
    let clamped = if x > -708.0 { x } else { -708.0 };
    let shifted = clamped * std::f64::consts::LOG2_E + ROUNDER;
    let exponent = shifted - ROUNDER;
    let r = clamped - exponent * LN_2_HIGH - exponent * LN_2_LOW;
    let mut series = 1.0;
    for n in (1..=13).rev() {
        series = 1.0 + series * r * INVERSES[n];
    }
    let scale = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1.0f64.to_bits()));
    if x > -708.0 { series * scale } else { 0.0 }
}

/// 1/n for the nested Taylor series.
const INVERSES: [f64; 14] = {
    let mut inverses = [0.0; 14];
    let mut n = 1;
    while n < 14 {
        inverses[n] = 1.0 / n as f64;
        n += 1;
    }
    inverses
};

/// Log-probabilities of one row of raw logits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogSoftmax<'a> {
    logits: &'a [f32],
    log_total: f64,
}

impl<'a> LogSoftmax<'a> {
    /// Sums the row once, in the order of the ids.
    pub(crate) fn new(logits: &'a [f32]) -> Self {
        let peak = logits.get(argmax(logits) as usize).copied().unwrap_or(0.0);
        let heat = Heat { peak: f64::from(peak), temperature: 1.0 };
        let total: f64 = logits.iter().map(|&logit| heat.weight(logit)).sum();
        LogSoftmax { logits, log_total: heat.peak + total.ln() }
    }

    /// The natural logarithm of a token's probability; [`LOGPROB_NEVER`] where that is not
    /// a finite number.
    pub(crate) fn of(&self, token: u32) -> f32 {
        let logit = self.logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        self.logprob(logit)
    }

    fn logprob(&self, logit: f32) -> f32 {
        let logprob = (f64::from(logit) - self.log_total) as f32;
        if logprob.is_finite() { logprob.min(0.0) } else { LOGPROB_NEVER }
    }

    /// The `count` likeliest tokens, best first, ties to the lowest id.
    pub(crate) fn top(&self, count: usize) -> Vec<(u32, f32)> {
        let mut best: Vec<Ranked> = Vec::with_capacity(count.min(self.logits.len()) + 1);
        for (&logit, id) in self.logits.iter().zip(0..) {
            let full = best.len() == count;
            if logit.is_nan() || full && best.last().is_none_or(|last| logit <= last.logit) {
                continue;
            }
            let candidate = Ranked { logit, id };
            let place = best.partition_point(|held| by_rank(held, &candidate).is_lt());
            best.insert(place, candidate);
            best.truncate(count);
        }
        best.iter().map(|ranked| (ranked.id, self.logprob(ranked.logit))).collect()
    }
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
