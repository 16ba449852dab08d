//! What keys and values are made of.

use crate::bf16::bf16_bits;
use crate::kv_store::{KvType, PAGE_TOKENS};
use crate::simd::{LANES, Simd};

/// Element types of keys and values, by their *cells*: what one load brings to each lane, and four
/// bytes beside it multiply. A cell is one number, or two bf16 numbers side by side.
pub(super) trait Element: Copy {
    /// Which [`KvType`] it is.
    const TYPE: KvType;
    /// Numbers in a cell.
    const NUMBERS: usize = 1;
    /// Rows of cells of the values of a page.
    const PAGE_CELLS: usize = PAGE_TOKENS / Self::NUMBERS;
    /// Whether what is loaded is yet to be multiplied by its token's scale.
    const SCALED: bool = false;
    /// Sixteen cells.
    type Vector<S: Simd>: Copy;

    /// Sixteen cells of zeros.
    fn zero<S: Simd>(s: S) -> Self::Vector<S>;

    /// Safety: 16 readable cells at `from`.
    unsafe fn load<S: Simd>(s: S, from: *const Self) -> Self::Vector<S>;

    /// As [`load`](Self::load), with zeros for all but the first number of each cell. Safety: as
    /// there.
    #[inline(always)]
    unsafe fn load_first<S: Simd>(s: S, from: *const Self) -> Self::Vector<S> {
        // SAFETY: the caller's promise.
        unsafe { Self::load(s, from) }
    }

    /// Numbers times their scale, where they have one.
    #[inline(always)]
    fn scale<S: Simd>(_: S, cells: Self::Vector<S>, _: f32) -> Self::Vector<S> {
        cells
    }

    /// Adds the products of each lane's cell and the one at `by` to `sum`. Safety: a readable cell
    /// at `by`.
    unsafe fn multiply_add<S: Simd>(
        s: S,
        cells: Self::Vector<S>,
        by: *const f32,
        sum: S::F32,
    ) -> S::F32;

    /// Writes a query's numbers times `scale` as cells.
    #[inline(always)]
    fn keep_query(query: &[f32], scale: f32, to: &mut [f32]) {
        for (to, &x) in to.iter_mut().zip(query) {
            *to = x * scale;
        }
    }

    /// Writes weights as cells. Safety: room for the cells of 16 numbers at `to`.
    #[inline(always)]
    unsafe fn keep<S: Simd>(s: S, weights: S::F32, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { s.store(to, weights) };
    }

    /// Adds the numbers of each of 16 cells of weights to its lane. Safety: 16 readable cells.
    #[inline(always)]
    unsafe fn add_weights<S: Simd>(s: S, cells: *const f32, sums: S::F32) -> S::F32 {
        // SAFETY: the caller's promise.
        s.add(sums, unsafe { s.load(cells) })
    }

    /// Asks for a part of a unit: of all its cache lines, once this was called for all cells of
    /// the dimensions.
    fn prefetch<S: Simd>(s: S, unit: *const u8, cell: usize);
}

/// What the types have in common whose cells are one number, as a float in its lane.
macro_rules! one_number {
    ($load:expr) => {
        type Vector<S: Simd> = S::F32;

        #[inline(always)]
        fn zero<S: Simd>(s: S) -> S::F32 {
            s.splat(0.0)
        }

        /// Safety: the trait's.
        #[inline(always)]
        unsafe fn load<S: Simd>(s: S, from: *const Self) -> S::F32 {
            // SAFETY: the caller's promise, which is the trait's.
            unsafe { $load(s, from) }
        }

        /// Safety: the trait's.
        #[inline(always)]
        unsafe fn multiply_add<S: Simd>(
            s: S,
            cells: S::F32,
            by: *const f32,
            sum: S::F32,
        ) -> S::F32 {
            // SAFETY: the caller's promise.
            s.mul_add(cells, s.splat(unsafe { *by }), sum)
        }
    };
}

impl Element for f32 {
    const TYPE: KvType = KvType::F32;
    one_number!(S::load);

