//! The scheduler from inside: whatever is submitted, cancelled or fails, no page is lost or
//! written by two, and each answer is what it would be alone.

use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;

use cache::Namespace;
use kernels::Team;
use proptest::prelude::*;
use tokio::sync::mpsc;

use super::*;
use crate::options::EngineOptions;
use crate::request::{Events, Request, Sampling};

/// Pages of the small pool: two requests of the largest size barely fit.
const PAGES: usize = 14;

fn package() -> Arc<Package> {
    static PACKAGE: OnceLock<Arc<Package>> = OnceLock::new();
    let open = || {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/llama-gqa2-biased");
        Arc::new(Package::open(&folder).unwrap())
    };
    Arc::clone(PACKAGE.get_or_init(open))
}

fn model() -> Model {
    let package = package();
    let team = Arc::new(Team::new(1).unwrap());
    Model::load(&package, team, package.config.context, &|_, _| {}).unwrap()
}

fn scheduler(model: &Model, pages: usize, chunk_tokens: usize) -> Scheduler {
    let options = EngineOptions {
        kv_bytes: Some((pages * model.kv_geometry().page_bytes()) as u64),
        chunk_tokens: Some(chunk_tokens),
        max_running: Some(4),
        ..EngineOptions::default()
    };
    options.resolve(&package(), model).unwrap().scheduler(&package()).unwrap()
}

fn submit(scheduler: &mut Scheduler, request: Request) -> Events {
    let (events, receiver) = mpsc::unbounded_channel();
    scheduler.submit(Waiting { request, events, submitted: Instant::now() });
    receiver
}

/// Ids and log-probability bits of each choice, if the request was done.
type Answer = Option<Vec<Vec<(u32, u32)>>>;

fn answer(events: &mut Events, choices: usize) -> Answer {
    let mut answer = vec![Vec::new(); choices];
    while let Ok(event) = events.try_recv() {
        match event {
            Event::Delta { choice, tokens, .. } => answer[choice].extend(
                tokens.iter().map(|token| (token.id, token.logprob.unwrap_or(0.0).to_bits())),
            ),
            Event::Done { .. } => return Some(answer),
            Event::Failed(error) => panic!("{error}"),
            Event::Finished { .. } | Event::PromptLogprobs(_) => {}
        }
    }
    None
}

fn run_alone(model: &mut Model, request: &Request) -> Answer {
    let mut scheduler = scheduler(model, 200, 1000);
    let request = Request { use_cache: false, ..request.clone() };
    let choices = request.choices;
    let mut events = submit(&mut scheduler, request);
    while !scheduler.is_idle() {
        scheduler.step(model, &mut |_| {});
    }
    answer(&mut events, choices)
}

impl Scheduler {
    /// Counts each page's holders anew and compares.
    fn audit(&self) {
        let mut holders = HashMap::new();
        let sequences = self.running.iter().flat_map(|running| &running.choices);
        for page in sequences.flat_map(|choice| choice.sequence.pages()) {
            *holders.entry(*page).or_insert(0) += 1;
        }
        let mut cached = 0;
        for page in 0..self.memory.pool().pages() as u32 {
            let in_cache = u32::from(self.memory.is_cached(page));
            cached += in_cache as usize;
            let expected = holders.get(&page).copied().unwrap_or(0) + in_cache;
            assert_eq!(self.memory.pool().references(page), expected, "page {page}");
        }
        let stats = self.stats();
        assert_eq!(stats.pages_cached, cached);
        if self.is_idle() {
            assert_eq!(stats.pages_free + stats.pages_cached, stats.pages);
        }
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Submit(Box<Request>),
    Cancel(prop::sample::Index),
    Steps(usize),
}

/// Prompts of few families, so that they share prefixes of random length.
fn any_request() -> impl Strategy<Value = Request> {
    let prompt = (0usize..3, 1usize..70, 0usize..4);
    let shape = (1usize..4, 0usize..12, any::<bool>(), any::<u64>());
    let options = (prop::bool::weighted(0.8), prop::bool::weighted(0.1), any::<bool>());
    (prompt, shape, options).prop_map(
        |((family, common, tail), (choices, max_tokens, greedy, seed), options)| {
            let (use_cache, prompt_rows, salted) = options;
            let mut prompt: Vec<u32> =
                (0..common).map(|i| ((i * (7 + family) + family) % 250) as u32).collect();
            prompt.extend((0..tail).map(|i| (seed as usize + i) as u32 % 250));
            let sampling = Sampling {
                temperature: if greedy { 0.0 } else { 1.0 },
                repetition_penalty: 1.1,
                seed: Some(seed),
                ..Sampling::default()
            };
            Request {
                choices,
                max_tokens: Some(max_tokens),
                sampling,
                logprobs: Some(0),
                prompt_logprobs: prompt_rows.then_some(1),
                use_cache,
                ..Request::new(
                    format!("{seed}"),
                    prompt,
                    if salted { Namespace::from_salt("a") } else { Namespace::public() },
                )
            }
        },
    )
}

fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => any_request().prop_map(|request| Operation::Submit(Box::new(request))),
        1 => any::<prop::sample::Index>().prop_map(Operation::Cancel),
        4 => (1usize..9).prop_map(Operation::Steps),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn no_page_is_lost_and_every_answer_is_its_solo_answer(
        operations in prop::collection::vec(any_operation(), 1..40),
        chunk_tokens in 1usize..40,
    ) {
        let mut model = model();
        let mut scheduler = scheduler(&model, PAGES, chunk_tokens);
        let mut open: Vec<(Request, Events)> = Vec::new();
        for operation in operations {
            match operation {
                Operation::Submit(request) => {
                    if scheduler.limits.request.check(&request).is_ok() {
                        let events = submit(&mut scheduler, Request::clone(&request));
                        open.push((*request, events));
                    }
                }
                Operation::Cancel(index) if !open.is_empty() => {
                    open.swap_remove(index.index(open.len()));
                }
                Operation::Cancel(_) => {}
                Operation::Steps(steps) => {
                    for _ in 0..steps {
                        scheduler.step(&mut model, &mut |_| {});
                        scheduler.audit();
                    }
                }
            }
        }
        for _ in 0..20_000 {
            if scheduler.is_idle() {
                break;
            }
            scheduler.step(&mut model, &mut |_| {});
            scheduler.audit();
        }
        prop_assert!(scheduler.is_idle(), "a request is stuck");
        for (request, mut events) in open {
            let together = answer(&mut events, request.choices);
            prop_assert!(together.is_some(), "a request without an end");
            prop_assert_eq!(together, run_alone(&mut model, &request));
        }
        let now = scheduler.now;
        scheduler.memory.clear_cache(now);
        prop_assert_eq!(scheduler.stats().pages_free, PAGES);
    }
}

