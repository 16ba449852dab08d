//! Limits, queueing, cancellation and shutdown.

use std::time::{Duration, Instant};

use engine::{
    CHOICES_MAX, Engine, EngineError, EngineOptions, Event, Events, FinishReason, Request,
    Sampling, StartError, SubmitError,
};

use crate::{greedy, options, prompt, run, start, wait, wait_for_rest, wait_for_start};

#[test]
fn the_contexts_end_ends_an_answer_with_length() {
    let engine = start(EngineOptions { context: Some(48), ..options() });
    assert_eq!(engine.info().context, 48);
    for max_tokens in [None, Some(1000)] {
        let outcome = run(&engine, Request { max_tokens, ..greedy(&prompt(0, 40), 1) });
        assert_eq!(outcome.answers[0].tokens.len(), 8);
        assert_eq!(outcome.answers[0].reason, Some(FinishReason::Length));
    }
    assert_eq!(run(&engine, greedy(&prompt(0, 48), 0)).tokens.output, 0);
    let refused = engine.submit(greedy(&prompt(0, 48), 1)).unwrap_err();
    assert!(matches!(refused, SubmitError::PromptTooLong(_)), "{refused}");
    assert!(refused.to_string().contains("48 tokens > 47 maximum"), "{refused}");
}

#[test]
fn who_asks_again_at_once_finds_its_own_place_free() {
    let engine = start(EngineOptions { max_running: Some(1), max_queue: Some(0), ..options() });
    for round in 0..2_000 {
        let events = engine.submit(greedy(&prompt(0, 3), 1));
        let mut events = events.unwrap_or_else(|error| panic!("round {round}: {error}"));
        while !matches!(events.blocking_recv(), Some(Event::Done { .. })) {}
    }
}

#[test]
fn answers_have_a_default_length() {
    let engine = start(EngineOptions { answer_tokens: Some(7), ..options() });
    let outcome = run(&engine, Request { max_tokens: None, ..greedy(&prompt(0, 5), 1) });
    assert_eq!(outcome.answers[0].tokens.len(), 7);
}

