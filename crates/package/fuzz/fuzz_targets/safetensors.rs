//! Any bytes as safetensors, under a configuration that small files can satisfy.
#![no_main]

use libfuzzer_sys::fuzz_target;
use package::{Config, Part, Suffix, Weights};
use std::sync::LazyLock;

static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    let text = r#"{"model_type": "llama", "hidden_size": 2, "intermediate_size": 1,
        "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 1,
        "max_position_embeddings": 1, "tie_word_embeddings": true}"#;
    Config::from_json(text).expect("a sound configuration")
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(weights) = Weights::from_safetensors_bytes(bytes.to_vec(), &CONFIG) else { return };
    assert!(weights.tensors().count() > 0);
    assert!(weights.matrix(Part::Head).is_ok());
    assert!(weights.vector(Part::FinalNorm, Suffix::Weight).is_ok());
});
