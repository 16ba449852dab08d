//! The reference and the fast forward against transformers, tap by tap.
//!
//! The goldens are made by `xtask/python/goldens.py`; see there for what is recorded and how.

mod distilgpt2_shaped;
mod support;
mod trace;

use std::sync::Arc;

use engine::{Batch, Model, NoTaps, Reference, Taps};
use kernels::{Isa, KvStore, RowPlace, Team};
use package::Package;
use support::{
    Distance, Goldens, Points, Recording, Sequence, argmax, folder, largest_difference,
    square_difference, worst_tap,
};

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
/// Bound of max|Δ| / max|reference| at every tap.
const FLOAT_BOUND: f64 = 1e-4;

/// Models whose weights are not f32, with a bound for the fast path of the root mean square
/// difference from the oracle at every tap, as a share of the tensor's root mean square. The oracle
/// has the same weights but rounds nothing else. With f16 weights only K and V are rounded, to
/// f16's 11 bits; with bf16 weights each matmul's input too, to 8 bits. With quantized weights each
/// matmul's input is rounded to 8 bits, one part in 254 of the largest of 32, and random weights do
/// not damp that as trained ones do.
const ROUNDED: [(&str, f64); 10] = [
    ("gguf-llama-f16", 1.5e-3),
    ("gguf-llama-bf16", 2e-2),
    ("gguf-llama-q8_0", 5e-2),
    ("gguf-llama-q4_0", 5e-2),
    ("gguf-llama-q4_1", 5e-2),
    ("gguf-gpt2-q8_0", 5e-2),
    ("gguf-llama-q5_0", 5e-2),
    ("gguf-llama-q5_1", 5e-2),
    ("gguf-llama-k", 5e-2),
    ("gguf-llama-mixed", 5e-2),
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
            let model = Model::load(package, team, usize::MAX, &|_, _| {}).unwrap();
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
        let (tap, difference) = worst_tap(&taps.0, &goldens.taps, largest_difference);
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

/// Runs the whole prompt in one step, and checks every tap's `distance` against `bound`.
fn check_fast(name: &str, distance: Distance, bound: f64) {
    let goldens = Goldens::read(name);
    for (setting, mut model) in fast_models(&open(name)) {
        let mut taps = Recording::default();
        let mut sequence = Sequence::new(&model, goldens.tokens.len());
        sequence.append(&mut model, &goldens.tokens, &goldens.every_row(), &mut taps);
        let (tap, difference) = worst_tap(&taps.0, &goldens.taps, distance);
        println!("{name}, {setting}: {difference:.1e} at {tap}");
        assert!(difference <= bound, "{name}, {setting}: {tap} differs by {difference:.1e}");
    }
}

#[test]
fn the_fast_path_matches_transformers_at_every_tap() {
    FLOAT.into_iter().for_each(|name| check_fast(name, largest_difference, FLOAT_BOUND));
}

#[test]
fn the_fast_path_on_rounded_weights_is_within_its_rounding() {
    ROUNDED.into_iter().for_each(|(name, bound)| check_fast(name, square_difference, bound));
}

#[test]
fn the_fast_path_continues_greedily_like_transformers() {
    for name in FLOAT {
        let goldens = Goldens::read(name);
        for (setting, mut model) in fast_models(&open(name)) {
            let prompt = &goldens.tokens;
            let mut sequence = Sequence::new(&model, prompt.len() + goldens.greedy.len());
            let mut logits = sequence.append(&mut model, prompt, &[prompt.len() - 1], &mut NoTaps);
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
fn neither_taps_nor_the_choice_of_rows_change_a_bit() {
    for name in FLOAT.into_iter().chain(ROUNDED.map(|(name, _)| name)) {
        let goldens = Goldens::read(name);
        for (setting, mut model) in fast_models(&open(name)) {
            let mut run = |rows: &[usize], taps: &mut dyn Taps| {
                let mut sequence = Sequence::new(&model, goldens.tokens.len());
                let logits = sequence.append(&mut model, &goldens.tokens, rows, taps);
                logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>()
            };
            let all = run(&goldens.every_row(), &mut NoTaps);
            assert_eq!(run(&goldens.every_row(), &mut Recording::default()), all, "{name}");
            let width = all.len() / goldens.tokens.len();
            let chosen: Vec<u32> =
                [17, 3].iter().flat_map(|row| &all[row * width..][..width]).copied().collect();
            assert_eq!(run(&[17, 3], &mut NoTaps), chosen, "{name}, {setting}");
            assert_eq!(run(&[17, 3], &mut Recording::default()), chosen, "{name}, {setting}");
            assert!(run(&[], &mut NoTaps).is_empty());
        }
    }
}

#[test]
fn a_step_that_cannot_be_is_refused() {
    let package = open("gpt2-prefix");
    let mut model = Model::load(&package, Arc::new(Team::new(1).unwrap()), 32, &|_, _| {}).unwrap();
    let mut kv = KvStore::new(model.kv_geometry(), 1).unwrap();
    let pages = [0];
    let mut refusal = |tokens: &[u32], positions: &[usize], logit_rows: &[usize]| {
        let place = |&position| RowPlace { pages: &pages, position };
        let places: Vec<RowPlace> = positions.iter().map(place).collect();
        let batch = Batch { tokens, places: &places, logit_rows };
        model.forward(&mut kv, &batch, &mut NoTaps).unwrap_err().to_string()
    };
    assert_eq!(refusal(&[269], &[0], &[]), "token 269 is beyond the vocabulary of 269");
    assert_eq!(refusal(&[1], &[32], &[0]), "position 32 is beyond the context of 32");
    assert_eq!(
        refusal(&[1], &[0], &[1]),
        "logits were asked for of row 1, but the step has 1 rows"
    );
    assert_eq!(refusal(&[1, 2], &[0], &[0]), "a step of 2 tokens at 1 places");
    assert_eq!(refusal(&[], &[], &[]), "a step of 0 tokens at 0 places");
    assert!(refusal(&[1], &[16], &[0]).contains("page"));
}

/// Hugging Face's module paths are the beginnings of the names that its files give to parameters.
#[test]
fn aliases_are_modules_of_the_model() {
    for name in ["gpt2-prefix", "llama-mha-untied"] {
        let (goldens, package) = (Goldens::read(name), open(name));
        let architecture = package.config.architecture;
        let mut points = Points::default();
        let reference = Reference::load(&package).unwrap();
        reference.forward(&goldens.tokens[..2], &[1], &mut points).unwrap();
        assert_eq!(points.0.len(), goldens.taps.len());
        for point in points.0 {
            let alias = point.alias(architecture);
            // An activation function is a module without parameters; its parent has some. So has
            // a tied head's module, which is the embedding's.
            let module = alias.trim_end_matches(".act").trim_end_matches(".act_fn");
            let known = package.weights.tensors().any(|tensor| {
                let rest = tensor.name.strip_prefix(module);
                rest.is_some_and(|rest| rest.starts_with('.'))
            });
            let tied = package.config.tied_head && alias == "lm_head";
            assert!(known || tied, "{name}: {point} is said to be of {alias}");
        }
    }
}
