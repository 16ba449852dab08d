//! The trace against transformers, and against the step that nobody looks at.

use std::sync::Arc;

use engine::trace::{Candidate, Options, Tensor, TensorName, Trace, TraceError, trace};
use engine::{Batch, Model, NoTaps};
use kernels::{KvStore, RowPlace, Team};
use package::Package;
use serde_json::Value;

use crate::support::{Goldens, Tensors, Values, largest_difference, worst_tap};
use crate::{FLOAT, FLOAT_BOUND, ROUNDED, open};

const ALL: Options = Options { layer: 0, head: 0, query: -1, decode: 0, top: 5, keep: &|_| true };

fn load(package: &Package) -> Model {
    Model::load(package, Arc::new(Team::new(2).unwrap()), usize::MAX, &|_, _| {}).unwrap()
}

fn run(name: &str, options: &Options) -> (Goldens, Trace) {
    let (goldens, package) = (Goldens::read(name), open(name));
    let trace = trace(&mut load(&package), &package, &goldens.tokens, options).unwrap();
    (goldens, trace)
}

/// The kept tensors that `wanted` names, without the batch, which transformers' recordings do not
/// have.
fn tensors(trace: &Trace, wanted: &dyn Fn(&str) -> bool) -> Tensors {
    let unbatched = |(name, tensor): &(TensorName, Tensor)| {
        assert_eq!(tensor.shape[0], 1, "{name}");
        assert_eq!(tensor.name, name.to_string());
        let (shape, values) = (tensor.shape[1..].to_vec(), tensor.values.clone());
        (tensor.name.clone(), Values { shape, values })
    };
    trace.tensors.iter().map(unbatched).filter(|(name, _)| wanted(name)).collect()
}

fn is_cache(name: &str) -> bool {
    name.contains("kv_cache.")
}

fn near(got: f64, wanted: f64, scale: f64) -> bool {
    (got - wanted).abs() <= FLOAT_BOUND * scale
}

#[test]
fn every_tensor_and_every_summary_is_transformers() {
    for name in FLOAT {
        let (goldens, trace) = run(name, &ALL);
        let taps = tensors(&trace, &|name| !is_cache(name));
        let (tap, difference) = worst_tap(&taps, &goldens.taps, largest_difference);
        assert!(difference <= FLOAT_BOUND, "{name}: {tap} differs by {difference:.1e}");
        let (cache, steps): (Vec<_>, Vec<_>) =
            trace.steps.iter().partition(|step| is_cache(&step.name));
        assert_eq!((cache.len(), steps.len()), (2 * trace.model.layers, goldens.taps.len()));
        for step in steps {
            let golden = &goldens.taps[&step.name];
            assert_eq!(step.shape[1..], golden.shape, "{name}: {}", step.name);
            assert_eq!(step.first.len(), golden.values.len().min(8));
            let shown = step.first.iter().zip(&golden.values);
            // What the mask hides is no part of the facts.
            let wide = golden.values.iter().filter(|&&x| x != f32::NEG_INFINITY);
            let wide: Vec<f64> = wide.copied().map(f64::from).collect();
            let scale = wide.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            let count = wide.len() as f64;
            let sum: f64 = wide.iter().sum();
            let square: f64 = wide.iter().map(|x| (x - sum / count).powi(2)).sum();
            let stats = step.stats;
            for (first, wanted) in shown {
                let same = first == wanted || near(f64::from(*first), f64::from(*wanted), scale);
                assert!(same, "{name}: {}", step.name);
            }
            let least = wide.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = wide.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert!(near(f64::from(stats.min), least, scale));
            assert!(near(f64::from(stats.max), greatest, scale));
            assert!(near(stats.mean, sum / count, scale));
            assert!(near(stats.sum, sum, scale * count));
            assert!(near(stats.std, (square / count).sqrt(), scale));
        }
    }
}

