//! How the rows, panels and inputs of a matmul are cut into tiles, for weights of any type.

use crate::disjoint::Disjoint;
use crate::packed::{PANEL_OUTPUTS, PackedMatrix};
use crate::quantize::ActivationRows;
use crate::simd::{Kernel, Simd};
use std::ops::Range;

/// Bytes of panels that stay in the second-level cache while all rows pass.
const GROUP_BYTES: usize = 256 << 10;
/// Inputs of a tile that stay in the first-level cache while a group of panels passes; whole
/// blocks of every type.
const CHUNK_INPUTS: usize = 1536;
/// Panels of a group are a multiple of what a tile may take at once.
const GROUP_PANELS: usize = 4;
/// [`CHUNK_INPUTS`] of few rows: two panels, the next two and the rows stay in the first-level
/// cache.
const FEW_ROWS_CHUNK_INPUTS: usize = 768;
/// How far ahead of their use weights are asked for, in each of the panels of a tile: about what
/// one core receives from memory during the latency of a read (42 GB/s, 120 ns).
const PREFETCH_BYTES: usize = 5120;

/// Weights that a kernel is compiled for.
pub(super) trait Tiled: Copy + Send + Sync {
    /// Most rows of a tile where there are 32 registers.
    const WIDE_ROWS: usize;

    /// Up to so many rows, in several tiles, panels are read while all rows of those before are
    /// computed; of more, the first tile of rows alone reads, which is a small part of the time.
    const FEW_ROWS: usize = 0;

    /// The `ROWS` rows of a tile times `PANELS` panels from `panel` on.
    fn panels_at<S: Simd, const ROWS: usize, const PANELS: usize>(
        s: S,
        part: &Part<'_>,
        tile: &Tile,
        panel: usize,
    );

    /// The `ROWS` rows of a tile times its panels, `PANELS` at once if one alone has too few sums
    /// to hide the latency of each.
    #[inline(always)]
    fn panels<S: Simd, const ROWS: usize, const PANELS: usize>(s: S, part: &Part<'_>, tile: &Tile) {
        in_turn::<S, Self, ROWS, PANELS>(s, part, tile);
    }
}

/// All panels of a tile, `PANELS` at a time, and those that are left one by one.
#[inline(always)]
pub(super) fn in_turn<S: Simd, T: Tiled, const ROWS: usize, const PANELS: usize>(
    s: S,
    part: &Part<'_>,
    tile: &Tile,
) {
    let mut panel = tile.panels.start;
    while panel + PANELS <= tile.panels.end {
        T::panels_at::<S, ROWS, PANELS>(s, part, tile, panel);
        panel += PANELS;
    }
    for panel in panel..tile.panels.end {
        T::panels_at::<S, ROWS, 1>(s, part, tile, panel);
    }
}

/// All rows times some panels of weights of type `T`.
pub(super) struct OfTiles<'a, T>(pub(super) Part<'a>, pub(super) T);

impl<T: Tiled> Kernel for OfTiles<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let part = &self.0;
        let wide = if S::REGISTERS >= 32 { T::WIDE_ROWS } else { 0 };
        let most = if wide > 0 { wide } else { S::TILE_ROWS };
        let together = if S::REGISTERS >= 32 { 2 } else { 1 };
        let tiles = part.tiles(most, T::FEW_ROWS, together);
        for index in 0..tiles.count() {
            let tile = tiles.tile(index);
            // Larger tiles than the set has registers for are not compiled.
            match tile.rows.len() {
                1 => T::panels::<S, 1, 4>(s, part, &tile),
                2 => T::panels::<S, 2, 2>(s, part, &tile),
                3 if wide > 0 => T::panels::<S, 3, 2>(s, part, &tile),
                3 => T::panels::<S, 3, 1>(s, part, &tile),
                4 if wide > 0 => T::panels::<S, 4, 2>(s, part, &tile),
                4 => T::panels::<S, 4, 1>(s, part, &tile),
                5 if wide >= 5 => T::panels::<S, 5, 2>(s, part, &tile),
                6 if wide >= 6 => T::panels::<S, 6, 2>(s, part, &tile),
                7 if wide >= 7 => T::panels::<S, 7, 2>(s, part, &tile),
                8 if wide >= 8 => T::panels::<S, 8, 2>(s, part, &tile),
                _ => unreachable!("a tile has 1 to {most} rows"),
            }
        }
    }
}

/// What one worker computes: some panels of the outputs of all rows.
pub(super) struct Part<'a> {
    pub(super) weights: &'a PackedMatrix,
    pub(super) input: &'a ActivationRows,
    pub(super) out: Disjoint<'a, f32>,
    pub(super) panels: Range<usize>,
}

/// Some rows, some panels, and some of the inputs, over which the sums go on.
#[derive(Clone)]
pub(super) struct Tile {
    pub(super) rows: Range<usize>,
    pub(super) panels: Range<usize>,
    pub(super) inputs: Range<usize>,
    pub(super) ahead: Ahead,
}

