//! Attention.

use engine::Site;

use crate::oracle::{Oracle, attention, scores, weigh, wide};
use crate::row::Check::{Model, Read, Real};
use crate::row::letters::{D, R, W};
use crate::row::{Row, row};
use crate::subject::Subject;
use crate::tally::{Seen, Stop, Tally};

pub(super) const ROWS: &[Row] = &[
    row(67, &[R], "scores are q k / sqrt(head width)", Model(scored)),
    row(68, &[R], "softmax makes weights of them: none negative, sum 1", Model(weights)),
    row(69, &[R], "the head's output is the weighted sum of the values", Model(mixed)),
    row(70, &[R], "values take no part in matching", Model(values_aside)),
    row(71, &[W], "' on' reads 0.4397, 0.2247, 0.2872, 0.0484", Real(the_weights)),
    row(72, &[W], "it reads mostly the first three, hardly itself", Real(hardly_itself)),
    row(73, &[R, W], "other heads and layers weigh otherwise", Model(otherwise)),
    row(74, &[D], "a weight is no probability of a next token", Read),
    row(75, &[R], "recomputed from the weights alone, the same but for rounding", Model(by_hand)),
];

/// What ' on' reads in layer 0, head 0, by the article.
const WEIGHTS: [f32; 4] = [0.4397, 0.2247, 0.2872, 0.0484];

fn scored(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, trace) = (subject.prefill()?, subject.trace()?);
    let width = subject.package.config.head_dim;
    let query = wide(pass.met_queries(0)?.at(subject.prompt.len() - 1, 0));
    let keys = pass.met_keys(0)?;
    let keys: Vec<Vec<f64>> = (0..subject.prompt.len()).map(|row| wide(keys.at(row, 0))).collect();
    let keys: Vec<&[f64]> = keys.iter().map(Vec::as_slice).collect();
    let expected = scores(&query, &keys);
    tally.close("scores", &expected, &trace.attention.scores, subject.kv_bound())?;
    let found = &trace.attention.scores;
    Ok(format!("{found:.4?}, divided by {:.4}", (width as f64).sqrt()))
}

/// The weights by the formula, from the engine's q and k of one layer: heads, rows, positions.
fn expected_weights(subject: &mut Subject, layer: usize) -> Result<Vec<f64>, Stop> {
    let pass = subject.prefill()?;
    let (queries, keys) = (pass.met_queries(layer)?.rows(), pass.met_keys(layer)?.rows());
    attention(&queries, &keys, &subject.package.config)
}

fn weights(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let tokens = subject.prompt.len();
    for layer in 0..subject.package.config.layers {
        let expected = expected_weights(subject, layer)?;
        let found = &pass.at(layer, Site::Pattern)?.values;
        tally.close(format!("layer {layer}"), &expected, found, subject.kv_bound())?;
        for row in found.chunks_exact(tokens) {
            let sum: f64 = row.iter().copied().map(f64::from).sum();
            tally.holds("a row's sum", "1", (sum - 1.0).abs() < 1e-5, sum)?;
            tally.holds("weights", "none negative", row.iter().all(|x| *x >= 0.0), "some are")?;
        }
    }
    let spot = &subject.trace()?.attention.weights;
    tally.same_bits("as traced", pass.at(0, Site::Pattern)?.at(0, tokens - 1), spot)?;
    Ok(format!("{spot:.4?} in layer 0, head 0"))
}

fn mixed(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, config) = (subject.prefill()?, subject.package.config.clone());
    let (tokens, shared) = (subject.prompt.len(), config.heads / config.kv_heads);
    for layer in 0..config.layers {
        let weights = expected_weights(subject, layer)?;
        let (values, found) = (pass.at(layer, Site::Value)?, pass.at(layer, Site::Mixed)?);
        for (index, weights) in weights.chunks_exact(tokens).enumerate() {
            let (head, row) = (index / tokens, index % tokens);
            let values: Vec<Vec<f64>> =
                (0..=row).map(|position| wide(values.at(position, head / shared))).collect();
            let values: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
            let what = format!("token {row}, head {head}, layer {layer}");
            let expected = weigh(weights, &values);
            tally.close(what, &expected, found.at(row, head), 4.0 * subject.kv_bound())?;
        }
    }
    Ok(format!("{} numbers in each head", config.head_dim))
}

