//! Configurations as the libraries write them, and those that must be refused by name.

use crate::tiny::{GPT2_JSON, llama_gguf, llama_json};
use package::{Activation, Architecture, Biases, Config, RopeScaling};

fn llama(extra: &str) -> Config {
    Config::from_json(&llama_json(extra)).expect("a sound configuration")
}

fn refusal(json: &str) -> String {
    Config::from_json(json).expect_err("must be refused").to_string()
}

#[test]
fn gpt2_defaults_are_those_of_transformers() {
    let config = Config::from_json(
        r#"{"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 3, "n_inner": null,
            "n_positions": 16, "vocab_size": 10, "reorder_and_upcast_attn": true}"#,
    )
    .expect("a sound configuration");
    assert_eq!(config.architecture, Architecture::Gpt2);
    assert_eq!((config.layers, config.hidden, config.heads, config.kv_heads), (3, 8, 2, 2));
    assert_eq!((config.head_dim, config.intermediate, config.context), (4, 32, 16));
    assert_eq!(config.activation, Activation::GeluTanh);
    assert!(config.tied_head && config.rope.is_none());
    assert_eq!(config.biases, Biases::Stated { attention: true, mlp: true });
}

#[test]
fn llama_of_transformers_4_and_5_are_the_same() {
    let four = llama(r#", "rope_theta": 500000.0, "torch_dtype": "float32""#);
    let five = llama(
        r#", "dtype": "float32",
           "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}"#,
    );
    assert_eq!(four, five);
    let rope = four.rope.expect("llama has rotary positions");
    assert_eq!((rope.base, rope.dims, rope.scaling), (500_000.0, 4, RopeScaling::None));
    assert!(!four.tied_head);
}

#[test]
fn rope_scaling_of_transformers_4_and_5_are_the_same() {
    let scaling = r#""rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 32"#;
    let four = llama(&format!(r#", "rope_theta": 10000.0, "rope_scaling": {{{scaling}}}"#));
    let five = llama(&format!(r#", "rope_parameters": {{"rope_theta": 10000.0, {scaling}}}"#));
    assert_eq!(four, five);
    let expected = RopeScaling::Llama3 {
        factor: 8.0,
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
        original_context: 32,
    };
    assert_eq!(four.rope.map(|rope| rope.scaling), Some(expected));
    let old = llama(r#", "rope_scaling": {"type": "linear", "factor": 2.0}"#);
    assert_eq!(old.rope.map(|rope| rope.scaling), Some(RopeScaling::Linear { factor: 2.0 }));
}

#[test]
fn head_dim_need_not_be_hidden_over_heads() {
    let config = llama(r#", "head_dim": 6, "attention_bias": true, "tie_word_embeddings": true"#);
    assert_eq!((config.head_dim, config.hidden), (6, 8));
    assert!(config.tied_head);
    assert_eq!(config.biases, Biases::Stated { attention: true, mlp: false });
}

#[test]
fn what_would_change_the_numbers_is_refused_by_name() {
    let cases = [
        (r#", "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}"#, "dynamic"),
        (r#", "rope_scaling": {"rope_type": "yarn", "factor": 2.0}"#, "yarn"),
        (r#", "partial_rotary_factor": 0.5"#, "partial_rotary_factor"),
        (r#", "rope_interleaved": true"#, "rope_interleaved"),
        (r#", "hidden_act": "relu""#, "relu"),
        (r#", "quantization_config": {"bits": 4}"#, "quantization_config"),
        (r#", "num_key_value_heads": 3"#, "key-value heads"),
        (r#", "head_dim": 5"#, "head size"),
        (r#", "rope_theta": -1.0"#, "rope base"),
        (r#", "rope_theta": "big""#, "rope_theta"),
        (r#", "vocab_size": 0"#, "vocabulary size"),
        (r#", "num_hidden_layers": 1000000000"#, "layers"),
        (r#", "hidden_size": -8"#, "hidden_size"),
        (r#", "model_type": "mamba""#, "mamba"),
        (r#", "model_type": null"#, "model_type"),
    ];
    for (extra, named) in cases {
        let message = refusal(&llama_json(extra));
        assert!(message.contains(named), "{extra}: {message}");
    }
    for field in ["scale_attn_by_inverse_layer_idx", "add_cross_attention"] {
        let message = refusal(&GPT2_JSON.replacen('{', &format!("{{\"{field}\": true,"), 1));
        assert!(message.contains(field), "{message}");
    }
    assert!(refusal("[]").contains("not a JSON object"));
    assert!(refusal("{").contains("config.json"));
}

#[test]
fn gguf_metadata_gives_the_same_configuration() {
    let file = llama_gguf().parse().expect("a sound file");
    let config = Config::from_gguf(&file).expect("a sound configuration");
    let expected = llama(r#", "tie_word_embeddings": true"#);
    assert_eq!(Config { biases: expected.biases, ..config }, expected);
}

#[test]
fn gguf_metadata_that_cannot_be_run_is_refused_by_name() {
    let base = llama_gguf();
    let cases = [
        (base.clone().text("general.architecture", "gemma3"), "gemma3"),
        (base.clone().u32("llama.expert_count", 8), "expert_count"),
        (base.clone().text("llama.rope.scaling.type", "yarn"), "yarn"),
        (base.clone().u32("llama.rope.dimension_count", 2), "rotary dimensions"),
        (base.clone().u32("llama.vocab_size", 11), "vocab_size"),
        (base.clone().u32("split.count", 2), "split.count"),
        (base.clone().text("llama.block_count", "one"), "block_count"),
        (base.clone().without("llama.embedding_length"), "embedding_length"),
        (base.clone().u32("llama.attention.head_count", 0), "head_count"),
        (base.clone().tensor("rope_freqs.weight", &[3], 1.0), "rope_freqs"),
        (base.clone().tensor("rope_freqs.weight", &[2], 0.0), "rope_freqs"),
        (base.without("token_embd.weight"), "token_embd"),
    ];
    for (writer, named) in cases {
        let file = writer.parse().expect("a sound file");
        let message = Config::from_gguf(&file).expect_err(named).to_string();
        assert!(message.contains(named), "{named}: {message}");
    }
}
