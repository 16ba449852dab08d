//! The tensors of a trace against those of a file.

use std::collections::BTreeSet;

use engine::Site;
use engine::trace::Tensor;
use serde::Serialize;

use super::tensor_file::Contents;

/// The result; the document of `--compare --json`.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) schema: &'static str,
    pub(super) tolerance: f64,
    pub(super) passed: bool,
    pub(super) tensors: Vec<Compared>,
    pub(super) skipped: Vec<Skipped>,
    /// Tensors that were chosen and cannot be compared.
    pub(super) missing: Vec<Skipped>,
    /// Why nothing was compared; `null` where something was.
    pub(super) problem: Option<&'static str>,
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

/// One tensor that is not compared, and why.
#[derive(Debug, Serialize)]
pub(super) struct Skipped {
    pub(super) name: String,
    pub(super) reason: String,
}

/// Compares each tensor of the file, `theirs`, with the one of that name in `ours`; where tensors
/// were `chosen`, each of `ours` with the one of that name in the file, which must have it.
/// Nothing to compare is no success.
pub(super) fn compare(
    ours: &[Tensor],
    theirs: Contents,
    chosen: bool,
    tolerance: f64,
) -> Comparison {
    let (mut tensors, mut skipped, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let nothing = match (theirs.tensors.is_empty(), theirs.others.is_empty()) {
        (true, true) => "the file has no tensors",
        (true, false) => "the file has no tensors of floating-point numbers",
        _ => "the file has no tensor of the name of one here",
    };
    for reference in &theirs.tensors {
        let before = tensors.len();
        let same = ours.iter().filter(|tensor| tensor.name == reference.name);
        tensors.extend(same.map(|tensor| one(tensor, reference, tolerance)));
        if tensors.len() == before && !chosen {
            let reason = "this trace shows no such tensor".to_owned();
            skipped.push(Skipped { name: reference.name.clone(), reason });
        }
    }
    for (name, kind) in theirs.others {
        let wanted = chosen && ours.iter().any(|tensor| tensor.name == name);
        let list = if wanted { &mut missing } else { &mut skipped };
        list.push(Skipped { name, reason: format!("its numbers in the file are {kind}") });
    }
    if chosen {
        let found = |name: &str| {
            theirs.tensors.iter().any(|tensor| tensor.name == name)
                || missing.iter().any(|tensor| tensor.name == name)
        };
        let absent: BTreeSet<&str> =
            ours.iter().map(|tensor| tensor.name.as_str()).filter(|name| !found(name)).collect();
        let reason = "the file has no such tensor";
        missing.extend(
            absent.iter().map(|&name| Skipped { name: name.into(), reason: reason.into() }),
        );
    }
    let passed =
        !tensors.is_empty() && missing.is_empty() && tensors.iter().all(|compared| compared.passed);
    let problem = tensors.is_empty().then_some(nothing);
    let schema = "refrain.compare/1";
    Comparison { schema, tolerance, passed, tensors, skipped, missing, problem }
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
    // What the mask hides has no score, on both sides.
    let scores = reference.name.ends_with(Site::Scores.name());
    let hidden = |number: f32| scores && number == f32::NEG_INFINITY;
    let (mut most, mut greatest) = (0.0f64, 0.0f64);
    for (&a, &b) in tensor.values.iter().zip(&reference.values) {
        if hidden(a) && hidden(b) {
            continue;
        }
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

    fn holding(tensors: &[Tensor]) -> Contents {
        Contents { tensors: tensors.to_vec(), ..Contents::default() }
    }

    fn passes(ours: &Tensor, theirs: &Tensor, tolerance: f64) -> bool {
        compare(from_ref(ours), holding(from_ref(theirs)), false, tolerance).passed
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
    fn a_score_that_is_hidden_on_both_sides_is_the_same() {
        let scores = |values: [f32; 2]| Tensor {
            name: "decode.0.blocks.1.attn.hook_attn_scores".to_owned(),
            ..tensor(&[1, 2], &values)
        };
        let hidden = scores([1.0, f32::NEG_INFINITY]);
        assert!(passes(&hidden, &hidden, 0.0));
        assert!(!passes(&hidden, &scores([1.0, 0.0]), f64::MAX), "hidden here only");
        assert!(!passes(&scores([1.0, 0.0]), &hidden, f64::MAX), "hidden there only");
        let damaged = scores([1.0, f32::INFINITY]);
        assert!(!passes(&damaged, &damaged, f64::MAX));
    }

    #[test]
    fn nothing_to_compare_is_no_success() {
        let ours = tensor(&[1], &[1.0]);
        let other = Tensor { name: "other".to_owned(), ..ours.clone() };
        let report = compare(from_ref(&ours), holding(from_ref(&other)), false, 1.0);
        assert!(!report.passed && report.problem.is_some());
        assert_eq!(report.skipped.len(), 1);
        let report = compare(from_ref(&ours), Contents::default(), false, 1.0);
        assert!(!report.passed);
        assert_eq!(report.problem, Some("the file has no tensors"));
    }

    #[test]
    fn what_was_chosen_must_be_in_the_file() {
        let ours = tensor(&[1], &[1.0]);
        let [absent, counted] =
            ["absent", "counted"].map(|name| Tensor { name: name.to_owned(), ..ours.clone() });
        let mut file = holding(from_ref(&ours));
        file.others.push(("counted".to_owned(), "I64".to_owned()));
        let report = compare(&[ours.clone(), absent, counted], file, true, 1.0);
        assert!(!report.passed);
        assert_eq!(report.tensors.len(), 1);
        let missing: Vec<&str> = report.missing.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(missing, ["counted", "absent"]);
        // Each part that was chosen is compared, not the first alone.
        let twice = [ours.clone(), tensor(&[1], &[9.0])];
        assert!(!compare(&twice, holding(from_ref(&ours)), true, 1.0).passed);
    }
}
