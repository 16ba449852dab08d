//! Our own rates, by the engine's own clock.

use engine::{EVENTS_UNREAD_MAX, Engine, Event, Events, Request, Sampling, Timings};

use super::run::Test;
use crate::failure::Failure;

/// One run of a test of the engine: tokens per second. Another `repetition` is other tokens.
pub(super) fn run_once(
    engine: &Engine,
    test: Test,
    vocabulary: u32,
    repetition: u32,
) -> Result<f64, Failure> {
    let (prompt, generate, depth) = match test {
        Test::Batch { sequences, tokens, depth } => {
            let prompts = Prompts { depth, vocabulary, repetition };
            return decode_together(engine, sequences.into(), tokens, &prompts);
        }
        Test::Prefill { tokens, depth } => (tokens, 0, depth),
        Test::Decode { tokens, depth } => (0, tokens, depth),
        _ => return Err(Failure::new(format!("{test} is not a test of the engine alone"))),
    };
    // The depth's tokens are the same in each repetition, so that only the first computes them;
    // the measured tokens differ, also from those of other lengths, so that none of them is found.
    let depth = tokens(depth, vocabulary, 0);
    let prompt = match generate {
        0 => {
            let stream = mix(prompt, repetition) as u32;
            [depth.clone(), tokens(prompt, vocabulary, stream)].concat()
        }
        // One token is the least to decode from.
        _ => [depth.clone(), tokens(1, vocabulary, 1)].concat(),
    };
    let deep = !depth.is_empty();
    if deep {
        submit(engine, depth, 1, true)?;
    }
    // Decoding begins when the prefill has picked the first token.
    let (timings, computed) = submit(engine, prompt, generate as usize + 1, deep)?;
    let (count, ms) = match generate {
        0 => (computed, timings.prefill_ms),
        count => (count as usize, timings.decode_ms),
    };
    per_second(count, ms)
}

/// Tokens per second of `sequences` that each decode `count` tokens.
///
/// The last one is timed, which begins when all others decode, and ends before they do: each of
/// its tokens is one step of all.
fn decode_together(
    engine: &Engine,
    sequences: u32,
    count: u32,
    prompts: &Prompts,
) -> Result<f64, Failure> {
    let deep = prompts.depth > 0;
    for sequence in 0..sequences {
        // So that only the first repetition computes the depth.
        submit(engine, prompts.of(sequence), 1, deep)?;
    }
    // Until the last begins, the others may each have gone on for some steps of each.
    let enough = (count + longest_start(sequences)) as usize;
    // They are read when the last has ended.
    if enough > EVENTS_UNREAD_MAX {
        let most = EVENTS_UNREAD_MAX as u32 - longest_start(sequences);
        return Err(Failure::Usage(format!(
            "of {sequences} sequences at once, each decodes {most} tokens (-n) at most"
        )));
    }
    let mut others = Vec::new();
    for sequence in 1..sequences {
        others.push(ask(engine, prompts.of(sequence), enough, deep)?);
    }
    for events in &mut others {
        wait_for_answer(events)?;
    }
    let (timings, _) = submit(engine, prompts.of(0), count as usize + 1, deep)?;
    for events in &mut others {
        while let Ok(event) = events.try_recv() {
            if !matches!(event, Event::Delta { .. }) {
                return Err(Failure::new("a sequence ended before the others"));
            }
        }
    }
    per_second((sequences * count) as usize, timings.decode_ms)
}

/// Waits until a request has begun to answer.
fn wait_for_answer(events: &mut Events) -> Result<(), Failure> {
    loop {
        match events.blocking_recv() {
            Some(Event::Started { .. }) => {}
            Some(Event::Delta { .. }) => return Ok(()),
            Some(Event::Failed(error)) => return Err(Failure::new(error)),
            _ => return Err(Failure::new("the engine stopped")),
        }
    }
}

/// The prompts of sequences that are decoded together.
struct Prompts {
    depth: u32,
    vocabulary: u32,
    repetition: u32,
}

impl Prompts {
    /// The depth's tokens, the same in each repetition, and one to decode from, which differs.
    fn of(&self, sequence: u32) -> Vec<u32> {
        let mut prompt = tokens(self.depth, self.vocabulary, sequence);
        prompt.extend(tokens(1, self.vocabulary, self.repetition << 16 | sequence));
        prompt
    }
}

/// The context that a test of the engine needs, in tokens.
pub(super) fn tokens_needed(test: Test) -> u32 {
    match test {
        Test::Prefill { tokens, depth } | Test::Decode { tokens, depth } => {
            depth.saturating_add(tokens).saturating_add(2)
        }
        Test::Batch { sequences, tokens, depth } => {
            let all = depth.saturating_add(tokens);
            all.saturating_add(2 + longest_start(sequences.into()))
        }
        _ => 0,
    }
}

/// More steps than the first of some sequences decodes before the last begins.
fn longest_start(sequences: u32) -> u32 {
    64 + 8 * sequences
}

pub(super) fn per_second(count: usize, ms: Option<f64>) -> Result<f64, Failure> {
    match ms {
        Some(ms) if ms > 0.0 => Ok(count as f64 * 1e3 / ms),
        _ => Err(Failure::new("the run was too short to be timed")),
    }
}

/// `count` token ids that look random and are the same for the same `stream`.
pub(super) fn tokens(count: u32, vocabulary: u32, stream: u32) -> Vec<u32> {
    (1..=count).map(|index| (mix(stream, index) % u64::from(vocabulary)) as u32).collect()
}

/// A number that looks random (the finalizer of MurmurHash3's 64-bit variant 13, by Stafford).
pub(super) fn mix(stream: u32, index: u32) -> u64 {
    let mut x = u64::from(stream) << 32 | u64::from(index);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Asks for an answer of `max_tokens`. Without `use_cache` the K/V of one run is written where that
/// of the run before was, as in other engines' benchmarks and once a server's pool is full.
fn ask(
    engine: &Engine,
    prompt: Vec<u32>,
    max_tokens: usize,
    use_cache: bool,
) -> Result<Events, Failure> {
    let request = Request {
        use_cache,
        max_tokens: Some(max_tokens),
        sampling: Sampling::greedy(),
        ignore_end: true,
        ..Request::new("bench", prompt, cache::Namespace::default())
    };
    engine.submit(request).map_err(Failure::new)
}

/// Asks, and waits for the end: where the time went, and how many prompt tokens were computed.
fn submit(
    engine: &Engine,
    prompt: Vec<u32>,
    max_tokens: usize,
    use_cache: bool,
) -> Result<(Timings, usize), Failure> {
    let mut events = ask(engine, prompt, max_tokens, use_cache)?;
    while let Some(event) = events.blocking_recv() {
        match event {
            Event::Done { timings, tokens, .. } => return Ok((timings, tokens.input)),
            Event::Failed(error) => return Err(Failure::new(error)),
            _ => {}
        }
    }
    Err(Failure::new("the engine stopped"))
}
