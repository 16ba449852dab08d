//! Rotary position embedding (Su et al., 2021, <https://arxiv.org/abs/2104.09864>), in the
//! half-split order: dimension `i` turns with dimension `i + dims / 2`.

use crate::elementary::{pow, sin_cos};
use std::f64::consts::TAU;

/// How the rotation frequencies are stretched for long contexts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Every frequency divided by `factor` (position interpolation).
    Linear {
        /// The divisor, above zero.
        factor: f64,
    },
    /// Llama 3's rule: long waves are divided by `factor`, short ones kept, those between blended.
    Llama3 {
        /// The divisor of long waves.
        factor: f64,
        /// Waves longer than `original_context / low_frequency_factor` are long.
        low_frequency_factor: f64,
        /// Waves shorter than `original_context / high_frequency_factor` are short.
        high_frequency_factor: f64,
        /// The context that the model was first trained for.
        original_context: usize,
    },
}

/// Why a rope table cannot be made.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum RopeError {
    /// The rotated dimensions are odd, none, or more than the head has.
    #[error("cannot rotate {dims} dimensions of a head of {head_dim}")]
    Dims {
        /// Dimensions to rotate.
        dims: usize,
        /// Dimensions of a head.
        head_dim: usize,
    },
    /// Base or a scaling number is not a positive finite number, or the blend is empty.
    #[error("rope parameters out of range: base {base}, {scaling:?}")]
    Parameters {
        /// The base of the frequencies.
        base: f64,
        /// The scaling asked for.
        scaling: RopeScaling,
    },
    /// Frequency factors of the wrong count, or not positive.
    #[error("{given} rope frequency factors for {pairs} pairs, or one of them is not positive")]
    FrequencyFactors {
        /// Factors given.
        given: usize,
        /// Pairs of dimensions.
        pairs: usize,
    },
}

/// Cosines and sines by absolute position, computed in double precision and rounded once.
pub struct RopeTable {
    head_dim: usize,
    pairs: usize,
    context: usize,
    /// Per position: `pairs` cosines, then `pairs` sines.
    turns: Vec<f32>,
}

impl RopeTable {
    /// The table for positions `0..context` of heads of `head_dim` dimensions, of which the first
    /// `dims` turn. The angle of pair `i` at position `p` is `p * f[i]`, where `f[i]` is
    /// `base^(-2 i / dims)`, divided by `frequency_factors[i]` where given, then scaled.
    ///
    /// # Errors
    /// Numbers out of range.
    pub fn new(
        head_dim: usize,
        dims: usize,
        base: f64,
        scaling: RopeScaling,
        frequency_factors: Option<&[f32]>,
        context: usize,
    ) -> Result<RopeTable, RopeError> {
        let frequencies = frequencies(head_dim, dims, base, scaling, frequency_factors)?;
        let mut turns = Vec::with_capacity(context * dims);
        for position in 0..context {
            let start = turns.len();
            turns.resize(start + dims, 0.0);
            let (cosines, sines) = turns[start..].split_at_mut(dims / 2);
            for ((frequency, cosine), sine) in frequencies.iter().zip(cosines).zip(sines) {
                let (s, c) = sin_cos(position as f64 * frequency);
                (*cosine, *sine) = (c as f32, s as f32);
            }
        }
        Ok(RopeTable { head_dim, pairs: dims / 2, context, turns })
    }

    /// Positions in the table.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Cosines and sines of a position.
    fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let start = position * 2 * self.pairs;
        self.turns[start..start + 2 * self.pairs].split_at(self.pairs)
    }
}

/// Radians per position of each pair.
fn frequencies(
    head_dim: usize,
    dims: usize,
    base: f64,
    scaling: RopeScaling,
    frequency_factors: Option<&[f32]>,
) -> Result<Vec<f64>, RopeError> {
    let pairs = dims / 2;
    if dims == 0 || !dims.is_multiple_of(2) || dims > head_dim {
        return Err(RopeError::Dims { dims, head_dim });
    }
    let positive = |x: f64| x.is_finite() && x > 0.0;
    let fine = match scaling {
        RopeScaling::None => true,
        RopeScaling::Linear { factor } => positive(factor),
        RopeScaling::Llama3 {
            factor,
            low_frequency_factor: low,
            high_frequency_factor: high,
            original_context,
        } => {
            positive(factor)
                && positive(low)
                && positive(high)
                && high > low
                && original_context > 0
        }
    };
    if !(fine && positive(base)) {
        return Err(RopeError::Parameters { base, scaling });
    }
    if let Some(factors) = frequency_factors
        && (factors.len() != pairs || !factors.iter().all(|&factor| positive(factor.into())))
    {
        return Err(RopeError::FrequencyFactors { given: factors.len(), pairs });
    }
    let factor = |i: usize| frequency_factors.map_or(1.0, |factors| f64::from(factors[i]));
    let plain = |i: usize| pow(base, -(2.0 * i as f64) / dims as f64) / factor(i);
    Ok((0..pairs).map(|i| scale_frequency(plain(i), scaling)).collect())
}

/// Llama 3's rule is `_compute_llama3_parameters` of `transformers/modeling_rope_utils.py`.
fn scale_frequency(frequency: f64, scaling: RopeScaling) -> f64 {
    match scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / factor,
        RopeScaling::Llama3 {
            factor,
            low_frequency_factor: low,
            high_frequency_factor: high,
            original_context,
        } => {
            let turns = original_context as f64 * frequency / TAU;
            let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            (1.0 - kept) * frequency / factor + kept * frequency
        }
    }
}
