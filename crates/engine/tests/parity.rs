//! The reference and the fast forward against transformers, tap by tap.
//!
//! The goldens are made by `xtask/python/goldens.py`; see there for what is recorded and how. The
//! distance of two tensors is max|Δ| / max|reference|.

mod support;

use engine::{NoTaps, Reference};
use package::Package;
use support::{Goldens, Recording, argmax, folder, worst_tap};

/// Models whose weights are f32: both paths must match the oracle.
const FLOAT: [&str; 8] = [
    "gpt2-prefix",
    "gpt2-plain",
    "llama-mha-untied",
    "llama-gqa2-biased",
    "llama-gqa3-wide-heads",
    "llama-gqa4-llama3",
    "gguf-gpt2-f32",
    "gguf-llama-f32",
];
const FLOAT_BOUND: f64 = 1e-4;

/// Models whose weights are not f32, with how far the fast path may be from the oracle, which has
/// the same weights but rounds nothing else. With f16 and bf16 weights only K and V are rounded,
/// to f16's 11 bits. With quantized weights activations are rounded to 8 bits, one part in 254 of
/// the largest of 32, at each of seven matmuls a layer; random weights do not damp that as trained
/// ones do.
const ROUNDED: [(&str, f64); 7] = [
    ("gguf-llama-f16", 2e-3),
    ("gguf-llama-bf16", 2e-3),
    ("gguf-llama-q8_0", 4e-2),
    ("gguf-llama-q4_0", 4e-2),
    ("gguf-llama-q4_1", 4e-2),
    ("gguf-gpt2-q8_0", 4e-2),
    ("gguf-llama-mixed", 4e-2),
];

fn open(name: &str) -> Package {
    let folder = folder(name);
    let file = folder.join("model.gguf");
    Package::open(if file.exists() { &file } else { &folder }).unwrap()
}

#[test]
fn the_reference_matches_transformers_at_every_tap() {
    for name in FLOAT.into_iter().chain(ROUNDED.map(|(name, _)| name)) {
        let (goldens, model) = (Goldens::read(name), Reference::load(&open(name)).unwrap());
        let mut taps = Recording::default();
        model.forward(&goldens.tokens, &goldens.every_row(), &mut taps).unwrap();
        let (tap, difference) = worst_tap(&taps.0, &goldens.taps);
        println!("{name}: {difference:.1e} at {tap}");
        assert!(difference <= FLOAT_BOUND, "{name}: {tap} differs by {difference:.1e}");
    }
}

#[test]
fn the_reference_continues_greedily_like_transformers() {
    for name in FLOAT.into_iter().chain(ROUNDED.map(|(name, _)| name)) {
        let (goldens, model) = (Goldens::read(name), Reference::load(&open(name)).unwrap());
        let mut ids = goldens.tokens.clone();
        for _ in &goldens.greedy {
            ids.push(argmax(&model.forward(&ids, &[ids.len() - 1], &mut NoTaps).unwrap()));
        }
        assert_eq!(ids[goldens.tokens.len()..], goldens.greedy, "{name}");
    }
}
