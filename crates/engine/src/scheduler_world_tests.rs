//! Random operations on a scheduler with a small pool: whatever is submitted, cancelled, preempted
//! or starved, with pages on disk or without, no page is lost or written by two, and each answer is
//! what it would be alone.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use cache::Namespace;
use kernels::PageId;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use tempfile::TempDir;

use super::tests::{answer, model, package, plan, run_alone, submit};
use super::*;
use crate::disk_tier::DiskTierOptions;
use crate::kv_memory::By;
use crate::request::{Events, Request, Sampling};

/// Pages of the small pool: a request of the largest size barely fits.
const PAGES: usize = 16;
/// Pages beside those, that are taken away for a while.
const STARVED_MAX: usize = 8;
/// So small that segments make room for others.
const DISK_BYTES: u64 = 2 << 20;
/// What was asked of the disk is done by then, on any machine.
const DISK_TIME: Duration = Duration::from_secs(20);

/// A scheduler whose pages are kept in a directory, and what tells that something came from there.
pub(super) struct OnDisk {
    pub(super) scheduler: Scheduler,
    woken: Receiver<()>,
    /// How often it did.
    came: usize,
}

impl OnDisk {
    pub(super) fn new(model: &Model, pages: usize, chunk_tokens: usize, directory: &Path) -> Self {
        let (wake, woken) = channel();
        let mut plan = plan(model, pages, chunk_tokens);
        let disk = DiskTierOptions {
            directory: directory.to_path_buf(),
            budget_bytes: DISK_BYTES,
            report: |line| panic!("{line}"),
        };
        plan.disk = Some((disk, [7; 32]));
        let wake: Wake = Arc::new(move || {
            let _ = wake.send(());
        });
        let mut scheduler = plan.scheduler(&package(), wake).unwrap();
        slow_down(&mut scheduler);
        OnDisk { scheduler, woken, came: 0 }
    }

    /// A step, once there is something to do.
    pub(super) fn step(&mut self, model: &mut Model) {
        if self.scheduler.waits_for_disk() {
            self.wait_until_came(self.came + 1);
        }
        self.came += self.woken.try_iter().count();
        self.scheduler.step(model, &mut |_| {});
        slow_down(&mut self.scheduler);
    }

    /// Waits until so many things have come from disk in all.
    pub(super) fn wait_until_came(&mut self, came: usize) {
        while self.came < came {
            self.woken.recv_timeout(DISK_TIME).expect("nobody says that something came");
            self.came += 1;
        }
    }

    /// Writes all that waits, with which everything that is used so far is on disk.
    pub(super) fn write(&mut self) {
        self.scheduler.write_out(DISK_TIME);
    }
}

/// Makes computing seem so slow that reading is always worth it.
fn slow_down(scheduler: &mut Scheduler) {
    scheduler.rate = PrefillRate::default();
    scheduler.rate.note(1, Duration::from_secs(1));
}

impl Scheduler {
    /// Counts each page's holders anew and compares; `starved` pages are the test's own.
    pub(super) fn audit(&self, starved: &[PageId]) {
        let mut holders: HashMap<PageId, u32> = starved.iter().map(|&page| (page, 1)).collect();
        let choices = self.running.iter().flat_map(|running| &running.choices);
        let sequences = choices.flat_map(|choice| choice.sequence.pages());
        for page in sequences.chain(self.restoring.iter().flat_map(Restoring::pages)) {
            *holders.entry(*page).or_insert(0) += 1;
        }
        let mut cached = 0;
        for page in 0..self.memory.pool().pages() as u32 {
            let in_cache = u32::from(self.memory.is_cached(page));
            cached += in_cache as usize;
            let expected = holders.get(&page).copied().unwrap_or(0) + in_cache;
            assert_eq!(self.memory.pool().references(page), expected, "page {page}");
        }
        assert_eq!(self.memory.pages_in_use(), holders.len());
        let shared = holders.values().filter(|&&sequences| sequences > 1).count();
        assert_eq!(self.memory.pages_shared(), shared);
        let stats = self.stats();
        assert_eq!(stats.pages_cached, cached);
        if self.is_idle() {
            assert_eq!(stats.pages_free + cached + starved.len(), stats.pages);
        }
    }

    pub(super) fn test<'a>(&self) -> By<'a> {
        let namespace = &const { Namespace::public() };
        By { namespace, request: "test", now: self.now, expires_at: None }
    }
}

