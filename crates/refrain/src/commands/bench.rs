//! `refrain bench`: tokens per second, in llama-bench's test names.

use std::io::Write;

use engine::{Engine, EngineOptions, Event, Request, Sampling, Timings};
use serde_json::{Value, json};

use super::llama_bench::{LlamaBench, Measurement};
use crate::cli::BenchArguments;
use crate::failure::Failure;
use crate::loading::{self, Loaded};
use crate::terminal::Terminal;

/// One line of the result.
#[derive(Clone, Copy)]
struct Test {
    prompt: u32,
    generate: u32,
    depth: u32,
}

/// The rates of a test's repetitions, in tokens per second.
struct Rates {
    test: Test,
    threads: u16,
    ours: Vec<f64>,
    /// Without and with flash attention.
    peer: [Vec<f64>; 2],
}

pub(crate) fn run(arguments: &BenchArguments, terminal: &Terminal) -> Result<(), Failure> {
    let tests = tests(arguments);
    if tests.is_empty() {
        return Err(Failure::Usage("nothing to measure: give -p, -n or both".to_owned()));
    }
    let model = loading::model_or_default(arguments.model.as_deref());
    let path = loading::find(model, terminal)?;
    let peer = arguments.peer.as_deref().map(|peer| LlamaBench::new(peer, &path)).transpose()?;
    let threads: Vec<Option<u16>> = match arguments.threads.as_slice() {
        [] => vec![None],
        counts => counts.iter().copied().map(Some).collect(),
    };
    let mut results = Vec::new();
    for count in threads {
        let options = EngineOptions { threads: count.map(usize::from), ..EngineOptions::default() };
        let loaded = loading::load(path.to_str(), options, terminal)?;
        for &test in &tests {
            results.push(measure(arguments, &loaded, peer.as_ref(), test, terminal)?);
        }
        loaded.engine.shutdown();
    }
    report(arguments, &results)
}

fn tests(arguments: &BenchArguments) -> Vec<Test> {
    let mut tests = Vec::new();
    for &depth in &arguments.depth {
        let prompts = arguments.prompt.iter().filter(|&&count| count > 0);
        tests.extend(prompts.map(|&prompt| Test { prompt, generate: 0, depth }));
        let generates = arguments.generate.iter().filter(|&&count| count > 0);
        tests.extend(generates.map(|&generate| Test { prompt: 0, generate, depth }));
    }
    tests
}

/// Runs a test as often as asked, ours and the peer's in turn.
fn measure(
    arguments: &BenchArguments,
    loaded: &Loaded,
    peer: Option<&LlamaBench>,
    test: Test,
    terminal: &Terminal,
) -> Result<Rates, Failure> {
    let threads = u16::try_from(loaded.engine.info().threads).unwrap_or(u16::MAX);
    let mut rates = Rates { test, threads, ours: Vec::new(), peer: [Vec::new(), Vec::new()] };
    let vocabulary = loaded.package.config.vocab as u32;
    // The first run warms caches and page tables up and is not counted.
    run_once(&loaded.engine, test, vocabulary, 0)?;
    for repetition in 1..=arguments.repetitions {
        terminal.dim(&format!("{} {repetition}/{}", test.name(), arguments.repetitions));
        rates.ours.push(run_once(&loaded.engine, test, vocabulary, u32::from(repetition))?);
        let Some(peer) = peer else { continue };
        for flash_attention in [false, true] {
            let Test { prompt, generate, depth } = test;
            let what = Measurement { prompt, generate, depth, threads, flash_attention };
            rates.peer[usize::from(flash_attention)].push(peer.measure(what)?);
        }
    }
    Ok(rates)
}

/// One run, by the engine's own clock.
fn run_once(engine: &Engine, test: Test, vocabulary: u32, repetition: u32) -> Result<f64, Failure> {
    // The depth's tokens are the same in each repetition, so that only the first computes them;
    // the measured tokens differ, so that none of them is found.
    let depth = tokens(test.depth, vocabulary, 0);
    let prompt = match test.generate {
        0 => [depth.clone(), tokens(test.prompt, vocabulary, repetition + 1)].concat(),
        // One token is the least to decode from.
        _ => [depth.clone(), tokens(1, vocabulary, 1)].concat(),
    };
    if !depth.is_empty() {
        submit(engine, depth, 1)?;
    }
    // Decoding begins when the prefill has picked the first token.
    let (timings, computed) = submit(engine, prompt, test.generate as usize + 1)?;
    let (count, ms) = match test.generate {
        0 => (computed, timings.prefill_ms),
        count => (count as usize, timings.decode_ms),
    };
    match ms {
        Some(ms) if ms > 0.0 => Ok(count as f64 * 1e3 / ms),
        _ => Err(Failure::new("the run was too short to be timed")),
    }
}

