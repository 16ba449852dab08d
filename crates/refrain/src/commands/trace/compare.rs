//! The tensors of a trace against those of a file.

use engine::trace::Tensor;
use serde::Serialize;

/// The result; the document of `--compare --json`.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) schema: &'static str,
    pub(super) tolerance: f64,
    pub(super) passed: bool,
    pub(super) tensors: Vec<Compared>,
    pub(super) skipped: Vec<Skipped>,
}

/// One tensor that is in both.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    pub(super) name: String,
    pub(super) passed: bool,
    /// The largest difference of two numbers; `null` where the shapes or the numbers cannot be
    /// compared.
    pub(super) max_difference: Option<f64>,
    /// The same as a share of the file's greatest magnitude.
    pub(super) relative: Option<f64>,
    pub(super) problem: Option<String>,
}

/// One tensor of the file that is not compared, and why.
#[derive(Debug, Serialize)]
pub(super) struct Skipped {
    pub(super) name: String,
    pub(super) reason: String,
}

/// Compares each tensor of `theirs` with the one of that name in `ours`. Nothing to compare is no
/// success.
pub(super) fn compare(
    ours: &[Tensor],
    theirs: &[Tensor],
    mut skipped: Vec<Skipped>,
    tolerance: f64,
) -> Comparison {
    let mut tensors = Vec::new();
    for reference in theirs {
        match ours.iter().find(|tensor| tensor.name == reference.name) {
            Some(tensor) => tensors.push(one(tensor, reference, tolerance)),
            None => {
                let reason = "this trace shows no such tensor".to_owned();
                skipped.push(Skipped { name: reference.name.clone(), reason });
            }
        }
    }
    let passed = !tensors.is_empty() && tensors.iter().all(|compared| compared.passed);
    Comparison { schema: "refrain.compare/1", tolerance, passed, tensors, skipped }
}

fn one(tensor: &Tensor, reference: &Tensor, tolerance: f64) -> Compared {
    let name = reference.name.clone();
    let failed = |problem: String| Compared {
        name: name.clone(),
        passed: false,
        max_difference: None,
        relative: None,
        problem: Some(problem),
    };
    // A batch of one may be written or not.
    let plain = |shape: &[usize]| -> Vec<usize> {
        shape.iter().copied().skip_while(|&size| size == 1).collect()
    };
    if plain(&tensor.shape) != plain(&reference.shape) {
        return failed(format!("shape {:?} here, {:?} there", tensor.shape, reference.shape));
    }
    let (mut most, mut greatest) = (0.0f64, 0.0f64);
    for (&a, &b) in tensor.values.iter().zip(&reference.values) {
        // Damage on both sides is damage.
        if !a.is_finite() || !b.is_finite() {
            return failed(format!("{a} here, {b} there"));
        }
        let difference = (f64::from(a) - f64::from(b)).abs();
        most = most.max(difference);
        greatest = greatest.max(f64::from(b.abs()));
    }
    let relative = if most == 0.0 { 0.0 } else { most / greatest };
    let finite = Some(relative).filter(|relative| relative.is_finite());
    let passed = most <= tolerance;
    Compared { name, passed, max_difference: Some(most), relative: finite, problem: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice::from_ref;

    fn tensor(shape: &[usize], values: &[f32]) -> Tensor {
        Tensor { name: "x".to_owned(), shape: shape.to_vec(), values: values.to_vec() }
    }

    fn passes(ours: &Tensor, theirs: &Tensor, tolerance: f64) -> bool {
        compare(from_ref(ours), from_ref(theirs), Vec::new(), tolerance).passed
    }

    #[test]
    fn only_what_is_near_passes() {
        let ours = tensor(&[1, 2], &[1.0, -4.0]);
        assert!(passes(&ours, &ours, 0.0));
        assert!(passes(&ours, &tensor(&[2], &[1.0, -4.0]), 0.0), "a batch of one or none");
        assert!(!passes(&ours, &tensor(&[2, 1], &[1.0, -4.0]), 9.0), "another shape");
        assert!(passes(&ours, &tensor(&[1, 2], &[1.5, -4.0]), 0.5));
        assert!(!passes(&ours, &tensor(&[1, 2], &[1.5, -4.0]), 0.49));
        assert!(!passes(&ours, &tensor(&[1, 2], &[f32::NAN, -4.0]), f64::MAX));
        assert!(!passes(&tensor(&[1], &[f32::INFINITY]), &tensor(&[1], &[1.0]), f64::MAX));
        for number in [f32::INFINITY, f32::NAN] {
            let damaged = tensor(&[1], &[number]);
            assert!(!passes(&damaged, &damaged, f64::MAX), "{number}");
        }
    }

    #[test]
    fn nothing_to_compare_is_no_success() {
        let report = compare(&[], &[tensor(&[1], &[1.0])], Vec::new(), 1.0);
        assert!(!report.passed);
        assert_eq!(report.skipped.len(), 1);
    }
}
