//! What the parity tests share: recorded goldens, a recording of taps, and comparison.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::{Batch, Model, TapPoint, Taps};
use kernels::{KvStore, PAGE_TOKENS, PageId, RowPlace};
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
        Goldens::read_file(&folder(name).join("goldens.safetensors"))
    }

    /// The tensors of the decode steps that follow, and the KV cache after the last of them.
    pub(crate) fn decode_steps(name: &str) -> Tensors {
        Goldens::read_file(&folder(name).join("decode.safetensors")).taps
    }

    fn read_file(path: &Path) -> Goldens {
        let bytes = std::fs::read(path).unwrap();
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
        let taps = goldens.taps.keys().filter(|name| name.ends_with("attn.hook_pattern"));
        let scores: Vec<_> = taps.map(|name| goldens.scores(name)).collect();
        for (name, values) in scores {
            goldens.taps.entry(name).or_insert(values);
        }
        goldens
    }

    /// The attention scores behind the recorded weights `pattern`, from the recorded queries and
    /// keys: negative infinity behind the mask.
    fn scores(&self, pattern: &str) -> (String, Values) {
        let attention = pattern.strip_suffix("hook_pattern").unwrap();
        let tap = |names: [&str; 2]| {
            let mut found =
                names.iter().filter_map(|name| self.taps.get(&format!("{attention}{name}")));
            found.next()
        };
        let queries = tap(["hook_rot_q", "hook_q"]).unwrap();
        let [heads, rows, positions] = self.taps[pattern].shape[..] else { panic!("{pattern}") };
        let width = queries.shape[2];
        // Of a decode step, the keys of all positions are those of the cache after the last step:
        // heads before positions.
        let cached = pattern.starts_with("decode.").then(|| {
            let layer = pattern.split('.').nth(3).unwrap();
            &self.taps[&format!("decode.1.kv_cache.{layer}.keys")]
        });
        let keys = cached.or_else(|| tap(["hook_rot_k", "hook_k"])).unwrap();
        let kv_heads = if cached.is_some() { keys.shape[0] } else { keys.shape[1] };
        let key = |head: usize, position: usize| match cached {
            Some(_) => &keys.values[(head * keys.shape[1] + position) * width..][..width],
            None => &keys.values[(position * kv_heads + head) * width..][..width],
        };
        let mut values = Vec::new();
        for head in 0..heads {
            for row in 0..rows {
                let query = &queries.values[(row * heads + head) * width..][..width];
                for position in 0..positions {
                    let key = key(head / (heads / kv_heads), position);
                    let products =
                        query.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k));
                    let score = products.sum::<f64>() / (width as f64).sqrt();
                    let hidden = position > positions - rows + row;
                    values.push(if hidden { f32::NEG_INFINITY } else { score as f32 });
                }
            }
        }
        let shape = vec![heads, rows, positions];
        (format!("{attention}hook_attn_scores"), Values { shape, values })
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

/// Keeps which taps there are.
#[derive(Default)]
pub(crate) struct Points(pub(crate) Vec<TapPoint>);

impl Taps for Points {
    fn wants(&self, _point: TapPoint) -> bool {
        true
    }

    fn record(&mut self, point: TapPoint, _shape: &[usize], _values: &[f32]) {
        self.0.push(point);
    }
}

/// The pairs of numbers that are compared: what both hide is the same.
fn pairs<'a>(got: &'a [f32], reference: &'a [f32]) -> impl Iterator<Item = (f32, f32)> + 'a {
    assert_eq!(got.len(), reference.len());
    let pairs = got.iter().copied().zip(reference.iter().copied());
    pairs.filter(|&pair| pair != (f32::NEG_INFINITY, f32::NEG_INFINITY))
}

/// How far values are from a reference.
pub(crate) type Distance = fn(&[f32], &[f32]) -> f64;

/// The largest difference of any number, as a share of the reference's largest magnitude.
pub(crate) fn largest_difference(got: &[f32], reference: &[f32]) -> f64 {
    let largest = pairs(got, reference).fold(0.0f64, |most, (_, x)| most.max(f64::from(x.abs())));
    pairs(got, reference).fold(0.0, |worst, (got, reference)| {
        let difference = f64::from(got - reference).abs() / largest;
        // A NaN must not hide behind `max`, which ignores it.
        if difference.is_nan() { f64::INFINITY } else { worst.max(difference) }
    })
}

/// The root of the squared differences' sum, as a share of the reference's.
pub(crate) fn square_difference(got: &[f32], reference: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x).powi(2);
    let differences: f64 = pairs(got, reference).map(|(a, b)| square(a - b)).sum();
    let whole: f64 = pairs(got, reference).map(|(_, b)| square(b)).sum();
    let ratio = (differences / whole).sqrt();
    // A NaN must not hide behind a comparison.
    if ratio.is_nan() { f64::INFINITY } else { ratio }
}

/// The tap that differs most by `distance`, over the same taps in both.
pub(crate) fn worst_tap(got: &Tensors, reference: &Tensors, distance: Distance) -> (String, f64) {
    let names = |tensors: &Tensors| tensors.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(got), names(reference));
    let mut worst = (String::new(), 0.0);
    for (name, reference) in reference {
        let got = &got[name];
        assert_eq!(got.shape, reference.shape, "shape of {name}");
        let difference = distance(&got.values, &reference.values);
        if difference > worst.1 {
            worst = (name.clone(), difference);
        }
    }
    worst
}

/// One sequence of the fast path, with its own K/V.
pub(crate) struct Sequence {
    kv: KvStore,
    pages: Vec<PageId>,
    length: usize,
}

impl Sequence {
    /// An empty sequence with room for `capacity` tokens.
    pub(crate) fn new(model: &Model, capacity: usize) -> Sequence {
        let pages = capacity.div_ceil(PAGE_TOKENS);
        let mut kv = KvStore::new(model.kv_geometry(), pages).unwrap();
        // Pages in descending order, so that a page's number is never its place by luck.
        let pages: Vec<PageId> = (0..pages as PageId).rev().collect();
        pages.iter().for_each(|&page| kv.zero_page(page));
        Sequence { kv, pages, length: 0 }
    }

    /// Appends `tokens` in one step and gives the logits of its rows `logit_rows`.
    pub(crate) fn append(
        &mut self,
        model: &mut Model,
        tokens: &[u32],
        logit_rows: &[usize],
        taps: &mut dyn Taps,
    ) -> Vec<f32> {
        let positions = self.length..self.length + tokens.len();
        let places: Vec<RowPlace> =
            positions.map(|position| RowPlace { pages: &self.pages, position }).collect();
        let batch = Batch { tokens, places: &places, logit_rows };
        self.length += tokens.len();
        model.forward(&mut self.kv, &batch, taps).unwrap().to_vec()
    }
}

/// The largest logit's id; the lowest of equals.
pub(crate) fn argmax(logits: &[f32]) -> u32 {
    let better = |best: usize, id: usize| if logits[id] > logits[best] { id } else { best };
    (0..logits.len()).fold(0, better) as u32
}
