//! One cell of the equality matrix: the same prompts under one condition, watched.

use cache::Namespace;
use serde::Serialize;

use crate::model::Model;
use crate::random;
use crate::request::{Event, Events, Request, Sampling, events_of};
use crate::running::Waiting;
use crate::scheduler::Scheduler;
use crate::step::Seen;

/// Tokens drawn after each prompt.
pub(crate) const ANSWER_TOKENS: usize = 6;
/// A request is preempted so often at most: each time some of it is computed again.
const PREEMPTIONS_MAX: usize = 3;
/// How probable it is, in each step, that the request is preempted.
const PREEMPTION_PROBABILITY: f64 = 0.3;

/// Under what prompts are run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Condition {
    pub(crate) threads: usize,
    pub(crate) chunk: Option<usize>,
    pub(crate) cached: bool,
    /// Requests that run beside at any time.
    pub(crate) neighbours: usize,
    pub(crate) preempted: bool,
    /// Whether tokens are guessed in every step.
    pub(crate) speculation: bool,
}

/// A prompt and how its answer is drawn.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    pub(crate) tokens: Vec<u32>,
    sampling: Sampling,
}

/// What was seen of one request.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Which prompt.
    pub(crate) prompt: usize,
    /// The row that each token was drawn from.
    pub(crate) logits: Vec<Vec<f32>>,
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    prompt_tokens: usize,
    reused_tokens: usize,
    chunks: usize,
    shared_steps: usize,
    neighbours_at_once: usize,
    preemptions: usize,
    proposed: usize,
    accepted: usize,
}

/// What was seen of a cell.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) observed: Vec<Observed>,
    pub(crate) reused_tokens: usize,
    pub(crate) chunks: usize,
    pub(crate) shared_steps: usize,
    pub(crate) neighbours_at_once: usize,
    pub(crate) neighbours_served: usize,
    pub(crate) preemptions: usize,
    pub(crate) proposed: usize,
    pub(crate) accepted: usize,
    /// What should have occurred and did not.
    pub(crate) missed: Option<String>,
    pub(crate) failed: Option<String>,
}

/// Where bits differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Length of the prompt.
    pub prompt_tokens: usize,
    /// Which drawn token, from 0.
    pub token: usize,
    /// `logits`, `logprobs` or `tokens`.
    pub of: &'static str,
    /// Largest difference between two logits of the row.
    pub max_abs: f32,
}

/// Prompts of random tokens. Every second one is drawn from with all that sampling has, the
/// others greedily.
pub(crate) fn prompts(lengths: &[usize], vocab: usize) -> Vec<Prompt> {
    let prompt = |(index, &length): (usize, &usize)| {
        let sampling = Sampling {
            temperature: 0.9,
            top_p: 0.95,
            min_p: 0.001,
            repetition_penalty: 1.1,
            presence_penalty: 0.2,
            frequency_penalty: 0.1,
            seed: Some(index as u64),
            logit_bias: vec![(1, 0.5)],
            ..Sampling::default()
        };
        let sampling = if index % 2 == 0 { Sampling::greedy() } else { sampling };
        Prompt { tokens: random_tokens(index, length, vocab), sampling }
    };
    lengths.iter().enumerate().map(prompt).collect()
}

fn random_tokens(key: usize, length: usize, vocab: usize) -> Vec<u32> {
    (0..length).map(|i| (random::uniform(1, key, i) * vocab as f64) as u32).collect()
}

/// Runs all prompts one after another under the condition; `stepped` is told of each step.
pub(crate) fn run(
    scheduler: Scheduler,
    model: &mut Model,
    prompts: &[Prompt],
    condition: Condition,
    stepped: &mut dyn FnMut(),
) -> Run {
    let vocab = model.config().vocab;
    let mut cell = CellRun {
        scheduler,
        model,
        condition,
        vocab,
        stepped,
        beside: Vec::new(),
        run: Run::default(),
    };
    for (index, prompt) in prompts.iter().enumerate() {
        if cell.run.failed.is_none() {
            cell.prompt(index, prompt);
        }
    }
    let mut run = cell.run;
    for observed in &run.observed {
        run.reused_tokens += observed.reused_tokens;
        run.chunks += observed.chunks;
        run.shared_steps += observed.shared_steps;
        run.neighbours_at_once = run.neighbours_at_once.max(observed.neighbours_at_once);
        run.preemptions += observed.preemptions;
        run.proposed += observed.proposed;
        run.accepted += observed.accepted;
    }
    if condition.speculation && condition.cached && run.accepted == 0 {
        run.missed.get_or_insert("no guess was right".to_string());
    }
    run
}

