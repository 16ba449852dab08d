//! Tiles of quantized weights: integer dot products of blocks of 32 inputs.

use super::tile::{Part, Typed};
use crate::packed::{PANEL_OUTPUTS, head_bytes};
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
                1 => group::<S, T, 1>(s, part, rows, panels),
                2 => group::<S, T, 2>(s, part, rows, panels),
                3 => group::<S, T, 3>(s, part, rows, panels),
                4 => group::<S, T, 4>(s, part, rows, panels),
                5 if S::TILE_ROWS >= 5 => group::<S, T, 5>(s, part, rows, panels),
                6 if S::TILE_ROWS >= 6 => group::<S, T, 6>(s, part, rows, panels),
                7 if S::TILE_ROWS >= 7 => group::<S, T, 7>(s, part, rows, panels),
                8 if S::TILE_ROWS >= 8 => group::<S, T, 8>(s, part, rows, panels),
                _ => unreachable!("a tile has 1 to {} rows", S::TILE_ROWS),
            }
        }
    }
}

/// `ROWS` rows times a group of panels.
#[inline(always)]
fn group<S: Simd, T: Typed, const ROWS: usize>(
    s: S,
    part: &Part<'_>,
    rows: Range<usize>,
    panels: Range<usize>,
) {
    for panel in panels {
        tile::<S, T, ROWS>(s, part, rows.start, panel);
    }
}

/// `ROWS` rows from `row` on times one panel.
#[inline(always)]
fn tile<S: Simd, T: Typed, const ROWS: usize>(s: S, part: &Part<'_>, row: usize, panel: usize) {
    let inputs = part.weights.inputs();
    let blocks = inputs / BLOCK_INPUTS;
    let (bytes, scales) = part.input.quantized();
    let bytes = &bytes[row * inputs..][..ROWS * inputs];
    let scales = &scales[row * blocks..][..ROWS * blocks];
    let weights = part.panel_bytes(panel, 1);
    let block_bytes = T::TYPE.block_bytes() * PANEL_OUTPUTS;
    assert_eq!(weights.len(), blocks * block_bytes);
    let mut sums = [s.splat(0.0); ROWS];
    for block in 0..blocks {
        // SAFETY: block `block` lies within the panel, whose length was
        // checked, and in each of the `ROWS` rows of `inputs` bytes and
        // `blocks` scales, which were sliced above.
        unsafe {
            let at = Block {
                weights: weights.as_ptr().add(block * block_bytes),
                bytes: bytes.as_ptr().add(block * BLOCK_INPUTS),
                scales: scales.as_ptr().add(block),
                blocks,
            };
            if row == 0 {
                at.prefetch::<S, T>(s);
            }
            at.add::<S, T, ROWS>(s, &mut sums);
        }
    }
    for (tile_row, sum) in sums.iter().enumerate() {
        part.write(s, row + tile_row, panel, *sum);
    }
}

/// Where one block of inputs lies in a panel and the first row of a tile.
#[derive(Clone, Copy)]
struct Block {
    weights: *const u8,
    bytes: *const i8,
    scales: *const BlockScale,
    /// Blocks of a row, of [`BLOCK_INPUTS`] bytes and one scale each.
    blocks: usize,
}

impl Block {
    /// Asks for weights that are needed soon, which need not exist.
    #[inline(always)]
    fn prefetch<S: Simd, T: Typed>(self, s: S) {
        let mut at = 0;
        while at < T::TYPE.block_bytes() * PANEL_OUTPUTS {
            s.prefetch(self.weights.wrapping_add(PREFETCH_BYTES + at));
            at += 64;
        }
    }

    /// Adds the block's products to the sums.
    ///
    /// # Safety
    /// The block must exist in a panel of type `T` and in `ROWS` rows.
    #[inline(always)]
    unsafe fn add<S: Simd, T: Typed, const ROWS: usize>(self, s: S, sums: &mut [S::F32; ROWS]) {
        // SAFETY: the caller vouches for the block; it starts with 16 scales,
        // then 16 minimums if it has any, and each row has a scale for it.
        unsafe {
            let dots = self.dots::<S, T, ROWS>(s);
            let d = s.load_f16(self.weights.cast());
            for row in 0..ROWS {
                let scale = &*self.scales.add(row * self.blocks);
                let step = s.mul(d, s.splat(scale.scale));
                sums[row] = s.mul_add(s.to_f32(dots[row]), step, sums[row]);
                if matches!(T::TYPE, WeightType::Q4_1) {
                    let minimum = s.load_f16(self.weights.add(32).cast());
                    sums[row] = s.mul_add(minimum, s.splat(scale.scaled_sum), sums[row]);
                }
            }
        }
    }

    /// The exact sums of products of integers.
    ///
    /// # Safety
    /// As [`add`](Block::add).
    #[inline(always)]
    unsafe fn dots<S: Simd, T: Typed, const ROWS: usize>(self, s: S) -> [S::I32; ROWS] {
        let mut dots = [s.splat_i32(0); ROWS];
        for (row, dot) in dots.iter_mut().enumerate() {
            // SAFETY: the caller vouches for the rows.
            let scale = unsafe { &*self.scales.add(row * self.blocks) };
            match T::TYPE {
                WeightType::Q8_0 if S::OFFSET_W8 => *dot = s.splat_i32(scale.minus_128_sums),
                WeightType::Q4_0 => *dot = s.splat_i32(scale.minus_8_sums),
                _ => {}
            }
        }
        let stride = self.blocks * BLOCK_INPUTS;
        let whole_bytes = matches!(T::TYPE, WeightType::Q8_0);
        for group in 0..if whole_bytes { 8 } else { 4 } {
            // SAFETY: the groups of 64 bytes follow the head of the block, and
            // each row has 32 bytes for it.
            unsafe {
                let w = s.load_bytes(self.weights.add(head_bytes(T::TYPE) + group * 64));
                let (low, high) = (s.low_nibbles(w), s.high_nibbles(w));
                for (row, dot) in dots.iter_mut().enumerate() {
                    let x = self.bytes.add(row * stride + group * 4);
                    if whole_bytes {
                        *dot = s.dot_w8_i8(*dot, w, x);
                    } else {
                        *dot = s.dot_u7_i8(*dot, low, x);
                        *dot = s.dot_u7_i8(*dot, high, x.add(16));
                    }
                }
            }
        }
        dots
    }
}
