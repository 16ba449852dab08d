use super::*;
use crate::isa::Isa;
use crate::kv_store::{KvGeometry, PageId};
use crate::kv_write::store_kv;
use proptest::prelude::*;

const LAYERS: usize = 2;
const LAYER: usize = 1;

/// A small generator, so that cases are given by one number (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

/// A sequence in a store, with page ids out of order and NaN and infinity in every slot that it
/// does not use.
struct Case {
    store: KvStore,
    pages: Vec<PageId>,
    keys: Vec<f32>,
    values: Vec<f32>,
    heads: usize,
    length: usize,
    random: Random,
}

impl Case {
    fn new(
        isa: Isa,
        kv_type: KvType,
        head_dim: usize,
        kv_heads: usize,
        group: usize,
        length: usize,
        seed: u64,
    ) -> Case {
        let mut random = Random(seed | 1);
        let geometry = KvGeometry { layers: LAYERS, kv_heads, head_dim, kv_type };
        let count = length.div_ceil(PAGE_TOKENS);
        let mut store = KvStore::new(geometry, count + 3).unwrap();
        let team = Team::with_isa(1, isa).unwrap();
        // Poison: what a page held before, and what lies beyond the length.
        let all: Vec<PageId> = (0..count as PageId + 3).rev().collect();
        let slots = all.len() * PAGE_TOKENS;
        let poison: Vec<f32> = (0..slots * kv_heads * head_dim)
            .map(|i| [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][i % 3])
            .collect();
        let places = places(&all, 0..slots);
        let width = kv_heads * head_dim;
        let poison = Strided::whole(&poison, width);
        store_kv(&team, &mut store, LAYER, poison, poison, &places).unwrap();
        if kv_type == KvType::F16 {
            // Saturation made the infinities finite: put them back.
            for &page in &all {
                for half in store.page_bytes_mut(page).chunks_exact_mut(2) {
                    if half == [0xff, 0x7b] || half == [0xff, 0xfb] {
                        half.copy_from_slice(&[0x00, half[1] + 1]);
                    }
                }
            }
        }
        if kv_type == KvType::Q8_0 {
            // Bytes and scales alike: every scale is a NaN.
            for &page in &all {
                store.page_bytes_mut(page).fill(0xff);
            }
        }
        let pages = all[..count].to_vec();
        let (keys, values) = (random.floats(length * width), random.floats(length * width));
        let (k, v) = (Strided::whole(&keys, width), Strided::whole(&values, width));
        let places = self::places(&pages, 0..length);
        store_kv(&team, &mut store, LAYER, k, v, &places).unwrap();
        drop(places);
        Case { store, pages, keys, values, heads: kv_heads * group, length, random }
    }

    fn width(&self) -> usize {
        self.heads * self.store.geometry().head_dim
    }

    fn scale(&self) -> f32 {
        // Larger than usual, so that some weights dominate.
        3.0 / (self.store.geometry().head_dim as f32).sqrt()
    }

    fn run(&self, team: &Team, queries: &[f32], places: &[RowPlace]) -> Vec<f32> {
        let width = self.width();
        let mut out = vec![f32::NAN; places.len() * width];
        let q = Strided::whole(queries, width);
        let mut scratch = AttentionScratch::default();
        let scale = self.scale();
        attention(team, &self.store, LAYER, q, places, scale, &mut out, &mut scratch);
        out
    }

    /// A query's number times the scale, as it is multiplied with keys.
    fn scaled(&self, number: f32) -> f64 {
        if self.store.geometry().kv_type != KvType::BF16 {
            return f64::from(number) * f64::from(self.scale());
        }
        let log2_e = std::f64::consts::LOG2_E;
        let scale = (f64::from(self.scale()) * log2_e) as f32;
        f64::from(half::bf16::from_f32(number * scale)) / log2_e
    }

    /// How far from the oracle a number may be: in bf16 weights are rounded to 8 bits.
    fn tolerance(&self) -> f64 {
        if self.store.geometry().kv_type == KvType::BF16 { 4e-3 } else { 4e-6 }
    }

