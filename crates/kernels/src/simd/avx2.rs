//! AVX2 vectors: two registers of 8 lanes; the byte dot product comes from
//! AVX-VNNI where the processor has it.

use super::vector::{LANES, Simd, store_bf16};
use std::arch::x86_64::*;

/// Proof that the processor has AVX2, FMA and F16C, and AVX-VNNI if `VNNI`.
#[derive(Clone, Copy)]
pub(crate) struct Avx2<const VNNI: bool>(());

impl<const VNNI: bool> Avx2<VNNI> {
    /// # Safety
    /// The processor must have AVX2, FMA and F16C, and AVX-VNNI if `VNNI`.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Avx2(())
    }
}

/// Lanes 0 to 7 and 8 to 15.
#[derive(Clone, Copy)]
pub(crate) struct Two<T>(T, T);

type F = Two<__m256>;
type I = Two<__m256i>;

/// Defines a method that does the same to both halves.
macro_rules! both {
    ($name:ident($($arg:ident),+): $of:ty => $to:ty, $operation:expr) => {
        #[inline(always)]
        fn $name(self, $($arg: $of),+) -> $to {
            // SAFETY: `self` proves the features.
            unsafe { Two($operation($($arg.0),+), $operation($($arg.1),+)) }
        }
    };
}

