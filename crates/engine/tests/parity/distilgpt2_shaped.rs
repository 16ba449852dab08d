//! A random model of DistilGPT-2's shape, at the first, a middle and the last position of its
//! context. Its weights come from a hash, which `xtask/python/goldens_distilgpt2.py` describes and
//! also has, so that only the recorded logits are kept in the repository.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use crate::support::{Goldens, Sequence, folder};
use engine::{Model, NoTaps};
use kernels::Team;
use package::Package;
use serde_json::{Map, json};

const LAYERS: usize = 6;
const HIDDEN: usize = 768;
const VOCABULARY: usize = 50257;
const CONTEXT: usize = 1024;
const POSITIONS: [usize; 3] = [0, 511, 1023];

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

/// MurmurHash3's 32-bit finalizer.
fn finalize(mut h: u32) -> u32 {
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
    let mut header = serde_json::Value::Object(header).to_string();
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

/// The model's folder. The tokenizer is a small one: only ids are used here.
fn write_model(directory: &Path) -> std::io::Result<()> {
    write_weights(&directory.join("model.safetensors"))?;
    for name in ["vocab.json", "merges.txt"] {
        std::fs::copy(folder("gpt2-prefix").join(name), directory.join(name))?;
    }
    let config = json!({
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
        "n_layer": LAYERS, "n_head": 12, "n_embd": HIDDEN, "n_positions": CONTEXT, "n_ctx": CONTEXT,
        "vocab_size": VOCABULARY, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
    });
    std::fs::write(directory.join("config.json"), config.to_string())
}

#[test]
fn logits_match_transformers_over_the_whole_context() {
    let directory = tempfile::tempdir().unwrap();
    write_model(directory.path()).unwrap();
    let package = Package::open(directory.path()).unwrap();
    let team = Arc::new(Team::new(2).unwrap());
    let mut model = Model::load(&package, team, usize::MAX, &|_, _| {}).unwrap();
    let ids: Vec<u32> =
        (0..CONTEXT as u32).map(|position| finalize(position) % VOCABULARY as u32).collect();
    let mut sequence = Sequence::new(&model, CONTEXT);
    let logits = sequence.append(&mut model, &ids, &POSITIONS, &mut NoTaps);
    let goldens = Goldens::read("distilgpt2-shaped");
    let reference = &goldens.taps["logits"];
    assert_eq!(reference.shape, [POSITIONS.len(), VOCABULARY]);
    let mut worst = 0.0f32;
    for (got, reference) in logits.iter().zip(&reference.values) {
        assert!((got - reference).abs() <= 1e-3, "{got} for {reference}");
        worst = worst.max((got - reference).abs());
    }
    println!("largest difference {worst:.1e}");
}
