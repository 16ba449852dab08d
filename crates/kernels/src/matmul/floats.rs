//! Tiles of float weights: fused multiply-adds, input by input.

use super::tile::{Part, Typed};
use crate::packed::PANEL_OUTPUTS;
use crate::simd::{Kernel, Simd};
use crate::weights::WeightType;
use std::ops::Range;

/// How far ahead of their use weights are asked for.
const PREFETCH_BYTES: usize = 2048;

#[derive(Clone, Copy)]
pub(super) struct F32;
#[derive(Clone, Copy)]
pub(super) struct F16;
#[derive(Clone, Copy)]
pub(super) struct BF16;

impl Typed for F32 {
    const TYPE: WeightType = WeightType::F32;
}
impl Typed for F16 {
    const TYPE: WeightType = WeightType::F16;
}
impl Typed for BF16 {
    const TYPE: WeightType = WeightType::BF16;
}

/// All rows times some panels of weights of type `T`.
pub(super) struct OfFloats<'a, T>(pub(super) Part<'a>, pub(super) T);

impl<T: Typed> Kernel for OfFloats<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let part = &self.0;
        for tile in 0..part.tiles(S::TILE_ROWS) {
            let (rows, panels) = part.tile(tile, S::TILE_ROWS);
            // Enough sums side by side to hide the latency of each, and few
            // enough for the set's registers.
            match rows.len() {
                1 => row_tile::<S, T, 1, 4>(s, part, rows, panels),
                2 => row_tile::<S, T, 2, 2>(s, part, rows, panels),
                3 if S::TILE_ROWS >= 8 => row_tile::<S, T, 3, 2>(s, part, rows, panels),
                3 => row_tile::<S, T, 3, 1>(s, part, rows, panels),
                4 if S::TILE_ROWS >= 8 => row_tile::<S, T, 4, 2>(s, part, rows, panels),
                4 => row_tile::<S, T, 4, 1>(s, part, rows, panels),
                5 if S::TILE_ROWS >= 8 => row_tile::<S, T, 5, 2>(s, part, rows, panels),
                6 if S::TILE_ROWS >= 8 => row_tile::<S, T, 6, 2>(s, part, rows, panels),
                7 if S::TILE_ROWS >= 8 => row_tile::<S, T, 7, 2>(s, part, rows, panels),
                8 if S::TILE_ROWS >= 8 => row_tile::<S, T, 8, 2>(s, part, rows, panels),
                _ => unreachable!("a tile has 1 to {} rows", S::TILE_ROWS),
            }
        }
    }
}

/// `ROWS` rows times a group of panels, `PANELS` at once where so many are left.
#[inline(always)]
fn row_tile<S: Simd, T: Typed, const ROWS: usize, const PANELS: usize>(
    s: S,
    part: &Part<'_>,
    rows: Range<usize>,
    panels: Range<usize>,
) {
    let mut panel = panels.start;
    while panel + PANELS <= panels.end {
        panel_tile::<S, T, ROWS, PANELS>(s, part, rows.start, panel);
        panel += PANELS;
    }
    for panel in panel..panels.end {
        panel_tile::<S, T, ROWS, 1>(s, part, rows.start, panel);
    }
}

/// `ROWS` rows from `row` on times `PANELS` panels from `panel` on.
#[inline(always)]
fn panel_tile<S: Simd, T: Typed, const ROWS: usize, const PANELS: usize>(
    s: S,
    part: &Part<'_>,
    row: usize,
    panel: usize,
) {
    let inputs = part.weights.inputs();
    let x = &part.input.values()[row * inputs..][..ROWS * inputs];
    let weights = part.panel_bytes(panel, PANELS);
    let step = T::TYPE.block_bytes() * PANEL_OUTPUTS;
    let panel_bytes = inputs * step;
    assert_eq!(weights.len(), PANELS * panel_bytes);
    let mut sums = [[s.splat(0.0); PANELS]; ROWS];
    for input in 0..inputs {
        let mut w = [s.splat(0.0); PANELS];
        for (column, w) in w.iter_mut().enumerate() {
            let at = column * panel_bytes + input * step;
            // SAFETY: within the panels, whose length was checked.
            let from = unsafe { weights.as_ptr().add(at) };
            if ROWS == 1 {
                s.prefetch(from.wrapping_add(PREFETCH_BYTES));
            }
            // SAFETY: 16 weights of the type lie there.
            *w = unsafe {
                match T::TYPE {
                    WeightType::F16 => s.load_f16(from.cast()),
                    WeightType::BF16 => s.load_bf16(from.cast()),
                    _ => s.load(from.cast()),
                }
            };
        }
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `x` has `ROWS` rows of `inputs` values.
            let x = s.splat(unsafe { *x.get_unchecked(row * inputs + input) });
            for (sum, w) in sums.iter_mut().zip(w) {
                *sum = s.mul_add(w, x, *sum);
            }
        }
    }
    for (tile_row, sums) in sums.iter().enumerate() {
        for (column, sum) in sums.iter().enumerate() {
            part.write(s, row + tile_row, panel + column, *sum);
        }
    }
}