fn values_aside(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let [one, other] = subject.with_other_values()?;
    let (weights, others) = (one.at(0, Site::Pattern)?, other.at(0, Site::Pattern)?);
    tally.same_bits("weights", &weights.values, &others.values)?;
    let (mixed, others) = (one.at(0, Site::Mixed)?, other.at(0, Site::Mixed)?);
    tally.differ("outputs of the heads", &mixed.values, &others.values)?;
    Ok("values doubled in the cache: the same weights, other outputs".to_owned())
}

/// What the last token reads in layer 0, head 0.
fn last_reads(subject: &mut Subject) -> Result<Vec<f32>, Stop> {
    let pass = subject.prefill()?;
    Ok(pass.at(0, Site::Pattern)?.at(0, subject.prompt.len() - 1).to_vec())
}

fn the_weights(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let found = last_reads(subject)?;
    tally.equal("weights", &WEIGHTS.len(), &found.len())?;
    for (expected, found) in WEIGHTS.iter().zip(&found) {
        tally.holds("weight", expected, (expected - found).abs() <= 5e-5, found)?;
    }
    let sum: f32 = found.iter().sum();
    tally.holds("their sum", "1.0000", (sum - 1.0).abs() <= 5e-5, sum)?;
    Ok(format!("{found:.4?}"))
}

fn hardly_itself(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let found = last_reads(subject)?;
    let (own, others) = found.split_last().ok_or_else(|| Stop::failed("weights", "none"))?;
    let first = others.iter().sum::<f32>();
    tally.holds("weight of the first three", "over 0.9", first > 0.9, first)?;
    tally.holds("weight of itself", "less than each", others.iter().all(|x| x > own), own)?;
    Ok(format!("{first:.4} of the first three, {own:.4} of itself"))
}

fn otherwise(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, last) = (subject.prefill()?, subject.prompt.len() - 1);
    let mut rows = Vec::new();
    for layer in 0..subject.package.config.layers {
        let pattern = pass.at(layer, Site::Pattern)?;
        rows.extend((0..pattern.shape[0]).map(|head| pattern.at(head, last).to_vec()));
    }
    let count = rows.len();
    let first = rows[0].clone();
    let others = rows[1..].iter().filter(|row| **row != first).count();
    tally.holds(
        "heads that weigh as layer 0, head 0",
        "none",
        others + 1 == count,
        count - others,
    )?;
    Ok(format!("{count} heads, none weighs as the first"))
}

fn by_hand(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, package) = (subject.prefill()?, subject.package.clone());
    let oracle = Oracle::new(&package);
    let norm = package::Part::Layer(0, package::LayerPart::AttentionNorm);
    let x = oracle.norm(norm, &oracle.entered(&subject.prompt)?)?;
    let [queries, keys, _] = oracle.qkv(0, &x)?;
    let (queries, keys) = (oracle.placed(&queries, 0), oracle.placed(&keys, 0));
    let expected = attention(&queries, &keys, &package.config)?;
    let bound = oracle.bound(&oracle.qkv_parts(0))?.max(subject.kv_bound());
    let found = pass.at(0, Site::Pattern)?;
    tally.close("layer 0", &expected, &found.values, bound)?;
    let tokens = subject.prompt.len();
    let by_hand = &expected[tokens * (tokens - 1)..][..tokens];
    let largest = expected.iter().fold(0.0f64, |most, x| most.max(*x));
    let apart = expected.iter().zip(&found.values).map(|(a, b)| (a - f64::from(*b)).abs());
    Ok(format!(
        "{by_hand:.4?} by hand, {:.4?} by the engine, in layer 0, head 0; in all heads at most \
         {:.4} apart, where {:.4} may be",
        found.at(0, tokens - 1),
        apart.fold(0.0, f64::max),
        bound * largest,
    ))
}
