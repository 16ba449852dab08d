//! The rows about a server hold on a sound one, and do not on servers that are set up wrongly.

use std::path::Path;
use std::sync::Arc;

use engine::EngineOptions;
use package::Package;
use serde_json::{Value, json};

use super::{Live, Setup};
use crate::check::look_at;
use crate::report::Outcome;

/// The small random llama of the engine's tests, with room for conversations. It has no template.
fn small_model() -> Arc<Package> {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/goldens");
    let source = goldens.join("llama-gqa2-biased");
    // Some rows open it again: it stays until the system clears its folder of temporary files.
    let folder = tempfile::tempdir().unwrap().keep();
    for name in ["model.safetensors", "merges.txt", "vocab.json"] {
        std::fs::copy(source.join(name), folder.join(name)).unwrap();
    }
    let config = std::fs::read_to_string(source.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["max_position_embeddings"] = json!(4096);
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    Arc::new(Package::open(&folder).unwrap())
}

/// The outcomes of the rows about a server that runs as `change` says.
fn outcomes(change: impl FnOnce(&mut Setup)) -> Vec<(u16, Outcome)> {
    let engine = EngineOptions { threads: Some(1), ..EngineOptions::default() };
    let mut setup = Setup { engine, ..Setup::default() };
    change(&mut setup);
    let package = small_model();
    let reports = look_at(&mut Live::start(&package, setup).unwrap());
    std::fs::remove_dir_all(&package.path).unwrap();
    reports.into_iter().map(|report| (report.row, report.outcome)).collect()
}

fn not_ok(outcomes: &[(u16, Outcome)]) -> Vec<u16> {
    let wrong = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::NotOk { .. }));
    wrong.map(|(row, _)| *row).collect()
}

#[test]
fn all_rows_hold_on_a_sound_server() {
    for (row, outcome) in outcomes(|_| {}) {
        // The one row that is about DistilGPT-2's shape.
        let not_run = matches!(outcome, Outcome::NotRun { .. });
        assert_eq!(not_run, row == 10, "row {row}: {outcome:?}");
        assert!(!matches!(outcome, Outcome::NotOk { .. }), "row {row}: {outcome:?}");
    }
}

#[test]
fn without_a_prompt_cache_the_rows_about_reuse_do_not_hold() {
    let outcomes = outcomes(|setup| setup.engine.prompt_cache = false);
    let expected = [
        25, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149,
        150, 151, 152, 155, 156, 157, 160, 161, 162, 173, 177, 182, 183, 184, 185,
    ];
    assert_eq!(not_ok(&outcomes), expected, "{outcomes:?}");
}

/// These rows, and perhaps others, must not hold.
fn assert_not_ok(change: impl FnOnce(&mut Setup), rows: &[u16]) {
    let outcomes = outcomes(change);
    let wrong = not_ok(&outcomes);
    for row in rows {
        assert!(wrong.contains(row), "row {row}: {outcomes:?}");
    }
}

/// A field that every request has unless it says otherwise.
fn field(name: &str, value: Value) -> impl FnOnce(&mut Setup) {
    let name = name.to_owned();
    move |setup| drop(setup.fields.insert(name, value))
}

#[test]
fn where_answers_are_drawn_by_chance_the_rows_that_compare_them_do_not_hold() {
    assert_not_ok(field("temperature", json!(2)), &[25, 135, 146, 148, 158]);
}

#[test]
fn where_two_answers_are_drawn_the_rows_that_count_tokens_do_not_hold() {
    assert_not_ok(field("n", json!(2)), &[133, 149, 157, 158, 174]);
}

#[test]
fn where_nothing_may_be_reused_the_incident_is_not_shown() {
    assert_not_ok(field("cache_prompt", json!(false)), &[145, 150, 151, 152]);
}

#[test]
fn where_another_token_is_drawn_it_has_not_the_probability_in_the_trace() {
    assert_not_ok(field("logit_bias", json!({"5": 100})), &[125, 170]);
}

#[test]
fn where_there_is_no_choice_the_row_about_seeds_does_not_hold() {
    assert_not_ok(field("top_k", json!(1)), &[175]);
}

#[test]
fn where_a_prompt_is_computed_in_parts_prefill_is_not_one_pass() {
    assert_not_ok(|setup| setup.engine.chunk_tokens = Some(8), &[26, 106]);
}

#[test]
fn where_one_answer_is_computed_at_once_no_step_is_shared() {
    assert_not_ok(|setup| setup.engine.max_running = Some(1), &[146, 164, 171]);
}

#[test]
fn where_memory_is_another_than_was_told_it_is_seen() {
    assert_not_ok(|setup| setup.engine.kv_bytes = Some(32 << 20), &[169]);
}