#[test]
fn the_attention_of_any_row_is_transformers_and_the_softmax_of_its_scores() {
    for name in FLOAT {
        let package = open(name);
        let heads = package.config.heads;
        for (layer, head, query) in [(0, 0, 0), (1, heads - 1, -1), (1, 0, 7), (0, heads - 1, -3)] {
            let options = Options { layer, head, query, keep: &|_| false, ..ALL };
            let (goldens, trace) = run(name, &options);
            let rows = goldens.tokens.len();
            let row = trace.attention.query;
            assert_eq!(row as i64, if query < 0 { rows as i64 + query } else { query });
            let golden = &goldens.taps[&format!("blocks.{layer}.attn.hook_pattern")].values;
            let golden = &golden[(head * rows + row) * rows..][..rows];
            let weights = &trace.attention.weights;
            assert_eq!(weights.len(), rows);
            assert!(largest_difference(weights, golden) <= FLOAT_BOUND, "{name}");
            assert!(weights[row + 1..].iter().all(|&weight| weight == 0.0), "behind the mask");
            // Scores are shown of all positions; the mask then leaves the visible ones.
            let scores = &trace.attention.scores;
            assert_eq!(scores.len(), rows);
            let exps: Vec<f64> = scores[..=row].iter().map(|&x| f64::from(x).exp()).collect();
            let sum: f64 = exps.iter().sum();
            for (&weight, exp) in weights.iter().zip(&exps) {
                assert!(near(f64::from(weight), exp / sum, 1.0), "{name}");
            }
            let expected = attended(&goldens, layer, head, row);
            let (q, k, wanted) = (expected.query, expected.key, expected.scores);
            assert!(largest_difference(scores, &wanted) <= FLOAT_BOUND, "{name}");
            assert!(largest_difference(&trace.attention.q, &q) <= FLOAT_BOUND, "{name}");
            assert!(largest_difference(&trace.attention.k, &k) <= FLOAT_BOUND, "{name}");
            assert!(trace.tensors.is_empty());
            check_rows(&goldens, &trace, &options);
        }
    }
}

/// The row of each step is that of the query, in its head, and after the layers the last one. What
/// the head gives begins with the sum of the values' first numbers by the weights.
fn check_rows(goldens: &Goldens, trace: &Trace, options: &Options) {
    let (query, last) = (trace.attention.query, goldens.tokens.len() - 1);
    let mixed = format!("blocks.{}.attn.hook_z", options.layer);
    for step in trace.steps.iter().filter(|step| !is_cache(&step.name)) {
        let golden = &goldens.taps[&step.name];
        let row = if step.name == "logits" || step.name.contains("final") { last } else { query };
        let start = match golden.shape[..] {
            _ if step.name.ends_with("pattern") || step.name.ends_with("scores") => {
                assert!(step.row.is_empty());
                continue;
            }
            [_, heads, width] => {
                let head = options.head / (trace.model.heads / heads);
                (row * heads + head) * width
            }
            [_, width] => row * width,
            _ => panic!("{}", step.name),
        };
        let wanted = &golden.values[start..][..step.row.len()];
        assert_eq!(step.row.len(), 8);
        let all = golden.values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        for (&found, &wanted) in step.row.iter().zip(wanted) {
            assert!(near(f64::from(found), f64::from(wanted), f64::from(all)), "{}", step.name);
        }
        if step.name == mixed {
            let (weights, values) = (&trace.attention.weights, &trace.attention.values);
            let sum: f32 = weights.iter().zip(values).map(|(weight, value)| weight * value).sum();
            assert!(near(f64::from(sum), f64::from(step.row[0]), f64::from(all)));
        }
    }
}

/// What a query meets, by transformers' recordings.
struct Attended {
    query: Vec<f32>,
    /// The key of the query's own row.
    key: Vec<f32>,
    /// The query's scores with the keys of all rows.
    scores: Vec<f32>,
}

fn attended(goldens: &Goldens, layer: usize, head: usize, row: usize) -> Attended {
    let tap = |rotated: &str, plain: &str| {
        let at = |site: &str| goldens.taps.get(&format!("blocks.{layer}.attn.{site}"));
        at(rotated).or_else(|| at(plain)).unwrap()
    };
    let (q, k) = (tap("hook_rot_q", "hook_q"), tap("hook_rot_k", "hook_k"));
    let (heads, kv_heads, width) = (q.shape[1], k.shape[1], q.shape[2]);
    let kv_head = head / (heads / kv_heads);
    let query = q.values[(row * heads + head) * width..][..width].to_vec();
    let key = |row: usize| k.values[(row * kv_heads + kv_head) * width..][..width].to_vec();
    let product = |(q, k): (&f32, &f32)| f64::from(*q) * f64::from(*k);
    let score = |row: usize| {
        let dot: f64 = query.iter().zip(&key(row)).map(product).sum();
        (dot / (width as f64).sqrt()) as f32
    };
    Attended { key: key(row), scores: (0..q.shape[0]).map(score).collect(), query }
}