struct CellRun<'a> {
    scheduler: Scheduler,
    model: &'a mut Model,
    condition: Condition,
    vocab: usize,
    stepped: &'a mut dyn FnMut(),
    beside: Vec<Events>,
    run: Run,
}

impl CellRun<'_> {
    /// Runs one prompt: uncached; or after another that shares two thirds of it, and again.
    fn prompt(&mut self, index: usize, prompt: &Prompt) {
        if !self.condition.cached {
            self.measure(index, prompt, 0);
            return;
        }
        let common = prompt.tokens.len() * 2 / 3;
        let mut other = prompt.tokens[..common].to_vec();
        other.push((prompt.tokens[common] + 1) % self.vocab as u32);
        self.request(index, &Prompt { tokens: other, sampling: Sampling::greedy() });
        self.measure(index, prompt, common);
        self.measure(index, prompt, prompt.tokens.len() - 1);
    }

    /// Runs a request and checks that what should occur did.
    fn measure(&mut self, index: usize, prompt: &Prompt, expected_reuse: usize) {
        let Some(observed) = self.request(index, prompt) else { return };
        let length = prompt.tokens.len();
        let computed = length - observed.reused_tokens;
        let Condition { chunk, neighbours, preempted, speculation, .. } = self.condition;
        // Neighbours take some of the rows, and what is preempted is computed again.
        let chunks = chunk.map_or(1, |chunk| computed.div_ceil(chunk));
        let (seen, alone) = (observed.chunks, neighbours == 0 && !preempted);
        let missed = if observed.reused_tokens != expected_reuse {
            let reused = observed.reused_tokens;
            Some(format!("{reused} tokens of {length} were reused, not {expected_reuse}"))
        } else if seen < chunks || alone && seen > chunks {
            Some(format!("{computed} tokens were computed in {seen} chunks, not {chunks}"))
        } else if (neighbours > 0) != (observed.shared_steps > 0) {
            let shared = observed.shared_steps;
            Some(format!("{shared} steps computed a neighbour's rows too"))
        } else if preempted != (observed.preemptions > 0) {
            Some(format!("it was preempted {} times", observed.preemptions))
        } else if speculation != (observed.proposed > observed.accepted) {
            let Observed { proposed, accepted, .. } = observed;
            Some(format!("{proposed} tokens were guessed, {accepted} of them rightly"))
        } else {
            None
        };
        self.run.missed = self.run.missed.take().or(missed);
        self.run.observed.push(observed);
    }

    /// Runs a request to its end beside the condition's neighbours.
    fn request(&mut self, index: usize, prompt: &Prompt) -> Option<Observed> {
        let id = format!("measured {index}");
        let mut request = self.request_of(&id, prompt, ANSWER_TOKENS);
        request.use_cache = self.condition.cached;
        // Most of the rows are its own, however many neighbours there are.
        request.priority = -1;
        // Prompts are random, so that only those of one namespace share anything.
        request.namespace = Namespace::from_salt(&id);
        let mut events = self.submit(request);
        let length = prompt.tokens.len();
        let mut observed = Observed { prompt: index, prompt_tokens: length, ..Observed::default() };
        for step in 0.. {
            if self.scheduler.is_idle() {
                break;
            }
            self.keep_neighbours();
            if self.preempts(&observed, step) {
                observed.preemptions += self.scheduler.preempt_request(&id);
            }
            let mut watch = |seen: Seen<'_>| observed.watch(&id, &seen);
            self.scheduler.step(self.model, &mut watch);
            (self.stepped)();
            if let Some(done) = observed.take_events(&mut events) {
                return done.map_err(|error| self.run.failed = Some(error)).ok().map(|()| observed);
            }
        }
        self.run.failed = Some("a request ended without an end".to_string());
        None
    }

    /// Whether the request is to be preempted before a step: now and then, and once at least.
    fn preempts(&self, observed: &Observed, step: usize) -> bool {
        let may = self.condition.preempted && observed.preemptions < PREEMPTIONS_MAX;
        // With guesses, the next step may be the last.
        let late = if self.condition.speculation { 1 } else { ANSWER_TOKENS - 1 };
        let last_chance = observed.preemptions == 0 && observed.logits.len() >= late;
        let draw = random::uniform(2, observed.prompt, step);
        may && (last_chance || draw < PREEMPTION_PROBABILITY)
    }

    /// Takes the place of neighbours that are done.
    fn keep_neighbours(&mut self) {
        self.beside.retain(|events| !(events.is_closed() && events.is_empty()));
        for events in &mut self.beside {
            while events.try_recv().is_ok() {}
        }
        while self.beside.len() < self.condition.neighbours {
            let number = self.run.neighbours_served;
            self.run.neighbours_served += 1;
            let tokens = random_tokens(1000 + number, 2 + number * 7 % 23, self.vocab);
            let prompt = Prompt { tokens, sampling: Sampling::default() };
            let request = self.request_of("neighbour", &prompt, 3 + number % 5);
            let events = self.submit(request);
            self.beside.push(events);
        }
    }

    fn request_of(&self, id: &str, prompt: &Prompt, answer_tokens: usize) -> Request {
        Request {
            max_tokens: Some(answer_tokens),
            sampling: prompt.sampling.clone(),
            ignore_end: true,
            logprobs: Some(3),
            ..Request::new(id, prompt.tokens.clone(), Namespace::public())
        }
    }

    fn submit(&mut self, request: Request) -> Events {
        let (events, receiver) = events_of(&request);
        self.scheduler.submit(Waiting::new(request, events));
        receiver
    }
}

