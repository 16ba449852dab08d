//! Blocks of 64 numbers as integers of 16 bits ("words") and a scale: what f16 weights are kept as,
//! and the rows that they multiply.
//!
//! A block's scale is such that its words, as a vector, are shorter than 2^15.5. The sum of the
//! products of two blocks, or of any part of them, is then below 2^31 (Cauchy and Schwarz): it is
//! exact in an i32, in whatever order it is taken. A block of numbers all alike has words up to
//! 5,791; one number much greater than the rest becomes 32,767.
//!
//! - Of a **row** the scale is as small as that allows.
//! - Of **weights** it is the least power of two that allows it, and at least 2^-24, of which every
//!   f16 number is a multiple. A word then keeps the eleven bits of each weight that is not much
//!   smaller than its block's greatest: all of those down to a half of it at the least, a
//!   thirty-second at best. What a smaller one loses is at most half the scale, 2^-12 of the
//!   greatest.

use crate::simd::{LANES, Simd};
use half::f16;

/// Numbers of a block. Twice as many would leave each half a bit less, half as many would cost
/// twice the multiplications by scales.
pub(crate) const WORDS_INPUTS: usize = 64;
/// The length that words have at most before they are rounded, each by at most a half and so
/// together by at most 4: less than 2^15.5 by more than that.
const LENGTH: f32 = 46_330.0;
/// The greatest word.
const GREATEST_WORD: f32 = 32_767.0;
/// The least scale of weights: 2^-24.
const LEAST_STEP: f32 = f32::from_bits((127 - 24) << 23);
/// The least greatest magnitude of a row's block that is not taken for zero, also where it becomes
/// bytes: 2^-100.
pub(crate) const LEAST_MAGNITUDE: f32 = f32::from_bits((127 - 100) << 23);

/// Vectors of a block.
const VECTORS: usize = WORDS_INPUTS / LANES;

/// The words of a block.
pub(crate) type Words = [i16; WORDS_INPUTS];

/// Makes words of a block of a row; returns their scale: zero if no magnitude reaches 2^-100, NaN
/// if there is an infinity or a NaN.
#[inline(always)]
pub(crate) fn words_of_row<S: Simd>(s: S, x: &[f32; WORDS_INPUTS], to: &mut Words) -> f32 {
    let mut vectors = [s.splat(0.0); VECTORS];
    for (vector, x) in vectors.iter_mut().zip(x.chunks_exact(LANES)) {
        *vector = s.load_slice(x);
    }
    let greatest = greatest(s, &vectors);
    match greatest {
        LEAST_MAGNITUDE..=f32::MAX => {
            // Brought near 1 by a power of two, so that no square is too large or too small.
            let exponent = greatest.to_bits() >> 23;
            let down = 254_u32.saturating_sub(exponent).max(1);
            let power = f32::from_bits(down << 23);
            for x in &mut vectors {
                *x = s.mul(*x, s.splat(power));
            }
            let step = least_step(s, &vectors, greatest * power);
            store(s, &vectors, 1.0 / step, to);
            step * f32::from_bits((254 - down) << 23)
        }
        _ => {
            *to = [0; WORDS_INPUTS];
            if greatest < LEAST_MAGNITUDE { 0.0 } else { f32::NAN }
        }
    }
}

/// Makes words of a block of f16 weights, given by their bits; returns their scale: NaN if there
/// is an infinity or a NaN.
#[inline(always)]
pub(crate) fn words_of_weights<S: Simd>(s: S, w: &[u16; WORDS_INPUTS], to: &mut Words) -> f16 {
    let mut vectors = [s.splat(0.0); VECTORS];
    for (vector, w) in vectors.iter_mut().zip(w.as_chunks::<LANES>().0) {
        // SAFETY: 16 numbers.
        *vector = unsafe { s.load_f16(w.as_ptr()) };
    }
    let greatest = greatest(s, &vectors);
    if !greatest.is_finite() {
        *to = [0; WORDS_INPUTS];
        return f16::NAN;
    }
    let step = least_step(s, &vectors, greatest).max(LEAST_STEP);
    // Up to the next power of two.
    let step = f32::from_bits((step.to_bits() + 0x7F_FFFF) & 0x7F80_0000);
    store(s, &vectors, 1.0 / step, to);
    f16::from_f32(step)
}

/// The greatest magnitude; infinite or NaN if any is.
#[inline(always)]
fn greatest<S: Simd>(s: S, x: &[S::F32; VECTORS]) -> f32 {
    // Compared as integers, so that a NaN is the greatest and is not lost.
    let mut greatest = s.splat_i32(0);
    for x in x {
        greatest = s.max_i32(greatest, s.magnitude_bits(*x));
    }
    f32::from_bits(s.reduce_max_i32(greatest) as u32)
}

/// The least scale that words may have, of numbers whose squares are neither too large nor too
/// small for f32.
#[inline(always)]
fn least_step<S: Simd>(s: S, x: &[S::F32; VECTORS], greatest: f32) -> f32 {
    let mut squares = s.splat(0.0);
    for x in x {
        squares = s.mul_add(*x, *x, squares);
    }
    let squares = s.reduce_add(squares);
    (squares.sqrt() * (1.0 / LENGTH)).max(greatest * (1.0 / GREATEST_WORD))
}

