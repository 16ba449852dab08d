//! Operations on single numbers: activations, the residual addition, and rows looked up in a table.

use crate::disjoint::Disjoint;
use crate::math;
use crate::rows::Strided;
use crate::simd::{Kernel, LANES, Simd, dispatch_float};
use crate::team::{Team, range_of};

/// Values below which one thread is faster than a team.
const ALONE_VALUES: usize = 8_192;

/// `out = gate * sigmoid(gate) * up`, the gated unit of Llama's MLP (Shazeer, 2020,
/// <https://arxiv.org/abs/2002.05202>). `gate` and `up` are views of rows of `width` numbers; `out`
/// has those rows one after the other.
///
/// # Panics
/// If `out` is not whole rows, or a view ends before.
pub fn silu_mul(team: &Team, gate: Strided, up: Strided, width: usize, out: &mut [f32]) {
    assert!(width > 0 && out.len().is_multiple_of(width), "whole rows");
    let rows = out.len() / width;
    let shared = Disjoint::new(out);
    over_rows(team, rows, width, |row| {
        // SAFETY: a row is worked on once.
        let out = unsafe { shared.part(row * width..(row + 1) * width) };
        SiluMul { gate: gate.row(row, width), up: up.row(row, width), out }
    });
}

/// GELU (Hendrycks and Gimpel, 2016, <https://arxiv.org/abs/1606.08415>) in place, by its exact
/// definition with erf.
pub fn gelu(team: &Team, x: &mut [f32]) {
    in_chunks(team, x, |x| Map { x, function: Function::Gelu });
}

/// GELU in place, by its tanh approximation, as GPT-2 uses it (`gelu_new`).
pub fn gelu_tanh(team: &Team, x: &mut [f32]) {
    in_chunks(team, x, |x| Map { x, function: Function::GeluTanh });
}

/// `x / (1 + e^-x)` in place.
pub fn silu(team: &Team, x: &mut [f32]) {
    in_chunks(team, x, |x| Map { x, function: Function::Silu });
}

/// `x += y`, number by number.
///
/// # Panics
/// If the lengths differ.
pub fn add(team: &Team, x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "numbers to add");
    let shared = Disjoint::new(x);
    over_ranges(team, y.len(), |range| {
        // SAFETY: the ranges of different workers do not overlap.
        let x = unsafe { shared.part(range.clone()) };
        for (x, y) in x.iter_mut().zip(&y[range]) {
            *x += y;
        }
    });
}

/// Copies rows of a table of floats: row `i` of `out` becomes row `rows[i]` of `table`, each of
/// `width` numbers. For embeddings that stay floats, such as those of positions.
///
/// # Panics
/// If `out` does not have a row for each of `rows`, or the table does not have one of them.
pub fn gather_rows(table: &[f32], width: usize, rows: &[usize], out: &mut [f32]) {
    assert_eq!(out.len(), rows.len() * width, "a row out for each row asked for");
    for (out, &row) in out.chunks_exact_mut(width).zip(rows) {
        out.copy_from_slice(&table[row * width..][..width]);
    }
}

/// Runs `make(row)`'s kernel for each row.
fn over_rows<K: Kernel>(team: &Team, rows: usize, width: usize, make: impl Fn(usize) -> K + Sync) {
    let some = |range: std::ops::Range<usize>| {
        for row in range {
            dispatch_float(team.isa(), make(row));
        }
    };
    if rows * width < ALONE_VALUES {
        some(0..rows);
    } else {
        team.run(|worker| some(range_of(worker, team.threads(), rows)));
    }
}

/// Calls `work` on parts of `0..count`.
fn over_ranges(team: &Team, count: usize, work: impl Fn(std::ops::Range<usize>) + Sync) {
    if count < ALONE_VALUES {
        work(0..count);
    } else {
        team.run(|worker| work(range_of(worker, team.threads(), count)));
    }
}

/// Runs `make(part)`'s kernel on parts of `x`.
fn in_chunks<'a, K: Kernel>(
    team: &Team,
    x: &'a mut [f32],
    make: impl Fn(&'a mut [f32]) -> K + Sync,
) {
    let count = x.len();
    let shared = Disjoint::new(x);
    over_ranges(team, count, |range| {
        // SAFETY: the ranges of different workers do not overlap.
        let part = unsafe { shared.part(range) };
        dispatch_float(team.isa(), make(part));
    });
}

