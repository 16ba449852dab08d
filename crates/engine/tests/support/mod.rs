//! What the parity tests share: recorded goldens, a recording of taps, and comparison.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::{TapPoint, Taps};
use safetensors::SafeTensors;

/// A tensor: its shape and values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Values {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

/// Tensors by tap name.
pub(crate) type Tensors = BTreeMap<String, Values>;

/// What `goldens.py` recorded of one model.
pub(crate) struct Goldens {
    pub(crate) tokens: Vec<u32>,
    pub(crate) greedy: Vec<u32>,
    pub(crate) taps: Tensors,
}

/// The folder of a model's goldens.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = [u8; 4]> {
    bytes.chunks_exact(4).map(|four| [four[0], four[1], four[2], four[3]])
}

impl Goldens {
    pub(crate) fn read(name: &str) -> Goldens {
        let bytes = std::fs::read(folder(name).join("goldens.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let mut goldens = Goldens { tokens: vec![], greedy: vec![], taps: Tensors::new() };
        for (name, view) in file.iter() {
            let ids = || words(view.data()).map(u32::from_le_bytes).collect();
            match name {
                "tokens" => goldens.tokens = ids(),
                "greedy" => goldens.greedy = ids(),
                _ => {
                    let values = words(view.data()).map(f32::from_le_bytes).collect();
                    let shape = view.shape().to_vec();
                    goldens.taps.insert(name.to_owned(), Values { shape, values });
                }
            }
        }
        goldens
    }

    pub(crate) fn every_row(&self) -> Vec<usize> {
        (0..self.tokens.len()).collect()
    }
}

/// Keeps every tensor of a step.
#[derive(Default)]
pub(crate) struct Recording(pub(crate) Tensors);

impl Taps for Recording {
    fn wants(&self, _point: TapPoint) -> bool {
        true
    }

    fn record(&mut self, point: TapPoint, shape: &[usize], values: &[f32]) {
        let value = Values { shape: shape.to_vec(), values: values.to_vec() };
        assert!(self.0.insert(point.to_string(), value).is_none(), "{point} recorded twice");
    }
}

/// The largest difference, as a share of the reference's largest magnitude.
pub(crate) fn relative_difference(got: &[f32], reference: &[f32]) -> f64 {
    assert_eq!(got.len(), reference.len());
    let largest = reference.iter().fold(0.0f64, |largest, &x| largest.max(f64::from(x.abs())));
    got.iter().zip(reference).fold(0.0, |worst, (&got, &reference)| {
        let difference = f64::from(got - reference).abs() / largest;
        // A NaN must not hide behind `max`, which ignores it.
        if difference.is_nan() { f64::INFINITY } else { worst.max(difference) }
    })
}

/// The tap that differs most, over the same taps in both.
pub(crate) fn worst_tap(got: &Tensors, reference: &Tensors) -> (String, f64) {
    let names = |tensors: &Tensors| tensors.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(got), names(reference));
    let mut worst = (String::new(), 0.0);
    for (name, reference) in reference {
        let got = &got[name];
        assert_eq!(got.shape, reference.shape, "shape of {name}");
        let difference = relative_difference(&got.values, &reference.values);
        if difference > worst.1 {
            worst = (name.clone(), difference);
        }
    }
    worst
}

/// The largest logit's id; the lowest of equals.
pub(crate) fn argmax(logits: &[f32]) -> u32 {
    let better = |best: usize, id: usize| if logits[id] > logits[best] { id } else { best };
    (0..logits.len()).fold(0, better) as u32
}
