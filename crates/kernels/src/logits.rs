//! Over the logits of one row: softmax, its logarithm, the greatest.

use crate::elementary;
use crate::math;
use crate::simd::{Kernel, LANES, Simd, dispatch_float};
use crate::team::Team;

/// `out = e^logits / sum(e^logits)`. The sum is taken in double precision.
///
/// A logit of minus infinity gets about 1e-38, not zero; NaN spoils the row.
///
/// # Panics
/// If the lengths differ.
pub fn softmax(team: &Team, logits: &[f32], out: &mut [f32]) {
    assert_eq!(logits.len(), out.len(), "a probability for each logit");
    let Some(&greatest) = argmax(team, logits).and_then(|i| logits.get(i)) else { return };
    let sum = dispatch_float(team.isa(), SumExp { logits, greatest, out: Some(&mut *out) });
    let factor = (1.0 / sum) as f32;
    out.iter_mut().for_each(|x| *x *= factor);
}

/// The logarithm of `sum(e^logits)`, so that a token's log-probability is its logit minus this.
/// The sum is taken in double precision. Minus infinity where there is no logit.
pub fn log_sum_exp(team: &Team, logits: &[f32]) -> f64 {
    let Some(&greatest) = argmax(team, logits).and_then(|i| logits.get(i)) else {
        return f64::NEG_INFINITY;
    };
    let sum = dispatch_float(team.isa(), SumExp { logits, greatest, out: None });
    f64::from(greatest) + elementary::ln(sum)
}

/// `out = logits - log(sum(e^logits))`
///
/// # Panics
/// If the lengths differ.
pub fn log_softmax(team: &Team, logits: &[f32], out: &mut [f32]) {
    assert_eq!(logits.len(), out.len(), "a logarithm for each logit");
    let whole = log_sum_exp(team, logits);
    for (out, &logit) in out.iter_mut().zip(logits) {
        *out = (f64::from(logit) - whole) as f32;
    }
}

/// The index of the greatest logit, the lowest of several; NaN is less than everything. `None`
/// where there is no logit.
pub fn argmax(team: &Team, logits: &[f32]) -> Option<usize> {
    let greatest = dispatch_float(team.isa(), Greatest(logits));
    let found = logits.iter().position(|&x| x == greatest);
    // All NaN: the first.
    found.or(if logits.is_empty() { None } else { Some(0) })
}

struct Greatest<'a>(&'a [f32]);

impl Kernel for Greatest<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        // `max` gives its second argument where either is NaN: NaN never gets in.
        let lowest = s.splat(f32::NEG_INFINITY);
        let mut greatest = [lowest; 4];
        for (i, chunk) in self.0.chunks(LANES).enumerate() {
            let x = if chunk.len() == LANES {
                s.load_slice(chunk)
            } else {
                s.load_partial(chunk, f32::NEG_INFINITY)
            };
            greatest[i % 4] = s.max(x, greatest[i % 4]);
        }
        let [a, b, c, d] = greatest;
        s.reduce_max(s.max(s.max(a, b), s.max(c, d)))
    }
}

/// The sum of `e^(logit - greatest)`, lane by lane in double precision; and the terms, if wanted.
struct SumExp<'a> {
    logits: &'a [f32],
    greatest: f32,
    out: Option<&'a mut [f32]>,
}

impl Kernel for SumExp<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) -> f64 {
        let greatest = s.splat(self.greatest);
        let mut sums = [0.0f64; LANES];
        for (i, chunk) in self.logits.chunks(LANES).enumerate() {
            let x = s.load_partial(chunk, f32::NEG_INFINITY);
            let terms = s.to_array(math::exp(s, s.sub(x, greatest)));
            for (sum, &term) in sums.iter_mut().zip(&terms[..chunk.len()]) {
                *sum += f64::from(term);
            }
            if let Some(out) = self.out.as_deref_mut() {
                out[i * LANES..][..chunk.len()].copy_from_slice(&terms[..chunk.len()]);
            }
        }
        sums.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_double_precision(logits in prop::collection::vec(-40.0f32..40.0, 1..300)) {
            let greatest = logits.iter().copied().fold(f32::MIN, f32::max);
            let sum: f64 = logits.iter().map(|&x| f64::from(x - greatest).exp()).sum();
            for isa in Isa::available() {
                let team = Team::with_isa(1, isa).unwrap();
                let mut out = vec![0.0; logits.len()];
                softmax(&team, &logits, &mut out);
                let mut log = vec![0.0; logits.len()];
                log_softmax(&team, &logits, &mut log);
                for ((&x, &p), &l) in logits.iter().zip(&out).zip(&log) {
                    let wanted = f64::from(x - greatest).exp() / sum;
                    prop_assert!((f64::from(p) / wanted - 1.0).abs() < 1e-6);
                    prop_assert!((f64::from(l) - wanted.ln()).abs() < 1e-5);
                }
                let first = logits.iter().position(|&x| x == greatest);
                prop_assert_eq!(argmax(&team, &logits), first);
            }
        }
    }

    #[test]
    fn ties_not_a_number_and_nothing() {
        for isa in Isa::available() {
            let team = Team::with_isa(1, isa).unwrap();
            let mut logits = vec![1.0; 100];
            logits[37] = 5.0;
            logits[36] = f32::NAN;
            logits[80] = 5.0;
            assert_eq!(argmax(&team, &logits), Some(37));
            assert_eq!(argmax(&team, &[f32::NAN; 3]), Some(0));
            assert_eq!(argmax(&team, &[f32::NEG_INFINITY, f32::NEG_INFINITY]), Some(0));
            assert_eq!(argmax(&team, &[]), None);
            assert_eq!(log_sum_exp(&team, &[]), f64::NEG_INFINITY);
            softmax(&team, &[], &mut []);
        }
    }
}
