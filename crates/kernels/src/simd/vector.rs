//! The trait that kernels are written against.

use crate::bf16::bf16_bits;

/// Lanes of a vector, on every instruction set.
pub(crate) const LANES: usize = 16;

/// 16-lane vectors of one instruction set.
///
/// A value of an implementing type is proof that the processor has the set, so
/// arithmetic is safe; only access through pointers is not. Every operation is
/// one rounding in IEEE 754 single precision (only [`mul_add`](Simd::mul_add)
/// of the scalar set rounds twice), so that a kernel's bits are given by its
/// order of operations.
#[allow(clippy::missing_safety_doc)] // The two kinds of contract are stated at each method.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// 16 lanes of f32.
    type F32: Copy;
    /// 16 lanes of i32.
    type I32: Copy;
    /// 64 bytes: lane `i` of a dot product takes bytes `4 * i ..= 4 * i + 3`.
    type Bytes: Copy;
    /// 16 lanes of yes or no.
    type Mask: Copy;

    /// How many rows the many-row matmul keeps in registers.
    const TILE_ROWS: usize;
    /// How many `F32` the registers hold.
    const REGISTERS: usize;
    /// Whether [`dot_w8_i8`](Simd::dot_w8_i8) takes 8-bit weights as `w + 128`
    /// in an unsigned byte, rather than as they are.
    const OFFSET_W8: bool;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F32;
    /// Safety: 16 readable values at `from`, of any alignment.
    unsafe fn load(self, from: *const f32) -> Self::F32;
    /// Safety: 16 writable values at `to`, of any alignment.
    unsafe fn store(self, to: *mut f32, x: Self::F32);
    /// From IEEE half precision. Safety: 16 readable values at `from`, of any alignment.
    unsafe fn load_f16(self, from: *const u16) -> Self::F32;
    /// To IEEE half precision, ties to even, too large becomes infinity.
    /// Safety: 16 writable values at `to`, of any alignment.
    unsafe fn store_f16(self, to: *mut u16, x: Self::F32);

    /// `a + b`
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a - b`
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b`
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a / b`
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b + c`, fused (not on the scalar set).
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// `a > b ? a : b`, so `b` where either is NaN.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a < b ? a : b`, so `b` where either is NaN.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// Magnitude.
    fn abs(self, a: Self::F32) -> Self::F32;
    /// Square root.
    fn sqrt(self, a: Self::F32) -> Self::F32;
    /// To the nearest integer, ties to even.
    fn round(self, a: Self::F32) -> Self::F32;
    /// `2^n` for integral `n` in `-126 ..= 127`.
    fn pow2(self, n: Self::F32) -> Self::F32;

    /// Lanes `0 .. count` (all from 16 on).
    fn first_lanes(self, count: usize) -> Self::Mask;
    /// Where `a < b`; never where either is NaN.
    fn less(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// `yes` where the mask is set, else `no`.
    fn select(self, mask: Self::Mask, yes: Self::F32, no: Self::F32) -> Self::F32;

    /// Sum of the lanes, always as lane `i` plus lane `i + 8`, of that `i` plus
    /// `i + 4`, then 2, then 1.
    fn reduce_add(self, a: Self::F32) -> f32;
    /// Greatest lane, in the order of [`reduce_add`](Simd::reduce_add).
    fn reduce_max(self, a: Self::F32) -> f32;

    /// All lanes `x`.
    fn splat_i32(self, x: i32) -> Self::I32;
    /// To f32, ties to even.
    fn to_f32(self, a: Self::I32) -> Self::F32;
    /// To i32, ties to even; undefined lanes (but no undefined behaviour) for
    /// what is not representable.
    fn to_i32(self, a: Self::F32) -> Self::I32;
    /// The bits of the magnitude. As integers they are in the order of the
    /// magnitudes; those of infinity and then NaN are the greatest.
    fn magnitude_bits(self, a: Self::F32) -> Self::I32;
    /// The greater of `a` and `b`.
    fn max_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Greatest lane.
    fn reduce_max_i32(self, a: Self::I32) -> i32;
    /// From unsigned bytes. Safety: 16 readable bytes at `from`, of any alignment.
    unsafe fn load_u8(self, from: *const u8) -> Self::I32;
    /// From signed bytes. Safety: 16 readable bytes at `from`, of any alignment.
    unsafe fn load_i8(self, from: *const i8) -> Self::I32;
    /// Sum of the lanes, wrapping.
    fn reduce_add_i32(self, a: Self::I32) -> i32;
    /// Of each of 16 vectors the greatest lane.
    #[inline(always)]
    fn reduce_max_i32_of_each(self, a: &[Self::I32; LANES]) -> [i32; LANES] {
        let mut out = [0; LANES];
        for (out, &a) in out.iter_mut().zip(a) {
            *out = self.reduce_max_i32(a);
        }
        out
    }
    /// Of each of 16 vectors the sum of the lanes, wrapping.
    #[inline(always)]
    fn reduce_add_i32_of_each(self, a: &[Self::I32; LANES]) -> [i32; LANES] {
        let mut out = [0; LANES];
        for (out, &a) in out.iter_mut().zip(a) {
            *out = self.reduce_add_i32(a);
        }
        out
    }
    /// `a + b`, wrapping.
    fn add_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Safety: 16 writable bytes at `to`; lanes are in `-128 ..= 127`.
    unsafe fn store_i8(self, to: *mut i8, a: Self::I32);

    /// As [`store_i8`](Simd::store_i8), four vectors one after the other. Safety: 64 writable bytes
    /// at `to`.
    #[inline(always)]
    unsafe fn store_i8_of_each(self, to: *mut i8, a: [Self::I32; 4]) {
        for (i, a) in a.into_iter().enumerate() {
            // SAFETY: the caller vouches for 16 bytes for each.
            unsafe { self.store_i8(to.add(i * LANES), a) };
        }
    }

    /// Safety: 64 readable bytes at `from`, of any alignment.
    unsafe fn load_bytes(self, from: *const u8) -> Self::Bytes;
    /// The low four bits of every byte.
    fn low_nibbles(self, a: Self::Bytes) -> Self::Bytes;
    /// The high four bits of every byte.
    fn high_nibbles(self, a: Self::Bytes) -> Self::Bytes;
    /// Moves the bits of every 16-bit word down by `by`, zeros coming in; `by` is below 16.
    fn words_down(self, a: Self::Bytes, by: u32) -> Self::Bytes;
    /// Moves the bits of every 16-bit word up by four, zeros coming in.
    fn words_up_4(self, a: Self::Bytes) -> Self::Bytes;
    /// Every byte of `a`, or'ed with the bits of `b` that are set in `mask`.
    fn or_masked(self, a: Self::Bytes, b: Self::Bytes, mask: u8) -> Self::Bytes;
    /// Per lane, `acc` plus the dot product of four unsigned weights below 128
    /// and the four signed activations at `x`, which all lanes share.
    /// Safety: 4 readable bytes at `x`.
    unsafe fn dot_u7_i8(self, acc: Self::I32, weights: Self::Bytes, x: *const i8) -> Self::I32;
    /// Per lane, `acc` plus the dot product of four 8-bit weights, stored as
    /// [`OFFSET_W8`](Simd::OFFSET_W8) says, and the four signed activations at
    /// `x`, each at least -127. With the offset the sum is too great by 128
    /// times the sum of the activations. Exact: nothing saturates.
    /// Safety: 4 readable bytes at `x`.
    unsafe fn dot_w8_i8(self, acc: Self::I32, weights: Self::Bytes, x: *const i8) -> Self::I32;

    /// Safety: 16 writable values at `to`; lanes are in `-32768 ..= 32767`.
    unsafe fn store_i16(self, to: *mut i16, a: Self::I32);
    /// Per lane, `acc` plus the dot product of two 16-bit weights above -32768 and the two 16-bit
    /// activations at `x`, which all lanes share; wrapping. Safety: 4 readable bytes at `x`.
    unsafe fn dot_i16(self, acc: Self::I32, weights: Self::Bytes, x: *const i16) -> Self::I32;

    /// Per lane, `acc` plus the products of two bf16 weights (the first in the low half of four
    /// bytes) and the two bf16 activations at `x`, which all lanes share: first the second
    /// product is added, then the first, each by a [`mul_add`](Simd::mul_add) of f32. A set with
    /// an instruction for it may take numbers below 2^-126 for zero.
    /// Safety: 4 readable bytes at `x`.
    unsafe fn dot_bf16(self, acc: Self::F32, weights: Self::Bytes, x: *const u32) -> Self::F32;

    /// Rounds to bf16, ties to even. A set with an instruction for it may take numbers below
    /// 2^-126 for zero.
    /// Safety: 16 writable elements at `to`.
    unsafe fn store_bf16(self, to: *mut u16, x: Self::F32);

    /// Asks for the cache line of an address, which need not be valid.
    fn prefetch(self, address: *const u8);

    /// The first 16 values of `from`.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    fn load_slice(self, from: &[f32]) -> Self::F32 {
        assert!(from.len() >= LANES);
        // SAFETY: the length was checked.
        unsafe { self.load(from.as_ptr()) }
    }

    /// Writes the first 16 values of `to`.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    fn store_slice(self, to: &mut [f32], x: Self::F32) {
        assert!(to.len() >= LANES);
        // SAFETY: the length was checked.
        unsafe { self.store(to.as_mut_ptr(), x) }
    }

    /// The values of `from`, at most 16, then `fill`.
    #[inline(always)]
    fn load_partial(self, from: &[f32], fill: f32) -> Self::F32 {
        let mut lanes = [fill; LANES];
        let count = from.len().min(LANES);
        lanes[..count].copy_from_slice(&from[..count]);
        // SAFETY: `lanes` has 16 values.
        unsafe { self.load(lanes.as_ptr()) }
    }

    /// Writes as many lanes as `to` has room for, at most 16.
    #[inline(always)]
    fn store_partial(self, to: &mut [f32], x: Self::F32) {
        let lanes = self.to_array(x);
        let count = to.len().min(LANES);
        to[..count].copy_from_slice(&lanes[..count]);
    }

    /// The lanes.
    #[inline(always)]
    fn to_array(self, x: Self::F32) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        // SAFETY: `lanes` has 16 values.
        unsafe { self.store(lanes.as_mut_ptr(), x) };
        lanes
    }
}

/// [`Simd::store_bf16`] of a set without an instruction for it.
///
/// # Safety
/// 16 writable elements at `to`.
#[inline(always)]
pub(super) unsafe fn store_bf16<S: Simd>(s: S, to: *mut u16, x: S::F32) {
    for (lane, x) in s.to_array(x).into_iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { to.add(lane).write(bf16_bits(x) as u16) };
    }
}
