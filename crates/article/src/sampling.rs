//! What the engine's sampler draws.

use cache::Namespace;
use engine::{Engine, EngineOptions, Event, Request, Sampling};

use crate::oracle::{softmax, wide};
use crate::subject::{Subject, likeliest};
use crate::tally::{Seen, Stop, Tally};

/// Answers of one request, which draw from one row.
const CHOICES: usize = 16;
/// Requests.
const REQUESTS: u64 = 32;
/// Most parts of the vocabulary, about equally probable, whose draws are counted.
const PARTS: usize = 8;
/// Chi-squared with seven degrees of freedom or fewer is above this once in a million times.
const CHI_SQUARED_MOST: f64 = 40.0;

fn start(subject: &Subject) -> Result<Engine, Stop> {
    let options = EngineOptions {
        threads: Some(1),
        context: Some(subject.prompt.len() + CHOICES),
        ..EngineOptions::default()
    };
    Engine::start(subject.package.clone(), options, &|_, _| {})
        .map_err(|error| Stop::failed("an engine", error))
}

/// The first token of each of the request's answers, in order.
fn draw(engine: &Engine, subject: &Subject, sampling: Sampling) -> Result<Vec<u32>, Stop> {
    let mut request = Request::new("draw", subject.prompt.clone(), Namespace::public());
    request.choices = CHOICES;
    request.max_tokens = Some(1);
    request.ignore_end = true;
    request.sampling = sampling;
    let failed = |error: &dyn std::fmt::Display| Stop::failed("a request", error);
    let mut events = engine.submit(request).map_err(|error| failed(&error))?;
    let mut drawn = vec![0; CHOICES];
    while let Some(event) = events.blocking_recv() {
        match event {
            Event::Delta { choice, tokens, .. } => {
                drawn[choice] = tokens.first().map_or(0, |token| token.id);
            }
            Event::Failed(error) => return Err(failed(&error)),
            _ => {}
        }
    }
    Ok(drawn)
}

/// The last row's logits, and its likeliest token.
fn last_row(subject: &mut Subject) -> Result<(Vec<f64>, u32), Stop> {
    let (pass, vocab) = (subject.prefill()?, subject.package.config.vocab);
    let row = wide(&pass.logits[pass.logits.len() - vocab..]);
    Ok((row, likeliest(&pass.logits, vocab)))
}

/// Temperature 0 takes the likeliest.
pub(crate) fn greedy(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (_, expected) = last_row(subject)?;
    let engine = start(subject)?;
    let drawn = draw(&engine, subject, Sampling::greedy())?;
    tally.equal("ids drawn", &vec![expected; CHOICES], &drawn)?;
    let traced = subject.trace()?.decode.first().map(|step| (step.input_shape, step.token.id));
    tally.equal("what decodes next, as traced", &Some(([1, 1], expected)), &traced)?;
    Ok(format!("{expected}, [1, 1]"))
}

/// Draws follow the row's probabilities; a seed gives the same draws again.
pub(crate) fn by_the_same_row(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (row, top) = last_row(subject)?;
    let engine = start(subject)?;
    let seeded = |seed| Sampling { seed: Some(seed), ..Sampling::default() };
    let one = draw(&engine, subject, seeded(7))?;
    tally.equal("draws of one seed", &one, &draw(&engine, subject, seeded(7))?)?;
    let narrow = Sampling { top_p: 0.0, ..seeded(7) };
    let narrow = draw(&engine, subject, narrow)?;
    tally.equal("draws with top-p 0", &vec![top; CHOICES], &narrow)?;
    let mut drawn = Vec::new();
    for seed in 0..REQUESTS {
        drawn.extend(draw(&engine, subject, seeded(seed))?);
    }
    let others = drawn.iter().filter(|id| **id != top).count();
    let probabilities = softmax(&row);
    if probabilities[top as usize] < 0.9 {
        tally.holds("draws that are not the likeliest", "some", others > 0, others)?;
    }
    let chi_squared = chi_squared(&probabilities, &drawn);
    let fits = chi_squared < CHI_SQUARED_MOST;
    tally.holds("chi-squared", format!("below {CHI_SQUARED_MOST}"), fits, chi_squared)?;
    Ok(format!("{} draws, chi-squared {chi_squared:.1}, {others} not the likeliest", drawn.len()))
}

/// How far the draws are from the probabilities, over parts of the vocabulary.
fn chi_squared(probabilities: &[f64], drawn: &[u32]) -> f64 {
    let count = drawn.len() as f64;
    // Each part is filled, in the order of the ids, until enough draws are expected in it; what
    // is left in the end belongs to the last.
    let (mut parts, mut expected) = (vec![0; probabilities.len()], vec![0.0]);
    for (id, probability) in probabilities.iter().enumerate() {
        let left: f64 = 1.0 - expected.iter().sum::<f64>() / count;
        if expected[expected.len() - 1] >= count / PARTS as f64 && left > 0.5 / PARTS as f64 {
            expected.push(0.0);
        }
        parts[id] = expected.len() - 1;
        expected[parts[id]] += probability * count;
    }
    let mut found = vec![0.0; expected.len()];
    drawn.iter().for_each(|id| found[parts[*id as usize]] += 1.0);
    found.iter().zip(expected).map(|(found, expected)| (found - expected).powi(2) / expected).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_that_follow_are_told_from_draws_that_do_not() {
        let probabilities = [0.5, 0.25, 0.125, 0.125];
        let drawn = |counts: [usize; 4]| -> Vec<u32> {
            (0..4).flat_map(|id| std::iter::repeat_n(id as u32, counts[id])).collect()
        };
        assert!(chi_squared(&probabilities, &drawn([256, 128, 64, 64])) < 1e-9);
        assert!(chi_squared(&probabilities, &drawn([240, 140, 60, 72])) < 8.0);
        assert!(chi_squared(&probabilities, &drawn([128; 4])) > CHI_SQUARED_MOST);
        assert!(chi_squared(&[0.999, 0.0005, 0.0005], &drawn([511, 1, 0, 0])) < CHI_SQUARED_MOST);
    }
}