impl Observed {
    fn watch(&mut self, id: &str, seen: &Seen<'_>) {
        match seen {
            Seen::Logits { request, logits } if *request == id => {
                self.logits.push(logits.to_vec());
            }
            Seen::Step(rows) => {
                let own = rows.iter().filter(|rows| rows.request == id);
                for own in own {
                    self.chunks += usize::from(own.positions.start < self.prompt_tokens);
                    self.shared_steps += usize::from(rows.len() > 1);
                    self.neighbours_at_once = self.neighbours_at_once.max(rows.len() - 1);
                }
            }
            Seen::Logits { .. } => {}
        }
    }

    /// Takes what came; `Some` when the request is over.
    fn take_events(&mut self, events: &mut Events) -> Option<Result<(), String>> {
        while let Ok(event) = events.try_recv() {
            match event {
                Event::Delta { tokens, .. } => {
                    for token in tokens {
                        self.tokens.push(token.id);
                        self.logprobs.extend(token.logprob);
                        self.logprobs.extend(token.top.iter().map(|top| top.1));
                    }
                }
                Event::Done { verdict, tokens, .. } => {
                    self.reused_tokens = verdict.reused_tokens;
                    (self.proposed, self.accepted) = (tokens.proposed, tokens.accepted);
                    return Some(Ok(()));
                }
                Event::Failed(error) => return Some(Err(error.to_string())),
                _ => {}
            }
        }
        None
    }

    /// The first bits in which `other` differs.
    pub(crate) fn difference(&self, other: &Observed) -> Option<Difference> {
        let difference = |token, of, max_abs| {
            Some(Difference { prompt_tokens: self.prompt_tokens, token, of, max_abs })
        };
        for (token, (ours, theirs)) in self.logits.iter().zip(&other.logits).enumerate() {
            if !same_bits(ours, theirs) {
                let apart = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs());
                return difference(token, "logits", apart.fold(0.0, f32::max));
            }
        }
        if self.tokens != other.tokens || self.logits.len() != other.logits.len() {
            let pairs = self.tokens.iter().zip(&other.tokens);
            return difference(pairs.take_while(|(a, b)| a == b).count(), "tokens", 0.0);
        }
        if !same_bits(&self.logprobs, &other.logprobs) {
            let pairs = self.logprobs.iter().zip(&other.logprobs);
            let equal = pairs.take_while(|(a, b)| a.to_bits() == b.to_bits()).count();
            return difference(equal / 4, "logprobs", 0.0);
        }
        None
    }
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}
