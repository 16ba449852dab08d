//! Tiles of weights in floating point: fused multiply-adds of one input or of a pair of them.

use super::tile::{Part, Tile, Tiled};
use crate::packed::panel_block_bytes;
use crate::quantize::ActivationRows;
use crate::simd::Simd;
use crate::weights::WeightType;

/// How far ahead of their use weights are asked for.
const PREFETCH_BYTES: usize = 2048;

/// A type in floating point that a kernel is compiled for.
pub(super) trait Floating: Copy + Send + Sync {
    const TYPE: WeightType;
    /// Inputs of one multiply-add.
    const STEP_INPUTS: usize;
    /// These inputs of a row.
    type Input: Copy;
    /// The weights of 16 outputs for them.
    type Weights<S: Simd>: Copy;

    /// All rows.
    fn inputs(rows: &ActivationRows) -> &[Self::Input];

    /// # Safety
    /// The weights must lie there.
    unsafe fn load<S: Simd>(s: S, from: *const u8) -> Self::Weights<S>;

    /// The sums, the products added.
    fn add<S: Simd>(s: S, sums: S::F32, weights: Self::Weights<S>, input: &Self::Input) -> S::F32;
}

/// f32, which meets one input at a time.
#[derive(Clone, Copy)]
pub(super) struct F32;

impl Floating for F32 {
    const TYPE: WeightType = WeightType::F32;
    const STEP_INPUTS: usize = 1;
    type Input = f32;
    type Weights<S: Simd> = S::F32;

    fn inputs(rows: &ActivationRows) -> &[f32] {
        rows.values()
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const u8) -> S::F32 {
        // SAFETY: the caller vouches for the memory.
        unsafe { s.load(from.cast()) }
    }
    #[inline(always)]
    fn add<S: Simd>(s: S, sums: S::F32, weights: S::F32, input: &f32) -> S::F32 {
        s.mul_add(weights, s.splat(*input), sums)
    }
}

/// bf16, with inputs rounded to bf16 themselves.
#[derive(Clone, Copy)]
pub(super) struct BF16;

impl Floating for BF16 {
    const TYPE: WeightType = WeightType::BF16;
    const STEP_INPUTS: usize = 2;
    type Input = u32;
    type Weights<S: Simd> = S::Bytes;

    fn inputs(rows: &ActivationRows) -> &[u32] {
        rows.pairs()
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const u8) -> S::Bytes {
        // SAFETY: the caller vouches for the memory.
        unsafe { s.load_bytes(from) }
    }
    #[inline(always)]
    fn add<S: Simd>(s: S, sums: S::F32, weights: S::Bytes, input: &u32) -> S::F32 {
        // SAFETY: the pair of inputs is a reference.
        unsafe { s.dot_bf16(sums, weights, input) }
    }
}

impl<T: Floating> Tiled for T {
    const WIDE_ROWS: usize = 8;

    #[inline(always)]
    fn panels_at<S: Simd, const ROWS: usize, const PANELS: usize>(
        s: S,
        part: &Part<'_>,
        tile: &Tile,
        panel: usize,
    ) {
        panels_tile::<S, T, ROWS, PANELS>(s, part, tile, panel);
    }
}

/// The `ROWS` rows of a tile times `PANELS` panels from `panel` on.
#[inline(always)]
fn panels_tile<S: Simd, T: Floating, const ROWS: usize, const PANELS: usize>(
    s: S,
    part: &Part<'_>,
    tile: &Tile,
    panel: usize,
) {
    let row = tile.rows.start;
    let steps = part.weights.inputs().div_ceil(T::STEP_INPUTS);
    let x = &T::inputs(part.input)[row * steps..][..ROWS * steps];
    let weights = part.panel_bytes(panel, PANELS);
    let step_bytes = const { panel_block_bytes(T::TYPE) };
    let panel_bytes = steps * step_bytes;
    assert_eq!(weights.len(), PANELS * panel_bytes);
    let mut sums = [[s.splat(0.0); PANELS]; ROWS];
    for (r, sums) in sums.iter_mut().enumerate() {
        for (column, sum) in sums.iter_mut().enumerate() {
            *sum = part.begin(s, tile, row + r, panel + column);
        }
    }
    for step in tile.inputs.start / T::STEP_INPUTS..tile.inputs.end.div_ceil(T::STEP_INPUTS) {
        // SAFETY: a step of each panel lies within the panels, whose length was checked; `x` has
        // `ROWS` rows of `steps` inputs.
        unsafe {
            let from = weights.as_ptr().add(step * step_bytes);
            let mut w = [T::load(s, from); PANELS];
            for (column, w) in w.iter_mut().enumerate() {
                let from = from.add(column * panel_bytes);
                if ROWS == 1 {
                    s.prefetch(from.wrapping_add(PREFETCH_BYTES));
                }
                *w = T::load(s, from);
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let x = x.get_unchecked(r * steps + step);
                for (sum, w) in sums.iter_mut().zip(w) {
                    *sum = T::add(s, *sum, w, x);
                }
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (column, sum) in sums.iter().enumerate() {
            part.end(s, tile, row + r, panel + column, *sum);
        }
    }
}
