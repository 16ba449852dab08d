//! Answers: tokens, texts, stops, choices, log-probabilities.

use engine::{EngineOptions, FinishReason, Request, Sampling};
use safetensors::SafeTensors;

use crate::{Outcome, folder, greedy, options, package, prompt, run, start};

fn golden_ids(name: &str, tensor: &str) -> Vec<u32> {
    let bytes = std::fs::read(folder(name).join("goldens.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let data = file.tensor(tensor).unwrap().data().to_vec();
    data.as_chunks().0.iter().map(|four| u32::from_le_bytes(*four)).collect()
}

#[test]
fn greedy_answers_are_transformers_own() {
    for name in ["llama-gqa2-biased", "llama-mha-untied", "gpt2-plain", "gpt2-prefix"] {
        let engine = engine::Engine::start(package(name), options(), &|_, _| {}).unwrap();
        let expected = golden_ids(name, "greedy");
        let tokens = golden_ids(name, "tokens");
        for _ in 0..2 {
            let outcome = run(&engine, greedy(&tokens, expected.len()));
            assert_eq!(outcome.answers[0].ids(), expected, "{name}");
            assert_eq!(outcome.answers[0].reason, Some(FinishReason::Length));
            assert_eq!(outcome.tokens.output, expected.len());
        }
    }
}

fn sampled(seed: u64) -> Request {
    let sampling = Sampling { seed: Some(seed), ..Sampling::default() };
    Request { sampling, ..greedy(&prompt(1, 20), 40) }
}

#[test]
fn a_seed_repeats_an_answer_and_its_choices() {
    let engine = start(options());
    let one = run(&engine, sampled(5));
    let four = run(&engine, Request { choices: 4, ..sampled(5) });
    assert_eq!(four.answers.len(), 4);
    assert_eq!(four.answers[0], one.answers[0]);
    assert_eq!(four.tokens.output, 4 * 40);
    let mut ids: Vec<_> = four.answers.iter().map(|answer| answer.ids()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 4, "choices are drawn on their own");
    assert_ne!(run(&engine, sampled(6)).answers, one.answers);
    let fresh = Request { sampling: Sampling::default(), ..sampled(0) };
    assert_ne!(run(&engine, fresh.clone()).answers, run(&engine, fresh).answers);
}

#[test]
fn texts_join_to_the_tokens_bytes() {
    let engine = start(options());
    for seed in 0..20 {
        let answer = run(&engine, sampled(seed)).answers.remove(0);
        let bytes: Vec<u8> = answer.tokens.iter().flat_map(|token| token.bytes.clone()).collect();
        assert_eq!(answer.text, String::from_utf8_lossy(&bytes));
        assert_eq!(answer.tokens.len(), 40);
    }
}

#[test]
fn stop_strings_and_tokens_end_an_answer_before_them() {
    let engine = start(options());
    for seed in 0..20 {
        let whole = run(&engine, sampled(seed)).answers.remove(0);
        let characters: Vec<(usize, char)> = whole.text.char_indices().skip(8).take(3).collect();
        let stop: String = characters.iter().map(|&(_, character)| character).collect();
        let before = &whole.text[..whole.text.find(&stop).unwrap()];
        let stop = vec!["\u{1}never\u{1}".to_owned(), stop];
        let stopped = run(&engine, Request { stop, ..sampled(seed) });
        assert_eq!(stopped.answers[0].text, before);
        assert_eq!(stopped.answers[0].reason, Some(FinishReason::Stop));
        assert_eq!(stopped.answers[0].stop, Some(1));

        let ids = whole.ids();
        let stop_ids = vec![ids[7]];
        let first = ids.iter().position(|id| *id == ids[7]).unwrap();
        let stopped = run(&engine, Request { stop_ids, ..sampled(seed) });
        assert_eq!(stopped.answers[0].ids(), ids[..first]);
        assert_eq!(stopped.answers[0].reason, Some(FinishReason::Stop));
        assert_eq!(stopped.answers[0].stop, None);
        assert_eq!(stopped.tokens.output, first + 1);
    }
}

#[test]
fn the_models_end_token_is_hidden_and_ends_unless_ignored() {
    let engine = start(options());
    let end = package("llama-gqa2-biased").tokenizer.end_ids()[0];
    let sampling = Sampling { logit_bias: vec![(end, 1e9)], ..Sampling::greedy() };
    let request = Request { sampling, ignore_end: false, ..greedy(&prompt(0, 9), 5) };
    let ended = run(&engine, request.clone());
    assert_eq!(ended.answers[0].reason, Some(FinishReason::Stop));
    assert_eq!((ended.answers[0].tokens.len(), ended.tokens.output), (0, 1));
    let ignored = run(&engine, Request { ignore_end: true, ..request });
    assert_eq!(ignored.answers[0].ids(), [end; 5]);
    assert_eq!(ignored.answers[0].text, "");
}

#[test]
fn logprobs_are_of_the_raw_logits() {
    let engine = start(options());
    let request = Request { logprobs: Some(3), ..greedy(&prompt(2, 30), 10) };
    let raw = run(&engine, request.clone());
    for token in &raw.answers[0].tokens {
        assert_eq!(token.top.len(), 3);
        assert_eq!(token.top[0], (token.id, token.logprob.unwrap()));
        assert!(token.top.is_sorted_by(|a, b| a.1 >= b.1));
    }
    let first = raw.answers[0].tokens[0].clone();
    let other = first.top[1].0;
    let sampling = Sampling { logit_bias: vec![(other, 1e3)], ..Sampling::greedy() };
    let biased = run(&engine, Request { sampling, ..request });
    let drawn = &biased.answers[0].tokens[0];
    assert_eq!((drawn.id, drawn.logprob), (other, Some(first.top[1].1)));
    assert_eq!(drawn.top, first.top);
}

#[test]
fn prompt_logprobs_are_what_drawing_would_have_said() {
    let engine = start(options());
    let answered = run(&engine, Request { logprobs: Some(2), ..greedy(&prompt(3, 70), 12) });
    let mut whole = prompt(3, 70);
    whole.extend(answered.answers[0].ids());
    let request = Request { prompt_logprobs: Some(2), ..greedy(&whole, 0) };
    let Outcome { prompt_logprobs, verdict, answers, .. } = run(&engine, request);
    assert_eq!(verdict.stop.reason.code(), "rows_requested");
    assert_eq!(verdict.reused_tokens, 0);
    assert_eq!(answers[0].reason, Some(FinishReason::Length));
    let logprobs = prompt_logprobs.unwrap();
    assert_eq!((logprobs.len(), logprobs[0].as_ref()), (82, None));
    for (token, row) in answered.answers[0].tokens.iter().zip(&logprobs[70..]) {
        let row = row.as_ref().unwrap();
        assert_eq!((Some(row.logprob), &row.top), (token.logprob, &token.top));
    }
}

#[test]
fn top_p_zero_takes_the_likeliest_token() {
    let engine = start(options());
    let sampling = Sampling { top_p: 0.0, temperature: 1.5, ..Sampling::default() };
    let drawn = run(&engine, Request { sampling, ..sampled(1) });
    let likeliest = run(&engine, greedy(&prompt(1, 20), 40));
    assert_eq!(drawn.answers, likeliest.answers);
}

#[test]
fn who_asks_hears_how_far_its_prompt_is() {
    let engine = start(EngineOptions { chunk_tokens: Some(16), ..options() });
    let request = Request { progress: true, ..greedy(&prompt(0, 100), 3) };
    let first = run(&engine, request.clone());
    assert!(first.progress.len() >= 6, "{:?}", first.progress);
    assert!(first.progress.is_sorted() && first.progress.last() == Some(&100));
    let again = run(&engine, request);
    assert_eq!(again.progress, [100], "one row is left to compute");
    let silent = run(&engine, greedy(&prompt(0, 100), 3));
    assert!(silent.progress.is_empty());
}
