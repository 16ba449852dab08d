//! The scheduler from inside: what it shares, whom it serves, and whom it stops.

use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;

use cache::{Namespace, Verdict};
use kernels::Team;
use proptest::prelude::*;

use super::*;
use crate::options::{EngineOptions, Plan};
use crate::request::{EVENTS_UNREAD_MAX, Events, FinishReason, Request, Sampling, events_of};
use crate::step::Seen;

pub(super) fn package() -> Arc<Package> {
    static PACKAGE: OnceLock<Arc<Package>> = OnceLock::new();
    let open = || {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/llama-gqa2-biased");
        Arc::new(Package::open(&folder).unwrap())
    };
    Arc::clone(PACKAGE.get_or_init(open))
}

pub(super) fn model() -> Model {
    let package = package();
    let team = Arc::new(Team::new(1).unwrap());
    Model::load(&package, team, package.config.context, &|_, _| {}).unwrap()
}

pub(super) fn scheduler(model: &Model, pages: usize, chunk_tokens: usize) -> Scheduler {
    plan(model, pages, chunk_tokens).scheduler(&package(), Arc::new(|| {})).unwrap()
}

pub(super) fn plan(model: &Model, pages: usize, chunk_tokens: usize) -> Plan {
    let options = EngineOptions {
        kv_bytes: Some((pages * model.kv_geometry().page_bytes()) as u64),
        chunk_tokens: Some(chunk_tokens),
        max_running: Some(6),
        // As fast as this machine is or not, the same steps.
        step_budget: Some(Duration::MAX),
        speculation: false,
        ..EngineOptions::default()
    };
    options.resolve(&package(), model).unwrap()
}

pub(super) fn submit(scheduler: &mut Scheduler, request: Request) -> Events {
    let (events, receiver) = events_of(&request);
    scheduler.submit(Waiting::new(request, events));
    receiver
}

/// The next event that says more than that a request has started.
fn next(events: &mut Events) -> Option<Event> {
    loop {
        match events.try_recv().ok()? {
            Event::Started { .. } => {}
            event => return Some(event),
        }
    }
}

/// Ids and log-probability bits of each choice, if the request was done.
pub(super) type Answer = Option<Vec<Vec<(u32, u32)>>>;

