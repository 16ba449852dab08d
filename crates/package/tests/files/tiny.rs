//! Tiny models, written byte by byte by this file alone, so that the readers have an oracle.

use package::gguf::{GgufError, GgufFile};
use package::{Config, FileBytes};
use std::sync::Arc;

/// A GGUF file under construction.
#[derive(Clone)]
pub(crate) struct GgufWriter {
    pub(crate) version: u32,
    pub(crate) alignment: usize,
    pub(crate) entries: Vec<(String, u32, Vec<u8>)>,
    pub(crate) tensors: Vec<GgufTensor>,
}

/// One tensor of it; `offset` overrides where its data is said to be.
#[derive(Clone)]
pub(crate) struct GgufTensor {
    pub(crate) name: String,
    /// Innermost first, as in the file.
    pub(crate) dimensions: Vec<u64>,
    pub(crate) kind: u32,
    pub(crate) data: Vec<u8>,
    pub(crate) offset: Option<u64>,
}

impl GgufWriter {
    pub(crate) fn new() -> GgufWriter {
        GgufWriter { version: 3, alignment: 32, entries: Vec::new(), tensors: Vec::new() }
    }

    pub(crate) fn raw(mut self, key: &str, kind: u32, value: Vec<u8>) -> GgufWriter {
        self.entries.retain(|(existing, ..)| existing != key);
        self.entries.push((key.to_owned(), kind, value));
        self
    }

    pub(crate) fn text(self, key: &str, value: &str) -> GgufWriter {
        self.raw(key, 8, string(value))
    }

    pub(crate) fn u32(self, key: &str, value: u32) -> GgufWriter {
        self.raw(key, 4, value.to_le_bytes().to_vec())
    }

    pub(crate) fn f32(self, key: &str, value: f32) -> GgufWriter {
        self.raw(key, 6, value.to_le_bytes().to_vec())
    }

    pub(crate) fn strings(self, key: &str, values: &[&str]) -> GgufWriter {
        let mut bytes = 8_u32.to_le_bytes().to_vec();
        bytes.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| bytes.extend(string(value)));
        self.raw(key, 9, bytes)
    }

    /// Adds an F32 tensor whose element `i` is `start + i`; shape outermost first.
    pub(crate) fn tensor(mut self, name: &str, shape: &[u64], start: f32) -> GgufWriter {
        let count = shape.iter().product::<u64>();
        let data = (0..count).flat_map(|i| (start + i as f32).to_le_bytes()).collect();
        let dimensions = shape.iter().rev().copied().collect();
        self.tensors.retain(|tensor| tensor.name != name);
        self.tensors.push(GgufTensor {
            name: name.to_owned(),
            dimensions,
            kind: 0,
            data,
            offset: None,
        });
        self
    }

    pub(crate) fn without(mut self, name: &str) -> GgufWriter {
        self.tensors.retain(|tensor| tensor.name != name);
        self.entries.retain(|(key, ..)| key != name);
        self
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(self.version.to_le_bytes());
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.entries.len() as u64).to_le_bytes());
        for (key, kind, value) in &self.entries {
            file.extend(string(key));
            file.extend(kind.to_le_bytes());
            file.extend(value);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            file.extend(string(&tensor.name));
            file.extend((tensor.dimensions.len() as u32).to_le_bytes());
            tensor.dimensions.iter().for_each(|length| file.extend(length.to_le_bytes()));
            file.extend(tensor.kind.to_le_bytes());
            file.extend(tensor.offset.unwrap_or(offset as u64).to_le_bytes());
            offset += tensor.data.len().next_multiple_of(self.alignment);
        }
        for tensor in &self.tensors {
            file.resize(file.len().next_multiple_of(self.alignment), 0);
            file.extend(&tensor.data);
        }
        file
    }

    pub(crate) fn parse(&self) -> Result<GgufFile, GgufError> {
        parse_gguf(self.build())
    }
}

pub(crate) fn parse_gguf(bytes: Vec<u8>) -> Result<GgufFile, GgufError> {
    GgufFile::parse(Arc::new(FileBytes::from(bytes)))
}

fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// Two heads of 4 over one key-value head, hidden 8, MLP 12, vocabulary 10, one layer.
pub(crate) fn llama_gguf() -> GgufWriter {
    GgufWriter::new()
        .text("general.architecture", "llama")
        .text("general.license", "apache-2.0")
        .u32("llama.block_count", 1)
        .u32("llama.context_length", 64)
        .u32("llama.embedding_length", 8)
        .u32("llama.feed_forward_length", 12)
        .u32("llama.attention.head_count", 2)
        .u32("llama.attention.head_count_kv", 1)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .f32("llama.rope.freq_base", 10_000.0)
        .strings("tokenizer.ggml.tokens", &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"])
        .tensor("token_embd.weight", &[10, 8], 0.0)
        .tensor("output_norm.weight", &[8], 100.0)
        .tensor("blk.0.attn_norm.weight", &[8], 200.0)
        .tensor("blk.0.attn_q.weight", &[8, 8], 300.0)
        .tensor("blk.0.attn_k.weight", &[4, 8], 400.0)
        .tensor("blk.0.attn_v.weight", &[4, 8], 500.0)
        .tensor("blk.0.attn_output.weight", &[8, 8], 600.0)
        .tensor("blk.0.ffn_norm.weight", &[8], 700.0)
        .tensor("blk.0.ffn_gate.weight", &[12, 8], 800.0)
        .tensor("blk.0.ffn_up.weight", &[12, 8], 900.0)
        .tensor("blk.0.ffn_down.weight", &[8, 12], 1000.0)
}

/// One safetensors tensor: name, dtype, shape, data.
pub(crate) type Stored = (String, &'static str, Vec<usize>, Vec<u8>);

/// An F32 tensor whose element `i` is `start + i`.
pub(crate) fn stored(name: &str, shape: &[usize], start: f32) -> Stored {
    let count = shape.iter().product::<usize>();
    let data = (0..count).flat_map(|i| (start + i as f32).to_le_bytes()).collect();
    (name.to_owned(), "F32", shape.to_vec(), data)
}

pub(crate) fn safetensors(tensors: &[Stored]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut offset = 0;
    for (name, dtype, shape, data) in tensors {
        let end = offset + data.len();
        let info = serde_json::json!({
            "dtype": dtype, "shape": shape, "data_offsets": [offset, end]
        });
        header.insert(name.clone(), info);
        offset = end;
    }
    let mut header = serde_json::to_vec(&header).expect("a JSON map");
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    tensors.iter().for_each(|(.., data)| file.extend(data));
    file
}

/// GPT-2 with hidden 8, two heads, MLP 20, vocabulary 10, 16 positions, one layer.
pub(crate) const GPT2_JSON: &str = r#"{
    "model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "n_inner": 20,
    "n_positions": 16, "vocab_size": 10, "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new"
}"#;

pub(crate) fn gpt2_config() -> Config {
    Config::from_json(GPT2_JSON).expect("a sound configuration")
}

pub(crate) fn gpt2_tensors(prefix: &str) -> Vec<Stored> {
    let named =
        |name: &str, shape: &[usize], start: f32| stored(&format!("{prefix}{name}"), shape, start);
    vec![
        named("wte.weight", &[10, 8], 0.0),
        named("wpe.weight", &[16, 8], 100.0),
        named("ln_f.weight", &[8], 300.0),
        named("ln_f.bias", &[8], 310.0),
        named("h.0.ln_1.weight", &[8], 320.0),
        named("h.0.ln_1.bias", &[8], 330.0),
        named("h.0.attn.c_attn.weight", &[8, 24], 400.0),
        named("h.0.attn.c_attn.bias", &[24], 600.0),
        named("h.0.attn.c_proj.weight", &[8, 8], 700.0),
        named("h.0.attn.c_proj.bias", &[8], 800.0),
        named("h.0.ln_2.weight", &[8], 810.0),
        named("h.0.ln_2.bias", &[8], 820.0),
        named("h.0.mlp.c_fc.weight", &[8, 20], 900.0),
        named("h.0.mlp.c_fc.bias", &[20], 1100.0),
        named("h.0.mlp.c_proj.weight", &[20, 8], 1200.0),
        named("h.0.mlp.c_proj.bias", &[8], 1400.0),
        // Old checkpoints have the causal mask as a tensor of a type that nothing computes with.
        (format!("{prefix}h.0.attn.bias"), "U8", vec![4], vec![1; 4]),
    ]
}

/// The Llama of [`llama_gguf`] as transformers 4 writes it, without `extra`.
pub(crate) fn llama_json(extra: &str) -> String {
    format!(
        r#"{{"model_type": "llama", "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "vocab_size": 10, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "rope_scaling": null{extra}}}"#
    )
}

pub(crate) fn llama_tensors(prefix: &str) -> Vec<Stored> {
    let named =
        |name: &str, shape: &[usize], start: f32| stored(&format!("{prefix}{name}"), shape, start);
    vec![
        named("embed_tokens.weight", &[10, 8], 0.0),
        named("norm.weight", &[8], 100.0),
        named("layers.0.input_layernorm.weight", &[8], 200.0),
        named("layers.0.self_attn.q_proj.weight", &[8, 8], 300.0),
        named("layers.0.self_attn.k_proj.weight", &[4, 8], 400.0),
        named("layers.0.self_attn.v_proj.weight", &[4, 8], 500.0),
        named("layers.0.self_attn.o_proj.weight", &[8, 8], 600.0),
        named("layers.0.post_attention_layernorm.weight", &[8], 700.0),
        named("layers.0.mlp.gate_proj.weight", &[12, 8], 800.0),
        named("layers.0.mlp.up_proj.weight", &[12, 8], 900.0),
        named("layers.0.mlp.down_proj.weight", &[8, 12], 1000.0),
    ]
}
