//! Answers have the same bits whether their tokens are guessed or not.

use std::sync::Arc;

use engine::{Engine, EngineOptions, Request, Sampling};
use package::Package;

use crate::{Outcome, folder, greedy, options, package, prompt, run, start, wait};

const MODELS: [&str; 4] =
    ["llama-gqa2-biased", "llama-gqa3-wide-heads", "llama-mha-untied", "gpt2-plain"];

fn engine(package: &Arc<Package>, speculation: bool) -> Engine {
    let options = EngineOptions { speculation, ..options() };
    Engine::start(package.clone(), options, &|_, _| {}).unwrap()
}

/// A prompt that repeats a passage.
fn copying(family: usize) -> Vec<u32> {
    [prompt(family, 40), prompt(family + 3, 9), prompt(family, 30)].concat()
}

/// Answers that fall into loops, or copy, in every way of drawing.
fn requests() -> Vec<Request> {
    let near = Sampling {
        temperature: 0.3,
        top_k: 2,
        seed: Some(4),
        logit_bias: vec![(7, 9.0), (8, 9.0)],
        ..Sampling::default()
    };
    let penalized = Sampling {
        repetition_penalty: 1.2,
        presence_penalty: 0.3,
        frequency_penalty: 0.4,
        ..near.clone()
    };
    let ranked = Sampling { top_k: 0, top_p: 0.6, min_p: 0.1, ..near.clone() };
    let mut requests = vec![greedy(&copying(1), 60), greedy(&prompt(2, 20), 45)];
    for sampling in [near.clone(), penalized, ranked, Sampling { temperature: 1.0, ..near }] {
        requests.push(Request { sampling, logprobs: Some(3), ..greedy(&copying(5), 50) });
    }
    requests.push(Request { choices: 3, logprobs: Some(0), ..requests[2].clone() });
    requests.push(Request { prompt_logprobs: Some(2), ..requests[3].clone() });
    requests.push(Request { use_cache: false, ..requests[0].clone() });
    requests.extend([0, 1, 2].map(|tokens| greedy(&copying(1), tokens)));
    requests
}

fn assert_equal(with: &Outcome, without: &Outcome, what: &str) {
    assert_eq!(with.answers, without.answers, "{what}");
    assert_eq!(with.prompt_logprobs, without.prompt_logprobs, "{what}");
    assert_eq!(with.verdict.reused_tokens, without.verdict.reused_tokens, "{what}");
    assert_eq!(with.tokens.output, without.tokens.output, "{what}");
    assert!(with.tokens.accepted <= with.tokens.proposed, "{what}");
    assert_eq!((without.tokens.proposed, without.tokens.accepted), (0, 0), "{what}");
}

#[test]
fn answers_are_the_same_with_and_without() {
    let gguf = folder("gguf-llama-q4_1").join("model.gguf");
    let quantized = Arc::new(Package::open(&gguf).unwrap());
    for package in MODELS.map(package).into_iter().chain([quantized]) {
        let (with, without) = (engine(&package, true), engine(&package, false));
        // Alone and twice, so that the second finds the first's answer held; then together.
        for request in requests().into_iter().flat_map(|it| [it.clone(), it]) {
            let what = format!("{}, {:?}", package.name, request.sampling);
            assert_equal(&run(&with, request.clone()), &run(&without, request), &what);
        }
        let together = |engine: &Engine| -> Vec<Outcome> {
            let all: Vec<_> = requests().into_iter().map(|it| engine.submit(it).unwrap()).collect();
            all.into_iter().map(|events| wait(events).unwrap()).collect()
        };
        for (with, without) in together(&with).iter().zip(&together(&without)) {
            assert_equal(with, without, &package.name);
        }
        let (with, without) = (with.stats(), without.stats());
        // How many depends on what rows cost here.
        assert!(with.accepted_tokens > 0, "{}: {with:?}", package.name);
        assert_eq!((without.proposed_tokens, without.accepted_tokens), (0, 0));
        assert_eq!(with.output_tokens, without.output_tokens);
        assert_eq!(with.pages_cached + with.pages_free, with.pages);
    }
}

#[test]
fn guesses_are_counted_and_save_their_steps() {
    let engine = start(options());
    for request in [greedy(&copying(1), 45), greedy(&copying(1), 45), greedy(&prompt(2, 20), 60)] {
        let before = engine.stats();
        let outcome = run(&engine, request);
        let after = engine.stats();
        let saved = outcome.tokens.output - outcome.tokens.accepted;
        assert_eq!(
            after.steps - before.steps,
            saved as u64,
            "the prompt is one step, of the first token"
        );
        let proposed = after.proposed_tokens - before.proposed_tokens;
        assert_eq!(proposed, outcome.tokens.proposed as u64);
        let accepted = after.accepted_tokens - before.accepted_tokens;
        assert_eq!(accepted, outcome.tokens.accepted as u64);
    }
}

#[test]
fn a_stop_inside_guesses_ends_the_answer_there() {
    let package = crate::llama();
    let (with, without) = (engine(&package, true), engine(&package, false));
    let request = greedy(&copying(1), 45);
    assert_equal(&run(&with, request.clone()), &run(&without, request.clone()), "whole");
    let whole = run(&without, request.clone()).answers.remove(0);
    run(&with, request.clone());
    for at in (20..45).step_by(3) {
        let stop_ids = vec![whole.ids()[at]];
        let stop: String = whole.text.chars().skip(at).take(2).collect();
        for more in [
            Request { stop_ids, ..request.clone() },
            Request { stop: vec![stop], ..request.clone() },
            Request { max_tokens: Some(at), ..request.clone() },
        ] {
            for _ in 0..2 {
                assert_equal(
                    &run(&with, more.clone()),
                    &run(&without, more.clone()),
                    &format!("{at}"),
                );
            }
        }
    }
}
