//! The whole checklist, on a random model of DistilGPT-2's shape and on a small Llama.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use article::{ArticleOptions, ArticleReport, Need, Outcome, RowReport, check_article};
use package::Package;

fn check(folder: &Path, options: &ArticleOptions) -> ArticleReport {
    let package = Arc::new(Package::open(folder).unwrap());
    check_article(&package, options, &mut |_| {}).unwrap()
}

fn small_llama() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/goldens/llama-gqa2-biased")
}

fn not_run(row: &RowReport) -> Option<&str> {
    match &row.outcome {
        Outcome::NotRun { reason, .. } => Some(reason),
        _ => None,
    }
}

/// No row is `not ok`, each row that is ok compared something, and every fault was noticed by the
/// rows that watch it.
fn assert_sound(report: &ArticleReport) {
    let not_ok = report.rows.iter().filter(|row| matches!(row.outcome, Outcome::NotOk { .. }));
    assert_eq!(not_ok.collect::<Vec<_>>(), [] as [&RowReport; 0]);
    assert!(report.rows.iter().map(|row| row.row).eq(1..=185));
    for row in &report.rows {
        if let Outcome::Ok { found, comparisons, .. } = &row.outcome {
            assert!(*comparisons > 0 && !found.is_empty(), "row {}", row.row);
        }
    }
    assert_eq!(report.self_tests.len(), 5);
    for test in &report.self_tests {
        assert!(test.caught && test.turned.len() >= 2, "{test:?}");
    }
    assert!(report.passed);
}

/// A random model of DistilGPT-2's shape.
fn random_distilgpt2() -> tempfile::TempDir {
    let vocabulary = std::env::var("REFRAIN_GPT2_VOCAB");
    let vocabulary = PathBuf::from(vocabulary.expect("`cargo xtask test` names the vocabulary"));
    let [ids, merges] = ["encoder.json", "vocab.bpe"].map(|name| vocabulary.join(name));
    let folder = tempfile::tempdir().unwrap();
    random_model::write_distilgpt2(folder.path(), &ids, &merges).unwrap();
    folder
}

#[test]
fn on_a_model_of_distilgpt2s_shape_only_weights_and_documents_are_left() {
    let folder = random_distilgpt2();
    let report = check(folder.path(), &ArticleOptions::default());
    assert_sound(&report);
    for row in report.rows.iter().filter(|row| not_run(row).is_some()) {
        let left = [Need::Weights, Need::Document];
        assert!(row.needs.iter().all(|need| left.contains(need)), "{row:?}");
    }
    let of_mask = &report.self_tests[0].turned;
    assert!([77, 78, 79, 80].iter().all(|row| of_mask.contains(row)), "{of_mask:?}");
}

#[test]
fn on_a_small_llama_the_rows_of_any_model_are_checked() {
    let report = check(&small_llama(), &ArticleOptions::default());
    assert_sound(&report);
    for row in &report.rows {
        let needs = |need| row.needs.contains(&need);
        if needs(Need::Config) && !needs(Need::Server) {
            let reason = "the model is a llama, not of DistilGPT-2's shape";
            assert_eq!(not_run(row), Some(reason), "{row:?}");
        } else if needs(Need::Random) {
            assert_eq!(not_run(row), None, "{row:?}");
        }
    }
    let of_cache = &report.self_tests[4].turned;
    assert!([116, 121, 126, 132].iter().all(|row| of_cache.contains(row)), "{of_cache:?}");
}

/// Weights that are said to be DistilGPT-2's and are not are told from them.
#[test]
fn rows_that_need_the_real_weights_are_compared_with_the_articles_numbers() {
    let other = random_distilgpt2();
    let other = Arc::new(Package::open(other.path()).unwrap());
    let options = ArticleOptions { real: Some(other), ..ArticleOptions::default() };
    let report = check(&small_llama(), &options);
    assert!(!report.passed);
    let not_ok = report.rows.iter().filter(|row| matches!(row.outcome, Outcome::NotOk { .. }));
    assert!(not_ok.map(|row| row.row).eq([30, 71, 72, 101, 103]));
}

#[test]
fn a_model_of_another_shape_is_refused_as_distilgpt2() {
    let package = Arc::new(Package::open(&small_llama()).unwrap());
    let options = ArticleOptions { real: Some(package.clone()), ..ArticleOptions::default() };
    let mut begun = false;
    let refused = check_article(&package, &options, &mut |_| begun = true).unwrap_err();
    let problem = "is not DistilGPT-2: the model is a llama, not of DistilGPT-2's shape";
    assert!(refused.to_string().ends_with(problem), "{refused}");
    assert!(!begun);
}
