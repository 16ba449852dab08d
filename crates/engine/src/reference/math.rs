//! The textbook formulas, in the most readable form.

use package::{Rope, RopeScaling};

use crate::rows::Norm;

/// The dot product of `a` and `b`.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    // Sixteen sums side by side, which the compiler turns into vector instructions; they also
    // keep rounding errors small.
    let mut sums = [0.0; 16];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in a.iter().zip(b) {
        for i in 0..16 {
            sums[i] += a[i] * b[i];
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| a * b);
    sums.into_iter().chain(rest).sum()
}

/// Layer normalization (Ba et al., 2016).
pub(super) fn layer_norm(x: &mut [f32], norm: &Norm) {
    let count = x.len() as f64;
    let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
    let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
    let deviation = (variance + f64::from(norm.epsilon)).sqrt();
    for ((x, gain), bias) in x.iter_mut().zip(&norm.gain).zip(&norm.bias) {
        *x = ((f64::from(*x) - mean) / deviation) as f32 * gain + bias;
    }
}

/// Root mean square normalization (Zhang and Sennrich, 2019).
pub(super) fn rms_norm(x: &mut [f32], norm: &Norm) {
    let square = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / x.len() as f64;
    let root = (square + f64::from(norm.epsilon)).sqrt();
    for (x, gain) in x.iter_mut().zip(&norm.gain) {
        *x = (f64::from(*x) / root) as f32 * gain;
    }
}

/// Turns scores into weights that sum to one.
pub(super) fn softmax(scores: &mut [f32]) {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = scores.iter().map(|&score| f64::from(score - largest).exp()).sum();
    for score in scores {
        *score = (f64::from(*score - largest).exp() / total) as f32;
    }
}

/// `x Φ(x)` (Hendrycks and Gimpel, 2016), exactly or by its tanh approximation.
pub(super) fn gelu(x: f32, tanh: bool) -> f32 {
    let x = f64::from(x);
    let bend = if tanh {
        ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()
    } else {
        erf(x / std::f64::consts::SQRT_2)
    };
    (0.5 * x * (1.0 + bend)) as f32
}

/// The error function by its Taylor series, which is exact to 1e-8 where it is used.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..100 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

/// `x σ(x)` (Elfwing et al., 2017).
pub(super) fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// Rotates one head's vector to `position` (Su et al., 2021), pairs being `(i, i + dims / 2)`.
pub(super) fn rotate(head: &mut [f32], position: usize, rope: &Rope) {
    let half = rope.dims / 2;
    for i in 0..half {
        let (sin, cos) = (position as f64 * frequency(rope, i)).sin_cos();
        let (x, y) = (f64::from(head[i]), f64::from(head[i + half]));
        head[i] = (x * cos - y * sin) as f32;
        head[i + half] = (x * sin + y * cos) as f32;
    }
}

/// By how much pair `i` turns per position. Llama 3's rule is `_compute_llama3_parameters` of
/// transformers' `modeling_rope_utils.py`.
fn frequency(rope: &Rope, i: usize) -> f64 {
    let factor = rope.frequency_factors.as_ref().map_or(1.0, |factors| f64::from(factors[i]));
    let plain = rope.base.powf(-2.0 * i as f64 / rope.dims as f64) / factor;
    match rope.scaling {
        RopeScaling::None => plain,
        RopeScaling::Linear { factor } => plain / factor,
        RopeScaling::Llama3 {
            factor,
            low_frequency_factor: low,
            high_frequency_factor: high,
            original_context,
        } => {
            let wavelength = std::f64::consts::TAU / plain;
            let context = original_context as f64;
            if wavelength < context / high {
                plain
            } else if wavelength > context / low {
                plain / factor
            } else {
                let smooth = (context / wavelength - low) / (high - low);
                (1.0 - smooth) * plain / factor + smooth * plain
            }
        }
    }
}