#[test]
fn bad_requests_are_refused_by_field() {
    let engine = start(options());
    let good = greedy(&prompt(0, 10), 2);
    let sampling = |change: fn(&mut Sampling)| {
        let mut sampling = Sampling::default();
        change(&mut sampling);
        Request { sampling, ..good.clone() }
    };
    let bad = [
        ("prompt", Request { prompt: vec![60_000], ..good.clone() }),
        ("n", Request { choices: 0, ..good.clone() }),
        ("n", Request { choices: CHOICES_MAX + 1, ..good.clone() }),
        ("stop", Request { stop: vec![String::new()], ..good.clone() }),
        ("stop", Request { stop: vec!["x".to_string(); 65], ..good.clone() }),
        ("logprobs", Request { logprobs: Some(65), ..good.clone() }),
        ("temperature", sampling(|s| s.temperature = f32::NAN)),
        ("temperature", sampling(|s| s.temperature = -1.0)),
        ("stop_token_ids", Request { stop_ids: vec![1, 60_000], ..good.clone() }),
        ("priority", Request { priority: 101, ..good.clone() }),
        ("priority", Request { priority: i32::MIN, ..good.clone() }),
        ("top_p", sampling(|s| s.top_p = -0.1)),
        ("top_p", sampling(|s| s.top_p = 1.1)),
        ("top_p", sampling(|s| s.top_p = f32::NAN)),
        ("min_p", sampling(|s| s.min_p = 1.5)),
        ("repetition_penalty", sampling(|s| s.repetition_penalty = 0.0)),
        ("presence_penalty", sampling(|s| s.presence_penalty = f32::INFINITY)),
        ("frequency_penalty", sampling(|s| s.frequency_penalty = f32::NAN)),
        ("logit_bias", sampling(|s| s.logit_bias = vec![(60_000, 1.0)])),
        ("logit_bias", sampling(|s| s.logit_bias = vec![(1, f32::NAN)])),
    ];
    for (expected, request) in bad {
        match engine.submit(request) {
            Err(SubmitError::BadParameter { field, .. }) => assert_eq!(field, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
    let empty = engine.submit(greedy(&[], 1)).unwrap_err();
    assert_eq!(empty, SubmitError::EmptyPrompt);
}

#[test]
fn prompts_have_a_limit_of_their_own() {
    let engine = start(EngineOptions { max_prompt: Some(40), ..options() });
    assert_eq!(run(&engine, greedy(&prompt(0, 40), 2)).tokens.input, 40);
    let refused = engine.submit(greedy(&prompt(0, 41), 2)).unwrap_err();
    assert_eq!(refused, SubmitError::PromptOverLimit { tokens: 41, limit: 40 });
}

#[test]
fn too_many_answers_are_told_how_many_would_fit() {
    let small = start(EngineOptions { kv_bytes: Some(200_000), ..options() });
    let many = |choices| Request { choices, ..greedy(&prompt(0, 60), 60) };
    let Err(SubmitError::BadParameter { field: "n", message }) = small.submit(many(100)) else {
        panic!("100 answers fit")
    };
    let fit = message.strip_suffix(" would").unwrap().rsplit(' ').next().unwrap();
    let fit: usize = fit.parse().unwrap();
    assert!(fit >= 1, "{message}");
    assert_eq!(run(&small, many(fit)).answers.len(), fit);
    assert!(small.submit(many(fit + 1)).is_err());
}

#[test]
fn options_that_cannot_be_are_refused_by_field() {
    let refused = |options| match Engine::start(crate::llama(), options, &|_, _| {}) {
        Err(StartError::Option { field, .. }) => field,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("started"),
    };
    assert_eq!(refused(EngineOptions { context: Some(1 << 20), ..options() }), "context");
    assert_eq!(refused(EngineOptions { kv_bytes: Some(100), ..options() }), "kv budget");
    assert_eq!(refused(EngineOptions { max_running: Some(0), ..options() }), "max running");
    assert_eq!(refused(EngineOptions { chunk_tokens: Some(0), ..options() }), "chunk tokens");
    assert_eq!(refused(EngineOptions { max_prompt: Some(0), ..options() }), "max prompt");
    assert_eq!(refused(EngineOptions { threads: Some(0), ..options() }), "threads");
    assert_eq!(refused(EngineOptions { threads: Some(5000), ..options() }), "threads");
}

#[test]
fn a_kv_budget_beyond_the_memory_can_be_seen() {
    let engine = start(EngineOptions { kv_bytes: Some(1 << 33), ..options() });
    let memory_bytes = engine::Machine::detect().memory_bytes;
    assert_eq!(engine.info().memory_bytes, memory_bytes);
    let engine = start(EngineOptions { kv_bytes: None, ..options() });
    assert!(engine.info().kv_budget_bytes <= memory_bytes / engine::KV_MEMORY_SHARE);
}

/// A request that runs as long as the small model's context allows.
fn long() -> Request {
    greedy(&prompt(5, 2), 120)
}

/// Submits requests faster than they are answered.
fn until_refused(engine: &Engine, request: &Request, accepted: &mut Vec<Events>) -> SubmitError {
    loop {
        match engine.submit(request.clone()) {
            Ok(events) => accepted.push(events),
            Err(error) => return error,
        }
        assert!(accepted.len() < 10_000, "the queue has no end");
    }
}

#[test]
fn a_full_queue_says_when_to_come_again() {
    let engine = start(EngineOptions { max_running: Some(1), max_queue: Some(2), ..options() });
    let mut accepted = Vec::new();
    let refused = until_refused(&engine, &long(), &mut accepted);
    let SubmitError::QueueFull { retry_after_s } = refused else { panic!("{refused}") };
    assert!((1..=60).contains(&retry_after_s));
    assert!(accepted.len() >= 3);
    for events in accepted {
        wait(events).unwrap();
    }
    run(&engine, long());
}

#[test]
fn a_queue_of_none_takes_who_can_run_at_once() {
    let engine = start(EngineOptions { max_running: Some(3), max_queue: Some(0), ..options() });
    for _ in 0..3 {
        // At once, before the engine's thread may have seen the first.
        let mut taken = vec![engine.submit(Request { choices: 2, ..long() }).unwrap()];
        taken.push(engine.submit(long()).unwrap());
        let refused = until_refused(&engine, &long(), &mut taken);
        assert_eq!(refused, SubmitError::QueueFull { retry_after_s: 1 });
        for events in taken {
            wait(events).unwrap();
        }
        eventually("the places are free", || engine.stats().running == 0);
    }
}

#[test]
fn places_to_run_are_not_places_in_the_queue() {
    let engine = start(EngineOptions { max_running: Some(4), max_queue: Some(2), ..options() });
    let mut taken: Vec<_> = (0..6).map(|_| engine.submit(long()).unwrap()).collect();
    let refused = until_refused(&engine, &long(), &mut taken);
    assert!(matches!(refused, SubmitError::QueueFull { .. }));
    for events in taken {
        wait(events).unwrap();
    }
}

#[test]
fn requests_that_come_together_share_their_first_step() {
    let engine = start(options());
    for round in 0..200 {
        let before = engine.stats().steps;
        let prompts = (0..4).map(|member| prompt(7 * round + member, 3));
        let requests = prompts.map(|prompt| Request { use_cache: false, ..greedy(&prompt, 1) });
        for events in engine.submit_all(requests.collect()).unwrap() {
            wait(events).unwrap();
        }
        assert_eq!(engine.stats().steps - before, 1, "round {round}");
    }
}

#[test]
fn of_requests_that_come_together_all_are_taken_or_none() {
    let engine = start(EngineOptions { max_running: Some(1), max_queue: Some(2), ..options() });
    let refused = engine.submit_all(vec![long(); 4]).unwrap_err();
    assert!(matches!(refused, SubmitError::QueueFull { .. }), "{refused}");
    let one_is_bad = vec![long(), greedy(&[], 1)];
    assert_eq!(engine.submit_all(one_is_bad).unwrap_err(), SubmitError::EmptyPrompt);
    assert_eq!(engine.stats().steps, 0);
    for events in engine.submit_all(vec![long(); 3]).unwrap() {
        wait(events).unwrap();
    }
}

/// One place and a long queue: when half of it should have drained, about half has.
#[test]
fn the_time_to_come_again_is_when_half_of_the_queue_has_drained() {
    const QUEUE: usize = 60;
    let options = EngineOptions { max_running: Some(1), max_queue: Some(QUEUE), ..options() };
    let engine = start(EngineOptions { threads: Some(1), ..options });
    let slow = || Request { choices: 64, logprobs: Some(64), ..long() };
    for _ in 0..5 {
        run(&engine, slow());
    }
    let start = Instant::now();
    let mut taken = Vec::new();
    let refused = until_refused(&engine, &slow(), &mut taken);
    let SubmitError::QueueFull { retry_after_s } = refused else { panic!("{refused}") };
    for events in taken {
        wait(events).unwrap();
    }
    let half_s = start.elapsed().as_secs_f64() / 2.0;
    // Whole seconds, on a machine that others use too.
    let told_s = retry_after_s as f64;
    assert!((half_s / 3.0..3.0 * half_s + 1.0).contains(&told_s), "{told_s} s, but {half_s} s");
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_dropped_receiver_cancels_and_frees() {
    let engine = start(EngineOptions { max_running: Some(1), ..options() });
    for _ in 0..20 {
        let mut running = engine.submit(Request { choices: 8, ..long() }).unwrap();
        let waiting = engine.submit(long()).unwrap();
        running.blocking_recv().unwrap();
        drop((running, waiting));
    }
    eventually("the engine comes to rest", || {
        let stats = engine.stats();
        stats.running + stats.waiting == 0 && stats.pages_free + stats.pages_cached == stats.pages
    });
    assert!(engine.stats().requests_cancelled >= 20);
}

#[test]
fn shutdown_finishes_what_runs_and_refuses_the_rest() {
    let engine = start(EngineOptions { max_running: Some(1), ..options() });
    let mut running = engine.submit(long()).unwrap();
    let started = wait_for_start(&mut running);
    let waiting = engine.submit(long()).unwrap();
    engine.shutdown();
    assert_eq!(wait_for_rest(Some(started), running).unwrap().tokens.output, 120);
    assert_eq!(wait(waiting).unwrap_err(), EngineError::ShuttingDown);
    assert_eq!(engine.submit(long()).unwrap_err(), SubmitError::ShuttingDown);
    engine.shutdown();
}

#[test]
fn dropping_the_engine_finishes_what_runs() {
    let engine = start(options());
    let mut running = engine.submit(long()).unwrap();
    let started = wait_for_start(&mut running);
    drop(engine);
    assert!(wait_for_rest(Some(started), running).is_ok());
}
