//! Weights as f32, straight from the formats' definitions.
//!
//! The block formats are those of ggml (`ggml-common.h`, `dequantize_row_*` of `ggml-quants.c`).

use half::{bf16, f16};
use package::{DType, Matrix, RowOrder};

/// The numbers that whole blocks of `bytes` stand for, in stored order.
pub fn dequantize(dtype: DType, bytes: &[u8]) -> Vec<f32> {
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
        DType::Q5_0 => bytes.chunks_exact(22).flat_map(q5_0).collect(),
        DType::Q5_1 => bytes.chunks_exact(24).flat_map(q5_1).collect(),
        DType::Q4_K => bytes.chunks_exact(144).flat_map(q4_k).collect(),
        DType::Q5_K => bytes.chunks_exact(176).flat_map(q5_k).collect(),
        DType::Q6_K => bytes.chunks_exact(210).flat_map(q6_k).collect(),
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

/// The fifth bit of number `i`, worth 16.
fn fifth_bit(bytes: &[u8], i: usize) -> f32 {
    f32::from((bytes[i / 8] >> (i % 8) & 1) << 4)
}

/// An f16 scale, 32 fifth bits, then 32 half bytes; together they stand for -16 to 15.
fn q5_0(block: &[u8]) -> [f32; 32] {
    let scale = half_at(block, 0);
    std::array::from_fn(|i| scale * (nibble(&block[6..], i) + fifth_bit(&block[2..], i) - 16.0))
}

/// An f16 scale and an f16 minimum, 32 fifth bits, then 32 half bytes.
fn q5_1(block: &[u8]) -> [f32; 32] {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    std::array::from_fn(|i| scale * (nibble(&block[8..], i) + fifth_bit(&block[4..], i)) + minimum)
}

/// The scale and the minimum of 32 numbers of a block that begins with an f16 scale and minimum,
/// and 12 bytes. The first four pairs are the low six bits of bytes 0 to 3 and 4 to 7; the others
/// have four bits each in bytes 8 to 11, and their upper two where the first four leave two.
fn scale_and_minimum(block: &[u8], part: usize) -> (f32, f32) {
    let sixes = &block[4..16];
    let (scale, minimum) = match part {
        0..4 => (sixes[part] & 63, sixes[part + 4] & 63),
        _ => {
            let (scale, minimum) = (sixes[part - 4] >> 6, sixes[part] >> 6);
            (sixes[part + 4] & 15 | scale << 4, sixes[part + 4] >> 4 | minimum << 4)
        }
    };
    (half_at(block, 0) * f32::from(scale), half_at(block, 2) * f32::from(minimum))
}

/// 64 numbers share 32 bytes: the low halves are the first 32, the high halves the others.
fn nibble_of_64(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15
}

/// Scales, then 256 half bytes; the minimum is subtracted.
fn q4_k(block: &[u8]) -> [f32; 256] {
    std::array::from_fn(|i| {
        let (scale, minimum) = scale_and_minimum(block, i / 32);
        scale * f32::from(nibble_of_64(&block[16..], i)) - minimum
    })
}

/// Scales, then 256 fifth bits (bit `p` of 32 bytes is for the 32 numbers of part `p`), then 256
/// half bytes.
fn q5_k(block: &[u8]) -> [f32; 256] {
    std::array::from_fn(|i| {
        let (scale, minimum) = scale_and_minimum(block, i / 32);
        let fifth = (block[16 + i % 32] >> (i / 32) & 1) << 4;
        scale * f32::from(nibble_of_64(&block[48..], i) | fifth) - minimum
    })
}

/// 128 bytes of four bits, 64 of two bits, 16 signed scales, one f16 scale. Each 128 numbers take
/// 64 bytes and 32 bytes: the low halves are the first 64 numbers, and of the two bits the lowest
/// are the first 32.
fn q6_k(block: &[u8]) -> [f32; 256] {
    let scale = half_at(block, 208);
    std::array::from_fn(|i| {
        let (half, within) = (i / 128, i % 128);
        let low = block[half * 64 + within % 64] >> (within / 64 * 4) & 15;
        let high = block[128 + half * 32 + within % 32] >> (within / 32 * 2) & 3;
        let step = scale * f32::from(block[192 + i / 16] as i8);
        step * (f32::from(low | high << 4) - 32.0)
    })
}

/// The matrix as `outputs x inputs`, its rows in canonical order.
pub(super) fn dense(matrix: &Matrix) -> Vec<f32> {
    let stored = dequantize(matrix.tensor.dtype, matrix.tensor.bytes);
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