/// Writes the numbers times `factor`, to the nearest integer.
#[inline(always)]
fn store<S: Simd>(s: S, x: &[S::F32; VECTORS], factor: f32, to: &mut Words) {
    for (x, to) in x.iter().zip(to.as_chunks_mut::<LANES>().0) {
        let words = s.to_i32(s.mul(*x, s.splat(factor)));
        // SAFETY: 16 places; the greatest word is beyond 32767 by less than a half.
        unsafe { s.store_i16(to.as_mut_ptr(), words) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::simd::{Kernel, dispatch};
    use proptest::prelude::*;

    struct OfRow([f32; WORDS_INPUTS]);
    struct OfWeights([f16; WORDS_INPUTS]);

    impl Kernel for OfRow {
        type Output = (Words, f64);

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> (Words, f64) {
            let mut words = [7; WORDS_INPUTS];
            let scale = words_of_row(s, &self.0, &mut words);
            (words, f64::from(scale))
        }
    }
    impl Kernel for OfWeights {
        type Output = (Words, f64);

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> (Words, f64) {
            let mut words = [7; WORDS_INPUTS];
            let scale = words_of_weights(s, &self.0.map(f16::to_bits), &mut words);
            (words, scale.to_f64())
        }
    }

    fn square(words: &Words) -> i64 {
        words.iter().map(|word| i64::from(*word).pow(2)).sum()
    }

    /// Numbers of which some are much greater than others.
    fn numbers() -> impl Strategy<Value = [f32; WORDS_INPUTS]> {
        let number = (-1f32..1.0, 0..4).prop_map(|(x, steep)| x.powi(2 * steep + 1));
        let flat = prop::sample::select(vec![-1f32, 1.0, 0.999]);
        let block = prop_oneof![
            3 => prop::collection::vec(number, WORDS_INPUTS),
            1 => prop::collection::vec(flat, WORDS_INPUTS),
        ];
        block.prop_map(|block| block.try_into().unwrap())
    }

    proptest! {
        #[test]
        fn rows_are_within_half_a_scale_and_short_enough(x in numbers(), size in -90..127) {
            let x = x.map(|x| x * (f64::from(size).exp2() as f32));
            let greatest = x.iter().fold(0f64, |most, x| most.max(f64::from(x.abs())));
            let length = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            for isa in Isa::available() {
                let (words, scale) = dispatch(isa, OfRow(x));
                prop_assert!(square(&words) < 1 << 31, "{}", isa);
                let least = (length / f64::from(LENGTH)).max(greatest / 32767.0);
                prop_assert!((scale / least - 1.0).abs() < 1e-5, "{} {} {}", isa, scale, least);
                for (x, word) in x.iter().zip(words) {
                    let lost = (f64::from(*x) - f64::from(word) * scale).abs();
                    prop_assert!(lost <= 0.504 * scale, "{} {} {} {}", isa, x, word, scale);
                }
            }
        }

        #[test]
        fn weights_lose_only_bits_of_what_is_small(w in numbers(), size in -26..16) {
            let w = w.map(|w| f16::from_f32((w * (f64::from(size).exp2() as f32)).min(65504.0)));
            let greatest = w.iter().fold(0f64, |most, w| most.max(w.to_f64().abs()));
            for isa in Isa::available() {
                let (words, scale) = dispatch(isa, OfWeights(w));
                prop_assert!(square(&words) < 1 << 31, "{}", isa);
                for (w, word) in w.iter().zip(words) {
                    let lost = (w.to_f64() - f64::from(word) * scale).abs();
                    prop_assert!(lost <= greatest / 4096.0, "{} {} {} {}", isa, w, word, scale);
                    let large = w.to_f64().abs() >= greatest / 2.0 || greatest < 1.0 / 4096.0;
                    prop_assert!(!large || lost == 0.0, "{} {} {} {}", isa, w, word, scale);
                }
            }
        }
    }

    #[test]
    fn the_ends_of_the_range_are_kept() {
        for isa in Isa::available() {
            for x in [f32::MAX, f32::MIN, LEAST_MAGNITUDE] {
                for count in [1, WORDS_INPUTS] {
                    let mut block = [0.0; WORDS_INPUTS];
                    block[..count].fill(x);
                    let (words, scale) = dispatch(isa, OfRow(block));
                    let ratio = f64::from(words[0]) * scale / f64::from(x);
                    assert!((ratio - 1.0).abs() < 1e-4, "{isa} {x} {words:?} {scale}");
                }
            }
            for x in [0.0, -0.0, LEAST_MAGNITUDE / 2.0, -f32::MIN_POSITIVE, 1e-45] {
                let expected = ([0; WORDS_INPUTS], 0.0);
                assert_eq!(dispatch(isa, OfRow([x; WORDS_INPUTS])), expected, "{isa} {x}");
            }
            for w in [f16::MAX, f16::MIN, f16::from_bits(1), f16::MIN_POSITIVE, f16::ZERO] {
                let (words, scale) = dispatch(isa, OfWeights([w; WORDS_INPUTS]));
                assert_eq!(f64::from(words[WORDS_INPUTS - 1]) * scale, w.to_f64(), "{isa} {w}");
            }
        }
    }

    #[test]
    fn what_is_not_finite_makes_the_scale_nan() {
        for isa in Isa::available() {
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, 15, 16, 31, 32, 63] {
                    let mut block = [1.0; WORDS_INPUTS];
                    block[at] = bad;
                    let (words, scale) = dispatch(isa, OfRow(block));
                    assert!(scale.is_nan() && words == [0; WORDS_INPUTS], "{isa} {bad} {at}");
                    let (words, scale) = dispatch(isa, OfWeights(block.map(f16::from_f32)));
                    assert!(scale.is_nan() && words == [0; WORDS_INPUTS], "{isa} {bad} {at}");
                }
            }
        }
    }
}
