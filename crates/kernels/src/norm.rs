//! Norms: RMS (Zhang and Sennrich, 2019, <https://arxiv.org/abs/1910.07467>) and layer norm (Ba et
//! al., 2016, <https://arxiv.org/abs/1607.06450>). Each row is normalized on its own.

use crate::disjoint::Disjoint;
use crate::simd::{Kernel, LANES, Simd, dispatch_float};
use crate::team::{Team, range_of};

/// Values below which one thread is faster than a team.
const ALONE_VALUES: usize = 16_384;

/// `out = x / sqrt(mean(x^2) + epsilon) * gain`, row by row; a row has as many numbers as `gain`.
///
/// # Panics
/// If `x` and `out` differ in length or are not whole rows, or `gain` is empty.
pub fn rms_norm(team: &Team, x: &[f32], gain: &[f32], epsilon: f32, out: &mut [f32]) {
    normalize(team, x, Norm { gain, bias: None, epsilon, centred: false }, out);
}

/// `out = (x - mean(x)) / sqrt(variance(x) + epsilon) * gain + bias`, row by row.
///
/// # Panics
/// As [`rms_norm`], or if `bias` differs in length from `gain`.
pub fn layer_norm(
    team: &Team,
    x: &[f32],
    gain: &[f32],
    bias: Option<&[f32]>,
    epsilon: f32,
    out: &mut [f32],
) {
    normalize(team, x, Norm { gain, bias, epsilon, centred: true }, out);
}

#[derive(Clone, Copy)]
struct Norm<'a> {
    gain: &'a [f32],
    bias: Option<&'a [f32]>,
    epsilon: f32,
    /// Whether the mean is taken off first.
    centred: bool,
}

fn normalize(team: &Team, x: &[f32], norm: Norm, out: &mut [f32]) {
    let width = norm.gain.len();
    assert!(width > 0 && x.len() == out.len() && x.len().is_multiple_of(width), "whole rows");
    assert!(norm.bias.is_none_or(|bias| bias.len() == width), "a bias for each gain");
    if x.len() < ALONE_VALUES {
        dispatch_float(team.isa(), NormRows { x, norm, out });
        return;
    }
    let out = Disjoint::new(out);
    team.run(|worker| {
        let rows = range_of(worker, team.threads(), x.len() / width);
        let range = rows.start * width..rows.end * width;
        // SAFETY: the ranges of different workers do not overlap.
        let out = unsafe { out.part(range.clone()) };
        dispatch_float(team.isa(), NormRows { x: &x[range], norm, out });
    });
}

struct NormRows<'a> {
    x: &'a [f32],
    norm: Norm<'a>,
    out: &'a mut [f32],
}

impl Kernel for NormRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.norm.gain.len();
        let rows = self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width));
        for (x, out) in rows {
            norm_row(s, x, self.norm, out);
        }
    }
}

#[inline(always)]
fn norm_row<S: Simd>(s: S, x: &[f32], norm: Norm, out: &mut [f32]) {
    let count = s.splat(x.len() as f32);
    let mean = if norm.centred { s.div(s.splat(sum(s, x)), count) } else { s.splat(0.0) };
    let mean_square = s.div(s.splat(sum_of_squares(s, x, mean)), count);
    let root = s.sqrt(s.add(mean_square, s.splat(norm.epsilon)));
    let factor = s.div(s.splat(1.0), root);
    for start in (0..x.len()).step_by(LANES) {
        let range = start..(start + LANES).min(x.len());
        let scaled = s.mul(s.sub(load(s, &x[range.clone()]), mean), factor);
        let gain = load(s, &norm.gain[range.clone()]);
        let y = match norm.bias {
            Some(bias) => s.mul_add(scaled, gain, load(s, &bias[range.clone()])),
            None => s.mul(scaled, gain),
        };
        store(s, &mut out[range], y);
    }
}

/// Up to 16 numbers, then zeros.
#[inline(always)]
fn load<S: Simd>(s: S, from: &[f32]) -> S::F32 {
    if from.len() == LANES { s.load_slice(from) } else { s.load_partial(from, 0.0) }
}

