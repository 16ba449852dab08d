//! The reference and the fast forward against transformers, tap by tap.
//!
//! The goldens are made by `xtask/python/goldens.py`; see there for what is recorded and how. The
//! distance of two tensors is max|Δ| / max|reference|.

mod support;

use std::sync::Arc;

use engine::{Model, NoTaps, Reference};
use kernels::{Isa, Team};
use package::Package;
use support::{Goldens, Recording, Sequence, argmax, folder, worst_tap};

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
const ROUNDED: [(&str, f64); 6] = [
    ("gguf-llama-f16", 2e-3),
    ("gguf-llama-bf16", 2e-3),
    ("gguf-llama-q8_0", 4e-2),
    ("gguf-llama-q4_0", 4e-2),
    ("gguf-llama-q4_1", 4e-2),
    ("gguf-gpt2-q8_0", 4e-2),
];

fn open(name: &str) -> Package {
    let folder = folder(name);
    let file = folder.join("model.gguf");
    Package::open(if file.exists() { &file } else { &folder }).unwrap()
}

/// The fast model, once for each instruction set of this machine, with one thread and with two.
fn fast_models(package: &Package) -> Vec<(String, Model)> {
    let mut models = Vec::new();
    for isa in Isa::available() {
        for threads in [1, 2] {
            let team = Arc::new(Team::with_isa(threads, isa).unwrap());
            let model = Model::load(package, team, &|_, _| {}).unwrap();
            models.push((format!("{} x {threads}", isa.name()), model));
        }
    }
    models
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

/// Runs the whole prompt in one step, and checks every tap against `bound`.
fn check_fast(name: &str, bound: f64) {
    let goldens = Goldens::read(name);
    for (setting, mut model) in fast_models(&open(name)) {
        let mut taps = Recording::default();
        let mut sequence = Sequence::new(&model, goldens.tokens.len());
        sequence.append(&mut model, &goldens.tokens, &goldens.every_row(), &mut taps);
        let (tap, difference) = worst_tap(&taps.0, &goldens.taps);
        println!("{name}, {setting}: {difference:.1e} at {tap}");
        assert!(difference <= bound, "{name}, {setting}: {tap} differs by {difference:.1e}");
    }
}

#[test]
fn the_fast_path_matches_transformers_at_every_tap() {
    FLOAT.into_iter().for_each(|name| check_fast(name, FLOAT_BOUND));
}

#[test]
fn the_fast_path_on_rounded_weights_is_within_its_rounding() {
    ROUNDED.into_iter().for_each(|(name, bound)| check_fast(name, bound));
}

#[test]
fn the_fast_path_continues_greedily_like_transformers() {
    for name in FLOAT {
        let goldens = Goldens::read(name);
        for (setting, mut model) in fast_models(&open(name)) {
            let prompt = &goldens.tokens;
            let mut sequence = Sequence::new(&model, prompt.len() + goldens.greedy.len());
            let mut logits =
                sequence.append(&mut model, prompt, &[prompt.len() - 1], &mut NoTaps);
            let mut continuation = vec![argmax(&logits)];
            while continuation.len() < goldens.greedy.len() {
                let last = [argmax(&logits)];
                logits = sequence.append(&mut model, &last, &[0], &mut NoTaps);
                continuation.push(argmax(&logits));
            }
            assert_eq!(continuation, goldens.greedy, "{name}, {setting}");
        }
    }
}

#[test]
fn taps_do_not_change_what_is_computed() {
    for name in ["gpt2-prefix", "gguf-llama-q4_1"] {
        let goldens = Goldens::read(name);
        for (setting, mut model) in fast_models(&open(name)) {
            let mut run = |taps: &mut dyn engine::Taps| {
                let mut sequence = Sequence::new(&model, goldens.tokens.len());
                sequence.append(&mut model, &goldens.tokens, &goldens.every_row(), taps)
            };
            let (seen, unseen) = (run(&mut Recording::default()), run(&mut NoTaps));
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&seen), bits(&unseen), "{name}, {setting}");
        }
    }
}
