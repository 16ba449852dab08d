//! Random models of a real model's shape, for tests and for trying things where the real weights
//! are not at hand.
//!
//! The weights come from a hash, so that a model is the same bits everywhere and needs no room in
//! the repository. Element `i` of tensor number `t` (row-major, the tensors in the order in which
//! they are written) is `h(i + t * 0x9E3779B1)`, where `h` is MurmurHash3's 32-bit finalizer, its
//! upper 24 bits taken as a number in [-1, 1), times 1/32; a norm's gain is 1 + 4 times that.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

/// DistilGPT-2's layers.
pub const LAYERS: usize = 6;
/// DistilGPT-2's attention heads in each layer.
pub const HEADS: usize = 12;
/// Width of DistilGPT-2's residual stream.
pub const HIDDEN: usize = 768;
/// GPT-2's tokens.
pub const VOCABULARY: usize = 50257;
/// GPT-2's positions.
pub const CONTEXT: usize = 1024;
/// GPT-2's one special token, which begins and ends a text.
const END_OF_TEXT: u32 = 50256;

/// Writes a random model of DistilGPT-2's shape to `folder`, which is there: `config.json`,
/// `model.safetensors` (312 MiB), and copies of the tokenizer's files, `vocab.json` (OpenAI's
/// `encoder.json` is the same file) and `merges.txt` (`vocab.bpe`).
///
/// # Errors
/// What the operating system says.
pub fn write_distilgpt2(folder: &Path, vocabulary: &Path, merges: &Path) -> std::io::Result<()> {
    write_weights(&folder.join("model.safetensors"))?;
    std::fs::copy(vocabulary, folder.join("vocab.json"))?;
    std::fs::copy(merges, folder.join("merges.txt"))?;
    std::fs::write(folder.join("config.json"), format!("{:#}\n", config()))
}

fn config() -> Value {
    json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_embd": HIDDEN,
        "n_positions": CONTEXT,
        "n_ctx": CONTEXT,
        "vocab_size": VOCABULARY,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "bos_token_id": END_OF_TEXT,
        "eos_token_id": END_OF_TEXT,
        "tie_word_embeddings": true,
    })
}

/// Name and shape of every tensor, in the generator's order.
fn tensors() -> Vec<(String, Vec<usize>)> {
    let mut tensors = vec![
        ("transformer.wte.weight".to_owned(), vec![VOCABULARY, HIDDEN]),
        ("transformer.wpe.weight".to_owned(), vec![CONTEXT, HIDDEN]),
    ];
    let mut add = |name: String, shape: Vec<usize>| {
        let outputs = shape[shape.len() - 1];
        tensors.push((format!("{name}.weight"), shape));
        tensors.push((format!("{name}.bias"), vec![outputs]));
    };
    for layer in 0..LAYERS {
        let at = format!("transformer.h.{layer}");
        add(format!("{at}.ln_1"), vec![HIDDEN]);
        add(format!("{at}.ln_2"), vec![HIDDEN]);
        add(format!("{at}.attn.c_attn"), vec![HIDDEN, 3 * HIDDEN]);
        add(format!("{at}.attn.c_proj"), vec![HIDDEN, HIDDEN]);
        add(format!("{at}.mlp.c_fc"), vec![HIDDEN, 4 * HIDDEN]);
        add(format!("{at}.mlp.c_proj"), vec![4 * HIDDEN, HIDDEN]);
    }
    add("transformer.ln_f".to_owned(), vec![HIDDEN]);
    tensors
}

/// MurmurHash3's 32-bit finalizer: the hash that the weights are made of.
pub fn finalize(mut h: u32) -> u32 {
    h ^= h >> 16;
    h = h.wrapping_mul(0x85EB_CA6B);
    h ^= h >> 13;
    h = h.wrapping_mul(0xC2B2_AE35);
    h ^ (h >> 16)
}

/// Element `index` of tensor number `tensor`.
fn value(tensor: u32, index: u32, is_gain: bool) -> f32 {
    let hash = finalize(index.wrapping_add(tensor.wrapping_mul(0x9E37_79B1)));
    let small = ((hash >> 8) as i32 - (1 << 23)) as f32 * 2.0f32.powi(-28);
    if is_gain { 1.0 + 4.0 * small } else { small }
}

fn write_weights(path: &Path) -> std::io::Result<()> {
    let (mut header, mut end) = (Map::new(), 0);
    for (name, shape) in tensors() {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, end]});
        header.insert(name, entry);
    }
    let mut header = Value::Object(header).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    for (tensor, (name, shape)) in tensors().into_iter().enumerate() {
        let is_gain = shape.len() == 1 && name.ends_with("weight");
        for index in 0..shape.iter().product::<usize>() as u32 {
            file.write_all(&value(tensor as u32, index, is_gain).to_le_bytes())?;
        }
    }
    file.flush()
}
