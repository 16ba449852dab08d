//! Attention scores and weights for whoever wants to look at them.

use crate::elementary::exp;
use crate::kv_store::{KvStore, PAGE_TOKENS, RowPlace};

/// The scores that one query head's row has with the positions `0..=position`: `q . k * scale`,
/// computed anew from the query and the stored keys. Derived, as [`attention_pattern`] is.
///
/// `q_row` holds the queries of all heads.
///
/// # Panics
/// If the row's page table does not reach its position, or head or layer do not exist.
pub fn attention_scores(
    store: &KvStore,
    layer: usize,
    q_row: &[f32],
    place: RowPlace,
    head: usize,
    scale: f32,
) -> Vec<f32> {
    scores(store, layer, q_row, place, head, scale).iter().map(|&score| score as f32).collect()
}

/// The weights with which one query head's row looks at the positions `0..=position`: the softmax
/// of `q . k * scale`, computed anew from the query and the stored keys. They sum to one. Derived:
/// close to what [`attention`](crate::attention) used, not the same bits.
///
/// `q_row` holds the queries of all heads.
///
/// # Panics
/// If the row's page table does not reach its position, or head or layer do not exist.
pub fn attention_pattern(
    store: &KvStore,
    layer: usize,
    q_row: &[f32],
    place: RowPlace,
    head: usize,
    scale: f32,
) -> Vec<f32> {
    let mut weights = scores(store, layer, q_row, place, head, scale);
    let greatest = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    weights.iter_mut().for_each(|weight| *weight = exp(*weight - greatest));
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| (weight / sum) as f32).collect()
}

fn scores(
    store: &KvStore,
    layer: usize,
    q_row: &[f32],
    place: RowPlace,
    head: usize,
    scale: f32,
) -> Vec<f64> {
    if let Err(error) = store.check_place(&place) {
        panic!("attention scores: {error}");
    }
    let geometry = store.geometry();
    let group = q_row.len() / geometry.head_dim / geometry.kv_heads;
    let query = &q_row[head * geometry.head_dim..][..geometry.head_dim];
    let score = |position: usize| {
        let page = place.pages[position / PAGE_TOKENS];
        let (key, _) = store.read(page, layer, head / group, position % PAGE_TOKENS);
        let dot: f64 = query.iter().zip(&key).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
        dot * f64::from(scale)
    };
    (0..=place.position).map(score).collect()
}
