//! Rows of activations times packed weights.
//!
//! One output of one row is summed over the inputs from the first to the last
//! in one accumulator, whatever else is computed in the same call: tiles
//! differ only in how many such sums run side by side, and workers only in
//! which outputs they take. For quantized and f16 weights a block of 32 inputs
//! is first summed exactly, in integers; in Q6_K each half of it.

mod blocks;
mod floats;
mod tile;
mod words;

use crate::disjoint::Disjoint;
use crate::packed::PackedMatrix;
use crate::quantize::ActivationRows;
use crate::simd::{dispatch, dispatch_bf16};
use crate::team::Team;
use crate::weights::WeightType;
use blocks::{Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
use floats::{BF16, F32};
use tile::{OfTiles, Part};
use words::F16;

/// `out = input * weights`, plus the bias if the weights have one; `out` has
/// `rows` times `outputs` places. Every bit of a row of `out` depends on that
/// row of `input`, the weights and the instruction set alone.
///
/// # Panics
/// If a length does not fit, if the rows were not [set](ActivationRows::set)
/// for this type of weights, or if the weights were packed for another
/// instruction set than the team uses.
pub fn matmul(team: &Team, weights: &PackedMatrix, input: &ActivationRows, out: &mut [f32]) {
    assert_eq!(weights.isa(), team.isa(), "weights packed for the team's instruction set");
    assert_eq!(weights.inputs(), input.inputs(), "inputs");
    assert!(input.suits(weights.weight_type()), "rows set for another type of weights");
    assert_eq!(out.len(), input.rows() * weights.outputs(), "rows times outputs");
    let out = Disjoint::new(out);
    team.run_ranges(weights.panel_count(), |_, panels| {
        let part = Part { weights, input, out, panels };
        match weights.weight_type() {
            WeightType::F32 => dispatch(team.isa(), OfTiles(part, F32)),
            WeightType::F16 => dispatch(team.isa(), OfTiles(part, F16)),
            WeightType::BF16 => dispatch_bf16(team.isa(), OfTiles(part, BF16)),
            WeightType::Q8_0 => dispatch(team.isa(), OfTiles(part, Q8_0)),
            WeightType::Q4_0 => dispatch(team.isa(), OfTiles(part, Q4_0)),
            WeightType::Q4_1 => dispatch(team.isa(), OfTiles(part, Q4_1)),
            WeightType::Q5_0 => dispatch(team.isa(), OfTiles(part, Q5_0)),
            WeightType::Q5_1 => dispatch(team.isa(), OfTiles(part, Q5_1)),
            WeightType::Q4_K => dispatch(team.isa(), OfTiles(part, Q4_K)),
            WeightType::Q5_K => dispatch(team.isa(), OfTiles(part, Q5_K)),
            WeightType::Q6_K => dispatch(team.isa(), OfTiles(part, Q6_K)),
        }
    });
}

/// A [`matmul`] whose bits wrongly depend on the number of rows: what several
/// rows get differs in the last place from what one row gets. It exists so
/// that checks of exactness can prove that they would find such a kernel.
///
/// # Panics
/// As [`matmul`].
#[doc(hidden)]
pub fn matmul_batch_dependent(
    team: &Team,
    weights: &PackedMatrix,
    input: &ActivationRows,
    out: &mut [f32],
) {
    matmul(team, weights, input, out);
    if input.rows() > 1 {
        // Two roundings more, which about one value in three does not survive.
        out.iter_mut().for_each(|x| *x = *x / 3.0 * 3.0);
    }
}

#[cfg(test)]
mod tests;
