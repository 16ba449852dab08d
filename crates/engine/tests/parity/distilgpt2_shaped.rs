//! A random model of DistilGPT-2's shape, at the first, a middle and the last position of its
//! context. Its weights come from a hash, which `xtask/python/goldens_distilgpt2.py` also has, so
//! that only the recorded logits are kept in the repository.

use std::sync::Arc;

use crate::support::{Goldens, Sequence, folder};
use engine::{Model, NoTaps};
use kernels::Team;
use package::Package;
use random_model::{CONTEXT, VOCABULARY, finalize};

const POSITIONS: [usize; 3] = [0, 511, 1023];

#[test]
fn logits_match_transformers_over_the_whole_context() {
    let directory = tempfile::tempdir().unwrap();
    // The tokenizer is a small one: only ids are used here.
    let [vocabulary, merges] =
        ["vocab.json", "merges.txt"].map(|name| folder("gpt2-prefix").join(name));
    random_model::write_distilgpt2(directory.path(), &vocabulary, &merges).unwrap();
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
