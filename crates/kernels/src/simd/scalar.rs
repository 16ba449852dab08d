//! Portable vectors: arrays, which the compiler maps to what it may assume.

use super::vector::{LANES, Simd, store_bf16};
use half::f16;

/// The instruction set that every machine has.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

#[inline(always)]
fn each(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    for i in 0..LANES {
        out[i] = f(a[i], b[i]);
    }
    out
}

#[inline(always)]
fn reduce(mut a: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            a[i] = f(a[i], a[i + width]);
        }
        width /= 2;
    }
    a[0]
}

impl Simd for Scalar {
    type F32 = [f32; LANES];
    type I32 = [i32; LANES];
    type Bytes = [u8; 4 * LANES];
    type Mask = [bool; LANES];

    const TILE_ROWS: usize = 4;
    const REGISTERS: usize = 1;
    const OFFSET_W8: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F32 {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::F32 {
        // SAFETY: the caller vouches for 16 values.
        unsafe { from.cast::<[f32; LANES]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, x: Self::F32) {
        // SAFETY: the caller vouches for 16 values.
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> Self::F32 {
        // SAFETY: the caller vouches for 16 values.
        let halves = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        let mut out = [0.0; LANES];
        for i in 0..LANES {
            out[i] = f16::from_bits(halves[i]).to_f32();
        }
        out
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u16, x: Self::F32) {
        let mut halves = [0u16; LANES];
        for i in 0..LANES {
            halves[i] = f16::from_f32(x[i]).to_bits();
        }
        // SAFETY: the caller vouches for 16 values.
        unsafe { to.cast::<[u16; LANES]>().write_unaligned(halves) }
    }

    #[inline(always)]
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        each(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        each(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        each(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        each(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        // Two roundings: a fused one would call a slow library function here.
        self.add(self.mul(a, b), c)
    }
    #[inline(always)]
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        each(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        each(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn abs(self, a: Self::F32) -> Self::F32 {
        each(a, a, |a, _| a.abs())
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F32) -> Self::F32 {
        each(a, a, |a, _| a.sqrt())
    }
    #[inline(always)]
    fn round(self, a: Self::F32) -> Self::F32 {
        each(a, a, |a, _| a.round_ties_even())
    }
    #[inline(always)]
    fn pow2(self, n: Self::F32) -> Self::F32 {
        each(n, n, |n, _| f32::from_bits(((n as i32 + 127) as u32) << 23))
    }

    #[inline(always)]
    fn first_lanes(self, count: usize) -> Self::Mask {
        let mut mask = [false; LANES];
        for (i, lane) in mask.iter_mut().enumerate() {
            *lane = i < count;
        }
        mask
    }
    #[inline(always)]
    fn less(self, a: Self::F32, b: Self::F32) -> Self::Mask {
        let mut mask = [false; LANES];
        for i in 0..LANES {
            mask[i] = a[i] < b[i];
        }
        mask
    }
    #[inline(always)]
    fn select(self, mask: Self::Mask, yes: Self::F32, no: Self::F32) -> Self::F32 {
        let mut out = no;
        for i in 0..LANES {
            out[i] = if mask[i] { yes[i] } else { no[i] };
        }
        out
    }

    #[inline(always)]
    fn reduce_add(self, a: Self::F32) -> f32 {
        reduce(a, |a, b| a + b)
    }
    #[inline(always)]
    fn reduce_max(self, a: Self::F32) -> f32 {
        reduce(a, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> Self::I32 {
        [x; LANES]
    }
    #[inline(always)]
    fn to_f32(self, a: Self::I32) -> Self::F32 {
        let mut out = [0.0; LANES];
        for i in 0..LANES {
            out[i] = a[i] as f32;
        }
        out
    }
    #[inline(always)]
    fn to_i32(self, a: Self::F32) -> Self::I32 {
        let mut out = [0; LANES];
        for i in 0..LANES {
            out[i] = a[i].round_ties_even() as i32;
        }
        out
    }
    #[inline(always)]
    fn magnitude_bits(self, a: Self::F32) -> Self::I32 {
        let mut out = [0; LANES];
        for i in 0..LANES {
            out[i] = a[i].abs().to_bits() as i32;
        }
        out
    }
    #[inline(always)]
    fn max_i32(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        let mut out = a;
        for i in 0..LANES {
            out[i] = a[i].max(b[i]);
        }
        out
    }
    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8) -> Self::I32 {
        // SAFETY: the caller vouches for 16 bytes.
        let bytes = unsafe { from.cast::<[u8; LANES]>().read_unaligned() };
        let mut out = [0; LANES];
        for i in 0..LANES {
            out[i] = i32::from(bytes[i]);
        }
        out
    }
    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> Self::I32 {
        // SAFETY: the caller vouches for 16 bytes.
        let bytes = unsafe { from.cast::<[i8; LANES]>().read_unaligned() };
        let mut out = [0; LANES];
        for i in 0..LANES {
            out[i] = i32::from(bytes[i]);
        }
        out
    }
    #[inline(always)]
    fn reduce_max_i32(self, a: Self::I32) -> i32 {
        a.into_iter().fold(i32::MIN, i32::max)
    }
    #[inline(always)]
    fn reduce_add_i32(self, a: Self::I32) -> i32 {
        a.iter().fold(0, |sum, x| sum.wrapping_add(*x))
    }
    #[inline(always)]
    fn add_i32(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        let mut out = a;
        for i in 0..LANES {
            out[i] = a[i].wrapping_add(b[i]);
        }
        out
    }
    #[inline(always)]
    unsafe fn store_i8(self, to: *mut i8, a: Self::I32) {
        let mut bytes = [0i8; LANES];
        for i in 0..LANES {
            bytes[i] = a[i].clamp(-128, 127) as i8;
        }
        // SAFETY: the caller vouches for 16 bytes.
        unsafe { to.cast::<[i8; LANES]>().write_unaligned(bytes) }
    }

    #[inline(always)]
    unsafe fn load_bytes(self, from: *const u8) -> Self::Bytes {
        // SAFETY: the caller vouches for 64 bytes.
        unsafe { from.cast::<[u8; 4 * LANES]>().read_unaligned() }
    }
    #[inline(always)]
    fn low_nibbles(self, mut a: Self::Bytes) -> Self::Bytes {
        for byte in &mut a {
            *byte &= 15;
        }
        a
    }
    #[inline(always)]
    fn high_nibbles(self, mut a: Self::Bytes) -> Self::Bytes {
        for byte in &mut a {
            *byte >>= 4;
        }
        a
    }
    #[inline(always)]
    fn words_down(self, mut a: Self::Bytes, by: u32) -> Self::Bytes {
        for pair in a.as_chunks_mut::<2>().0 {
            *pair = (u16::from_le_bytes(*pair) >> by).to_le_bytes();
        }
        a
    }
    #[inline(always)]
    fn words_up_4(self, mut a: Self::Bytes) -> Self::Bytes {
        for pair in a.as_chunks_mut::<2>().0 {
            *pair = (u16::from_le_bytes(*pair) << 4).to_le_bytes();
        }
        a
    }
    #[inline(always)]
    fn or_masked(self, mut a: Self::Bytes, b: Self::Bytes, mask: u8) -> Self::Bytes {
        for (a, b) in a.iter_mut().zip(b) {
            *a |= b & mask;
        }
        a
    }
    #[inline(always)]
    unsafe fn dot_u7_i8(self, mut acc: Self::I32, weights: Self::Bytes, x: *const i8) -> Self::I32 {
        // SAFETY: the caller vouches for 4 bytes.
        let x = unsafe { x.cast::<[i8; 4]>().read_unaligned() };
        for i in 0..LANES {
            for j in 0..4 {
                acc[i] += i32::from(weights[4 * i + j]) * i32::from(x[j]);
            }
        }
        acc
    }
    #[inline(always)]
    unsafe fn dot_w8_i8(self, mut acc: Self::I32, weights: Self::Bytes, x: *const i8) -> Self::I32 {
        // SAFETY: the caller vouches for 4 bytes.
        let x = unsafe { x.cast::<[i8; 4]>().read_unaligned() };
        for i in 0..LANES {
            for j in 0..4 {
                acc[i] += i32::from(weights[4 * i + j] as i8) * i32::from(x[j]);
            }
        }
        acc
    }

    #[inline(always)]
    unsafe fn store_i16(self, to: *mut i16, a: Self::I32) {
        let mut words = [0i16; LANES];
        for i in 0..LANES {
            words[i] = a[i].clamp(-32768, 32767) as i16;
        }
        // SAFETY: the caller vouches for 16 values.
        unsafe { to.cast::<[i16; LANES]>().write_unaligned(words) }
    }
    #[inline(always)]
    unsafe fn dot_i16(self, mut acc: Self::I32, weights: Self::Bytes, x: *const i16) -> Self::I32 {
        // SAFETY: the caller vouches for 4 bytes.
        let x = unsafe { x.cast::<[i16; 2]>().read_unaligned() };
        for (acc, bytes) in acc.iter_mut().zip(weights.as_chunks::<4>().0) {
            for (weight, x) in bytes.as_chunks::<2>().0.iter().zip(x) {
                let product = i32::from(i16::from_le_bytes(*weight)) * i32::from(x);
                *acc = acc.wrapping_add(product);
            }
        }
        acc
    }

    #[inline(always)]
    unsafe fn dot_bf16(self, acc: Self::F32, weights: Self::Bytes, x: *const u32) -> Self::F32 {
        // SAFETY: the caller vouches for the memory.
        let x = unsafe { x.read_unaligned() };
        let (first, second) = (f32::from_bits(x << 16), f32::from_bits(x & 0xFFFF_0000));
        let (mut low, mut high) = ([0.0; LANES], [0.0; LANES]);
        for i in 0..LANES {
            let [a, b, c, d] = [0, 1, 2, 3].map(|j| weights[4 * i + j]);
            low[i] = f32::from_bits(u32::from_le_bytes([0, 0, a, b]));
            high[i] = f32::from_bits(u32::from_le_bytes([0, 0, c, d]));
        }
        let acc = self.mul_add(high, self.splat(second), acc);
        self.mul_add(low, self.splat(first), acc)
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16, x: Self::F32) {
        // SAFETY: the caller vouches for the memory.
        unsafe { store_bf16(self, to, x) };
    }

    #[inline(always)]
    fn prefetch(self, _address: *const u8) {}
}
