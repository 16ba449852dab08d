//! The formulas.

use package::{Config, Rope, RopeScaling};

use super::Rows;
use crate::tally::Stop;

/// `(x - mean) / sqrt(variance + epsilon) * gain + bias`; not `centred`, `x / sqrt(mean(x^2) +
/// epsilon) * gain`.
pub(crate) fn norm(
    x: &[f64],
    gain: &[f64],
    bias: Option<&[f64]>,
    epsilon: f64,
    centred: bool,
) -> Vec<f64> {
    let count = x.len() as f64;
    let mean = if centred { x.iter().sum::<f64>() / count } else { 0.0 };
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    let scaled =
        x.iter().zip(gain).map(|(x, gain)| gain * (x - mean) / (variance + epsilon).sqrt());
    match bias {
        Some(bias) => scaled.zip(bias).map(|(x, bias)| x + bias).collect(),
        None => scaled.collect(),
    }
}

/// `q k / sqrt(width)` of one head's query with each of its keys.
pub(crate) fn scores(query: &[f64], keys: &[&[f64]]) -> Vec<f64> {
    let dot = |key: &&[f64]| query.iter().zip(*key).map(|(q, k)| q * k).sum::<f64>();
    keys.iter().map(|key| dot(key) / (query.len() as f64).sqrt()).collect()
}

/// `e^x / sum(e^x)`
pub(crate) fn softmax(scores: &[f64]) -> Vec<f64> {
    let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.iter().map(|score| (score - greatest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// The sum of values, each times its weight.
pub(crate) fn weigh(weights: &[f64], values: &[&[f64]]) -> Vec<f64> {
    let width = values.first().map_or(0, |value| value.len());
    let mut sum = vec![0.0; width];
    for (weight, value) in weights.iter().zip(values) {
        sum.iter_mut().zip(*value).for_each(|(sum, value)| *sum += weight * value);
    }
    sum
}

/// The attention weights of rows whose first stands at `keys.len() - queries.len()`, causal: heads,
/// then rows, then positions, zero behind the mask. Not of rows that do not fit the model.
pub(crate) fn attention(queries: &Rows, keys: &Rows, config: &Config) -> Result<Vec<f64>, Stop> {
    let Config { heads, kv_heads, head_dim, .. } = *config;
    let fits = |rows: &Rows, heads: usize| rows.iter().all(|row| row.len() == heads * head_dim);
    if !fits(queries, heads) || !fits(keys, kv_heads) || keys.len() < queries.len() {
        return Err(Stop::failed("queries and keys", "they do not fit the configuration"));
    }
    let before = keys.len() - queries.len();
    let mut all = Vec::with_capacity(heads * queries.len() * keys.len());
    for head in 0..heads {
        let key_head = head / (heads / kv_heads);
        for (row, query) in queries.iter().enumerate() {
            let query = &query[head * head_dim..(head + 1) * head_dim];
            let key = |row: &Vec<f64>| row[key_head * head_dim..(key_head + 1) * head_dim].to_vec();
            let visible: Rows = keys[..=before + row].iter().map(key).collect();
            let visible: Vec<&[f64]> = visible.iter().map(Vec::as_slice).collect();
            let mut weights = softmax(&scores(query, &visible));
            weights.resize(keys.len(), 0.0);
            all.extend(weights);
        }
    }
    Ok(all)
}

/// `x` times the normal distribution's share below it, by the tanh approximation or exactly.
pub(crate) fn gelu(x: f64, tanh: bool) -> f64 {
    if tanh {
        let bend = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        return 0.5 * x * (1.0 + bend.tanh());
    }
    x * normal_share(x)
}

/// The standard normal distribution function, integrated by Simpson's rule.
fn normal_share(x: f64) -> f64 {
    const STEPS: usize = 400;
    let reach = x.abs().min(9.0);
    let step = reach / STEPS as f64;
    let density = |t: f64| (-t * t / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let weight = |i: usize| match i {
        0 | STEPS => 1.0,
        i if i % 2 == 1 => 4.0,
        _ => 2.0,
    };
    let area: f64 = (0..=STEPS).map(|i| weight(i) * density(i as f64 * step)).sum();
    0.5 + x.signum() * area * step / 3.0
}

/// `x / (1 + e^-x)`
pub(crate) fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// Turns one head's vector to its position (Su et al., 2021): pair `i` is `(i, i + dims / 2)`, and
/// turns by `base^(-2 i / dims)` for each position.
pub(crate) fn rotate(head: &mut [f64], position: usize, rope: &Rope) {
    let half = rope.dims / 2;
    for pair in 0..half {
        let angle = position as f64 * frequency(rope, pair);
        let (x, y) = (head[pair], head[pair + half]);
        head[pair] = x * angle.cos() - y * angle.sin();
        head[pair + half] = x * angle.sin() + y * angle.cos();
    }
}

/// How far a pair turns per position. Llama 3.1 slows down the pairs that turn less than
/// `low_frequency_factor` times within the first training's context, and blends up to
/// `high_frequency_factor` times.
fn frequency(rope: &Rope, pair: usize) -> f64 {
    let factors = rope.frequency_factors.as_ref();
    let factor = factors.map_or(1.0, |factors| f64::from(factors[pair]));
    let plain = rope.base.powf(-2.0 * pair as f64 / rope.dims as f64) / factor;
    match rope.scaling {
        RopeScaling::None => plain,
        RopeScaling::Linear { factor } => plain / factor,
        RopeScaling::Llama3 {
            factor,
            low_frequency_factor: low,
            high_frequency_factor: high,
            original_context,
        } => {
            let turns = original_context as f64 * plain / std::f64::consts::TAU;
            let blend = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            plain * (blend + (1.0 - blend) / factor)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the normal distribution and of GELU from tables.
    #[test]
    fn gelu_is_what_the_tables_say() {
        assert!((gelu(1.0, false) - 0.841_344_746).abs() < 1e-9);
        assert!((gelu(-2.0, false) + 0.045_500_264).abs() < 1e-9);
        assert!((gelu(1.0, true) - 0.841_191_990).abs() < 1e-8);
        assert_eq!(gelu(0.0, false), 0.0);
    }

    #[test]
    fn softmax_of_logarithms_gives_their_shares() {
        let weights = softmax(&[1.0f64.ln(), 3.0f64.ln(), 4.0f64.ln()]);
        assert!(weights.iter().zip([0.125, 0.375, 0.5]).all(|(a, b)| (a - b).abs() < 1e-15));
    }

    #[test]
    fn a_norm_has_mean_zero_and_variance_one() {
        let x = norm(&[1.0, 2.0, 3.0, 6.0], &[1.0; 4], None, 0.0, true);
        assert!(x.iter().sum::<f64>().abs() < 1e-12);
        assert!((x.iter().map(|x| x * x).sum::<f64>() / 4.0 - 1.0).abs() < 1e-12);
    }
}
