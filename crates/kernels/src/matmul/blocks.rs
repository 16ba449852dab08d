//! Tiles of quantized weights: integer dot products of blocks of 32 inputs.

use super::tile::{Part, Typed};
use crate::packed::head_bytes;
use crate::quantize::BlockScale;
use crate::simd::{Kernel, Simd};
use crate::weights::{BLOCK_INPUTS, WeightType};
use std::ops::Range;

/// How far ahead of their use weights are asked for: about what one core
/// receives from memory during the latency of a read.
const PREFETCH_BYTES: usize = 2560;

#[derive(Clone, Copy)]
pub(super) struct Q8_0;
#[derive(Clone, Copy)]
pub(super) struct Q4_0;
#[derive(Clone, Copy)]
pub(super) struct Q4_1;

impl Typed for Q8_0 {
    const TYPE: WeightType = WeightType::Q8_0;
}
impl Typed for Q4_0 {
    const TYPE: WeightType = WeightType::Q4_0;
}
impl Typed for Q4_1 {
    const TYPE: WeightType = WeightType::Q4_1;
}

/// All rows times some panels of weights of type `T`.
pub(super) struct OfBlocks<'a, T>(pub(super) Part<'a>, pub(super) T);

impl<T: Typed> Kernel for OfBlocks<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let part = &self.0;
        for tile in 0..part.tiles(S::TILE_ROWS) {
            let (rows, panels) = part.tile(tile, S::TILE_ROWS);
            // Larger tiles than the set has registers for are not compiled.
            match rows.len() {
                1 => row_tile::<S, T, 1>(s, part, rows, panels),
                2 => row_tile::<S, T, 2>(s, part, rows, panels),
                3 => row_tile::<S, T, 3>(s, part, rows, panels),
                4 => row_tile::<S, T, 4>(s, part, rows, panels),
                5 if S::TILE_ROWS >= 5 => row_tile::<S, T, 5>(s, part, rows, panels),
                6 if S::TILE_ROWS >= 6 => row_tile::<S, T, 6>(s, part, rows, panels),
                7 if S::TILE_ROWS >= 7 => row_tile::<S, T, 7>(s, part, rows, panels),
                8 if S::TILE_ROWS >= 8 => row_tile::<S, T, 8>(s, part, rows, panels),
                _ => unreachable!("a tile has 1 to {} rows", S::TILE_ROWS),
            }
        }
    }
}

/// `ROWS` rows times a group of panels.
#[inline(always)]
fn row_tile<S: Simd, T: Typed, const ROWS: usize>(
    s: S,
    part: &Part<'_>,
    rows: Range<usize>,
    panels: Range<usize>,
) {
    let inputs = part.weights.inputs();
    let blocks = inputs / BLOCK_INPUTS;
    let (bytes, scales) = part.input.quantized();
    let bytes = &bytes[rows.start * inputs..][..ROWS * inputs];
    let scales = &scales[rows.start * blocks..][..ROWS * blocks];
    let block_bytes = T::TYPE.block_bytes() * 16;
    for panel in panels {
        let weights = part.panel_bytes(panel, 1);
        assert_eq!(weights.len(), blocks * block_bytes);
        let mut sums = [s.splat(0.0); ROWS];
        for block in 0..blocks {
            // SAFETY: block `block` lies within the panel, whose length was
            // checked, and in each of the `ROWS` rows of `inputs` bytes and
            // `blocks` scales, which were sliced above.
            unsafe {
                let weights = weights.as_ptr().add(block * block_bytes);
                let bytes = bytes.as_ptr().add(block * BLOCK_INPUTS);
                let scales = scales.as_ptr().add(block);
                add_block::<S, T, ROWS>(s, weights, (bytes, inputs), (scales, blocks), &mut sums);
            }
        }
        for (row, sum) in sums.iter().enumerate() {
            part.write(s, rows.start + row, panel, *sum);
        }
    }
}

/// Adds one block's products to the sums of each row.
///
/// # Safety
/// `weights` is a whole panel block of type `T`; `bytes` and `scales` point to
/// the block in the first row, and are paired with the distance between rows.
#[inline(always)]
unsafe fn add_block<S: Simd, T: Typed, const ROWS: usize>(
    s: S,
    weights: *const u8,
    (bytes, byte_stride): (*const i8, usize),
    (scales, scale_stride): (*const BlockScale, usize),
    sums: &mut [S::F32; ROWS],
) {
    let mut at = 0;
    while at < T::TYPE.block_bytes() * 16 {
        s.prefetch(weights.wrapping_add(PREFETCH_BYTES + at));
        at += 64;
    }
    let mut dots = [s.splat_i32(0); ROWS];
    // SAFETY: the caller vouches for the block and the rows; group `g` of 64
    // bytes lies behind the head.
    unsafe {
        for row in 0..ROWS {
            let scale = &*scales.add(row * scale_stride);
            match T::TYPE {
                WeightType::Q8_0 if S::OFFSET_W8 => dots[row] = s.splat_i32(scale.minus_128_sums),
                WeightType::Q4_0 => dots[row] = s.splat_i32(scale.minus_8_sums),
                _ => {}
            }
        }
        let groups = weights.add(head_bytes(T::TYPE));
        if matches!(T::TYPE, WeightType::Q8_0) {
            for group in 0..8 {
                let w = s.load_bytes(groups.add(group * 64));
                for row in 0..ROWS {
                    let x = bytes.add(row * byte_stride + group * 4);
                    dots[row] = s.dot_w8_i8(dots[row], w, x);
                }
            }
        } else {
            for group in 0..4 {
                let w = s.load_bytes(groups.add(group * 64));
                let (low, high) = (s.low_nibbles(w), s.high_nibbles(w));
                for row in 0..ROWS {
                    let x = bytes.add(row * byte_stride + group * 4);
                    dots[row] = s.dot_u7_i8(dots[row], low, x);
                    dots[row] = s.dot_u7_i8(dots[row], high, x.add(16));
                }
            }
        }
        let d = s.load_f16(weights.cast());
        for row in 0..ROWS {
            let scale = &*scales.add(row * scale_stride);
            let step = s.mul(d, s.splat(scale.scale));
            sums[row] = s.mul_add(s.to_f32(dots[row]), step, sums[row]);
            if matches!(T::TYPE, WeightType::Q4_1) {
                let minimum = s.load_f16(weights.add(32).cast());
                sums[row] = s.mul_add(minimum, s.splat(scale.scaled_sum), sums[row]);
            }
        }
    }
}