#[test]
fn decode_steps_and_the_kv_cache_are_transformers() {
    for name in FLOAT.into_iter().filter(|name| !name.starts_with("gguf")) {
        let options = Options { decode: 2, top: 7, ..ALL };
        let (goldens, trace) = run(name, &options);
        let recorded = Goldens::decode_steps(name);
        // Of the cache, only the last was recorded; the others must be its beginning.
        let decoded = |name: &str| {
            name.starts_with("decode.1.") || name.starts_with("decode.0.") && !is_cache(name)
        };
        let (tap, difference) =
            worst_tap(&tensors(&trace, &decoded), &recorded, largest_difference);
        assert!(difference <= FLOAT_BOUND, "{name}: {tap} differs by {difference:.1e}");
        let caches = tensors(&trace, &is_cache);
        let last = goldens.tokens.len() + 2;
        for (cache, values) in &caches {
            let (_, part) = cache.split_once("kv_cache.").unwrap();
            let all = &caches[&format!("decode.1.kv_cache.{part}")];
            let [_, positions, width] = values.shape[..] else { panic!("{cache}") };
            assert_eq!((all.shape[1], all.shape[2]), (last, width));
            let heads = values.values.chunks_exact(positions * width);
            for (before, after) in heads.zip(all.values.chunks_exact(last * width)) {
                assert_eq!(before, &after[..before.len()], "{name}: {cache} has changed");
            }
        }
        for (index, step) in trace.decode.iter().enumerate() {
            let logits = &recorded[&format!("decode.{index}.logits")].values;
            assert_eq!(step.next.len(), 7);
            step.next.iter().for_each(|candidate| check_candidate(name, candidate, logits));
        }
    }
}

/// The logit and the probability that transformers gives to `candidate`.
fn check_candidate(name: &str, candidate: &Candidate, logits: &[f32]) {
    let greatest = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - greatest).exp()).sum();
    let golden = logits[candidate.id as usize];
    assert!(near(f64::from(candidate.logit), f64::from(golden), 10.0), "{name}");
    let probability = f64::from(golden - greatest).exp() / sum;
    assert!((f64::from(candidate.probability) - probability).abs() < 1e-3, "{name}");
}

#[test]
fn candidates_and_decode_steps_are_transformers_greedy_continuation() {
    for name in FLOAT {
        let options = Options { decode: 23, top: 3, keep: &|_| false, ..ALL };
        let (goldens, trace) = run(name, &options);
        let (rows, shape) = (goldens.tokens.len(), &trace.model);
        assert_eq!(trace.rows.len(), rows);
        assert_eq!(trace.rows[rows - 1].next, trace.next);
        let logits = &goldens.taps["logits"].values;
        for (row, logits) in trace.rows.iter().zip(logits.chunks_exact(shape.vocab)) {
            let mut above = f32::INFINITY;
            assert_eq!(row.next.len(), 3);
            for candidate in &row.next {
                check_candidate(name, candidate, logits);
                assert!(candidate.logit <= above);
                above = candidate.logit;
            }
        }
        assert_eq!(trace.decode.len(), 23);
        let mut before = &trace.next;
        for (index, step) in trace.decode.iter().enumerate() {
            assert_eq!(step.token.id, goldens.greedy[index], "{name}");
            assert_eq!(step.token.id, before[0].id);
            assert_eq!((step.input_shape, step.cache_len), ([1, 1], rows + index + 1));
            assert_eq!(step.attention_shape, [1, shape.heads, 1, step.cache_len]);
            assert_eq!(step.new_q_shape, [1, shape.heads, 1, shape.head_dim]);
            assert_eq!(step.new_k_shape, [1, shape.kv_heads, 1, shape.head_dim]);
            assert_eq!(step.new_v_shape, step.new_k_shape);
            assert_eq!(step.k_shape, [1, shape.kv_heads, step.cache_len, shape.head_dim]);
            assert_eq!(step.v_shape, step.k_shape);
            assert_eq!(step.logits_shape, [1, 1, shape.vocab]);
            assert_eq!(step.layer_evaluations, shape.layers);
            let without = shape.layers * step.cache_len;
            assert_eq!(step.layer_evaluations_without_cache, without);
            before = &step.next;
        }
        assert_eq!(before[0].id, goldens.greedy[23], "{name}");
        assert_eq!(trace.kv.k_shape, [1, shape.kv_heads, rows, shape.head_dim]);
        assert_eq!(trace.kv.v_shape, trace.kv.k_shape);
        let bytes = 4 * 2 * shape.layers * shape.kv_heads * shape.head_dim;
        assert_eq!((trace.kv.bytes_per_token, trace.kv.bytes), (bytes, bytes * rows));
    }
}

