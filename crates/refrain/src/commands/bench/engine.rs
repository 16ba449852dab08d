//! Our own rates, by the engine's own clock.

use engine::{Engine, Event, Request, Sampling, Timings};

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
        Test::Prefill { tokens, depth } => (tokens, 0, depth),
        Test::Decode { tokens, depth } => (0, tokens, depth),
        _ => return Err(Failure::new(format!("{test} is not a test of the engine alone"))),
    };
    // The depth's tokens are the same in each repetition, so that only the first computes them;
    // the measured tokens differ, so that none of them is found.
    let depth = tokens(depth, vocabulary, 0);
    let prompt = match generate {
        0 => [depth.clone(), tokens(prompt, vocabulary, repetition + 1)].concat(),
        // One token is the least to decode from.
        _ => [depth.clone(), tokens(1, vocabulary, 1)].concat(),
    };
    if !depth.is_empty() {
        submit(engine, depth, 1)?;
    }
    // Decoding begins when the prefill has picked the first token.
    let (timings, computed) = submit(engine, prompt, generate as usize + 1)?;
    let (count, ms) = match generate {
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
    (1..=count).map(|index| (mix(stream, index) % u64::from(vocabulary)) as u32).collect()
}

/// A number that looks random (the finalizer of MurmurHash3's 64-bit variant 13, by Stafford).
pub(super) fn mix(stream: u32, index: u32) -> u64 {
    let mut x = u64::from(stream) << 32 | u64::from(index);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
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
