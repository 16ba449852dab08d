//! How fast attention runs on this machine: prefill in GFLOP/s, decode in milliseconds a token.
//!
//! `cargo run --release -p kernels --example attention_rate [-- THREADS...]`; `REFRAIN_ISA` picks
//! the instruction set. The shape is that of SmolLM2-135M: 30 layers, 9 query heads on 3 KV heads
//! of 64 dimensions; K and V are f16, then bf16, then q8_0.

use kernels::{
    AttentionScratch, KvGeometry, KvStore, KvType, PAGE_TOKENS, PageId, RowPlace, Strided, Team,
    attention, store_kv,
};
use std::time::Instant;

/// Where several rows are computed at once.
const DEPTH: usize = 6_000;
const LAYERS: usize = 30;
const KV_HEADS: usize = 3;
const HEADS: usize = 9;
const HEAD_DIM: usize = 64;
const WIDTH: usize = (HEADS + 2 * KV_HEADS) * HEAD_DIM;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<usize> =
        std::env::args().skip(1).map(|n| n.parse()).collect::<Result<_, _>>()?;
    let threads = if given.is_empty() { vec![1, 2] } else { given };
    for threads in threads {
        let team = Team::new(threads)?;
        for kv_type in [KvType::F16, KvType::BF16, KvType::Q8_0] {
            println!("{} with {threads} threads, {}", team.isa().name(), kv_type.name());
            rates(&team, kv_type)?;
        }
    }
    Ok(())
}

fn rates(team: &Team, kv_type: KvType) -> Result<(), Box<dyn std::error::Error>> {
    let geometry = KvGeometry { layers: LAYERS, kv_heads: KV_HEADS, head_dim: HEAD_DIM, kv_type };
    for length in [128, 512, 2048] {
        let best_s = prefill(team, geometry, length)?;
        let keys = (length * (length + 1) / 2) as f64;
        let operations = 4.0 * keys * (HEAD_DIM * HEADS * LAYERS) as f64;
        let rate = operations / best_s * 1e-9;
        println!("  prefill {length}: {:.2} ms, {rate:.0} GFLOP/s", best_s * 1e3);
    }
    for depth in [128, 512, 1024, 4096, 8000] {
        let best_s = decode(team, geometry, depth)?;
        let bytes = (geometry.token_bytes() * depth) as f64;
        let rate = bytes / best_s * 1e-9;
        println!("  decode at {depth}: {:.3} ms a token, {rate:.1} GB/s", best_s * 1e3);
    }
    for rows in [2, 4, 16] {
        let best_s = together(team, geometry, DEPTH, rows)?;
        println!("  {rows} rows at {DEPTH}: {:.3} ms", best_s * 1e3);
    }
    Ok(())
}

/// What [`filled`] makes.
type Filled = (KvStore, Vec<PageId>, Vec<f32>);

/// A store whose first `length` positions are written, and fused q|k|v rows for them.
fn filled(
    team: &Team,
    geometry: KvGeometry,
    length: usize,
) -> Result<Filled, Box<dyn std::error::Error>> {
    let count = length.div_ceil(PAGE_TOKENS);
    let mut store = KvStore::new(geometry, count)?;
    let pages: Vec<PageId> = (0..count as PageId).collect();
    let number = |i: usize| ((i * 7919) % 1009) as f32 / 504.5 - 1.0;
    let qkv: Vec<f32> = (0..length * WIDTH).map(number).collect();
    let places: Vec<RowPlace> =
        (0..length).map(|position| RowPlace { pages: &pages, position }).collect();
    let view = |heads: usize| Strided { data: &qkv, stride: WIDTH, offset: heads * HEAD_DIM };
    let start = Instant::now();
    for layer in 0..LAYERS {
        store_kv(team, &mut store, layer, view(HEADS), view(HEADS + KV_HEADS), &places)?;
    }
    if length == 512 {
        println!("  storing {length}: {:.2} ms", start.elapsed().as_secs_f64() * 1e3);
    }
    drop(places);
    Ok((store, pages, qkv))
}

/// Seconds for all layers of a prompt of `length` tokens, nothing before.
fn prefill(
    team: &Team,
    geometry: KvGeometry,
    length: usize,
) -> Result<f64, Box<dyn std::error::Error>> {
    let (store, pages, qkv) = filled(team, geometry, length)?;
    let places: Vec<RowPlace> =
        (0..length).map(|position| RowPlace { pages: &pages, position }).collect();
    Ok(run(team, &store, &qkv, &places, 10))
}

/// Seconds for all layers of one token at position `depth - 1`.
fn decode(
    team: &Team,
    geometry: KvGeometry,
    depth: usize,
) -> Result<f64, Box<dyn std::error::Error>> {
    let (store, pages, qkv) = filled(team, geometry, depth)?;
    Ok(run(team, &store, &qkv, &[RowPlace { pages: &pages, position: depth - 1 }], 100))
}

/// Seconds for all layers of the last `rows` positions before `depth`.
fn together(
    team: &Team,
    geometry: KvGeometry,
    depth: usize,
    rows: usize,
) -> Result<f64, Box<dyn std::error::Error>> {
    let (store, pages, qkv) = filled(team, geometry, depth)?;
    let places: Vec<RowPlace> =
        (depth - rows..depth).map(|position| RowPlace { pages: &pages, position }).collect();
    Ok(run(team, &store, &qkv, &places, 20))
}

/// Seconds for all layers of some rows: for each layer the best of `times`, so that what else runs
/// on the machine shows less.
fn run(team: &Team, store: &KvStore, qkv: &[f32], places: &[RowPlace], times: usize) -> f64 {
    let q = Strided { data: qkv, stride: WIDTH, offset: 0 };
    let mut out = vec![0.0; places.len() * HEADS * HEAD_DIM];
    let mut scratch = AttentionScratch::default();
    let mut best_s = [f64::INFINITY; LAYERS];
    for _ in 0..times {
        for (layer, best_s) in best_s.iter_mut().enumerate() {
            let start = Instant::now();
            attention(team, store, layer, q, places, 0.125, &mut out, &mut scratch);
            *best_s = best_s.min(start.elapsed().as_secs_f64());
        }
    }
    best_s.iter().sum()
}
