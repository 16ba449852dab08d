//! The arithmetic of attention: one tile of rows over one segment of positions.
//!
//! Each row runs the same sequence of operations whatever rows share its tile: scores summed over
//! the dimensions in order, one rescale per 64 keys, values added key by key in order. How many
//! rows and pages are held in registers at once changes nothing of that. Where keys have scales,
//! the products with a block of dimensions are summed on their own, then scaled and added to those
//! of the blocks before; values are scaled as they are read. Where two numbers make up a
//! [cell](Element), the products of both are added at once, and of the last key of an odd number of
//! them the other half of the cell is masked.

// Loops over rows and vectors in registers: every index is one register, in several arrays at once.
#![allow(clippy::needless_range_loop)]

use super::element::Element;
use crate::kv_store::{MAX_HEAD_DIM, PAGE_TOKENS, SCALED_DIMS};
use crate::math::exp2;
use crate::simd::Simd;

/// Rows in one tile at most.
pub(super) const TILE_ROWS: usize = 12;
/// Keys that share one rescale, aligned to absolute position.
pub const TILE_TOKENS: usize = 64;
/// Positions whose partial result is computed on its own, aligned to absolute position.
pub const SEGMENT_TOKENS: usize = 512;

/// Cells from one query of a tile to the next.
pub(super) const QUERY_STRIDE: usize = MAX_HEAD_DIM + 16;
pub(super) const TILE_PAGES: usize = TILE_TOKENS / PAGE_TOKENS;
pub(super) const SEGMENT_PAGES: usize = SEGMENT_TOKENS / PAGE_TOKENS;

/// One unit's memory in a page, in cells: a vector of keys for each cell of dimensions, and a row
/// of values for each cell of the sixteen tokens.
#[derive(Clone, Copy)]
pub(super) struct Unit<E> {
    pub(super) keys: *const E,
    pub(super) values: *const E,
}

impl<E> Unit<E> {
    /// No unit: never read.
    pub(super) const NONE: Unit<E> = Unit { keys: std::ptr::null(), values: std::ptr::null() };
}

/// Shapes that all tiles of a call share.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) head_dim: usize,
    /// `head_dim` rounded up to 16.
    pub(super) value_dims: usize,
    /// How far a unit's scales are behind its keys, in bytes.
    pub(super) key_scales: usize,
    /// How far a unit's scales are behind its values, in bytes.
    pub(super) value_scales: usize,
}

/// Sixteen lanes, aligned so that no vector straddles cache lines.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Lanes(pub(super) [f32; 16]);

impl Lanes {
    pub(super) const ZERO: Lanes = Lanes([0.0; 16]);

    #[inline(always)]
    pub(super) fn load<S: Simd>(&self, s: S) -> S::F32 {
        s.load_slice(&self.0)
    }

    #[inline(always)]
    pub(super) fn store<S: Simd>(&mut self, s: S, x: S::F32) {
        s.store_slice(&mut self.0, x);
    }
}

/// Softmax state of a tile's rows over some positions: `out` is the sum of the values weighted by
/// `2^(score - max)`, and `sum` the sum of those weights.
pub(super) struct Partial<'a> {
    /// One lane for each row, as `sum`.
    pub(super) max: &'a mut [f32; 16],
    pub(super) sum: &'a mut [f32; 16],
    /// `[TILE_ROWS][value_dims]`
    pub(super) out: &'a mut [Lanes],
}

impl<'a> Partial<'a> {
    /// How much memory a partial result takes.
    pub(super) fn lanes(shape: Shape) -> usize {
        2 + TILE_ROWS * shape.value_dims / 16
    }