    /// Attention in double precision over what is stored.
    fn oracle(&self, query: &[f32], position: usize) -> Vec<f64> {
        let KvGeometry { head_dim, kv_heads, .. } = self.store.geometry();
        let group = self.heads / kv_heads;
        let stored: Vec<_> = (0..=position)
            .map(|p| {
                let page = self.pages[p / PAGE_TOKENS];
                let read = |head| self.store.read(page, LAYER, head, p % PAGE_TOKENS);
                (0..kv_heads).map(read).collect::<Vec<_>>()
            })
            .collect();
        let mut out = Vec::new();
        for head in 0..self.heads {
            let query = &query[head * head_dim..][..head_dim];
            let scaled: Vec<f64> = query.iter().map(|&q| self.scaled(q)).collect();
            let score = |key: &[f32]| -> f64 {
                scaled.iter().zip(key).map(|(&q, &k)| q * f64::from(k)).sum()
            };
            let scores: Vec<f64> =
                stored.iter().map(|heads| score(&heads[head / group].0)).collect();
            let greatest = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - greatest).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..head_dim {
                let weighted = weights.iter().zip(&stored);
                let total: f64 =
                    weighted.map(|(w, heads)| w * f64::from(heads[head / group].1[d])).sum();
                out.push(total / sum);
            }
        }
        out
    }
}

fn places(pages: &[PageId], positions: std::ops::Range<usize>) -> Vec<RowPlace<'_>> {
    positions.map(|position| RowPlace { pages, position }).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Compares with the oracle, and each row alone and in company, with one thread and several.
fn check(isa: Isa, kv_type: KvType, dims: usize, kv_heads: usize, group: usize, length: usize) {
    let mut case = Case::new(isa, kv_type, dims, kv_heads, group, length, (length * dims) as u64);
    let rows = length.min(21);
    let width = case.width();
    let queries = case.random.floats(rows * width);
    let teams = [1, 2, 3].map(|threads| Team::with_isa(threads, isa).unwrap());
    let first = length - rows;
    let all = places(&case.pages, first..length);
    let together = case.run(&teams[0], &queries, &all);
    for team in &teams[1..] {
        let threads = team.threads();
        assert_eq!(bits(&together), bits(&case.run(team, &queries, &all)), "{threads} threads");
    }
    for row in 0..rows {
        let query = &queries[row * width..][..width];
        let expected = &together[row * width..][..width];
        for team in &teams {
            let alone = case.run(team, query, &all[row..=row]);
            assert_eq!(bits(&alone), bits(expected), "row {row}, {} threads", team.threads());
        }
        if row % 10 == 0 {
            for (got, wanted) in expected.iter().zip(case.oracle(query, first + row)) {
                let error = (f64::from(*got) - wanted).abs();
                assert!(error < case.tolerance(), "{isa}: {got} for {wanted} at length {length}");
            }
        }
    }
}

#[test]
fn lengths_around_pages_tiles_and_segments() {
    for isa in Isa::available() {
        for kv_type in KvType::ALL {
            for length in [1, 2, 15, 16, 17, 63, 64, 65, 127, 130, 511, 512, 513, 1030] {
                check(isa, kv_type, 64, 1, 3, length);
            }
        }
    }
}