#[inline(always)]
fn store<S: Simd>(s: S, to: &mut [f32], x: S::F32) {
    if to.len() == LANES { s.store_slice(to, x) } else { s.store_partial(to, x) }
}

/// Number `i` goes to lane `i % 64` of four vectors, which are added pairwise at the end.
#[inline(always)]
fn sum<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut sums = [s.splat(0.0); 4];
    for (i, chunk) in x.chunks(LANES).enumerate() {
        sums[i % 4] = s.add(sums[i % 4], load(s, chunk));
    }
    s.reduce_add(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}

/// The sum of `(x - mean)^2`, in the order of [`sum`].
#[inline(always)]
fn sum_of_squares<S: Simd>(s: S, x: &[f32], mean: S::F32) -> f32 {
    let mut sums = [s.splat(0.0); 4];
    for (i, chunk) in x.chunks(LANES).enumerate() {
        let mut difference = s.sub(load(s, chunk), mean);
        if chunk.len() < LANES {
            difference = s.select(s.first_lanes(chunk.len()), difference, s.splat(0.0));
        }
        sums[i % 4] = s.mul_add(difference, difference, sums[i % 4]);
    }
    s.reduce_add(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use proptest::prelude::*;

    fn oracle(x: &[f32], norm: Norm) -> Vec<f64> {
        let x: Vec<f64> = x.iter().map(|&x| x.into()).collect();
        let count = x.len() as f64;
        let mean = if norm.centred { x.iter().sum::<f64>() / count } else { 0.0 };
        let mean_square = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        let root = (mean_square + f64::from(norm.epsilon)).sqrt();
        let bias = |i: usize| norm.bias.map_or(0.0, |bias| f64::from(bias[i]));
        let out = |(i, x): (usize, &f64)| (x - mean) / root * f64::from(norm.gain[i]) + bias(i);
        x.iter().enumerate().map(out).collect()
    }

    proptest! {
        #[test]
        fn agrees_with_double_precision_and_rows_are_independent(
            width in 1usize..200,
            rows in 1usize..5,
            seed in prop::collection::vec(-10.0f32..10.0, 16),
            centred in any::<bool>(),
            with_bias in any::<bool>(),
        ) {
            let at = |i: usize| seed[i % 16] * (1.0 + (i % 37) as f32 * 0.11);
            let x: Vec<f32> = (0..rows * width).map(at).collect();
            let gain: Vec<f32> = (0..width).map(|i| at(i + 5) * 0.2).collect();
            let bias: Vec<f32> = (0..width).map(|i| at(i + 9)).collect();
            let bias = with_bias.then_some(&bias[..]);
            let norm = Norm { gain: &gain, bias, epsilon: 1e-5, centred };
            for isa in Isa::available() {
                let team = Team::with_isa(1, isa).unwrap();
                let mut out = vec![0.0; x.len()];
                normalize(&team, &x, norm, &mut out);
                for (row, got) in x.chunks(width).zip(out.chunks(width)) {
                    for (got, wanted) in got.iter().zip(oracle(row, norm)) {
                        let bound = 2e-5 * wanted.abs().max(1.0);
                        prop_assert!((f64::from(*got) - wanted).abs() < bound);
                    }
                    let mut alone = vec![0.0; width];
                    normalize(&team, row, norm, &mut alone);
                    prop_assert_eq!(&alone[..], got);
                }
            }
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let width = 576;
        let x: Vec<f32> =
            (0..60 * width).map(|i| ((i * 7919) % 1000) as f32 / 300.0 - 1.5).collect();
        let gain = vec![1.25; width];
        for isa in Isa::available() {
            let outs = [1, 2, 3].map(|threads| {
                let mut out = vec![0.0; x.len()];
                rms_norm(&Team::with_isa(threads, isa).unwrap(), &x, &gain, 1e-5, &mut out);
                out
            });
            assert!(outs[0] == outs[1] && outs[0] == outs[2]);
        }
    }
}