    /// A partial result in [`Partial::lanes`] of memory, with what that holds.
    #[inline(always)]
    pub(super) fn of(memory: &'a mut [Lanes]) -> Partial<'a> {
        let (head, out) = memory.split_at_mut(2);
        let [max, sum] = head else { unreachable!("split at two") };
        Partial { max: &mut max.0, sum: &mut sum.0, out }
    }
}

/// What a worker needs to run a tile.
pub(super) struct Tile {
    /// Rows in use.
    pub(super) rows: usize,
    /// Keys that each row sees, counted from position 0; zero in unused rows.
    pub(super) visible: [usize; TILE_ROWS],
    /// Cells of queries times scale and log2 e: `[TILE_ROWS][QUERY_STRIDE]`, zero in unused rows.
    /// The fixed stride lets loops address all rows from one register; it is no power of two, so
    /// that rows do not compete for cache sets.
    pub(super) queries: Vec<f32>,
    /// Whether the pages are likely to come from memory, so that asking for the next ones ahead of
    /// their use pays.
    pub(super) asks_ahead: bool,
    /// Rows of `queries` that may not be zero.
    pub(super) used_rows: usize,
    /// Scores of 64 keys, then cells of their weights: `[TILE_ROWS][64]`.
    weights: [[Lanes; TILE_PAGES]; TILE_ROWS],
    /// Sums of the weights, lane by lane.
    sums: [Lanes; TILE_ROWS],
}

impl Tile {
    pub(super) fn new() -> Tile {
        Tile {
            rows: 0,
            visible: [0; TILE_ROWS],
            queries: vec![0.0; TILE_ROWS * QUERY_STRIDE],
            asks_ahead: false,
            used_rows: 0,
            weights: [[Lanes::ZERO; TILE_PAGES]; TILE_ROWS],
            sums: [Lanes::ZERO; TILE_ROWS],
        }
    }
}

/// Runs the tile over the segment that starts at position `start` and whose pages are the first
/// `count` of `units`, as many as the row that sees most needs, and leaves the result in `partial`.
/// The units after those will be needed next. Rows that see nothing of the segment get a maximum
/// of minus infinity and a sum of zero.
///
/// # Safety
/// `units` point to readable memory of the given shape; `tile.queries` and `partial.out` have the
/// sizes that their comments say.
#[inline(always)]
pub(super) unsafe fn segment<S: Simd, E: Element>(
    s: S,
    shape: Shape,
    tile: &mut Tile,
    start: usize,
    units: &[Unit<E>],
    count: usize,
    partial: &mut Partial<'_>,
) {
    partial.max.fill(f32::NEG_INFINITY);
    partial.out[..tile.rows * shape.value_dims / 16].fill(Lanes::ZERO);
    tile.sums = [Lanes::ZERO; TILE_ROWS];
    let mut at = 0;
    while at < count {
        let pages = (count - at).min(TILE_PAGES);
        let next = &units[at + pages..];
        let here = &units[at..at + pages];
        // SAFETY: the caller's promise.
        unsafe { scores(s, shape, tile, here, next) };
        let visible = weigh::<S, E>(s, shape, tile, start + at * PAGE_TOKENS, partial);
        // SAFETY: the caller's promise; a row sees no more keys than `here` has.
        unsafe { add_values(s, shape, tile, here, &visible, partial.out) };
        at += pages;
    }
    for row in 0..tile.rows {
        partial.sum[row] = s.reduce_add(tile.sums[row].load(s));
    }
}

/// Products of queries and keys. Which rows and pages go together is a matter of registers: up to
/// 24 accumulators where there are 32, 6 pairs where there are 16 half as wide.
///
/// # Safety
/// As [`segment`].
#[inline(always)]
unsafe fn scores<S: Simd, E: Element>(
    s: S,
    shape: Shape,
    tile: &mut Tile,
    here: &[Unit<E>],
    next: &[Unit<E>],
) {
    let full = here.len() == TILE_PAGES;
    let rows = tile.rows;
    // SAFETY: the caller's promise, and each call stays within `here` and the tile's rows.
    unsafe {
        if const { S::REGISTERS >= 32 } {
            match rows {
                0 | 1 if full => scores_of::<S, E, 1, 4>(s, shape, tile, 0, here, next),
                2 | 3 if full => scores_of::<S, E, 3, 4>(s, shape, tile, 0, here, next),
                4 if full => scores_of::<S, E, 4, 4>(s, shape, tile, 0, here, next),
                5 | 6 if full => scores_of::<S, E, 6, 4>(s, shape, tile, 0, here, next),
                7 | 8 if full => scores_of::<S, E, 8, 2>(s, shape, tile, 0, here, next),
                _ if full => scores_of::<S, E, 12, 2>(s, shape, tile, 0, here, next),
                0..=3 => scores_of::<S, E, 3, 1>(s, shape, tile, 0, here, next),
                _ => scores_of::<S, E, 12, 1>(s, shape, tile, 0, here, next),
            }
        } else if const { S::REGISTERS >= 8 } {
            match rows {
                0 | 1 if full => scores_of::<S, E, 1, 4>(s, shape, tile, 0, here, next),
                2 | 3 if full => scores_of::<S, E, 3, 2>(s, shape, tile, 0, here, next),
                _ => {
                    for row in (0..rows).step_by(6) {
                        scores_of::<S, E, 6, 1>(s, shape, tile, row, here, next);
                    }
                }
            }
        } else {
            for row in 0..rows {
                scores_of::<S, E, 1, 1>(s, shape, tile, row, here, next);
            }
        }
    }
}

/// `ROWS` rows from `row` on, `PAGES` pages at a time; `PAGES` divides the number of pages.
///
/// # Safety
/// As [`segment`], and `row + ROWS <= TILE_ROWS`.
#[inline(always)]
unsafe fn scores_of<S: Simd, E: Element, const ROWS: usize, const PAGES: usize>(
    s: S,
    shape: Shape,
    tile: &mut Tile,
    row: usize,
    here: &[Unit<E>],
    next: &[Unit<E>],
) {
    debug_assert!(row + ROWS <= TILE_ROWS && here.len().is_multiple_of(PAGES));
    let queries = tile.queries[row * QUERY_STRIDE..].as_ptr();
    let asks_ahead = tile.asks_ahead;
    let cells = shape.head_dim.div_ceil(E::NUMBERS);
    let block = if E::SCALED { SCALED_DIMS } else { cells };
    for first in (0..here.len()).step_by(PAGES) {
        let mut keys = [std::ptr::null::<E>(); PAGES];
        let mut ahead = [std::ptr::null::<u8>(); PAGES];
        for page in 0..PAGES {
            keys[page] = here[first + page].keys;
            ahead[page] = next.get(first + page).map_or(keys[page], |unit| unit.keys).cast();
        }
        for start in (0..cells).step_by(block) {
            let cells = start..cells.min(start + block);
            // SAFETY: the caller's promise; each query and the keys have these cells.
            let sums = unsafe {
                let ahead = asks_ahead.then_some(ahead);
                products::<S, E, ROWS, PAGES>(s, queries, keys, ahead, cells)
            };
            for r in 0..ROWS {
                for page in 0..PAGES {
                    let scores = &mut tile.weights[row + r][first + page];
                    let mut sum = sums[r][page];
                    if E::SCALED {
                        // SAFETY: a unit's scales lie behind its keys, a vector for each block.
                        let scales = unsafe {
                            let scales = keys[page].cast::<u8>().add(shape.key_scales);
                            s.load(scales.cast::<f32>().add(start / SCALED_DIMS * PAGE_TOKENS))
                        };
                        let before = if start == 0 { s.splat(0.0) } else { scores.load(s) };
                        sum = s.mul_add(sum, scales, before);
                    }
                    scores.store(s, sum);
                }
            }
        }
    }
}

/// Products of `ROWS` queries and the keys of `PAGES` pages as they are stored, summed over `cells`
/// of dimensions in order.
///
/// # Safety
/// The queries, [`QUERY_STRIDE`] apart, and the keys have these cells.
#[inline(always)]
unsafe fn products<S: Simd, E: Element, const ROWS: usize, const PAGES: usize>(
    s: S,
    queries: *const f32,
    keys: [*const E; PAGES],
    ahead: Option<[*const u8; PAGES]>,
    cells: std::ops::Range<usize>,
) -> [[S::F32; PAGES]; ROWS] {
    let mut sums = [[s.splat(0.0); PAGES]; ROWS];
    for cell in cells {
        // SAFETY: the caller's promise.
        unsafe {
            let query = queries.add(cell);
            let mut key = [E::zero(s); PAGES];
            for page in 0..PAGES {
                key[page] = E::load(s, keys[page].add(cell * PAGE_TOKENS));
                if let Some(ahead) = ahead {
                    E::prefetch(s, ahead[page], cell);
                }
            }
            for r in 0..ROWS {
                let q = query.add(r * QUERY_STRIDE);
                for page in 0..PAGES {
                    sums[r][page] = E::multiply_add(s, key[page], q, sums[r][page]);
                }
            }
        }
    }
    sums
}

/// Turns the scores of the 64 keys from position `start` on into weights, and rescales what was
/// summed before where a row's maximum grew. Returns how many of the keys each row sees.
#[inline(always)]
fn weigh<S: Simd, E: Element>(
    s: S,
    shape: Shape,
    tile: &mut Tile,
    start: usize,
    partial: &mut Partial<'_>,
) -> [usize; TILE_ROWS] {
    let mut visible = [0; TILE_ROWS];
    for row in 0..tile.rows {
        let sees = tile.visible[row].saturating_sub(start).min(TILE_TOKENS);
        visible[row] = sees;
        if sees == 0 {
            continue;
        }
        let lowest = s.splat(f32::NEG_INFINITY);
        let mut scores = [lowest; TILE_PAGES];
        let mut greatest = lowest;
        for page in 0..TILE_PAGES {
            let lanes = s.first_lanes(sees.saturating_sub(page * PAGE_TOKENS));
            scores[page] = s.select(lanes, tile.weights[row][page].load(s), lowest);
            greatest = s.max(greatest, scores[page]);
        }
        let greatest = s.reduce_max(greatest);
        let mut sums = tile.sums[row].load(s);
        if greatest > partial.max[row] {
            if partial.max[row] > f32::NEG_INFINITY {
                let factor = exp2(s, s.splat(partial.max[row] - greatest));
                sums = s.mul(sums, factor);
                let vectors = shape.value_dims / 16;
                for lanes in &mut partial.out[row * vectors..][..vectors] {
                    lanes.store(s, s.mul(lanes.load(s), factor));
                }
            }
            partial.max[row] = greatest;
        }
        let max = s.splat(partial.max[row]);
        let cells = tile.weights[row].as_mut_ptr().cast::<f32>();
        for page in 0..TILE_PAGES {
            let lanes = s.first_lanes(sees.saturating_sub(page * PAGE_TOKENS));
            let weight = exp2(s, s.sub(scores[page], max));
            let weight = s.select(lanes, weight, s.splat(0.0));
            // SAFETY: a row has cells for the numbers of `TILE_PAGES` pages.
            unsafe { E::keep(s, weight, cells.add(page * E::PAGE_CELLS)) };
        }
        for vector in 0..TILE_PAGES / E::NUMBERS {
            // SAFETY: as above.
            sums = unsafe { E::add_weights(s, cells.add(vector * 16), sums) };
        }
        tile.sums[row].store(s, sums);
    }
    visible
}

/// Adds the weighted values: for a few rows at a time the cells of keys that all of them see, then
/// each row's further ones. Keys that a row does not see are not multiplied on its behalf.
///
/// # Safety
/// As [`segment`], and no row sees more keys than `here` has.
#[inline(always)]
unsafe fn add_values<S: Simd, E: Element>(
    s: S,
    shape: Shape,
    tile: &Tile,
    here: &[Unit<E>],
    visible: &[usize; TILE_ROWS],
    out: &mut [Lanes],
) {
    let mut row = 0;
    while row < tile.rows {
        let rows = match tile.rows - row {
            6.. if const { S::REGISTERS >= 8 } => 6,
            4.. if const { S::REGISTERS >= 32 } => 4,
            3.. if const { S::REGISTERS >= 8 } => 3,
            _ => 1,
        };
        let seen = &visible[row..row + rows];
        let together = seen.iter().copied().min().unwrap_or(0) / E::NUMBERS;
        // SAFETY: the caller's promise; these rows see these keys.
        unsafe {
            let values = Values { tile, here, cells: 0..together, row };
            values.add_rows(s, shape, rows, out);
            for r in 0..rows {
                let whole = visible[row + r] / E::NUMBERS;
                let values = Values { tile, here, cells: together..whole, row: row + r };
                if whole > together {
                    values.add_row(s, shape, 0, out);
                }
                if visible[row + r] > whole * E::NUMBERS {
                    values.add_first_of(s, shape, whole, out);
                }
            }
        }
        row += rows;
    }
}

/// Cells of keys whose values are added to the rows from `row` on.
struct Values<'a, E> {
    tile: &'a Tile,
    here: &'a [Unit<E>],
    cells: std::ops::Range<usize>,
    row: usize,
}

