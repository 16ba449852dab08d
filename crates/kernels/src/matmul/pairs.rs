//! Tiles of bf16 weights: products of pairs of inputs, rounded to bf16 themselves.

use super::tile::{Part, Tile};
use crate::packed::{PANEL_OUTPUTS, panel_block_bytes};
use crate::simd::{Kernel, Simd};
use crate::weights::WeightType;

/// How far ahead of their use weights are asked for.
const PREFETCH_BYTES: usize = 2048;
/// Bytes of a pair of inputs of a panel.
const PAIR_BYTES: usize = panel_block_bytes(WeightType::BF16);

/// All rows times some panels of bf16 weights.
pub(super) struct OfPairs<'a>(pub(super) Part<'a>);

impl Kernel for OfPairs<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let part = &self.0;
        let tiles = part.tiles(S::TILE_ROWS);
        for index in 0..tiles.count() {
            let tile = tiles.tile(index);
            // As many sums side by side as with f32 weights.
            match tile.rows.len() {
                1 => panels::<S, 1, 4>(s, part, &tile),
                2 => panels::<S, 2, 2>(s, part, &tile),
                3 if S::TILE_ROWS >= 8 => panels::<S, 3, 2>(s, part, &tile),
                3 => panels::<S, 3, 1>(s, part, &tile),
                4 if S::TILE_ROWS >= 8 => panels::<S, 4, 2>(s, part, &tile),
                4 => panels::<S, 4, 1>(s, part, &tile),
                5 if S::TILE_ROWS >= 8 => panels::<S, 5, 2>(s, part, &tile),
                6 if S::TILE_ROWS >= 8 => panels::<S, 6, 2>(s, part, &tile),
                7 if S::TILE_ROWS >= 8 => panels::<S, 7, 2>(s, part, &tile),
                8 if S::TILE_ROWS >= 8 => panels::<S, 8, 2>(s, part, &tile),
                _ => unreachable!("a tile has 1 to {} rows", S::TILE_ROWS),
            }
        }
    }
}

/// The `ROWS` rows of a tile times its panels, `PANELS` at once where so many are left.
#[inline(always)]
fn panels<S: Simd, const ROWS: usize, const PANELS: usize>(s: S, part: &Part<'_>, tile: &Tile) {
    let mut panel = tile.panels.start;
    while panel + PANELS <= tile.panels.end {
        panel_tile::<S, ROWS, PANELS>(s, part, tile, panel);
        panel += PANELS;
    }
    for panel in panel..tile.panels.end {
        panel_tile::<S, ROWS, 1>(s, part, tile, panel);
    }
}

/// The `ROWS` rows of a tile times `PANELS` panels from `panel` on.
#[inline(always)]
fn panel_tile<S: Simd, const ROWS: usize, const PANELS: usize>(
    s: S,
    part: &Part<'_>,
    tile: &Tile,
    panel: usize,
) {
    let row = tile.rows.start;
    let pairs = part.weights.inputs().div_ceil(2);
    let x = &part.input.pairs()[row * pairs..][..ROWS * pairs];
    let weights = part.panel_bytes(panel, PANELS);
    let panel_bytes = pairs * PAIR_BYTES;
    assert_eq!(weights.len(), PANELS * panel_bytes);
    let mut sums = [[s.splat(0.0); PANELS]; ROWS];
    for (r, sums) in sums.iter_mut().enumerate() {
        for (column, sum) in sums.iter_mut().enumerate() {
            *sum = part.begin(s, tile, row + r, panel + column);
        }
    }
    for pair in tile.inputs.start / 2..tile.inputs.end.div_ceil(2) {
        // SAFETY: a pair of inputs of each panel lies within the panels, whose length was
        // checked; `x` has `ROWS` rows of `pairs` pairs.
        unsafe {
            let from = weights.as_ptr().add(pair * PAIR_BYTES);
            let mut w = [s.load_bytes(from); PANELS];
            for (column, w) in w.iter_mut().enumerate() {
                let from = from.add(column * panel_bytes);
                if ROWS == 1 {
                    s.prefetch(from.wrapping_add(PREFETCH_BYTES));
                }
                *w = s.load_bytes(from);
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let x = x.as_ptr().add(r * pairs + pair);
                for (sum, w) in sums.iter_mut().zip(w) {
                    *sum = s.dot_bf16(*sum, w, x);
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

const _: () = assert!(PAIR_BYTES == 4 * PANEL_OUTPUTS, "a pair is one load of 64 bytes");