/// The logits of a step, alone in a new store, without taps and of the last row only.
fn plain_bits(model: &mut Model, tokens: &[u32]) -> Vec<u32> {
    let pages: Vec<u32> = (0..tokens.len().div_ceil(16) as u32).collect();
    let mut kv = KvStore::new(model.kv_geometry(), pages.len()).unwrap();
    let place = |position| RowPlace { pages: &pages, position };
    let places: Vec<RowPlace> = (0..tokens.len()).map(place).collect();
    let batch = Batch { tokens, places: &places, logit_rows: &[tokens.len() - 1] };
    let logits = model.forward(&mut kv, &batch, &mut NoTaps).unwrap();
    logits.iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn tracing_changes_no_bit_of_the_logits() {
    for name in FLOAT.into_iter().chain(ROUNDED.map(|(name, _)| name)) {
        let (goldens, package) = (Goldens::read(name), open(name));
        let mut model = load(&package);
        let before = plain_bits(&mut model, &goldens.tokens);
        let options = Options { top: package.config.vocab, decode: 3, ..ALL };
        let trace = trace(&mut model, &package, &goldens.tokens, &options).unwrap();
        assert_eq!(plain_bits(&mut model, &goldens.tokens), before, "{name}");
        let logits =
            &trace.tensors.iter().find(|(_, tensor)| tensor.name == "logits").unwrap().1.values;
        let last = &logits[logits.len() - before.len()..];
        let bits: Vec<u32> = last.iter().map(|logit| logit.to_bits()).collect();
        assert_eq!(bits, before, "{name}");
        assert_eq!(trace.next.len(), before.len());
        // Decoded one by one on the cache, or all at once: the same bits.
        let mut tokens = goldens.tokens.clone();
        for step in &trace.decode {
            tokens.push(step.token.id);
            let bits = plain_bits(&mut model, &tokens);
            for candidate in &step.next {
                assert_eq!(candidate.logit.to_bits(), bits[candidate.id as usize], "{name}");
            }
        }
    }
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_document_has_the_schema_it_names() {
    let (_, trace) = run("llama-gqa2-biased", &Options { decode: 1, ..ALL });
    let document = serde_json::to_value(&trace).unwrap();
    let parts = ["schema", "model", "tokens", "steps", "attention", "next", "rows", "kv", "decode"];
    assert_eq!(keys(&document), parts);
    assert_eq!(document["schema"], "refrain.trace/1");
    let model = ["name", "layers", "heads", "kv_heads", "hidden", "head_dim", "vocab", "context"];
    assert_eq!(keys(&document["model"]), model);
    assert_eq!(keys(&document["tokens"][0]), ["id", "text", "bytes"]);
    let step = &document["steps"][0];
    assert_eq!(keys(step), ["name", "alias", "shape", "first", "stats"]);
    assert_eq!(keys(&step["stats"]), ["min", "max", "mean", "std", "sum"]);
    assert_eq!(keys(&document["attention"]), ["layer", "head", "query", "weights"]);
    assert_eq!(keys(&document["next"][0]), ["id", "text", "logit", "probability"]);
    assert_eq!(keys(&document["rows"][0]), ["position", "next"]);
    let kv = ["layers", "k_shape", "v_shape", "bytes_per_token", "bytes"];
    assert_eq!(keys(&document["kv"]), kv);
    let decode = [
        "input_shape",
        "token",
        "cache_len",
        "new_q_shape",
        "new_k_shape",
        "new_v_shape",
        "k_shape",
        "v_shape",
        "attention_shape",
        "logits_shape",
        "next",
        "layer_evaluations",
        "layer_evaluations_without_cache",
    ];
    assert_eq!(keys(&document["decode"][0]), decode);
}

#[test]
fn what_cannot_be_traced_is_refused() {
    let package = open("gpt2-prefix");
    let mut model = load(&package);
    let mut refusal = |tokens: usize, options: Options| {
        trace(&mut model, &package, &vec![1; tokens], &options).unwrap_err()
    };
    assert!(matches!(refusal(0, ALL), TraceError::Empty));
    assert!(matches!(refusal(1025, ALL), TraceError::TooLong { tokens: 1025 }));
    assert!(matches!(refusal(129, ALL), TraceError::Forward(_)));
    let most = |error| match error {
        TraceError::Decode { most, .. } => most,
        other => panic!("{other}"),
    };
    assert_eq!(most(refusal(100, Options { decode: 29, ..ALL })), 28);
    let mut said = |options| refusal(4, options).to_string();
    assert_eq!(
        said(Options { layer: 2, ..ALL }),
        "there is no layer 2; there are 2, counted from 0"
    );
    assert_eq!(said(Options { head: 3, ..ALL }), "there is no head 3; there are 3, counted from 0");
    assert_eq!(
        said(Options { query: 4, ..ALL }),
        "there is no token 4; there are 4, counted from 0"
    );
    assert_eq!(
        said(Options { query: -5, ..ALL }),
        "there is no token -5; there are 4, counted from 0"
    );
}