pub(super) fn answer(events: &mut Events, choices: usize) -> Answer {
    let mut answer = vec![Vec::new(); choices];
    while let Ok(event) = events.try_recv() {
        match event {
            Event::Delta { choice, tokens, .. } => answer[choice].extend(
                tokens.iter().map(|token| (token.id, token.logprob.unwrap_or(0.0).to_bits())),
            ),
            Event::Done { .. } => return Some(answer),
            Event::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    None
}

pub(super) fn run_alone(model: &mut Model, request: &Request) -> Answer {
    let mut scheduler = scheduler(model, 200, 1000);
    let request = Request { use_cache: false, ..request.clone() };
    let choices = request.choices;
    let mut events = submit(&mut scheduler, request);
    while !scheduler.is_idle() {
        scheduler.step(model, &mut |_| {});
    }
    answer(&mut events, choices)
}

#[test]
fn a_held_answer_is_guessed_for_its_own_caller_alone() {
    let mut model = model();
    let mut scheduler = scheduler(&model, 60, 64);
    scheduler.guessing = Guessing::new(Speculation::Forced);
    let sampling = Sampling { seed: Some(9), ..Sampling::default() };
    let first = Request { sampling, ..going("one", (0..30).map(|i| i * 7).collect(), 41) };
    let other = Request { namespace: Namespace::from_salt("other"), ..first.clone() };
    let uncached = Request { use_cache: false, ..first.clone() };
    let alone = run_alone(&mut model, &first);
    let mut right = Vec::new();
    for request in [first.clone(), first, other, uncached] {
        let before = scheduler.stats();
        let mut events = submit(&mut scheduler, request);
        while !scheduler.is_idle() {
            scheduler.step(&mut model, &mut |_| {});
            scheduler.audit(&[]);
        }
        let after = scheduler.stats();
        let accepted = after.accepted_tokens - before.accepted_tokens;
        // The first token comes of the prompt's step, and a page holds no more than was computed.
        assert_eq!(after.steps - before.steps, 41 - accepted);
        assert!(after.proposed_tokens - before.proposed_tokens > accepted);
        assert_eq!(answer(&mut events, 1), alone);
        right.push(accepted);
    }
    assert!(right[1] > 20 && right[0] < 10 && right[2] < 10 && right[3] < 10, "{right:?}");
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
        scheduler.audit(&[]);
    }
    assert!(matches!(next(&mut bad_events), Some(Event::Failed(EngineError::Step(_)))));
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// N sequences on a prefix of P tokens hold P / 16 pages together, and each those of the rest.
    #[test]
    fn sequences_on_a_prefix_hold_its_full_pages_once(
        prefix in 1usize..70,
        rests in prop::collection::vec(1usize..30, 2..6),
        together in any::<bool>(),
    ) {
        let (mut model, mut scheduler) = (model(), scheduler(&model(), 100, 64));
        let requests = rests.iter().zip(0..).map(|(&rest, number)| {
            // Each goes on otherwise after the prefix.
            let prompt = [counted(0, prefix as u32), vec![200 + number], counted(100, rest as u32)];
            going(&number.to_string(), prompt.concat(), 30)
        });
        if !together {
            let _first = submit(&mut scheduler, going("", counted(0, prefix as u32), 0));
            rows_until_idle(&mut scheduler, &mut model);
        }
        let _events: Vec<Events> = requests.map(|it| submit(&mut scheduler, it)).collect();
        let mut compared = 0;
        while !scheduler.is_idle() {
            scheduler.step(&mut model, &mut |_| {});
            let decoded = scheduler.sequences().filter(|it| it.computed() > prefix + 1);
            let own: Vec<usize> = decoded.map(|it| it.computed() - prefix).collect();
            if own.len() < rests.len() {
                continue;
            }
            let stats = scheduler.stats();
            let owned: usize = own.iter().map(|own| (prefix % 16 + own).div_ceil(16)).sum();
            prop_assert_eq!(stats.pages_shared, prefix / 16);
            prop_assert_eq!(stats.pages_in_use, prefix / 16 + owned);
            compared += 1;
        }
        prop_assert!(compared > 10);
        prop_assert_eq!(scheduler.stats().pages_in_use, 0);
    }
}

#[test]
fn who_does_not_read_is_told_and_holds_nothing() {
    let mut model = model();
    let mut scheduler = scheduler(&model, 40, 64);
    // Each answer's last tokens, read by nobody, and as many as are kept.
    let request = |id: &str| Request { choices: 2, ..going(id, counted(0, 20), 60) };
    let mut slow = submit(&mut scheduler, request("slow"));
    let other = going("other", counted(100, 20), 60);
    let mut read = submit(&mut scheduler, other.clone());
    let filler = &scheduler.waiting[0].events.clone();
    for _ in 0..EVENTS_UNREAD_MAX + 20 {
        filler
            .try_send(Event::Finished { choice: 0, reason: FinishReason::Stop, stop: None })
            .unwrap();
    }
    rows_until_idle(&mut scheduler, &mut model);
    assert_eq!((scheduler.stats().requests_unread, scheduler.stats().requests_done), (1, 1));
    assert_eq!(answer(&mut read, 1), run_alone(&mut model, &other));
    let mut last = None;
    while let Ok(event) = slow.try_recv() {
        last = Some(event);
    }
    assert!(matches!(last, Some(Event::Failed(EngineError::Unread))), "{last:?}");
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
            scheduler.audit(&[]);
        }
        loop {
            match next(&mut events).unwrap() {
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

/// A request for some tokens that does not end by itself.
pub(super) fn going(id: &str, prompt: Vec<u32>, max_tokens: usize) -> Request {
    Request {
        max_tokens: Some(max_tokens),
        ignore_end: true,
        sampling: Sampling { seed: Some(1), ..Sampling::default() },
        logprobs: Some(0),
        ..Request::new(id, prompt, Namespace::public())
    }
}

pub(super) fn counted(from: u32, tokens: u32) -> Vec<u32> {
    (from..from + tokens).map(|token| token % 250).collect()
}

/// Rows that are computed until all is done, by request.
fn rows_until_idle(scheduler: &mut Scheduler, model: &mut Model) -> HashMap<String, usize> {
    let mut rows = HashMap::new();
    while !scheduler.is_idle() {
        scheduler.step(model, &mut |seen| {
            if let Seen::Step(parts) = seen {
                for part in parts {
                    *rows.entry(part.request.to_string()).or_insert(0) += part.positions.len();
                }
            }
        });
        scheduler.audit(&[]);
    }
    rows
}

fn verdict_of(events: &mut Events) -> Verdict {
    loop {
        match next(events).unwrap() {
            Event::Done { verdict, .. } => return verdict,
            Event::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
}

#[test]
fn a_prefix_that_is_being_computed_is_computed_once() {
    let mut model = model();
    let mut scheduler = scheduler(&model, 100, 16);
    // The second turns off inside the fourth page, the third after it.
    let prompts = [
        counted(0, 100),
        [counted(0, 56), counted(100, 10)].concat(),
        [counted(0, 64), counted(150, 10)].concat(),
    ];
    let mut all: Vec<Events> = prompts
        .iter()
        .enumerate()
        .map(|(id, prompt)| submit(&mut scheduler, going(&id.to_string(), prompt.clone(), 1)))
        .collect();
    scheduler.step(&mut model, &mut |_| {});
    assert_eq!(scheduler.stats().waiting_for_prefix, 2);
    let rows = rows_until_idle(&mut scheduler, &mut model);
    assert_eq!((rows["0"], rows["1"], rows["2"]), (84, 10, 10), "less the first step's 16");
    let verdicts: Vec<Verdict> = all.iter_mut().map(verdict_of).collect();
    let reasons: Vec<&str> = verdicts.iter().map(|verdict| verdict.stop.reason.code()).collect();
    assert_eq!(reasons, ["first_request", "different_token", "end_of_cached"]);
    let reused: Vec<usize> = verdicts.iter().map(|verdict| verdict.reused_tokens).collect();
    assert_eq!(reused, [0, 56, 64]);
    // 16 were there when they first waited, for the one that came to the queue after a step.
    assert_eq!(scheduler.stats().shared_prefix_tokens, 56 + 64);
}

#[test]
fn if_who_computes_goes_away_another_takes_over() {
    let mut model = model();
    let mut scheduler = scheduler(&model, 100, 16);
    let first = submit(&mut scheduler, going("first", counted(0, 90), 1));
    let mut others: Vec<Events> = ["second", "third"]
        .iter()
        .map(|id| submit(&mut scheduler, going(id, counted(0, 80), 1)))
        .collect();
    scheduler.step(&mut model, &mut |_| {});
    scheduler.step(&mut model, &mut |_| {});
    drop(first);
    let rows = rows_until_idle(&mut scheduler, &mut model);
    assert_eq!((rows["second"], rows["third"]), (80 - 32, 1));
    let reused: Vec<usize> = others.iter_mut().map(|e| verdict_of(e).reused_tokens).collect();
    assert_eq!(reused, [32, 79]);
}

#[test]
fn the_last_is_preempted_when_pages_run_out_and_goes_on() {
    let mut model = model();
    // Two pages each at first, four each in the end.
    let mut scheduler = scheduler(&model, 6, 64);
    let requests = [going("old", counted(0, 20), 40), going("young", counted(100, 20), 40)];
    let mut events = requests.clone().map(|request| submit(&mut scheduler, request));
    let rows = rows_until_idle(&mut scheduler, &mut model);
    assert_eq!(rows["old"], 59);
    assert_eq!(rows["young"], 59 + 16, "the page that the other needed is computed again");
    assert_eq!(scheduler.stats().preemptions, 1);
    for (request, events) in requests.iter().zip(&mut events) {
        assert_eq!(answer(events, 1), run_alone(&mut model, request));
    }
}

#[test]
fn a_small_request_does_not_wait_for_a_large_one() {
    let mut model = model();
    let mut scheduler = scheduler(&model, 100, 8);
    let mut large = submit(&mut scheduler, going("large", counted(0, 100), 1));
    scheduler.step(&mut model, &mut |_| {});
    let mut small = submit(&mut scheduler, going("small", counted(200, 12), 1));
    scheduler.step(&mut model, &mut |_| {});
    scheduler.step(&mut model, &mut |_| {});
    assert!(matches!(next(&mut small), Some(Event::Delta { .. })));
    assert!(next(&mut large).is_none());
    rows_until_idle(&mut scheduler, &mut model);
    assert!(next(&mut large).is_some());
}

#[test]
fn who_waits_too_long_is_told() {
    let mut model = model();
    let mut scheduler = scheduler(&model, 40, 64);
    scheduler.limits.running = 1;
    scheduler.limits.max_wait = Duration::ZERO;
    let gone = going("gone", vec![1], 1);
    scheduler.submit(Waiting::new(gone.clone(), events_of(&gone).0));
    let mut events = submit(&mut scheduler, going("late", vec![1], 1));
    std::thread::sleep(Duration::from_millis(1));
    scheduler.step(&mut model, &mut |_| {});
    let failed = next(&mut events).unwrap();
    let expected = EngineError::WaitedTooLong { waited_s: 0 };
    assert!(matches!(failed, Event::Failed(error) if error == expected));
    assert_eq!((scheduler.is_idle(), scheduler.stats().requests_expired), (true, 1));
}