#[test]
fn a_step_that_fails_fails_one_request() {
    let mut model = model();
    let mut scheduler = scheduler(&model, 40, 64);
    let good = Request {
        max_tokens: Some(8),
        sampling: Sampling::greedy(),
        ignore_end: true,
        ..Request::new("good", vec![5, 6, 7], Namespace::public())
    };
    let alone = run_alone(&mut model, &good);
    let mut good_events = submit(&mut scheduler, good);
    scheduler.step(&mut model, &mut |_| {});
    // A token that the model does not have, smuggled past the check.
    let bad = Request::new("bad", vec![5, 60_000, 7], Namespace::public());
    let mut bad_events = submit(&mut scheduler, bad);
    while !scheduler.is_idle() {
        scheduler.step(&mut model, &mut |_| {});
        scheduler.audit();
    }
    assert!(matches!(bad_events.try_recv(), Ok(Event::Failed(EngineError::Step(_)))));
    assert_eq!(answer(&mut good_events, 1).map(|a| a[0].len()), alone.map(|a| a[0].len()));
    assert_eq!(scheduler.stats().requests_failed, 1);
}

#[test]
fn choices_share_the_prompts_full_pages() {
    let mut model = model();
    let mut scheduler = scheduler(&model, 40, 64);
    let prompt: Vec<u32> = (0..39).collect();
    let request = Request {
        choices: 4,
        max_tokens: Some(5),
        ignore_end: true,
        ..Request::new("four", prompt, Namespace::public())
    };
    let _events = submit(&mut scheduler, request);
    scheduler.step(&mut model, &mut |_| {});
    scheduler.step(&mut model, &mut |_| {});
    let held = scheduler.stats().pages - scheduler.stats().pages_free;
    assert_eq!(held, 2 + 4, "two full pages once, and one page of each choice's own");
}

#[test]
fn eviction_makes_room_and_is_named() {
    let mut model = model();
    let mut scheduler = scheduler(&model, 8, 64);
    let prompt = |family: u32| (0..60).map(|i| (i * 3 + family) % 250).collect::<Vec<u32>>();
    let mut run = |scheduler: &mut Scheduler, family, id: &str| {
        let request = Request {
            max_tokens: Some(2),
            ..Request::new(id, prompt(family), Namespace::public())
        };
        let mut events = submit(scheduler, request);
        while !scheduler.is_idle() {
            scheduler.step(&mut model, &mut |_| {});
            scheduler.audit();
        }
        loop {
            match events.try_recv().unwrap() {
                Event::Done { verdict, .. } => return verdict,
                Event::Failed(error) => panic!("{error}"),
                _ => {}
            }
        }
    };
    let reason = |verdict: &Verdict| verdict.stop.reason.code();
    assert_eq!(reason(&run(&mut scheduler, 0, "first")), "first_request");
    let again = run(&mut scheduler, 0, "again");
    assert_eq!((reason(&again), again.reused_tokens), ("end_of_prompt", 59));
    for family in 1..4 {
        run(&mut scheduler, family, &format!("other {family}"));
    }
    let late = run(&mut scheduler, 0, "late");
    assert_eq!(reason(&late), "evicted");
    assert!(late.stop.evicted_for.is_some_and(|request| request.starts_with("other")));
}