/// `count` token ids that look random and are the same for the same `stream`.
fn tokens(count: u32, vocabulary: u32, stream: u32) -> Vec<u32> {
    let mix = |index: u32| {
        let mut x = u64::from(stream) << 32 | u64::from(index);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) % u64::from(vocabulary)) as u32
    };
    (1..=count).map(mix).collect()
}

fn submit(
    engine: &Engine,
    prompt: Vec<u32>,
    max_tokens: usize,
) -> Result<(Timings, usize), Failure> {
    let mut events = engine
        .submit(Request {
            max_tokens: Some(max_tokens),
            sampling: Sampling::greedy(),
            ignore_end: true,
            ..Request::new("bench", prompt, cache::Namespace::default())
        })
        .map_err(Failure::new)?;
    while let Some(event) = events.blocking_recv() {
        match event {
            Event::Done { timings, tokens, .. } => return Ok((timings, tokens.input)),
            Event::Failed(error) => return Err(Failure::new(error)),
            _ => {}
        }
    }
    Err(Failure::new("the engine stopped"))
}

fn report(arguments: &BenchArguments, results: &[Rates]) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    if arguments.json {
        let results = results.iter().map(Rates::to_json).collect::<Vec<_>>();
        let document = json!({"schema": "refrain.bench/1", "results": results});
        writeln!(out, "{document}")?;
        return Ok(());
    }
    let peer = arguments.peer.is_some();
    write!(out, "{:<16}{:>8}{:>12}{:>12}{:>12}", "test", "threads", "tok/s", "min", "max")?;
    writeln!(out, "{}", if peer { "        peer  fa   ratio" } else { "" })?;
    for rates in results {
        let ours = Spread::of(&rates.ours);
        write!(out, "{:<16}{:>8}", rates.test.name(), rates.threads)?;
        write!(out, "{:>12.1}{:>12.1}{:>12.1}", ours.median, ours.min, ours.max)?;
        match rates.best_peer() {
            Some((flash, peer)) => {
                let flash = if flash { "on" } else { "off" };
                writeln!(out, "{:>12.1}{flash:>4}{:>8.2}", peer.median, ours.median / peer.median)?;
            }
            None => writeln!(out)?,
        }
    }
    Ok(())
}

impl Test {
    /// llama-bench's name: `pp512`, `tg128`, `tg128@d4096`.
    fn name(&self) -> String {
        let (kind, count) = match self.generate {
            0 => ("pp", self.prompt),
            count => ("tg", count),
        };
        match self.depth {
            0 => format!("{kind}{count}"),
            depth => format!("{kind}{count}@d{depth}"),
        }
    }
}

impl Rates {
    /// The peer at its better setting, and whether that is with flash attention.
    fn best_peer(&self) -> Option<(bool, Spread)> {
        let [off, on] = &self.peer;
        if off.is_empty() {
            return None;
        }
        let (off, on) = (Spread::of(off), Spread::of(on));
        Some(if on.median > off.median { (true, on) } else { (false, off) })
    }

    fn to_json(&self) -> Value {
        let ours = Spread::of(&self.ours);
        let mut result = json!({
            "test": self.test.name(), "threads": self.threads, "tokens_per_s": ours.to_json(),
        });
        if let Some((flash_attention, peer)) = self.best_peer() {
            result["peer"] = json!({
                "flash_attention": flash_attention,
                "tokens_per_s": peer.to_json(),
                "ratio": ours.median / peer.median,
            });
        }
        result
    }
}

struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// Of at least one value.
    fn of(values: &[f64]) -> Self {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2.0
        };
        Self { median, min: values[0], max: values[values.len() - 1] }
    }

    fn to_json(&self) -> Value {
        json!({"median": self.median, "min": self.min, "max": self.max})
    }
}
