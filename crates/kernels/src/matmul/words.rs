//! Tiles of f16 weights: integer dot products of blocks of 64 words.

use super::tile::{Part, Tile, Tiled};
use crate::packed::{WORDS_GROUP, WORDS_GROUP_INPUTS, WORDS_HEAD, panel_block_bytes};
use crate::simd::Simd;
use crate::weights::WeightType;
use crate::words::WORDS_INPUTS;

/// How far ahead of their use weights are asked for.
const PREFETCH_BYTES: usize = 2048;

/// f16, as blocks of words.
#[derive(Clone, Copy)]
pub(super) struct F16;

impl Tiled for F16 {
    const WIDE_ROWS: usize = 8;

    #[inline(always)]
    fn panels_at<S: Simd, const ROWS: usize, const PANELS: usize>(
        s: S,
        part: &Part<'_>,
        tile: &Tile,
        panel: usize,
    ) {
        panels_tile::<S, ROWS, PANELS>(s, part, tile, panel);
    }
}

/// The `ROWS` rows of a tile times `PANELS` panels from `panel` on.
#[inline(always)]
fn panels_tile<S: Simd, const ROWS: usize, const PANELS: usize>(
    s: S,
    part: &Part<'_>,
    tile: &Tile,
    panel: usize,
) {
    let row = tile.rows.start;
    let blocks = part.weights.inputs().div_ceil(WORDS_INPUTS);
    let (words, scales) = part.input.words();
    let words = &words[row * blocks..][..ROWS * blocks];
    let scales = &scales[row * blocks..][..ROWS * blocks];
    let weights = part.panel_bytes(panel, PANELS);
    let block_bytes = const { panel_block_bytes(WeightType::F16) };
    let panel_bytes = blocks * block_bytes;
    assert_eq!(weights.len(), PANELS * panel_bytes);
    let mut sums = [[s.splat(0.0); PANELS]; ROWS];
    for (r, sums) in sums.iter_mut().enumerate() {
        for (column, sum) in sums.iter_mut().enumerate() {
            *sum = part.begin(s, tile, row + r, panel + column);
        }
    }
    for block in tile.inputs.start / WORDS_INPUTS..tile.inputs.end.div_ceil(WORDS_INPUTS) {
        // SAFETY: a block of each panel, 16 scales and 32 groups, lies within the panels, whose
        // length was checked; there are `ROWS` rows of `blocks` blocks of words and scales.
        unsafe {
            let from = weights.as_ptr().add(block * block_bytes);
            let mut dots = [[s.splat_i32(0); PANELS]; ROWS];
            for group in 0..WORDS_INPUTS / WORDS_GROUP_INPUTS {
                let from = from.add(WORDS_HEAD + group * WORDS_GROUP);
                let mut w = [s.load_bytes(from); PANELS];
                for (column, w) in w.iter_mut().enumerate() {
                    let from = from.add(column * panel_bytes);
                    if ROWS == 1 {
                        s.prefetch(from.wrapping_add(PREFETCH_BYTES));
                    }
                    *w = s.load_bytes(from);
                }
                for (r, dots) in dots.iter_mut().enumerate() {
                    let x = words.get_unchecked(r * blocks + block).as_ptr();
                    for (dot, w) in dots.iter_mut().zip(w) {
                        *dot = s.dot_i16(*dot, w, x.add(group * WORDS_GROUP_INPUTS));
                    }
                }
            }
            for (column, from) in (0..PANELS).map(|c| (c, from.add(c * panel_bytes))) {
                let scale = s.load_f16(from.cast());
                for r in 0..ROWS {
                    let x = *scales.get_unchecked(r * blocks + block);
                    let scale = s.mul(scale, s.splat(x));
                    let dot = s.to_f32(dots[r][column]);
                    sums[r][column] = s.mul_add(dot, scale, sums[r][column]);
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
