//! Rotary position embedding (Su et al., 2021, <https://arxiv.org/abs/2104.09864>), in the
//! half-split order: dimension `i` turns with dimension `i + dims / 2`.

use crate::disjoint::Disjoint;
use crate::elementary::{pow, sin_cos};
use crate::simd::{Kernel, LANES, Simd, dispatch_float};
use crate::team::{Team, range_of};
use std::f64::consts::TAU;

/// Values below which one thread is faster than a team.
const ALONE_VALUES: usize = 16_384;

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

/// Turns heads in place: row `r` of `x` begins at `x[r * stride]`, and its first `heads` heads are
/// turned by the row's position `positions[r]`. In a fused q|k|v row the queries and keys are such
/// a run of heads.
///
/// # Panics
/// If `x` ends before the last row's heads, a row has less than its heads, or a position lies
/// beyond the table.
pub fn rope(
    team: &Team,
    table: &RopeTable,
    x: &mut [f32],
    stride: usize,
    heads: usize,
    positions: &[usize],
) {
    let width = heads * table.head_dim;
    assert!(width <= stride || positions.len() <= 1, "{heads} heads in rows of {stride}");
    for &position in positions {
        assert!(position < table.context, "position {position} of {}", table.context);
    }
    let shared = Disjoint::new(x);
    let some = |rows: std::ops::Range<usize>| {
        for row in rows {
            // SAFETY: rows do not overlap (`width <= stride`), and each is worked on once.
            let heads = unsafe { shared.part(row * stride..row * stride + width) };
            dispatch_float(team.isa(), Turn { table, heads, position: positions[row] });
        }
    };
    if positions.len() * width < ALONE_VALUES {
        some(0..positions.len());
    } else {
        team.run(|worker| some(range_of(worker, team.threads(), positions.len())));
    }
}

/// Turns the heads of one row.
struct Turn<'a> {
    table: &'a RopeTable,
    heads: &'a mut [f32],
    position: usize,
}

impl Kernel for Turn<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (cosines, sines) = self.table.at(self.position);
        let pairs = cosines.len();
        for head in self.heads.chunks_exact_mut(self.table.head_dim) {
            let (first, rest) = head.split_at_mut(pairs);
            for start in (0..pairs).step_by(LANES) {
                let range = start..(start + LANES).min(pairs);
                turn(
                    s,
                    &mut first[range.clone()],
                    &mut rest[range.clone()],
                    &cosines[range.clone()],
                    &sines[range],
                );
            }
        }
    }
}

/// Up to 16 pairs: `x' = x cos - y sin`, `y' = y cos + x sin`.
#[inline(always)]
fn turn<S: Simd>(s: S, x: &mut [f32], y: &mut [f32], cosines: &[f32], sines: &[f32]) {
    let whole = x.len() == LANES;
    let (a, b) = (load(s, x), load(s, y));
    let (cosine, sine) = (load(s, cosines), load(s, sines));
    let turned = s.mul_add(a, cosine, s.sub(s.splat(0.0), s.mul(b, sine)));
    let turned_too = s.mul_add(b, cosine, s.mul(a, sine));
    if whole {
        s.store_slice(x, turned);
        s.store_slice(y, turned_too);
    } else {
        s.store_partial(x, turned);
        s.store_partial(y, turned_too);
    }
}