/// Reduces 8 sums of lanes `i` and `i + 8` further.
macro_rules! reduce {
    ($a:expr, $op256:ident, $op128:ident, $op1:ident) => {{
        let a = $op256($a.0, $a.1);
        let a = $op128(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
        let a = $op128(a, _mm_movehl_ps(a, a));
        _mm_cvtss_f32($op1(a, _mm_movehdup_ps(a)))
    }};
}

impl<const VNNI: bool> Simd for Avx2<VNNI> {
    type F32 = F;
    type I32 = I;
    type Bytes = I;
    type Mask = F;

    const TILE_ROWS: usize = 4;
    const REGISTERS: usize = 8;
    const OFFSET_W8: bool = VNNI;

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        // SAFETY: `self` proves the features.
        let x = unsafe { _mm256_set1_ps(x) };
        Two(x, x)
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> F {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe { Two(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, x: F) {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            _mm256_storeu_ps(to, x.0);
            _mm256_storeu_ps(to.add(8), x.1);
        }
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> F {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            let low = _mm256_cvtph_ps(_mm_loadu_si128(from.cast()));
            Two(low, _mm256_cvtph_ps(_mm_loadu_si128(from.add(8).cast())))
        }
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u16, x: F) {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            let low = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x.0);
            let high = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x.1);
            _mm_storeu_si128(to.cast(), low);
            _mm_storeu_si128(to.add(8).cast(), high);
        }
    }

    both!(add(a, b): F => F, _mm256_add_ps);
    both!(sub(a, b): F => F, _mm256_sub_ps);
    both!(mul(a, b): F => F, _mm256_mul_ps);
    both!(div(a, b): F => F, _mm256_div_ps);
    both!(mul_add(a, b, c): F => F, _mm256_fmadd_ps);
    both!(max(a, b): F => F, _mm256_max_ps);
    both!(min(a, b): F => F, _mm256_min_ps);
    both!(sqrt(a): F => F, _mm256_sqrt_ps);
    both!(to_f32(a): I => F, _mm256_cvtepi32_ps);
    both!(to_i32(a): F => I, _mm256_cvtps_epi32);
    both!(add_i32(a, b): I => I, _mm256_add_epi32);
    both!(max_i32(a, b): I => I, _mm256_max_epi32);
    both!(less(a, b): F => F, _mm256_cmp_ps::<_CMP_LT_OQ>);

    #[inline(always)]
    fn abs(self, a: F) -> F {
        // SAFETY: `self` proves the features.
        unsafe {
            let sign = _mm256_set1_ps(-0.0);
            Two(_mm256_andnot_ps(sign, a.0), _mm256_andnot_ps(sign, a.1))
        }
    }
    #[inline(always)]
    fn round(self, a: F) -> F {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: `self` proves the features.
        unsafe { Two(_mm256_round_ps::<NEAREST>(a.0), _mm256_round_ps::<NEAREST>(a.1)) }
    }
    #[inline(always)]
    fn pow2(self, n: F) -> F {
        let biased = self.add_i32(self.to_i32(n), self.splat_i32(127));
        // SAFETY: `self` proves the features.
        unsafe {
            let low = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased.0));
            Two(low, _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased.1)))
        }
    }

    #[inline(always)]
    fn first_lanes(self, count: usize) -> F {
        // SAFETY: `self` proves the features.
        unsafe {
            let count = _mm256_set1_epi32(count.min(LANES) as i32);
            let low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
            let low = _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, low));
            Two(low, _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, high)))
        }
    }
    #[inline(always)]
    fn select(self, mask: F, yes: F, no: F) -> F {
        // SAFETY: `self` proves the features.
        unsafe {
            let low = _mm256_blendv_ps(no.0, yes.0, mask.0);
            Two(low, _mm256_blendv_ps(no.1, yes.1, mask.1))
        }
    }

    #[inline(always)]
    fn reduce_add(self, a: F) -> f32 {
        // SAFETY: `self` proves the features.
        unsafe { reduce!(a, _mm256_add_ps, _mm_add_ps, _mm_add_ss) }
    }
    #[inline(always)]
    fn reduce_max(self, a: F) -> f32 {
        // SAFETY: `self` proves the features.
        unsafe { reduce!(a, _mm256_max_ps, _mm_max_ps, _mm_max_ss) }
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> I {
        // SAFETY: `self` proves the features.
        let x = unsafe { _mm256_set1_epi32(x) };
        Two(x, x)
    }
    #[inline(always)]
    fn magnitude_bits(self, a: F) -> I {
        let a = self.abs(a);
        // SAFETY: `self` proves the features.
        unsafe { Two(_mm256_castps_si256(a.0), _mm256_castps_si256(a.1)) }
    }
    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8) -> I {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            let bytes = _mm_loadu_si128(from.cast());
            let high = _mm_unpackhi_epi64(bytes, bytes);
            Two(_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(high))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> I {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            let bytes = _mm_loadu_si128(from.cast());
            let high = _mm_unpackhi_epi64(bytes, bytes);
            Two(_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(high))
        }
    }
    #[inline(always)]
    fn reduce_max_i32(self, a: I) -> i32 {
        // SAFETY: `self` proves the features.
        unsafe {
            let a = _mm256_max_epi32(a.0, a.1);
            let a = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            let a = _mm_max_epi32(a, _mm_shuffle_epi32::<0b01_00_11_10>(a));
            _mm_cvtsi128_si32(_mm_max_epi32(a, _mm_shuffle_epi32::<0b10_11_00_01>(a)))
        }
    }
    #[inline(always)]
    fn reduce_add_i32(self, a: I) -> i32 {
        // SAFETY: `self` proves the features.
        unsafe {
            let a = _mm256_add_epi32(a.0, a.1);
            let a = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            let a = _mm_add_epi32(a, _mm_shuffle_epi32::<0b01_00_11_10>(a));
            _mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32::<0b10_11_00_01>(a)))
        }
    }
    #[inline(always)]
    unsafe fn store_i8(self, to: *mut i8, a: I) {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            // Packing works within 128-bit halves: 0-3 8-11 4-7 12-15, then put right.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(a.0, a.1));
            let high = _mm256_extracti128_si256::<1>(words);
            _mm_storeu_si128(to.cast(), _mm_packs_epi16(_mm256_castsi256_si128(words), high));
        }
    }

    #[inline(always)]
    unsafe fn load_bytes(self, from: *const u8) -> I {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe { Two(_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())) }
    }
    #[inline(always)]
    fn low_nibbles(self, a: I) -> I {
        // SAFETY: `self` proves the features.
        unsafe {
            let low = _mm256_set1_epi8(15);
            Two(_mm256_and_si256(a.0, low), _mm256_and_si256(a.1, low))
        }
    }
    #[inline(always)]
    fn high_nibbles(self, a: I) -> I {
        // SAFETY: `self` proves the features.
        unsafe { self.low_nibbles(Two(_mm256_srli_epi16::<4>(a.0), _mm256_srli_epi16::<4>(a.1))) }
    }
    #[inline(always)]
    fn words_down(self, a: I, by: u32) -> I {
        // SAFETY: `self` proves the features.
        unsafe {
            let by = _mm_cvtsi32_si128(by as i32);
            Two(_mm256_srl_epi16(a.0, by), _mm256_srl_epi16(a.1, by))
        }
    }
    both!(words_up_4(a): I => I, _mm256_slli_epi16::<4>);
    #[inline(always)]
    fn or_masked(self, a: I, b: I, mask: u8) -> I {
        // SAFETY: `self` proves the features.
        unsafe {
            let mask = _mm256_set1_epi8(mask as i8);
            let low = _mm256_or_si256(a.0, _mm256_and_si256(b.0, mask));
            Two(low, _mm256_or_si256(a.1, _mm256_and_si256(b.1, mask)))
        }
    }
    #[inline(always)]
    unsafe fn dot_u7_i8(self, acc: I, weights: I, x: *const i8) -> I {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            let x = _mm256_set1_epi32(x.cast::<i32>().read_unaligned());
            if VNNI {
                let low = _mm256_dpbusd_avx_epi32(acc.0, weights.0, x);
                return Two(low, _mm256_dpbusd_avx_epi32(acc.1, weights.1, x));
            }
            // Two products are at most 2 * 127 * 128 = 32512: 16 bits do not saturate.
            let ones = _mm256_set1_epi16(1);
            let low = _mm256_madd_epi16(_mm256_maddubs_epi16(weights.0, x), ones);
            let high = _mm256_madd_epi16(_mm256_maddubs_epi16(weights.1, x), ones);
            Two(_mm256_add_epi32(acc.0, low), _mm256_add_epi32(acc.1, high))
        }
    }
    #[inline(always)]
    unsafe fn dot_w8_i8(self, acc: I, weights: I, x: *const i8) -> I {
        if VNNI {
            // SAFETY: as the caller vouches; `vpdpbusd` takes all unsigned bytes.
            return unsafe { self.dot_u7_i8(acc, weights, x) };
        }
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            let x = _mm256_set1_epi32(x.cast::<i32>().read_unaligned());
            let ones = _mm256_set1_epi16(1);
            // |w| times x with the sign of w: at most 2 * 128 * 127 = 32512.
            let low =
                _mm256_maddubs_epi16(_mm256_abs_epi8(weights.0), _mm256_sign_epi8(x, weights.0));
            let high =
                _mm256_maddubs_epi16(_mm256_abs_epi8(weights.1), _mm256_sign_epi8(x, weights.1));
            let low = _mm256_madd_epi16(low, ones);
            let high = _mm256_madd_epi16(high, ones);
            Two(_mm256_add_epi32(acc.0, low), _mm256_add_epi32(acc.1, high))
        }
    }

    #[inline(always)]
    unsafe fn store_i16(self, to: *mut i16, a: I) {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(a.0, a.1));
            _mm256_storeu_si256(to.cast(), words);
        }
    }
    #[inline(always)]
    unsafe fn dot_i16(self, acc: I, weights: I, x: *const i16) -> I {
        // SAFETY: `self` proves the features, the caller vouches for the memory.
        unsafe {
            let x = _mm256_set1_epi32(x.cast::<i32>().read_unaligned());
            if VNNI {
                let low = _mm256_dpwssd_avx_epi32(acc.0, weights.0, x);
                return Two(low, _mm256_dpwssd_avx_epi32(acc.1, weights.1, x));
            }
            let low = _mm256_add_epi32(acc.0, _mm256_madd_epi16(weights.0, x));
            Two(low, _mm256_add_epi32(acc.1, _mm256_madd_epi16(weights.1, x)))
        }
    }

    #[inline(always)]
    unsafe fn dot_bf16(self, acc: F, weights: I, x: *const u32) -> F {
        // SAFETY: the caller vouches for the memory.
        let x = unsafe { x.read_unaligned() };
        let (first, second) = (f32::from_bits(x << 16), f32::from_bits(x & 0xFFFF_0000));
        // SAFETY: `self` proves the features.
        let (low, high) = unsafe {
            let mask = _mm256_set1_epi32(0xFFFF_0000_u32 as i32);
            let high = |a| _mm256_castsi256_ps(_mm256_and_si256(a, mask));
            let low = |a| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(a));
            (Two(low(weights.0), low(weights.1)), Two(high(weights.0), high(weights.1)))
        };
        let acc = self.mul_add(high, self.splat(second), acc);
        self.mul_add(low, self.splat(first), acc)
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16, x: F) {
        // SAFETY: the caller vouches for the memory.
        unsafe { store_bf16(self, to, x) };
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        // SAFETY: a prefetch of any address has no effect but on caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
}
