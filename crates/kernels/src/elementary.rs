//! Elementary functions in double precision with a fixed definition.
//!
//! The standard library leaves the precision of `exp`, `ln`, `sin` and `cos` to the platform, so
//! nothing that reaches keys, values or logits may use them. These are plain arithmetic, the same
//! everywhere, and accurate to a few units in the last place.

use std::f64::consts::{FRAC_PI_2, LOG2_E, SQRT_2};

/// ln 2 in two parts; the first has 32 trailing zero bits, so that its products with an exponent
/// are exact (fdlibm, `e_exp.c`).
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// e to the power of `x`; 0 below about −708 (no subnormal results), infinity above 709.78.
pub(crate) fn exp(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x < -708.0 {
        return 0.0;
    }
    if x > 709.78 {
        return f64::INFINITY;
    }
    let n = (x * LOG2_E).round_ties_even();
    let r = (-n).mul_add(LN_2_LOW, (-n).mul_add(LN_2_HIGH, x));
    // Taylor's series: |r| <= ln 2 / 2, so the term after r^13 / 13! is below 4e-18.
    let mut sum = 1.0;
    for k in (1..=13).rev() {
        sum = (sum * r / f64::from(k)) + 1.0;
    }
    // 2^1024 is no number: multiply in two steps.
    let half = (n as i64) / 2;
    sum * power_of_two(half) * power_of_two(n as i64 - half)
}

fn power_of_two(n: i64) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// The natural logarithm of a positive normal number; minus infinity for zero and below.
pub(crate) fn ln(x: f64) -> f64 {
    if x.is_nan() || x == f64::INFINITY {
        return x;
    }
    if x < f64::MIN_POSITIVE {
        return f64::NEG_INFINITY;
    }
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) as i64) - 1023;
    let mut fraction = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if fraction > SQRT_2 {
        fraction *= 0.5;
        exponent += 1;
    }
    // ln f = 2 artanh(s) with s = (f - 1) / (f + 1), |s| < 0.172; the term after s^23 is 1e-19.
    let s = (fraction - 1.0) / (fraction + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    for k in (1..=23).rev().step_by(2) {
        sum = sum * square + 1.0 / f64::from(k);
    }
    let n = exponent as f64;
    n.mul_add(LN_2_HIGH, n.mul_add(LN_2_LOW, 2.0 * s * sum))
}

/// `base` to the power of `exponent`, for a positive base.
pub(crate) fn pow(base: f64, exponent: f64) -> f64 {
    exp(exponent * ln(base))
}

/// Sine and cosine of an angle in radians, for angles up to 2^30.
pub(crate) fn sin_cos(angle: f64) -> (f64, f64) {
    // What pi / 2 has beyond its double; with it and fused multiply-adds the reduced angle is good
    // to 2^-53 + quadrant * 2^-106.
    const FRAC_PI_2_LOW: f64 = 6.123_233_995_736_766e-17;
    let quadrant = (angle / FRAC_PI_2).round_ties_even();
    let r = (-quadrant).mul_add(FRAC_PI_2_LOW, (-quadrant).mul_add(FRAC_PI_2, angle));
    let square = r * r;
    // Taylor's series; |r| <= pi / 4, so the terms after r^19 / 19! and r^20 / 20! are below 1e-20.
    let (mut sine, mut cosine) = (1.0, 1.0);
    for k in (1..=9).rev() {
        let k = f64::from(2 * k);
        sine = 1.0 - sine * square / (k * (k + 1.0));
        cosine = 1.0 - cosine * square / ((k - 1.0) * k);
    }
    let sine = sine * r;
    match (quadrant as i64) & 3 {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The platform's functions are the outside oracle: close, if not equal.
        #[test]
        fn agrees_with_the_platform(
            x in -700.0f64..700.0,
            y in 1e-300f64..1e300,
            a in 0.0f64..1e7,
        ) {
            prop_assert!((exp(x) / x.exp() - 1.0).abs() < 4e-16 * (1.0 + x.abs() * 0.01));
            prop_assert!((ln(y) - y.ln()).abs() <= 4e-16 * y.ln().abs().max(1.0));
            let (sine, cosine) = sin_cos(a);
            prop_assert!((sine - a.sin()).abs() < 4e-16 && (cosine - a.cos()).abs() < 4e-16);
        }

        #[test]
        fn powers(base in 2.0f64..1e7, exponent in -1.0f64..0.0) {
            prop_assert!((pow(base, exponent) / base.powf(exponent) - 1.0).abs() < 1e-14);
        }
    }

    #[test]
    fn edges() {
        assert_eq!((exp(0.0), exp(-1e9), exp(1e9)), (1.0, 0.0, f64::INFINITY));
        assert_eq!((ln(1.0), ln(0.0)), (0.0, f64::NEG_INFINITY));
        assert!(exp(f64::NAN).is_nan() && ln(f64::NAN).is_nan());
        assert_eq!(sin_cos(0.0), (0.0, 1.0));
    }
}