#[test]
fn head_dimensions_and_group_sizes() {
    for isa in Isa::available() {
        for kv_type in KvType::ALL {
            for (dims, kv_heads, group) in [
                (8, 2, 1),
                (16, 1, 2),
                (24, 3, 4),
                (40, 2, 3),
                (64, 3, 3),
                (64, 2, 7),
                (64, 12, 1),
                (80, 2, 5),
                (128, 1, 8),
                (128, 2, 13),
                (6, 1, 25),
            ] {
                check(isa, kv_type, dims, kv_heads, group, 97);
                check(isa, kv_type, dims, kv_heads, group, 530);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Rows of several positions in any order, some twice, give the bits that each has alone.
    #[test]
    fn company_does_not_matter(
        seed in any::<u64>(),
        dims in prop::sample::select(vec![8usize, 16, 24, 64, 80, 128]),
        group in 1usize..=14,
        length in prop::sample::select(vec![1usize, 16, 31, 64, 65, 200, 512, 600, 1100]),
        kv_type in prop::sample::select(KvType::ALL.to_vec()),
    ) {
        for isa in Isa::available() {
            let mut case = Case::new(isa, kv_type, dims, 2, group, length, seed);
            let width = case.width();
            let mut positions = Vec::new();
            for _ in 0..6 {
                let start = case.random.next() as usize % case.length;
                let run = 1 + case.random.next() as usize % 14;
                positions.extend(start..(start + run).min(case.length));
            }
            let queries = case.random.floats(positions.len() * width);
            let place = |&position: &usize| RowPlace { pages: &case.pages, position };
            let rows: Vec<RowPlace> = positions.iter().map(place).collect();
            let teams = [1, 2, 3].map(|threads| Team::with_isa(threads, isa).unwrap());
            let together = teams.each_ref().map(|team| bits(&case.run(team, &queries, &rows)));
            prop_assert_eq!(&together[0], &together[1]);
            prop_assert_eq!(&together[0], &together[2]);
            for row in 0..rows.len() {
                let query = &queries[row * width..][..width];
                let alone = case.run(&teams[row % 3], query, &rows[row..=row]);
                prop_assert_eq!(&bits(&alone)[..], &together[0][row * width..][..width]);
            }
        }
    }
}

#[test]
fn the_pattern_reproduces_the_output() {
    let isa = Isa::best();
    let mut case = Case::new(isa, KvType::F16, 16, 2, 2, 70, 5);
    let query = case.random.floats(case.width());
    let place = RowPlace { pages: &case.pages, position: 69 };
    let out = case.run(&Team::with_isa(1, isa).unwrap(), &query, &[place]);
    for head in 0..4 {
        let weights = attention_pattern(&case.store, LAYER, &query, place, head, case.scale());
        assert_eq!(weights.len(), 70);
        let scores = attention_scores(&case.store, LAYER, &query, place, head, case.scale());
        let exps: Vec<f64> = scores.iter().map(|&score| f64::from(score).exp()).collect();
        let all: f64 = exps.iter().sum();
        for (weight, exp) in weights.iter().zip(&exps) {
            assert!((f64::from(*weight) - exp / all).abs() < 1e-6);
        }
        for d in 0..16 {
            let value =
                |p: usize| case.store.read(case.pages[p / 16], LAYER, head / 2, p % 16).1[d];
            let sum: f32 = weights.iter().enumerate().map(|(p, w)| w * value(p)).sum();
            assert!((sum - out[head * 16 + d]).abs() < 1e-5);
        }
    }
}

#[test]
fn what_is_stored_is_read_back() {
    for isa in Isa::available() {
        for (dims, kv_heads) in [(8, 2), (24, 1), (64, 3)] {
            let case = Case::new(isa, KvType::F32, dims, kv_heads, 1, 40, 9);
            for p in 0..40 {
                for head in 0..kv_heads {
                    let (k, v) = case.store.read(case.pages[p / 16], LAYER, head, p % 16);
                    let start = (p * kv_heads + head) * dims;
                    assert_eq!(k, case.keys[start..][..dims]);
                    assert_eq!(v, case.values[start..][..dims]);
                }
            }
        }
    }
}

/// An infinite or NaN key or value of a token is seen by the rows that see the token, and by those
/// alone.
#[test]
fn a_number_that_is_not_finite_stays_with_those_who_see_it() {
    for isa in Isa::available() {
        for (is_value, poison) in [(false, f32::NAN), (false, f32::INFINITY), (true, f32::NAN)] {
            let mut case = Case::new(isa, KvType::Q8_0, 64, 1, 3, 80, 3);
            let queries = case.random.floats(80 * case.width());
            let team = Team::with_isa(2, isa).unwrap();
            let run = |case: &Case| case.run(&team, &queries, &places(&case.pages, 0..80));
            let before = run(&case);
            let (mut key, mut value) = (case.keys[50 * 64..][..64].to_vec(), vec![0.5; 64]);
            if is_value {
                value[40] = poison;
            } else {
                key[40] = poison;
            }
            let pages = case.pages.clone();
            let place = [RowPlace { pages: &pages, position: 50 }];
            let (k, v) = (Strided::whole(&key, 64), Strided::whole(&value, 64));
            store_kv(&team, &mut case.store, LAYER, k, v, &place).unwrap();
            let (seen, width) = (run(&case), case.width());
            assert_eq!(bits(&seen[..50 * width]), bits(&before[..50 * width]), "{isa}");
            for (i, x) in seen[50 * width..].iter().enumerate() {
                // A key weighs every number; a value is 32 numbers of its own.
                assert_eq!(x.is_nan(), !is_value || i % 64 >= 32, "{isa}: number {i} is {x}");
            }
        }
    }
}
