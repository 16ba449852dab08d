//! Elementary functions on vectors, as polynomials: the same bits for the same lane value on one
//! instruction set, whatever the neighbouring lanes hold.

use crate::simd::Simd;
use std::f32::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E};

/// ln 2 in two parts. The first has ten bits, so that its product with an exponent is exact, fused
/// or not (Cephes, `expf.c`).
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// 2^n * 2^r for whole `n` in -126..=127 and `|r|` up to about a half.
#[inline(always)]
fn exp2_parts<S: Simd>(s: S, n: S::F32, r: S::F32) -> S::F32 {
    // (2^r - 1) / r on -0.5..=0.5, fitted at Chebyshev's nodes; with the rounding of the
    // coefficients the relative error is 1e-8, below the arithmetic's own.
    const COEFFICIENTS: [f32; 5] = [1.339_086_3e-3, 9.618_083e-3, 5.550_357e-2, 2.402_265e-1, LN_2];
    let mut sum = s.splat(1.545_316_3e-4);
    for coefficient in COEFFICIENTS {
        sum = s.mul_add(sum, r, s.splat(coefficient));
    }
    s.mul(s.mul_add(sum, r, s.splat(1.0)), s.pow2(n))
}

/// 2 to the power of `x`, for `x` up to 127. Below −125 it stays at 2^−125, which nothing can tell
/// from zero beside a term of 2^0 and which needs no slow subnormal arithmetic.
#[inline(always)]
pub(crate) fn exp2<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let x = s.max(s.splat(-125.0), x);
    let n = s.round(x);
    exp2_parts(s, n, s.sub(x, n))
}

/// e to the power of `x`, with `x` held within ±86.6 (2^±125); NaN stays NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let x = s.max(s.splat(-86.6), s.min(s.splat(86.6), x));
    let n = s.round(s.mul(x, s.splat(LOG2_E)));
    let r = s.mul_add(n, s.splat(-LN_2_HIGH), x);
    let r = s.mul_add(n, s.splat(-LN_2_LOW), r);
    exp2_parts(s, n, s.mul(r, s.splat(LOG2_E)))
}

/// `x / (1 + e^-y)`
#[inline(always)]
pub(crate) fn times_sigmoid<S: Simd>(s: S, x: S::F32, y: S::F32) -> S::F32 {
    s.div(x, s.add(s.splat(1.0), exp(s, s.sub(s.splat(0.0), y))))
}

/// `x * (1 + erf(x / sqrt 2)) / 2`: the exact GELU.
///
/// Both branches are N. Juffa's fits of erf (an odd polynomial near zero, `1 - e^p(t)` beyond); the
/// tail keeps `erfc = e^p(t)`, so that small results keep their digits.
#[inline(always)]
pub(crate) fn gelu<S: Simd>(s: S, x: S::F32) -> S::F32 {
    const NEAR: [f32; 5] =
        [4.991_194_2e-3, -2.676_813_5e-2, 1.128_199_3e-1, -3.761_253_4e-1, 1.283_791_7e-1];
    let z = s.mul(x, s.splat(FRAC_1_SQRT_2));
    let t = s.abs(z);
    let square = s.mul(z, z);
    let mut near = s.splat(-5.967_617e-4);
    for coefficient in NEAR {
        near = s.mul_add(near, square, s.splat(coefficient));
    }
    let near = s.add(s.splat(1.0), s.mul_add(near, z, z));
    let far = s.mul_add(s.splat(-1.728_534_7e-5), t, s.splat(3.831_972_6e-4));
    let lower = s.mul_add(s.splat(-3.883_964_4e-3), t, s.splat(2.425_462_2e-2));
    let mut far = s.mul_add(far, square, lower);
    for coefficient in [-1.067_778_8e-1, -6.348_468_7e-1, -1.287_175_1e-1] {
        far = s.mul_add(far, t, s.splat(coefficient));
    }
    let complement = exp(s, s.mul_add(far, t, s.sub(s.splat(0.0), t)));
    let negative = s.less(z, s.splat(0.0));
    let far = s.select(negative, complement, s.sub(s.splat(2.0), complement));
    let one_plus_erf = s.select(s.less(s.splat(0.927_734_4), t), far, near);
    s.mul(s.mul(s.splat(0.5), x), one_plus_erf)
}

/// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`: GELU's tanh approximation, written as
/// `x * sigmoid(2 y)`.
#[inline(always)]
pub(crate) fn gelu_tanh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let cubic = s.mul_add(s.mul(x, x), s.splat(0.044_715), s.splat(1.0));
    let twice_y = s.mul(s.mul(x, s.splat(1.595_769)), cubic);
    times_sigmoid(s, x, twice_y)
}
