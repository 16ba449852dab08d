//! The engine as its callers see it, on small random models.

mod answers;
mod damage;
mod disk;
mod exact;
mod limits;
mod reuse;
mod speculation;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cache::{Namespace, Verdict};
use engine::{
    Engine, EngineOptions, Event, Events, FinishReason, Request, Sampling, Timings, TokenCounts,
    TokenInfo,
};
use package::Package;

/// The folder of a small random model.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name)
}

/// A small random model.
pub(crate) fn package(name: &str) -> Arc<Package> {
    Arc::new(Package::open(&folder(name)).unwrap())
}

/// The small llama that most tests use.
pub(crate) fn llama() -> Arc<Package> {
    package("llama-gqa2-biased")
}

/// Options of a small engine.
pub(crate) fn options() -> EngineOptions {
    EngineOptions { threads: Some(2), kv_bytes: Some(64 << 20), ..EngineOptions::default() }
}

/// An engine on the small llama.
pub(crate) fn start(options: EngineOptions) -> Engine {
    Engine::start(llama(), options, &|_, _| {}).unwrap()
}

/// A greedy request that does not end by itself.
pub(crate) fn greedy(prompt: &[u32], max_tokens: usize) -> Request {
    Request {
        max_tokens: Some(max_tokens),
        sampling: Sampling::greedy(),
        ignore_end: true,
        ..Request::new("test", prompt.to_vec(), Namespace::public())
    }
}

/// Different prompts of any length, without special tokens.
pub(crate) fn prompt(family: usize, tokens: usize) -> Vec<u32> {
    (0..tokens).map(|i| ((i * i + family * 31 + i * family) % 250) as u32).collect()
}

/// One answer.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) tokens: Vec<TokenInfo>,
    pub(crate) reason: Option<FinishReason>,
    /// Which stop string ended it.
    pub(crate) stop: Option<usize>,
}

impl Answer {
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }
}

/// All that came of a request.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) answers: Vec<Answer>,
    pub(crate) prompt_logprobs: Option<Vec<Option<engine::TokenLogprobs>>>,
    /// Computed tokens of the prompt, as they were reported.
    pub(crate) progress: Vec<usize>,
    pub(crate) verdict: Verdict,
    pub(crate) timings: Timings,
    pub(crate) tokens: TokenCounts,
}

/// Waits until a request's turn has come, and returns what it reuses.
pub(crate) fn wait_for_start(events: &mut Events) -> Verdict {
    match events.blocking_recv() {
        Some(Event::Started { verdict }) => verdict,
        other => panic!("no start: {other:?}"),
    }
}

/// Waits for a request's end.
pub(crate) fn wait(events: Events) -> Result<Outcome, engine::EngineError> {
    wait_for_rest(None, events)
}

/// Waits for the end of a request that has started, or has not.
pub(crate) fn wait_for_rest(
    mut started: Option<Verdict>,
    mut events: Events,
) -> Result<Outcome, engine::EngineError> {
    let mut answers: Vec<Answer> = Vec::new();
    let (mut all_prompt_logprobs, mut progress) = (None, Vec::new());
    let grow = |answers: &mut Vec<Answer>, choice: usize| {
        if answers.len() <= choice {
            answers.resize(choice + 1, Answer::default());
        }
    };
    loop {
        match events.blocking_recv().expect("a request without an end") {
            Event::PromptLogprobs(logprobs) => all_prompt_logprobs = Some(logprobs),
            Event::Delta { choice, text, tokens } => {
                grow(&mut answers, choice);
                assert_eq!(answers[choice].reason, None, "a delta after the end");
                answers[choice].text.push_str(&text);
                answers[choice].tokens.extend(tokens);
            }
            Event::Started { verdict } => {
                assert!(answers.is_empty() && started.is_none(), "a start after the start");
                started = Some(verdict);
            }
            Event::Progress { tokens } => progress.push(tokens),
            Event::Finished { choice, reason, stop } => {
                grow(&mut answers, choice);
                (answers[choice].reason, answers[choice].stop) = (Some(reason), stop);
            }
            Event::Done { verdict, timings, tokens } => {
                assert!(events.blocking_recv().is_none(), "an event after the last");
                assert_eq!(started.as_ref(), Some(&verdict), "another verdict at the end");
                let prompt_logprobs = all_prompt_logprobs;
                return Ok(Outcome {
                    answers,
                    prompt_logprobs,
                    progress,
                    verdict,
                    timings,
                    tokens,
                });
            }
            Event::Failed(error) => return Err(error),
        }
    }
}

/// Submits a request and waits for its end.
pub(crate) fn run(engine: &Engine, request: Request) -> Outcome {
    wait(engine.submit(request).unwrap()).unwrap()
}
