//! The index at scale: 10 million cached tokens in 100,000 prefixes, each with 100 tokens of its
//! own after one of 50 system prompts. How long an operation on 4,000 tokens takes, and how much
//! memory a token needs.
//!
//! `cargo run --release -p cache --example scale [stored]`; with `stored`, every full page has a
//! copy on disk.

use std::hint::black_box;
use std::time::{Duration, Instant};

use cache::{DiskPage, Limits, Namespace, PAGE_TOKENS, PromptCache, Timestamp};

const PREFIXES: u64 = 100_000;
const OWN_TOKENS: usize = 100;
const PROMPT_TOKENS: usize = 4_000;
const SYSTEM_LENGTHS: [usize; 5] = [97, 510, 1_003, 2_000, PROMPT_TOKENS - OWN_TOKENS];
const SYSTEM_PROMPTS: u64 = 50;
const ROUNDS: usize = 1_000;
const NOW: Timestamp = Timestamp(0);

/// A small generator (SplitMix64, Steele et al. 2014): the figures need no better one.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    fn tokens(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.next(50_000) as u32).collect()
    }
}

/// The tokens of prefix `number`, always the same, so that none of them need be kept here.
fn prefix(number: u64) -> Vec<u32> {
    let system = number % SYSTEM_PROMPTS;
    let length = SYSTEM_LENGTHS[system as usize % SYSTEM_LENGTHS.len()];
    let mut tokens = Random(1_000_000 + system).tokens(length);
    tokens.extend(Random(number << 32).tokens(OWN_TOKENS));
    tokens
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    println!("{what:52} median {:7.1} µs   99th {:7.1} µs", at(0.5), at(0.99));
}

/// Resident bytes of this process.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4_096
}

struct Bench {
    cache: PromptCache<u32>,
    pages: u32,
    requests: u64,
}

impl Bench {
    fn request(&mut self) -> String {
        self.requests += 1;
        format!("chatcmpl-{:029}", self.requests)
    }

    fn publish(&mut self, tokens: &[u32]) -> Duration {
        let request = self.request();
        let pages: Vec<_> = (self.pages..).take(tokens.len().div_ceil(PAGE_TOKENS)).collect();
        self.pages += pages.len() as u32;
        let everyone = Namespace::public();
        let start = Instant::now();
        black_box(self.cache.insert(&everyone, tokens, &pages, &request, NOW, None));
        start.elapsed()
    }

    /// As an engine does that finds no free page.
    fn evict_page_by_page(&mut self) {
        let mut evictions = Vec::new();
        for _ in 0..ROUNDS {
            let request = self.request();
            let start = Instant::now();
            for _ in 0..PROMPT_TOKENS / PAGE_TOKENS {
                // A page in twenty is in use.
                let may = |page: u32| !page.is_multiple_of(20);
                black_box(self.cache.evict_one(&Namespace::public(), &request, NOW, may));
            }
            evictions.push(start.elapsed());
        }
        report("eviction of 4,000 more, page by page, some in use", evictions);
    }

    /// Times lookups of what `prompt` makes.
    fn lookups(&mut self, what: &str, mut prompt: impl FnMut(&mut Random) -> Vec<u32>) {
        let mut random = Random(7);
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let (tokens, request) = (prompt(&mut random), self.request());
            let start = Instant::now();
            let hit = self.cache.lookup(&Namespace::public(), &tokens, &request, NOW, None);
            times.push(start.elapsed());
            black_box(hit.reused_tokens);
            self.cache.unpin(hit.pin);
        }
        report(what, times);
    }
}

/// Notes every full page as stored.
fn store_all(cache: &mut PromptCache<u32>) {
    let (mut index, mut times) = (0, Vec::new());
    for number in 0..PREFIXES {
        let tokens = prefix(number);
        // Pages of the system prompt alone are stored with its first user.
        let shared = if number < SYSTEM_PROMPTS { 0 } else { tokens.len() - OWN_TOKENS };
        for end in (shared / PAGE_TOKENS + 1..=tokens.len() / PAGE_TOKENS).map(|n| n * PAGE_TOKENS)
        {
            let place = DiskPage { segment: index >> 12, index: index & 0xfff };
            index += 1;
            let start = Instant::now();
            cache.note_stored(&Namespace::public(), &tokens[..end], place, None, NOW);
            times.push(start.elapsed());
        }
    }
    report("noting a page as stored", times);
}

fn main() {
    let resident = resident_bytes();
    let cache = PromptCache::new(Limits::default(), NOW);
    let mut bench = Bench { cache, pages: 0, requests: 0 };
    for number in 0..PREFIXES {
        bench.publish(&prefix(number));
    }
    let stats = bench.cache.stats();
    let used = resident_bytes() - resident;
    println!("{stats:?}");
    println!("memory: {:.1} bytes a token resident", used as f64 / stats.tokens as f64);
    if std::env::args().any(|argument| argument == "stored") {
        store_all(&mut bench.cache);
        let used = resident_bytes() - resident;
        let stored = bench.cache.stats().stored_pages;
        println!("with {stored} pages on disk too: {:.1}", used as f64 / stats.tokens as f64);
    }

    let any = |random: &mut Random| prefix(random.next(PREFIXES));
    let filled = |mut tokens: Vec<u32>, random: &mut Random| {
        let missing = PROMPT_TOKENS.saturating_sub(tokens.len());
        tokens.extend(random.tokens(missing));
        tokens
    };
    bench.lookups("lookup, a held prefix and more, 4,000 tokens in all", |random| {
        let held = any(random);
        filled(held, random)
    });
    bench.lookups("lookup, all 4,000 tokens held", |random| {
        let longest = SYSTEM_LENGTHS.len() as u64;
        prefix(random.next(PREFIXES / longest) * longest + longest - 1)
    });
    bench.lookups("lookup, a new prompt after a system prompt", |random| {
        let mut tokens = any(random);
        tokens.truncate(tokens.len() - OWN_TOKENS);
        filled(tokens, random)
    });
    bench.lookups("lookup, one of its own tokens changed", |random| {
        let mut tokens = any(random);
        let changed = tokens.len() - OWN_TOKENS / 2;
        tokens[changed] = 50_000;
        filled(tokens, random)
    });
    let mut random = Random(11);
    let publications = (0..ROUNDS).map(|_| bench.publish(&random.tokens(PROMPT_TOKENS)));
    let publications = publications.collect();
    report("publication of 4,000 new tokens", publications);
    for what in ["eviction of 4,000 tokens", "eviction of 4,000 more, ghosts at their limit"] {
        let mut evictions = Vec::new();
        for _ in 0..ROUNDS {
            let request = bench.request();
            let start = Instant::now();
            black_box(bench.cache.evict(PROMPT_TOKENS / PAGE_TOKENS, &request, NOW));
            evictions.push(start.elapsed());
        }
        report(what, evictions);
    }
    bench.evict_page_by_page();
    println!("{:?}", bench.cache.stats());
}