impl<E: Element> Values<'_, E> {
    /// All columns for `rows` rows.
    ///
    /// # Safety
    /// The rows are the tile's and see the keys, and the units are valid.
    #[inline(always)]
    unsafe fn add_rows<S: Simd>(&self, s: S, shape: Shape, rows: usize, out: &mut [Lanes]) {
        let vectors = shape.value_dims / 16;
        let mut column = 0;
        // SAFETY: the caller's promise, and the columns lie within `value_dims`.
        unsafe {
            if const { S::REGISTERS >= 32 } {
                while rows > 1 && column + 4 <= vectors {
                    match rows {
                        6 => self.add::<S, 6, 4>(s, shape, column, out),
                        4 => self.add::<S, 4, 4>(s, shape, column, out),
                        _ => self.add::<S, 3, 4>(s, shape, column, out),
                    }
                    column += 4;
                }
            } else if const { S::REGISTERS >= 8 } {
                while rows > 1 && column < vectors {
                    match rows {
                        6 => self.add::<S, 6, 1>(s, shape, column, out),
                        _ => self.add::<S, 3, 1>(s, shape, column, out),
                    }
                    column += 1;
                }
            }
            // What is left of the columns goes row by row.
            for row in self.row..self.row + rows {
                let cells = self.cells.clone();
                Values { tile: self.tile, here: self.here, cells, row }
                    .add_row(s, shape, column, out);
            }
        }
    }

    /// The columns from `column` on for one row.
    ///
    /// # Safety
    /// As `add_rows`.
    #[inline(always)]
    unsafe fn add_row<S: Simd>(&self, s: S, shape: Shape, column: usize, out: &mut [Lanes]) {
        let vectors = shape.value_dims / 16;
        let mut column = column;
        // SAFETY: the caller's promise, and the columns lie within `value_dims`.
        unsafe {
            if const { S::REGISTERS >= 8 } {
                while column + 4 <= vectors {
                    self.add::<S, 1, 4>(s, shape, column, out);
                    column += 4;
                }
            }
            while column < vectors {
                self.add::<S, 1, 1>(s, shape, column, out);
                column += 1;
            }
        }
    }

    /// The first key of a cell that a row sees no more of.
    ///
    /// # Safety
    /// The row is the tile's and sees the key, and the units are valid.
    #[inline(always)]
    unsafe fn add_first_of<S: Simd>(&self, s: S, shape: Shape, cell: usize, out: &mut [Lanes]) {
        let vectors = shape.value_dims / 16;
        let (page, row_of_page) = (cell / E::PAGE_CELLS, cell % E::PAGE_CELLS);
        let out = &mut out[self.row * vectors..][..vectors];
        for (column, lanes) in out.iter_mut().enumerate() {
            // SAFETY: the caller's promise; a page's row of values has `value_dims` cells.
            let sum = unsafe {
                let value =
                    self.here[page].values.add(row_of_page * shape.value_dims + column * 16);
                let weight = self.tile.weights[self.row].as_ptr().cast::<f32>().add(cell);
                E::multiply_add(s, E::load_first(s, value), weight, lanes.load(s))
            };
            lanes.store(s, sum);
        }
    }

    /// Cell by cell, in order: `out[row][column] += weight[row][key] * value[key][column]`.
    ///
    /// # Safety
    /// As `add_rows`, and `column + COLUMNS` vectors lie within `value_dims`.
    #[inline(always)]
    unsafe fn add<S: Simd, const ROWS: usize, const COLUMNS: usize>(
        &self,
        s: S,
        shape: Shape,
        column: usize,
        out: &mut [Lanes],
    ) {
        let mut sums = [[s.splat(0.0); COLUMNS]; ROWS];
        let vectors = shape.value_dims / 16;
        debug_assert!((self.row + ROWS) * vectors <= out.len());
        debug_assert!(COLUMNS == 1 || column.is_multiple_of(2));
        let out = out[self.row * vectors + column..].as_mut_ptr().cast::<f32>();
        // SAFETY: the caller's promise keeps every access inside the tile, the units and `out`.
        unsafe {
            for r in 0..ROWS {
                for c in 0..COLUMNS {
                    sums[r][c] = s.load(out.add(r * shape.value_dims + c * 16));
                }
            }
            let weights = self.tile.weights[self.row][0].0.as_ptr();
            let mut cell = self.cells.start;
            while cell < self.cells.end {
                let values = self.here[cell / E::PAGE_CELLS].values;
                let mut value = values.add(cell % E::PAGE_CELLS * shape.value_dims + column * 16);
                let scales = values.cast::<u8>().add(shape.value_scales).cast::<f32>();
                let stop = self.cells.end.min((cell / E::PAGE_CELLS + 1) * E::PAGE_CELLS);
                while cell < stop {
                    let mut vectors = [E::zero(s); COLUMNS];
                    for c in 0..COLUMNS {
                        vectors[c] = E::load(s, value.add(c * 16));
                        if E::SCALED {
                            // Two columns are a block; several begin with a block's first.
                            let block = column / 2 + c / 2;
                            let scale = scales.add(block * PAGE_TOKENS + cell % E::PAGE_CELLS);
                            vectors[c] = E::scale(s, vectors[c], *scale);
                        }
                    }
                    for r in 0..ROWS {
                        let weight = weights.add(r * TILE_TOKENS + cell);
                        for c in 0..COLUMNS {
                            sums[r][c] = E::multiply_add(s, vectors[c], weight, sums[r][c]);
                        }
                    }
                    value = value.add(shape.value_dims);
                    cell += 1;
                }
            }
            for r in 0..ROWS {
                for c in 0..COLUMNS {
                    s.store(out.add(r * shape.value_dims + c * 16), sums[r][c]);
                }
            }
        }
    }
}
