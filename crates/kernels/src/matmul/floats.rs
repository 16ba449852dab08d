//! Tiles of f32 and f16 weights: fused multiply-adds, input by input.

use super::tile::{Part, Tile, Typed};
use crate::packed::PANEL_OUTPUTS;
use crate::simd::{Kernel, Simd};
use crate::weights::WeightType;

/// How far ahead of their use weights are asked for.
const PREFETCH_BYTES: usize = 2048;

#[derive(Clone, Copy)]
pub(super) struct F32;
#[derive(Clone, Copy)]
pub(super) struct F16;

impl Typed for F32 {
    const TYPE: WeightType = WeightType::F32;
}
impl Typed for F16 {
    const TYPE: WeightType = WeightType::F16;
}

/// All rows times some panels of weights of type `T`.
pub(super) struct OfFloats<'a, T>(pub(super) Part<'a>, pub(super) T);

impl<T: Typed> Kernel for OfFloats<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let part = &self.0;
        let tiles = part.tiles(S::TILE_ROWS);
        for index in 0..tiles.count() {
            let tile = tiles.tile(index);
            // Enough sums side by side to hide the latency of each, and few
            // enough for the set's registers.
            match tile.rows.len() {
                1 => panels::<S, T, 1, 4>(s, part, &tile),
                2 => panels::<S, T, 2, 2>(s, part, &tile),
                3 if S::TILE_ROWS >= 8 => panels::<S, T, 3, 2>(s, part, &tile),
                3 => panels::<S, T, 3, 1>(s, part, &tile),
                4 if S::TILE_ROWS >= 8 => panels::<S, T, 4, 2>(s, part, &tile),
                4 => panels::<S, T, 4, 1>(s, part, &tile),
                5 if S::TILE_ROWS >= 8 => panels::<S, T, 5, 2>(s, part, &tile),
                6 if S::TILE_ROWS >= 8 => panels::<S, T, 6, 2>(s, part, &tile),
                7 if S::TILE_ROWS >= 8 => panels::<S, T, 7, 2>(s, part, &tile),
                8 if S::TILE_ROWS >= 8 => panels::<S, T, 8, 2>(s, part, &tile),
                _ => unreachable!("a tile has 1 to {} rows", S::TILE_ROWS),
            }
        }
    }
}

/// The `ROWS` rows of a tile times its panels, `PANELS` at once where so many are left.
#[inline(always)]
fn panels<S: Simd, T: Typed, const ROWS: usize, const PANELS: usize>(
    s: S,
    part: &Part<'_>,
    tile: &Tile,
) {
    let mut panel = tile.panels.start;
    while panel + PANELS <= tile.panels.end {
        panel_tile::<S, T, ROWS, PANELS>(s, part, tile, panel);
        panel += PANELS;
    }
    for panel in panel..tile.panels.end {
        panel_tile::<S, T, ROWS, 1>(s, part, tile, panel);
    }
}

/// The `ROWS` rows of a tile times `PANELS` panels from `panel` on.
#[inline(always)]
fn panel_tile<S: Simd, T: Typed, const ROWS: usize, const PANELS: usize>(
    s: S,
    part: &Part<'_>,
    tile: &Tile,
    panel: usize,
) {
    let row = tile.rows.start;
    let inputs = part.weights.inputs();
    let x = &part.input.values()[row * inputs..][..ROWS * inputs];
    let weights = part.panel_bytes(panel, PANELS);
    let step = T::TYPE.block_bytes() * PANEL_OUTPUTS;
    let panel_bytes = inputs * step;
    assert_eq!(weights.len(), PANELS * panel_bytes);
    let mut sums = [[s.splat(0.0); PANELS]; ROWS];
    for (r, sums) in sums.iter_mut().enumerate() {
        for (column, sum) in sums.iter_mut().enumerate() {
            *sum = part.begin(s, tile, row + r, panel + column);
        }
    }
    for input in tile.inputs.clone() {
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
    for (r, sums) in sums.iter().enumerate() {
        for (column, sum) in sums.iter().enumerate() {
            part.end(s, tile, row + r, panel + column, *sum);
        }
    }
}
