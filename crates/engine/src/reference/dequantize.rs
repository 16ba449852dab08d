//! Weights as f32, straight from the formats' definitions.
//!
//! The block formats are those of ggml (`ggml-common.h`, `dequantize_row_*` of `ggml-quants.c`).

use half::{bf16, f16};
use package::{DType, Matrix, RowOrder};

/// The numbers of `bytes`, in stored order.
fn numbers(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let two = |pair: &[u8]| [pair[0], pair[1]];
    match dtype {
        DType::F32 => bytes
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
            .collect(),
        DType::F16 => bytes.chunks_exact(2).map(|b| f16::from_le_bytes(two(b)).to_f32()).collect(),
        DType::BF16 => {
            bytes.chunks_exact(2).map(|b| bf16::from_le_bytes(two(b)).to_f32()).collect()
        }
        DType::Q8_0 => bytes.chunks_exact(34).flat_map(q8_0).collect(),
        DType::Q4_0 => bytes.chunks_exact(18).flat_map(q4_0).collect(),
        DType::Q4_1 => bytes.chunks_exact(20).flat_map(q4_1).collect(),
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// An f16 scale, then 32 signed bytes.
fn q8_0(block: &[u8]) -> [f32; 32] {
    let scale = half_at(block, 0);
    std::array::from_fn(|i| scale * f32::from(block[2 + i] as i8))
}

/// The number in half a byte: the low halves are the first 16 numbers, the high ones the others.
fn nibble(bytes: &[u8], i: usize) -> f32 {
    f32::from(if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 })
}

/// An f16 scale, then 32 half bytes that stand for -8 to 7.
fn q4_0(block: &[u8]) -> [f32; 32] {
    let scale = half_at(block, 0);
    std::array::from_fn(|i| scale * (nibble(&block[2..], i) - 8.0))
}

/// An f16 scale and an f16 minimum, then 32 half bytes.
fn q4_1(block: &[u8]) -> [f32; 32] {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    std::array::from_fn(|i| scale * nibble(&block[4..], i) + minimum)
}

/// The matrix as `outputs x inputs`, its rows in canonical order.
pub(super) fn dense(matrix: &Matrix) -> Vec<f32> {
    let stored = numbers(matrix.tensor.dtype, matrix.tensor.bytes);
    let (outputs, inputs) = (matrix.outputs, matrix.inputs);
    let mut dense = Vec::with_capacity(stored.len());
    for output in 0..outputs {
        let row = stored_row(matrix.row_order, output);
        if matrix.input_major {
            dense.extend((0..inputs).map(|input| stored[input * outputs + row]));
        } else {
            dense.extend_from_slice(&stored[row * inputs..(row + 1) * inputs]);
        }
    }
    dense
}

/// Where the row of output `output` is stored.
fn stored_row(order: RowOrder, output: usize) -> usize {
    match order {
        RowOrder::Natural => output,
        RowOrder::InterleavedRope { head_dim } => {
            let (head, within) = (output / head_dim, output % head_dim);
            let (side, pair) = (within / (head_dim / 2), within % (head_dim / 2));
            head * head_dim + 2 * pair + side
        }
    }
}
