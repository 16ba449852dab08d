//! AVX-512 vectors: one register of 16 lanes.

use super::vector::{LANES, Simd, store_bf16};
use std::arch::x86_64::*;

/// Proof that the processor has AVX-512 F, BW, DQ, VL and VNNI, and BF16 if `BF16`.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const BF16: bool>(());

impl<const BF16: bool> Avx512<BF16> {
    /// # Safety
    /// The processor must have AVX-512 F, BW, DQ, VL, VNNI, AVX2, FMA and F16C, and AVX-512 BF16
    /// if `BF16`.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Avx512(())
    }
}

/// Combines the lanes of each of 16 vectors by `$operation`: halves of two vectors are brought into
/// one until all are, so that nothing is done for lanes that no longer count.
macro_rules! reduce_each {
    ($a:expr, $operation:ident) => {{
        let a: &[__m512i; LANES] = $a;
        let mut fours = [_mm512_setzero_si512(); 4];
        for (four, a) in fours.iter_mut().zip(a.as_chunks::<4>().0) {
            let low =
                $operation(_mm512_unpacklo_epi32(a[0], a[1]), _mm512_unpackhi_epi32(a[0], a[1]));
            let high =
                $operation(_mm512_unpacklo_epi32(a[2], a[3]), _mm512_unpackhi_epi32(a[2], a[3]));
            *four = $operation(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
        }
        let mut eights = [_mm512_setzero_si512(); 2];
        for (eight, [a, b]) in eights.iter_mut().zip(fours.as_chunks::<2>().0) {
            *eight = $operation(
                _mm512_shuffle_i32x4::<0x88>(*a, *b),
                _mm512_shuffle_i32x4::<0xDD>(*a, *b),
            );
        }
        let [a, b] = eights;
        let all =
            $operation(_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xDD>(a, b));
        let mut out = [0; LANES];
        _mm512_storeu_si512(out.as_mut_ptr().cast(), all);
        out
    }};
}

// Every block below calls intrinsics whose features `Avx512::new` demands.
impl<const BF16: bool> Simd for Avx512<BF16> {
    type F32 = __m512;
    type I32 = __m512i;
    type Bytes = __m512i;
    type Mask = __mmask16;

    const TILE_ROWS: usize = 8;
    const REGISTERS: usize = 32;
    const OFFSET_W8: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, x: __m512) {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe { _mm512_storeu_ps(to, x) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> __m512 {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u16, x: __m512) {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            let halves = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
            _mm256_storeu_si256(to.cast(), halves);
        }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_abs_ps(a) }
    }
    #[inline(always)]
    fn sqrt(self, a: __m512) -> __m512 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_sqrt_ps(a) }
    }
    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn pow2(self, n: __m512) -> __m512 {
        // SAFETY: `self` proves the features.
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }

    #[inline(always)]
    fn first_lanes(self, count: usize) -> __mmask16 {
        if count >= LANES { !0 } else { (1 << count) - 1 }
    }
    #[inline(always)]
    fn less(self, a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) }
    }
    #[inline(always)]
    fn select(self, mask: __mmask16, yes: __m512, no: __m512) -> __m512 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_mask_blend_ps(mask, no, yes) }
    }

    #[inline(always)]
    fn reduce_add(self, a: __m512) -> f32 {
        // SAFETY: `self` proves the features.
        unsafe {
            let a = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)))
        }
    }
    #[inline(always)]
    fn reduce_max(self, a: __m512) -> f32 {
        // SAFETY: `self` proves the features.
        unsafe {
            let a = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let a = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_max_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)))
        }
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_set1_epi32(x) }
    }
    #[inline(always)]
    fn to_f32(self, a: __m512i) -> __m512 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_cvtepi32_ps(a) }
    }
    #[inline(always)]
    fn to_i32(self, a: __m512) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_cvtps_epi32(a) }
    }
    #[inline(always)]
    fn magnitude_bits(self, a: __m512) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_castps_si512(_mm512_abs_ps(a)) }
    }
    #[inline(always)]
    fn max_i32(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_max_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8) -> __m512i {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> __m512i {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    fn reduce_max_i32(self, a: __m512i) -> i32 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_reduce_max_epi32(a) }
    }
    #[inline(always)]
    fn reduce_add_i32(self, a: __m512i) -> i32 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_reduce_add_epi32(a) }
    }
    #[inline(always)]
    fn reduce_max_i32_of_each(self, a: &[__m512i; LANES]) -> [i32; LANES] {
        // SAFETY: `self` proves the features; `out` has 64 bytes.
        unsafe { reduce_each!(a, _mm512_max_epi32) }
    }
    #[inline(always)]
    fn reduce_add_i32_of_each(self, a: &[__m512i; LANES]) -> [i32; LANES] {
        // SAFETY: `self` proves the features; `out` has 64 bytes.
        unsafe { reduce_each!(a, _mm512_add_epi32) }
    }
    #[inline(always)]
    fn add_i32(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn store_i8(self, to: *mut i8, a: __m512i) {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe { _mm_storeu_si128(to.cast(), _mm512_cvtsepi32_epi8(a)) }
    }
    #[inline(always)]
    unsafe fn store_i8_of_each(self, to: *mut i8, [a, b, c, d]: [__m512i; 4]) {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            // Packing works in quarters of a register, which are put in order at the end.
            let words = [_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d)];
            let bytes = _mm512_packs_epi16(words[0], words[1]);
            let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            _mm512_storeu_si512(to.cast(), _mm512_permutexvar_epi32(order, bytes));
        }
    }

    #[inline(always)]
    unsafe fn load_bytes(self, from: *const u8) -> __m512i {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    fn low_nibbles(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_and_si512(a, _mm512_set1_epi8(15)) }
    }
    #[inline(always)]
    fn high_nibbles(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_and_si512(_mm512_srli_epi16::<4>(a), _mm512_set1_epi8(15)) }
    }
    #[inline(always)]
    fn words_down(self, a: __m512i, by: u32) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_srl_epi16(a, _mm_cvtsi32_si128(by as i32)) }
    }
    #[inline(always)]
    fn words_up_4(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_slli_epi16::<4>(a) }
    }
    #[inline(always)]
    fn or_masked(self, a: __m512i, b: __m512i, mask: u8) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_or_si512(a, _mm512_and_si512(b, _mm512_set1_epi8(mask as i8))) }
    }
    #[inline(always)]
    unsafe fn dot_u7_i8(self, acc: __m512i, weights: __m512i, x: *const i8) -> __m512i {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            let x = _mm512_set1_epi32(x.cast::<i32>().read_unaligned());
            _mm512_dpbusd_epi32(acc, weights, x)
        }
    }
    #[inline(always)]
    unsafe fn dot_w8_i8(self, acc: __m512i, weights: __m512i, x: *const i8) -> __m512i {
        // SAFETY: as `dot_u7_i8`; `vpdpbusd` takes all unsigned bytes and does not saturate.
        unsafe { self.dot_u7_i8(acc, weights, x) }
    }

    #[inline(always)]
    unsafe fn store_i16(self, to: *mut i16, a: __m512i) {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtsepi32_epi16(a)) }
    }
    #[inline(always)]
    unsafe fn dot_i16(self, acc: __m512i, weights: __m512i, x: *const i16) -> __m512i {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            let x = _mm512_set1_epi32(x.cast::<i32>().read_unaligned());
            _mm512_dpwssd_epi32(acc, weights, x)
        }
    }

    #[inline(always)]
    unsafe fn dot_bf16(self, acc: __m512, weights: __m512i, x: *const u32) -> __m512 {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            let x = _mm512_set1_epi32(x.cast::<i32>().read_unaligned());
            if BF16 {
                let pairs = |a: __m512i| std::mem::transmute::<__m512i, __m512bh>(a);
                return _mm512_dpbf16_ps(acc, pairs(weights), pairs(x));
            }
            let mask = _mm512_set1_epi32(0xFFFF_0000_u32 as i32);
            let second = |a| _mm512_castsi512_ps(_mm512_and_si512(a, mask));
            let first = |a| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(a));
            let acc = _mm512_fmadd_ps(second(weights), second(x), acc);
            _mm512_fmadd_ps(first(weights), first(x), acc)
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16, x: __m512) {
        if BF16 {
            // SAFETY: `self` proves the features, the caller vouches for the memory.
            unsafe {
                let halves = std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(x));
                _mm256_storeu_si256(to.cast(), halves);
            }
            return;
        }
        // SAFETY: the caller vouches for the memory.
        unsafe { store_bf16(self, to, x) };
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        // SAFETY: a prefetch of any address has no effect but on caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
}