/// Which weights a tile asks for, ahead of their use.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// How far behind those in use they lie, in the order of the inputs.
    pub(super) bytes: usize,
    /// The first block of inputs that asks.
    pub(super) turn: usize,
    /// Each so many blocks ask.
    pub(super) turns: usize,
}

impl Ahead {
    /// Each block asks for what the tile itself needs soon.
    pub(super) const OWN: Ahead = Ahead { bytes: PREFETCH_BYTES, turn: 0, turns: 1 };
}

/// The tiles of a part, in the order in which they are computed.
pub(super) struct Tiles {
    rows: usize,
    row_tiles: usize,
    panels: Range<usize>,
    /// Panels of a group.
    group: usize,
    inputs: usize,
    /// Inputs of a chunk.
    chunk: usize,
    chunk_bytes: usize,
    /// Whether each tile of rows asks for a share of the weights.
    few_rows: bool,
}

impl Tiles {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.panels.len().div_ceil(self.group) * self.inputs.div_ceil(self.chunk) * self.row_tiles
    }

    /// Tile number `index`.
    pub(super) fn tile(&self, index: usize) -> Tile {
        let (index, tile) = (index / self.row_tiles, index % self.row_tiles);
        let chunks = self.inputs.div_ceil(self.chunk);
        let first = self.panels.start + index / chunks * self.group;
        let start = index % chunks * self.chunk;
        Tile {
            rows: self.rows * tile / self.row_tiles..self.rows * (tile + 1) / self.row_tiles,
            panels: first..(first + self.group).min(self.panels.end),
            inputs: start..(start + self.chunk).min(self.inputs),
            ahead: self.ahead(tile),
        }
    }

    /// What tile number `tile` of a group asks for: where there are few rows, its share of the
    /// next group; else the first tile asks for what it needs itself.
    fn ahead(&self, tile: usize) -> Ahead {
        if self.few_rows {
            Ahead { bytes: self.chunk_bytes, turn: tile, turns: self.row_tiles }
        } else {
            Ahead { turn: if tile == 0 { 0 } else { usize::MAX }, ..Ahead::OWN }
        }
    }
}

impl Part<'_> {
    /// How the part is cut into tiles of at most `most` rows each. A group of panels meets all
    /// rows before the next, so that it is read from memory once. Where there are several tiles
    /// of rows, long inputs are taken in chunks: the sums wait in the output, where they lose
    /// nothing, so that it makes no difference to them.
    /// Up to `few` rows meet `together` panels at a time.
    pub(super) fn tiles(&self, most: usize, few: usize, together: usize) -> Tiles {
        let (rows, inputs) = (self.input.rows(), self.weights.inputs());
        let row_tiles = rows.div_ceil(most);
        let few_rows = row_tiles > 1 && rows <= few;
        let chunk = match row_tiles {
            1 => inputs,
            _ if few_rows => FEW_ROWS_CHUNK_INPUTS.min(inputs),
            _ => CHUNK_INPUTS.min(inputs),
        };
        let chunk_bytes = (self.weights.panel_bytes() * chunk / inputs).max(1);
        let group = if few_rows {
            together
        } else {
            (GROUP_BYTES / chunk_bytes).next_multiple_of(GROUP_PANELS).max(GROUP_PANELS)
        };
        let panels = self.panels.clone();
        Tiles { rows, row_tiles, panels, group, inputs, chunk, chunk_bytes, few_rows }
    }

    /// The bytes of `count` panels from panel `first` on.
    pub(super) fn panel_bytes(&self, first: usize, count: usize) -> &[u8] {
        let bytes = self.weights.panel_bytes();
        &self.weights.panels()[first * bytes..][..count * bytes]
    }

    /// The sums of one panel's outputs for one row, as far as they are.
    #[inline(always)]
    pub(super) fn begin<S: Simd>(&self, s: S, tile: &Tile, row: usize, panel: usize) -> S::F32 {
        if tile.inputs.start == 0 {
            return s.splat(0.0);
        }
        s.load_partial(self.place(row, panel), 0.0)
    }

    /// Writes the sums of one panel's outputs for one row.
    #[inline(always)]
    pub(super) fn end<S: Simd>(&self, s: S, tile: &Tile, row: usize, panel: usize, sum: S::F32) {
        let sum = match self.weights.bias() {
            Some(bias) if tile.inputs.end == self.weights.inputs() => {
                s.add(sum, s.load_slice(&bias[panel * PANEL_OUTPUTS..]))
            }
            _ => sum,
        };
        let to = self.place(row, panel);
        if to.len() == PANEL_OUTPUTS { s.store_slice(to, sum) } else { s.store_partial(to, sum) }
    }

    /// Where one panel's outputs for one row are.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // What `Disjoint` is for.
    fn place(&self, row: usize, panel: usize) -> &mut [f32] {
        let (outputs, first) = (self.weights.outputs(), panel * PANEL_OUTPUTS);
        let start = row * outputs + first;
        let count = (outputs - first).min(PANEL_OUTPUTS);
        debug_assert!(self.panels.contains(&panel));
        // SAFETY: the panel is this worker's own, and no other part of it is alive: callers read
        // or write it at once.
        unsafe { self.out.part(start..start + count) }
    }
}
