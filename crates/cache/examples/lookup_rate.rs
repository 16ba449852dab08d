//! How long a lookup, a publication and an eviction take in a tree of 100,000 pages.
//!
//! `cargo run --release -p cache --example lookup_rate`

use std::hint::black_box;
use std::time::{Duration, Instant};

use cache::{Limits, Namespace, PAGE_TOKENS, PromptCache, Timestamp};

const PAGES: usize = 100_000;
const PROMPT_TOKENS: usize = 4_000;
const NOW: Timestamp = Timestamp(0);

/// A small generator (SplitMix64, Steele et al. 2014): the figures need no better one.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % below as u64) as usize
    }

    fn tokens(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.next(50_000) as u32).collect()
    }
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    println!("{what:44} median {:8.1} µs   99th {:8.1} µs", at(0.5), at(0.99));
}

/// Times `rounds` lookups of what `prompt` makes.
fn lookups(what: &str, cache: &mut PromptCache<usize>, mut prompt: impl FnMut(usize) -> Vec<u32>) {
    let mut times = Vec::new();
    for round in 0..500 {
        let tokens = prompt(round);
        let start = Instant::now();
        let hit = cache.lookup(&Namespace::public(), &tokens, "request", NOW);
        times.push(start.elapsed());
        black_box(hit.reused_tokens);
        cache.unpin(hit.pin);
    }
    report(what, times);
}

fn main() {
    let everyone = Namespace::public();
    let mut random = Random(1);
    let mut cache = PromptCache::new(Limits::default(), NOW);
    let mut next_page = 0;
    let mut publish = |cache: &mut PromptCache<usize>, tokens: &[u32]| {
        let pages: Vec<_> = (next_page..).take(tokens.len().div_ceil(PAGE_TOKENS)).collect();
        next_page += pages.len();
        let start = Instant::now();
        black_box(cache.insert(&everyone, tokens, &pages, "request", NOW));
        start.elapsed()
    };
    // Half of the pages in long conversations, half in short ones after one system prompt that
    // ends inside a page: tens of thousands of siblings.
    let mut conversations = Vec::new();
    let mut publications = Vec::new();
    while cache.stats().pages < PAGES / 2 {
        let tokens = random.tokens(PROMPT_TOKENS);
        publications.push(publish(&mut cache, &tokens));
        conversations.push(tokens);
    }
    let system = random.tokens(1_000);
    while cache.stats().pages < PAGES {
        let tokens = [&system[..], &random.tokens(10)].concat();
        publish(&mut cache, &tokens);
    }
    println!("{:?}", cache.stats());
    report("publication of 4,000 new tokens", publications);

    let count = conversations.len();
    lookups("lookup, all 4,000 tokens held", &mut cache, |i| conversations[i % count].clone());
    lookups("lookup, nothing like it", &mut cache, |_| random.tokens(PROMPT_TOKENS));
    lookups("lookup, one token changed near the start", &mut cache, |i| {
        let mut tokens = conversations[i % count].clone();
        tokens[20] = 50_000;
        tokens
    });
    lookups("lookup, other text after half of it", &mut cache, |i| {
        [&conversations[i % count][..2_000], &conversations[(i + 1) % count][..2_000]].concat()
    });
    lookups("lookup, a new user of the system prompt", &mut cache, |i| {
        [&system[..], &conversations[i % count][..3_000]].concat()
    });
    let mut evictions = Vec::new();
    for _ in 0..20_000 {
        let start = Instant::now();
        black_box(cache.evict(1, "request", NOW));
        evictions.push(start.elapsed());
    }
    report("eviction of one page", evictions);
    lookups("lookup, evicted", &mut cache, |i| conversations[i % 80].clone());
}