struct SiluMul<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for SiluMul<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let inputs = self.gate.chunks(LANES).zip(self.up.chunks(LANES));
        for ((gate, up), out) in inputs.zip(self.out.chunks_mut(LANES)) {
            if out.len() == LANES {
                let gate = s.load_slice(gate);
                let gate = math::times_sigmoid(s, gate, gate);
                s.store_slice(out, s.mul(gate, s.load_slice(up)));
            } else {
                let gate = s.load_partial(gate, 0.0);
                let gate = math::times_sigmoid(s, gate, gate);
                s.store_partial(out, s.mul(gate, s.load_partial(up, 0.0)));
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Function {
    Gelu,
    GeluTanh,
    Silu,
}

struct Map<'a> {
    x: &'a mut [f32],
    function: Function,
}

impl Kernel for Map<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for chunk in self.x.chunks_mut(LANES) {
            let x = s.load_partial(chunk, 0.0);
            let y = match self.function {
                Function::Gelu => math::gelu(s, x),
                Function::GeluTanh => math::gelu_tanh(s, x),
                Function::Silu => math::times_sigmoid(s, x, x),
            };
            s.store_partial(chunk, y);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use proptest::prelude::*;

    /// Abramowitz and Stegun 7.1.5 near zero, and their continued fraction 7.1.14 beyond.
    fn erfc(x: f64) -> f64 {
        if x.abs() < 2.0 {
            let (mut term, mut sum) = (x, x);
            for n in 1..60 {
                term *= -x * x / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            return 1.0 - sum * 2.0 / std::f64::consts::PI.sqrt();
        }
        if x < 0.0 {
            return 2.0 - erfc(-x);
        }
        let fraction = (1..200).rev().fold(x, |f, n| x + f64::from(n) / 2.0 / f);
        (-x * x).exp() / fraction / std::f64::consts::PI.sqrt()
    }

    /// To a few roundings of the result, or of a hundredth of the argument: far out on the negative
    /// side, where next to nothing is left.
    fn check(name: &str, x: f32, got: f32, wanted: f64) {
        let error = (f64::from(got) - wanted).abs();
        let allowed = 2e-6 * wanted.abs().max(1e-2 * f64::from(x.abs()));
        assert!(error <= allowed, "{name}({x}) = {got}, not {wanted}");
    }

    #[test]
    fn activations_agree_with_double_precision() {
        let x: Vec<f32> = (-2000..=2000).map(|i| i as f32 * 0.004_1).collect();
        for isa in Isa::available() {
            let team = Team::with_isa(2, isa).unwrap();
            let mut exact = x.clone();
            gelu(&team, &mut exact);
            let mut approximate = x.clone();
            gelu_tanh(&team, &mut approximate);
            let mut gated = vec![0.0; x.len()];
            let whole = Strided::whole(&x, x.len());
            silu_mul(&team, whole, whole, x.len(), &mut gated);
            for (i, &x) in x.iter().enumerate() {
                let z = f64::from(x);
                let wanted = z / 2.0 * erfc(-z / 2f64.sqrt());
                check("gelu", x, exact[i], wanted);
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (z + 0.044_715 * z.powi(3));
                let wanted = z / (1.0 + (-2.0 * inner).exp());
                check("gelu_tanh", x, approximate[i], wanted);
                check("silu", x, gated[i], z * z / (1.0 + (-z).exp()));
            }
        }
    }

    #[test]
    fn activations_at_the_edges() {
        for isa in Isa::available() {
            let team = Team::with_isa(1, isa).unwrap();
            for function in [gelu, gelu_tanh, silu] {
                let mut x = [0.0, 100.0, 1e30, -1e4, f32::NAN];
                function(&team, &mut x);
                assert_eq!(x[..3], [0.0, 100.0, 1e30]);
                assert!(x[3].abs() < 1e-30 && x[4].is_nan(), "{x:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn company_and_threads_do_not_matter(
            x in prop::collection::vec(-30.0f32..30.0, 1..60),
            threads in 1usize..4,
        ) {
            let long: Vec<f32> = x.iter().copied().cycle().take(9_001).collect();
            for isa in Isa::available() {
                let team = Team::with_isa(threads, isa).unwrap();
                for function in [gelu, gelu_tanh, silu] {
                    let mut all = long.clone();
                    function(&team, &mut all);
                    for (i, &x) in x.iter().enumerate() {
                        let mut alone = [x];
                        function(&team, &mut alone);
                        prop_assert_eq!(alone[0].to_bits(), all[i].to_bits());
                    }
                }
            }
        }
    }

    #[test]
    fn adding_and_gathering() {
        let team = Team::with_isa(2, Isa::best()).unwrap();
        let mut x: Vec<f32> = (0..10_000).map(|i| i as f32).collect();
        let y = x.clone();
        add(&team, &mut x, &y);
        assert!(x.iter().zip(&y).all(|(x, y)| *x == 2.0 * y));
        let mut out = [0.0; 6];
        gather_rows(&y, 3, &[2, 0], &mut out);
        assert_eq!(out, [6.0, 7.0, 8.0, 0.0, 1.0, 2.0]);
    }
}
