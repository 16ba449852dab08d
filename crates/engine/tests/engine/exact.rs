//! The equality matrix on random models of both architectures and of quantized weights.

use std::path::Path;
use std::sync::Arc;

use engine::{ExactOptions, ExactReport, check_exact};
use package::Package;

use crate::{folder, package};

fn check(package: &Arc<Package>) -> ExactReport {
    let report = check_exact(package, &ExactOptions::default(), &mut |_| {}).unwrap();
    for cell in report.cells.iter().filter(|cell| cell.outcome != engine::Outcome::Equal) {
        println!("{}: {cell:?}", report.model);
    }
    println!("{} cells, {:?}", report.cells.len(), report.self_tests);
    assert!(report.passed, "{}", report.model);
    report
}

/// The small llama with another context, so that prompts reach beyond a segment.
fn with_context(context: usize, to: &Path) -> Arc<Package> {
    let from = folder("llama-gqa2-biased");
    for file in ["model.safetensors", "vocab.json", "merges.txt"] {
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
    let text = std::fs::read_to_string(from.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["max_position_embeddings"] = context.into();
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
    Arc::new(Package::open(to).unwrap())
}

#[test]
fn a_llama_is_exact_beyond_a_thousand_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let report = check(&with_context(2048, folder.path()));
    assert_eq!(report.lengths, engine::LENGTHS);
    assert_eq!(report.kv_types, ["f32", "q8_0"]);
    assert!(report.cells.iter().all(|cell| cell.cached == (cell.reused_tokens > 0)));
}

#[test]
fn a_gpt2_is_exact() {
    check(&package("gpt2-plain"));
}

#[test]
fn quantized_models_are_exact() {
    for name in ["gguf-llama-q4_1", "gguf-llama-q8_0", "gguf-llama-q4_0", "gguf-gpt2-q8_0"] {
        check(&Arc::new(Package::open(&folder(name).join("model.gguf")).unwrap()));
    }
}
