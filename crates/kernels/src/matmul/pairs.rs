//! Tiles of bf16 weights: products of pairs of inputs, rounded to bf16 themselves.

use super::tile::Part;
use crate::packed::{PANEL_OUTPUTS, panel_block_bytes};
use crate::simd::{Kernel, Simd};
use crate::weights::WeightType;
use std::ops::Range;

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
        for tile in 0..part.tiles(S::TILE_ROWS) {
            let (rows, panels) = part.tile(tile, S::TILE_ROWS);
            // As many sums side by side as with f32 weights.
            match rows.len() {
                1 => row_tile::<S, 1, 4>(s, part, rows, panels),
                2 => row_tile::<S, 2, 2>(s, part, rows, panels),
                3 if S::TILE_ROWS >= 8 => row_tile::<S, 3, 2>(s, part, rows, panels),
                3 => row_tile::<S, 3, 1>(s, part, rows, panels),
                4 if S::TILE_ROWS >= 8 => row_tile::<S, 4, 2>(s, part, rows, panels),
                4 => row_tile::<S, 4, 1>(s, part, rows, panels),
                5 if S::TILE_ROWS >= 8 => row_tile::<S, 5, 2>(s, part, rows, panels),
                6 if S::TILE_ROWS >= 8 => row_tile::<S, 6, 2>(s, part, rows, panels),
                7 if S::TILE_ROWS >= 8 => row_tile::<S, 7, 2>(s, part, rows, panels),
                8 if S::TILE_ROWS >= 8 => row_tile::<S, 8, 2>(s, part, rows, panels),
                _ => unreachable!("a tile has 1 to {} rows", S::TILE_ROWS),
            }
        }
    }
}

/// `ROWS` rows times a group of panels, `PANELS` at once where so many are left.
#[inline(always)]
fn row_tile<S: Simd, const ROWS: usize, const PANELS: usize>(
    s: S,
    part: &Part<'_>,
    rows: Range<usize>,
    panels: Range<usize>,
) {
    let mut panel = panels.start;
    while panel + PANELS <= panels.end {
        panel_tile::<S, ROWS, PANELS>(s, part, rows.start, panel);
        panel += PANELS;
    }
    for panel in panel..panels.end {
        panel_tile::<S, ROWS, 1>(s, part, rows.start, panel);
    }
}

/// `ROWS` rows from `row` on times `PANELS` panels from `panel` on.
#[inline(always)]
fn panel_tile<S: Simd, const ROWS: usize, const PANELS: usize>(
    s: S,
    part: &Part<'_>,
    row: usize,
    panel: usize,
) {
    let pairs = part.weights.inputs().div_ceil(2);
    let x = &part.input.pairs()[row * pairs..][..ROWS * pairs];
    let weights = part.panel_bytes(panel, PANELS);
    let panel_bytes = pairs * PAIR_BYTES;
    assert_eq!(weights.len(), PANELS * panel_bytes);
    let mut sums = [[s.splat(0.0); PANELS]; ROWS];
    for pair in 0..pairs {
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
    for (tile_row, sums) in sums.iter().enumerate() {
        for (column, sum) in sums.iter().enumerate() {
            part.write(s, row + tile_row, panel + column, *sum);
        }
    }
}

const _: () = assert!(PAIR_BYTES == 4 * PANEL_OUTPUTS, "a pair is one load of 64 bytes");