/// Up to 16 numbers, then zeros.
#[inline(always)]
fn load<S: Simd>(s: S, from: &[f32]) -> S::F32 {
    if from.len() == LANES { s.load_slice(from) } else { s.load_partial(from, 0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use proptest::prelude::*;

    proptest! {
        /// Against the platform's functions in double precision, and each row alone.
        #[test]
        fn agrees_with_double_precision(
            half in 1usize..70,
            unturned in 0usize..5,
            base in 10.0f64..1e6,
            positions in prop::collection::vec(0usize..3000, 1..6),
            values in prop::collection::vec(-3.0f32..3.0, 32),
        ) {
            let (dims, heads) = (2 * half, 2);
            let head_dim = dims + unturned;
            let stride = heads * head_dim + 3;
            let factors: Vec<f32> = (0..half).map(|i| 1.0 + i as f32 * 0.01).collect();
            let scaling = RopeScaling::Linear { factor: 2.0 };
            let table =
                RopeTable::new(head_dim, dims, base, scaling, Some(&factors), 3000).unwrap();
            let x: Vec<f32> = (0..positions.len() * stride).map(|i| values[i % 32]).collect();
            for isa in Isa::available() {
                let team = Team::with_isa(1, isa).unwrap();
                let mut out = x.clone();
                rope(&team, &table, &mut out, stride, heads, &positions);
                for (row, &position) in positions.iter().enumerate() {
                    let (x, out) = (&x[row * stride..][..stride], &out[row * stride..][..stride]);
                    for (i, (&x_i, &out_i)) in x.iter().zip(out).enumerate() {
                        let d = i % head_dim;
                        if i >= heads * head_dim || d >= dims {
                            prop_assert_eq!(x_i, out_i);
                            continue;
                        }
                        let pair = d % half;
                        let frequency = base.powf(-2.0 * pair as f64 / dims as f64);
                        let angle = position as f64 * frequency / f64::from(factors[pair]) / 2.0;
                        let other = f64::from(if d < half { -x[i + half] } else { x[i - half] });
                        let wanted = f64::from(x_i) * angle.cos() + other * angle.sin();
                        prop_assert!((f64::from(out_i) - wanted).abs() < 2e-6);
                    }
                    let mut alone = x.to_vec();
                    rope(&team, &table, &mut alone, stride, heads, &[position]);
                    prop_assert_eq!(&alone[..], out);
                }
            }
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let table = RopeTable::new(64, 64, 1e5, RopeScaling::None, None, 512).unwrap();
        let positions: Vec<usize> = (0..100).map(|i| i * 5).collect();
        let x: Vec<f32> = (0..100 * 12 * 64).map(|i| (i % 101) as f32).collect();
        for isa in Isa::available() {
            let outs = [1, 2, 3].map(|threads| {
                let mut out = x.clone();
                let team = Team::with_isa(threads, isa).unwrap();
                rope(&team, &table, &mut out, 12 * 64, 12, &positions);
                out
            });
            assert!(outs[0] == outs[1] && outs[0] == outs[2]);
        }
    }

    /// Llama 3.1's parameters: short waves stay, long ones are divided by 8, as `transformers`
    /// computes them (`_compute_llama3_parameters`).
    #[test]
    fn llama3_scaling() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_context: 8192,
        };
        let plain = frequencies(128, 128, 5e5, RopeScaling::None, None).unwrap();
        let scaled = frequencies(128, 128, 5e5, scaling, None).unwrap();
        for (plain, scaled) in plain.iter().zip(&scaled) {
            let wave = TAU / plain;
            if wave < 2048.0 {
                assert_eq!(plain, scaled);
            } else if wave > 8192.0 {
                assert_eq!(plain / 8.0, *scaled);
            } else {
                let smooth = (8192.0 / wave - 1.0) / 3.0;
                let wanted = (1.0 - smooth) * plain / 8.0 + smooth * plain;
                assert!((scaled / wanted - 1.0).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn bad_parameters_are_refused() {
        let new = |dims, base, scaling| RopeTable::new(64, dims, base, scaling, None, 1).err();
        assert!(matches!(new(63, 1e4, RopeScaling::None), Some(RopeError::Dims { .. })));
        assert!(matches!(new(66, 1e4, RopeScaling::None), Some(RopeError::Dims { .. })));
        assert!(matches!(new(0, 1e4, RopeScaling::None), Some(RopeError::Dims { .. })));
        assert!(matches!(new(64, f64::NAN, RopeScaling::None), Some(RopeError::Parameters { .. })));
        let zero = RopeScaling::Linear { factor: 0.0 };
        assert!(matches!(new(64, 1e4, zero), Some(RopeError::Parameters { .. })));
        let few = RopeTable::new(64, 64, 1e4, RopeScaling::None, Some(&[1.0]), 1).err();
        assert_eq!(few, Some(RopeError::FrequencyFactors { given: 1, pairs: 32 }));
    }
}
