//! The sample of schemas with instances, and a model's tokenizer, as tests and examples find them.
//!
//! The sample is a file beside the project; the tokenizer is SmolLM2's, whose GGUF file
//! `REFRAIN_SMOLLM2` names, or GPT-2's, whose directory `REFRAIN_GPT2_VOCAB` names.

use grammar::{Constraint, Grammar, GrammarError, Vocabulary};
use package::gguf::GgufFile;
use package::{FileBytes, Tokenizer};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A schema, and instances with whether they are valid.
pub(crate) struct Case {
    pub(crate) schema: Value,
    pub(crate) instances: Vec<(Value, bool)>,
}

/// The sample, if it is there.
pub(crate) fn cases() -> Option<Vec<Case>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("../shared/data/maskbench/sample.jsonl")).ok()?;
    let case = |line: &str| {
        let mut line: Value = serde_json::from_str(line).expect("a line of JSON");
        let instances = line["tests"].as_array().expect("instances").iter();
        let instances = instances.map(|test| (test["data"].clone(), test["valid"] == true));
        let instances = instances.collect();
        Case { schema: line["schema"].take(), instances }
    };
    Some(text.lines().map(case).collect())
}

/// A tokenizer that the environment names, if it names one.
pub(crate) fn tokenizer() -> Option<Tokenizer> {
    if let Some(file) = std::env::var_os("REFRAIN_SMOLLM2").map(PathBuf::from) {
        let bytes = FileBytes::map(&file).expect("the model opens");
        let file = GgufFile::parse(Arc::new(bytes)).expect("the model is sound");
        return Some(Tokenizer::from_gguf(file.metadata()).expect("its tokenizer loads"));
    }
    let directory = std::env::var_os("REFRAIN_GPT2_VOCAB")?;
    Some(Tokenizer::from_directory(Path::new(&directory)).expect("the vocabulary loads"))
}

/// The tokenizer's tokens.
pub(crate) fn vocabulary(tokenizer: &Tokenizer) -> Vocabulary {
    let ids = 0..tokenizer.vocab_size() as u32;
    let token = |id| (tokenizer.bytes(id).unwrap_or_default(), tokenizer.is_special(id));
    Vocabulary::new(ids.map(token), tokenizer.end_ids()).expect("a vocabulary")
}

/// The constraint of a schema.
pub(crate) fn compile(schema: &Value, vocabulary: &Vocabulary) -> Result<Constraint, GrammarError> {
    Grammar::JsonSchema(schema.clone()).compile(vocabulary)
}