    #[inline(always)]
    fn prefetch<S: Simd>(s: S, unit: *const u8, cell: usize) {
        s.prefetch(unit.wrapping_add(cell * 128));
        s.prefetch(unit.wrapping_add(cell * 128 + 64));
    }
}

/// Bits of a 16-bit float.
impl Element for u16 {
    const TYPE: KvType = KvType::F16;
    one_number!(S::load_f16);

    #[inline(always)]
    fn prefetch<S: Simd>(s: S, unit: *const u8, cell: usize) {
        s.prefetch(unit.wrapping_add(cell * 64));
    }
}

/// A byte that a scale belongs to.
impl Element for i8 {
    const TYPE: KvType = KvType::Q8_0;
    const SCALED: bool = true;
    one_number!(|s: S, from| s.to_f32(s.load_i8(from)));

    #[inline(always)]
    fn scale<S: Simd>(s: S, cells: S::F32, scale: f32) -> S::F32 {
        s.mul(cells, s.splat(scale))
    }

    /// Sixteen dimensions of keys and values are eight lines, and half of their scales is one.
    #[inline(always)]
    fn prefetch<S: Simd>(s: S, unit: *const u8, cell: usize) {
        if cell % 16 < 9 {
            s.prefetch(unit.wrapping_add((cell / 16 * 9 + cell % 16) * 64));
        }
    }
}

/// The cell of 1 and 1.
const ONES: u32 = 0x3F80_3F80;

/// Two bf16 numbers, the first in the low half.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Pair(u32);

impl Element for Pair {
    const TYPE: KvType = KvType::BF16;
    const NUMBERS: usize = 2;
    type Vector<S: Simd> = S::Bytes;

    #[inline(always)]
    fn zero<S: Simd>(s: S) -> S::Bytes {
        let zeros = [0u8; 4 * LANES];
        // SAFETY: sixteen cells.
        unsafe { s.load_bytes(zeros.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const Pair) -> S::Bytes {
        // SAFETY: the caller's promise.
        unsafe { s.load_bytes(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load_first<S: Simd>(s: S, from: *const Pair) -> S::Bytes {
        let mut cells = [0u32; LANES];
        // SAFETY: the caller's promise, and `cells` are sixteen.
        unsafe {
            for (lane, cell) in cells.iter_mut().enumerate() {
                *cell = (*from.add(lane)).0 & 0xFFFF;
            }
            s.load_bytes(cells.as_ptr().cast())
        }
    }

    #[inline(always)]
    unsafe fn multiply_add<S: Simd>(s: S, cells: S::Bytes, by: *const f32, sum: S::F32) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { s.dot_bf16(sum, cells, by.cast()) }
    }

    #[inline(always)]
    fn keep_query(query: &[f32], scale: f32, to: &mut [f32]) {
        let (pairs, last) = query.as_chunks::<2>();
        for (to, [first, second]) in to.iter_mut().zip(pairs) {
            let pair = bf16_bits(first * scale) | bf16_bits(second * scale) << 16;
            *to = f32::from_bits(pair);
        }
        if let [last] = last {
            to[pairs.len()] = f32::from_bits(bf16_bits(last * scale));
        }
    }

    #[inline(always)]
    unsafe fn keep<S: Simd>(s: S, weights: S::F32, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { s.store_bf16(to.cast(), weights) };
    }

    #[inline(always)]
    unsafe fn add_weights<S: Simd>(s: S, cells: *const f32, sums: S::F32) -> S::F32 {
        // SAFETY: the caller's promise; `ONES` is a cell.
        unsafe { s.dot_bf16(sums, s.load_bytes(cells.cast()), &ONES) }
    }

    #[inline(always)]
    fn prefetch<S: Simd>(s: S, unit: *const u8, cell: usize) {
        s.prefetch(unit.wrapping_add(cell * 128));
        s.prefetch(unit.wrapping_add(cell * 128 + 64));
    }
}