#[derive(Clone, Debug)]
enum Operation {
    /// So many like requests at once, of which all but the first wait for its prefix.
    Submit(Box<Request>, usize),
    Cancel(prop::sample::Index),
    /// The oldest goes, who computes what others wait for.
    CancelOldest,
    Steps(usize),
    Preempt(prop::sample::Index),
    Evict(usize),
    /// Takes pages away, and gives back those that were taken before.
    Starve(usize),
    /// Time in which what waits for it gets to disk.
    Rest,
}

/// Prompts of few families, so that they share prefixes of random length.
fn any_request() -> impl Strategy<Value = Request> {
    let prompt = (0usize..3, 1usize..70, 0usize..4);
    let shape = (1usize..4, 0usize..40, any::<bool>(), any::<u64>());
    let options = (prop::bool::weighted(0.8), prop::bool::weighted(0.1), any::<bool>(), -2..3);
    (prompt, shape, options).prop_map(
        |((family, common, tail), (choices, max_tokens, greedy, seed), options)| {
            let (use_cache, prompt_rows, salted, priority) = options;
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
                ignore_end: true,
                logprobs: Some(0),
                prompt_logprobs: prompt_rows.then_some(1),
                use_cache,
                priority,
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
    let submit = (any_request(), prop_oneof![3 => Just(1), 1 => 2usize..4]);
    prop_oneof![
        4 => submit.prop_map(|(request, times)| Operation::Submit(Box::new(request), times)),
        1 => any::<prop::sample::Index>().prop_map(Operation::Cancel),
        1 => Just(Operation::CancelOldest),
        8 => (1usize..9).prop_map(Operation::Steps),
        1 => any::<prop::sample::Index>().prop_map(Operation::Preempt),
        1 => (1usize..PAGES).prop_map(Operation::Evict),
        1 => (0usize..=STARVED_MAX).prop_map(Operation::Starve),
        1 => Just(Operation::Rest),
    ]
}

/// A scheduler on a small pool, and who waits for it.
struct World {
    model: Model,
    chunk_tokens: usize,
    speculation: Speculation,
    directory: TempDir,
    on_disk: OnDisk,
    open: Vec<(Request, Events)>,
    starved: Vec<PageId>,
    finished: usize,
    /// Counters of schedulers before this one.
    before: EngineStats,
    /// How often somebody who was admitted had to wait again, or was seen to.
    came_back: usize,
}

impl World {
    fn new(chunk_tokens: usize, speculation: Speculation) -> Self {
        let (model, directory) = (model(), tempfile::tempdir().unwrap());
        let on_disk = Self::scheduler(&model, chunk_tokens, speculation, &directory);
        World {
            model,
            chunk_tokens,
            speculation,
            directory,
            on_disk,
            open: Vec::new(),
            starved: Vec::new(),
            finished: 0,
            before: EngineStats::default(),
            came_back: 0,
        }
    }

    fn scheduler(
        model: &Model,
        chunk_tokens: usize,
        speculation: Speculation,
        directory: &TempDir,
    ) -> OnDisk {
        let pages = PAGES + STARVED_MAX;
        let mut on_disk = OnDisk::new(model, pages, chunk_tokens, directory.path());
        on_disk.scheduler.guessing = Guessing::new(speculation);
        // Whatever is accepted can run also while pages are taken away.
        on_disk.scheduler.limits.request.pages = PAGES;
        on_disk
    }

    /// Ends this scheduler in order, and begins another on the same directory.
    fn restart(&mut self) {
        self.finish();
        self.on_disk.write();
        let stats = self.stats();
        self.before = stats;
        let World { model, chunk_tokens, speculation, directory, .. } = self;
        self.on_disk = Self::scheduler(model, *chunk_tokens, *speculation, directory);
    }

    /// Counters of all schedulers.
    fn stats(&self) -> EngineStats {
        let (now, before) = (self.on_disk.scheduler.stats(), &self.before);
        EngineStats {
            preemptions: now.preemptions + before.preemptions,
            shared_prefix_tokens: now.shared_prefix_tokens + before.shared_prefix_tokens,
            restored_tokens: now.restored_tokens + before.restored_tokens,
            accepted_tokens: now.accepted_tokens + before.accepted_tokens,
            proposed_tokens: now.proposed_tokens + before.proposed_tokens,
            ..now
        }
    }

    fn apply(&mut self, operation: Operation) {
        let scheduler = &mut self.on_disk.scheduler;
        match operation {
            Operation::Submit(request, times) => {
                for _ in 0..times {
                    if scheduler.limits.request.check(&request).is_ok() {
                        let events = submit(scheduler, Request::clone(&request));
                        self.open.push((Request::clone(&request), events));
                    }
                }
            }
            Operation::Cancel(index) if !self.open.is_empty() => {
                self.open.swap_remove(index.index(self.open.len()));
            }
            Operation::CancelOldest if !self.open.is_empty() => drop(self.open.remove(0)),
            Operation::Cancel(_) | Operation::CancelOldest => {}
            Operation::Steps(steps) => (0..steps).for_each(|_| self.step()),
            Operation::Preempt(index) => {
                if !scheduler.running.is_empty() {
                    let which = index.index(scheduler.running.len());
                    let id = scheduler.running[which].request.id.clone();
                    scheduler.preempt_request(&id);
                }
                if !scheduler.restoring.is_empty() {
                    scheduler.abandon(index.index(scheduler.restoring.len()));
                    self.came_back += 1;
                }
            }
            Operation::Evict(pages) => {
                let taken = (0..pages).map_while(|_| scheduler.memory.allocate(scheduler.test()));
                let taken: Vec<PageId> = taken.collect();
                scheduler.memory.release(&taken);
            }
            Operation::Starve(pages) => {
                scheduler.memory.release(&std::mem::take(&mut self.starved));
                let taken = (0..pages).map_while(|_| scheduler.memory.allocate(scheduler.test()));
                self.starved = taken.collect();
            }
            Operation::Rest => self.on_disk.write(),
        }
    }

    fn step(&mut self) {
        self.on_disk.step(&mut self.model);
        let scheduler = &self.on_disk.scheduler;
        scheduler.audit(&self.starved);
        self.came_back += scheduler.waiting.iter().filter(|waiting| waiting.was_admitted).count();
    }

    /// Compares what is finished with solo runs.
    fn compare(&mut self) {
        let mut open = Vec::new();
        for (request, mut events) in self.open.drain(..) {
            if !events.is_closed() {
                open.push((request, events));
                continue;
            }
            let together = answer(&mut events, request.choices);
            assert!(together.is_some(), "a request without an end");
            assert_eq!(together, run_alone(&mut self.model, &request));
            self.finished += 1;
        }
        self.open = open;
    }

    /// Lets all come to their end, and looks whether every page is back.
    fn finish(&mut self) {
        for _ in 0..50_000 {
            if self.on_disk.scheduler.is_idle() {
                break;
            }
            self.step();
        }
        assert!(self.on_disk.scheduler.is_idle(), "a request is stuck");
        self.compare();
        assert!(self.open.is_empty());
        self.apply(Operation::Starve(0));
        // What the cache has given up is still written where it could.
        self.on_disk.write();
        let scheduler = &mut self.on_disk.scheduler;
        let now = scheduler.now;
        scheduler.memory.clear_cache(now);
        assert_eq!(scheduler.stats().pages_free, PAGES + STARVED_MAX);
    }
}

/// Fewer than proptest's own number, unless its variable asks for some.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn no_page_is_lost_and_every_answer_is_its_solo_answer(
        operations in prop::collection::vec(any_operation(), 1..200),
        chunk_tokens in 1usize..40,
        speculation in prop::sample::select(
            vec![Speculation::Off, Speculation::Adaptive, Speculation::Forced],
        ),
    ) {
        let mut world = World::new(chunk_tokens, speculation);
        operations.into_iter().for_each(|operation| world.apply(operation));
        world.finish();
    }
}

#[test]
fn ten_thousand_operations_leave_nothing_behind() {
    let mut world = World::new(16, Speculation::Forced);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    // How many prefixes are waited for, instead of read, follows from the disk's time: it goes on
    // until there were enough.
    for number in 0..40_000 {
        if number >= 10_000 && world.stats().shared_prefix_tokens > 100 {
            break;
        }
        let operation = any_operation().new_tree(&mut runner).unwrap().current();
        // More than are answered would only make the queue longer.
        match operation {
            Operation::Submit(..) if world.open.len() > 40 => world.apply(Operation::Steps(8)),
            operation => world.apply(operation),
        }
        if number % 1000 == 999 {
            world.restart();
        } else if number % 100 == 0 {
            world.compare();
        }
    }
    world.finish();
    let stats = world.stats();
    println!("{} finished, {} came back, {stats:?}", world.finished, world.came_back);
    assert!(world.finished > 1000 && stats.preemptions > 100 && stats.shared_prefix_tokens > 100);
    assert!(stats.accepted_tokens > 1000 && stats.proposed_tokens > 2 * stats.accepted_tokens);
    assert!(stats.restored_tokens > 1000 && world.came_back > 0);
}
