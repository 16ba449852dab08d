//! Any bytes as a GGUF file: a model, or an error; never a panic, never much memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use package::gguf::GgufFile;
use package::{Config, FileBytes, Part, Suffix, Tokenizer, Weights};
use std::sync::Arc;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = GgufFile::parse(Arc::new(FileBytes::from(bytes.to_vec()))) else { return };
    let metadata = file.metadata();
    for key in metadata.keys() {
        let _ = (metadata.string(key), metadata.bool(key), metadata.u32(key), metadata.f32(key));
        let _ = (metadata.strings(key), metadata.integers(key), metadata.f32s(key));
    }
    let _ = Tokenizer::from_gguf(metadata);
    assert!(file.tensors().all(|tensor| !tensor.bytes.is_empty()));
    let Ok(config) = Config::from_gguf(&file) else { return };
    let Ok(weights) = Weights::from_gguf(file, &config) else { return };
    assert!(weights.matrix(Part::Head).is_ok());
    assert!(weights.vector(Part::FinalNorm, Suffix::Weight).is_ok());
});
