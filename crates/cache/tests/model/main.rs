//! Random operations, on the prompt cache and on the simplest model of one, with the same results:
//! pages, verdicts, who owns which page, what is evicted and in which order.

mod joint;
mod list;

use std::cmp::Reverse;
use std::collections::HashMap;

use cache::{
    DiskPage, Entry, Freed, Hit, Limits, Loss, Namespace, PAGE_TOKENS, Pin, PromptCache, Reason,
    Restorable, ReusedFrom, Timestamp, Verdict,
};
use list::{By, Expected, List, Most, Seen};
use proptest::prelude::*;

/// Until when something is kept, from the operation's time on.
type Life = Option<u64>;

#[derive(Clone, Debug)]
enum Operation {
    /// A request begins: it looks up its prompt and keeps the pages pinned.
    Start {
        namespace: usize,
        prompt: Vec<u32>,
        life: Life,
    },
    /// A running request ends and publishes prompt and answer.
    Finish {
        which: usize,
        answer: Vec<u32>,
        life: Life,
    },
    /// What a request could restore has been read, and it looks its prompt up again.
    Restore {
        which: usize,
    },
    /// A running request goes away and publishes nothing.
    Abort {
        which: usize,
    },
    /// Pages that were computed without a lookup.
    Publish {
        namespace: usize,
        tokens: Vec<u32>,
        life: Life,
    },
    /// Any pages are wanted.
    Evict {
        pages: usize,
    },
    /// A page is wanted that nobody uses: none of those whose number `in_use` divides.
    EvictOne {
        namespace: usize,
        in_use: usize,
    },
    /// A page that was found in use is not any more.
    Release {
        which: usize,
    },
    /// Time passes, and what has expired is taken.
    Expire {
        passed: u64,
    },
    /// A known page, or one of a sequence that is not known, is stored.
    Store {
        which: usize,
        life: Life,
    },
    StoreUnknown {
        namespace: usize,
        tokens: Vec<u32>,
        life: Life,
    },
    /// A place on disk is lost; or one that is not taken.
    Drop {
        which: u32,
        loss: Loss,
    },
    /// An operator pins, unpins or evicts.
    Pin {
        name: usize,
        namespace: usize,
        tokens: Vec<u32>,
    },
    Unpin {
        name: usize,
    },
    EvictPrefix {
        which: usize,
    },
    Clear,
    ClearNamespace {
        namespace: usize,
    },
}

/// Sequences over three token ids that often share a prefix, and often differ inside a page.
fn tokens() -> impl Strategy<Value = Vec<u32>> + Clone {
    let tail = prop::collection::vec(0_u32..3, 0..24);
    (0_usize..3, 0_usize..70, tail, 0_u32..3).prop_map(|(base, cut, tail, first)| {
        let shared = (0..cut).map(|i| ((i * i + base * i / 7) % 3) as u32);
        let mut tokens: Vec<u32> = shared.chain(tail).collect();
        if tokens.is_empty() {
            tokens.push(first);
        }
        tokens
    })
}

/// Sequences of which hundreds differ inside the same page.
fn siblings() -> impl Strategy<Value = Vec<u32>> + Clone {
    (12_u32..18, prop::collection::vec(0_u32..12, 1..5))
        .prop_map(|(shared, tail)| (0..shared).chain(tail).collect())
}

/// So few sequences that the same page is often published again, also while a request has it
/// pinned and a fuller one stands beside it.
fn few() -> impl Strategy<Value = Vec<u32>> + Clone {
    (13_u32..21, 0_u32..2).prop_map(|(len, last)| (1..len).chain([last * len]).collect())
}

fn life() -> impl Strategy<Value = Life> {
    prop_oneof![2 => Just(None), 1 => (0_u64..40).prop_map(Some)]
}

fn requests(
    namespaces: usize,
    tokens: impl Strategy<Value = Vec<u32>> + Clone,
) -> impl Strategy<Value = Operation> {
    let namespace = 0..namespaces;
    prop_oneof![
        12 => (namespace.clone(), tokens.clone(), life())
            .prop_map(|(namespace, prompt, life)| Operation::Start { namespace, prompt, life }),
        10 => (0_usize..8, prop::collection::vec(0_u32..3, 0..20), life())
            .prop_map(|(which, answer, life)| Operation::Finish { which, answer, life }),
        6 => (0_usize..8).prop_map(|which| Operation::Restore { which }),
        2 => (0_usize..8).prop_map(|which| Operation::Abort { which }),
        4 => (namespace.clone(), tokens, life())
            .prop_map(|(namespace, tokens, life)| Operation::Publish { namespace, tokens, life }),
        6 => (0_usize..6).prop_map(|pages| Operation::Evict { pages }),
        6 => (namespace, 2_usize..5)
            .prop_map(|(namespace, in_use)| Operation::EvictOne { namespace, in_use }),
        2 => any::<usize>().prop_map(|which| Operation::Release { which }),
    ]
}

fn upkeep(
    namespaces: usize,
    tokens: impl Strategy<Value = Vec<u32>> + Clone,
) -> impl Strategy<Value = Operation> {
    let namespace = 0..namespaces;
    let loss = prop_oneof![Just(Loss::Evicted), Just(Loss::Expired), Just(Loss::Damaged)];
    prop_oneof![
        4 => (0_u64..20).prop_map(|passed| Operation::Expire { passed }),
        12 => (any::<usize>(), life()).prop_map(|(which, life)| Operation::Store { which, life }),
        2 => (namespace.clone(), tokens.clone(), life()).prop_map(|(namespace, tokens, life)| {
            Operation::StoreUnknown { namespace, tokens, life }
        }),
        4 => (any::<u32>(), loss).prop_map(|(which, loss)| Operation::Drop { which, loss }),
        2 => (0_usize..3, namespace.clone(), tokens)
            .prop_map(|(name, namespace, tokens)| Operation::Pin { name, namespace, tokens }),
        2 => (0_usize..3).prop_map(|name| Operation::Unpin { name }),
        1 => any::<usize>().prop_map(|which| Operation::EvictPrefix { which }),
        1 => Just(Operation::Clear),
        1 => namespace.prop_map(|namespace| Operation::ClearNamespace { namespace }),
    ]
}

fn operation(
    namespaces: usize,
    tokens: impl Strategy<Value = Vec<u32>> + Clone,
) -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => requests(namespaces, tokens.clone()),
        1 => upkeep(namespaces, tokens),
    ]
}

struct Running {
    namespace: usize,
    prompt: Vec<u32>,
    pages: Vec<usize>,
    reused: usize,
    pin: Pin,
    restorable: Option<Restorable>,
}

struct Pair {
    cache: PromptCache<usize>,
    list: List,
    running: Vec<Running>,
    pages: usize,
    places: u32,
    requests: usize,
    now: u64,
    /// What each request looked up or published.
    tokens_of: HashMap<String, Vec<u32>>,
}

/// Namespaces there are at most.
const NAMESPACES: usize = 4;

fn namespace(number: usize) -> Namespace {
    match number {
        0 => Namespace::public(),
        _ => Namespace::from_salt(&number.to_string()),
    }
}

/// Bytes that one ghost is charged with, as the figures tell.
fn bytes_per_ghost() -> usize {
    let mut cache = PromptCache::new(Limits::default(), Timestamp(0));
    assert!(
        cache.insert(&Namespace::public(), &[1], &[1_usize], "a", Timestamp(0), None).is_empty()
    );
    assert_eq!(cache.evict(1, "b", Timestamp(0)), [1]);
    cache.stats().ghost_bytes
}

/// In no order.
fn sorted(pages: Vec<usize>, places: Vec<DiskPage>) -> (Vec<usize>, Vec<(u32, u32)>) {
    let mut pages = pages;
    let mut places: Vec<_> = places.iter().map(|place| (place.segment, place.index)).collect();
    pages.sort_unstable();
    places.sort_unstable();
    (pages, places)
}

fn freed(freed: Freed<usize>) -> (Vec<usize>, Vec<(u32, u32)>) {
    sorted(freed.pages, freed.stored)
}

fn seen(namespace: usize, entry: Entry) -> Seen {
    Seen {
        namespace,
        tokens: entry.tokens,
        ram_pages: entry.ram_pages,
        disk_pages: entry.disk_pages,
        last_used: entry.last_used.map(|at| at.0),
        request: entry.request,
        pins: entry.pins,
        expires_at: entry.expires_at.map_or(u64::MAX, |at| at.0),
    }
}

impl Pair {
    fn new(most: Most) -> Self {
        let limits = Limits {
            pages: most.pages,
            namespace_pages: most.namespace_pages,
            ghost_bytes: most.ghosts * bytes_per_ghost(),
        };
        Self {
            cache: PromptCache::new(limits, Timestamp(0)),
            list: List::new(most),
            running: Vec::new(),
            pages: 0,
            places: 0,
            requests: 0,
            now: 0,
            tokens_of: HashMap::new(),
        }
    }

    fn new_pages(&mut self, count: usize) -> Vec<usize> {
        self.pages += count;
        (self.pages - count..self.pages).collect()
    }

    fn new_place(&mut self) -> DiskPage {
        self.places += 1;
        DiskPage { segment: self.places % 3, index: self.places }
    }

    fn new_request(&mut self) -> (String, Timestamp) {
        self.requests += 1;
        self.now += 1;
        (format!("request {}", self.requests), Timestamp(self.now))
    }

    fn end(&self, life: Life) -> (u64, Option<Timestamp>) {
        let end = life.map(|life| self.now + life);
        (end.unwrap_or(u64::MAX), end.map(Timestamp))
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Start { namespace, prompt, life } => self.start(namespace, prompt, life),
            Operation::Finish { which, answer, life } => self.finish(which, &answer, life),
            Operation::Restore { which } => self.restore(which),
            Operation::Abort { which } => {
                if which < self.running.len() {
                    let gone = self.running.swap_remove(which);
                    self.cache.unpin(gone.pin);
                    self.list.unpin(&gone.pages);
                }
            }
            Operation::Publish { namespace, tokens, life } => {
                let pages = self.new_pages(tokens.len().div_ceil(PAGE_TOKENS));
                self.publish(namespace, &tokens, &pages, life);
            }
            Operation::Evict { .. } | Operation::EvictOne { .. } | Operation::Release { .. } => {
                self.evict(operation);
            }
            Operation::Store { .. }
            | Operation::StoreUnknown { .. }
            | Operation::Drop { .. }
            | Operation::Expire { .. } => self.keep_up(operation),
            _ => self.operate(operation),
        }
        self.check_figures();
    }

    fn check_figures(&self) {
        let stats = self.cache.stats();
        assert_eq!(stats.pages, self.list.held_pages());
        assert_eq!(stats.tokens, self.list.held_tokens());
        assert_eq!(stats.stored_pages, self.list.stored_pages());
        assert_eq!(stats.ghosts, self.list.ghosts());
        assert_eq!(stats.namespaces, self.list.namespaces());
        if !self.requests.is_multiple_of(8) {
            return;
        }
        let mut entries = Vec::new();
        for number in 0..NAMESPACES {
            let of_one = self.cache.entries(&namespace(number), usize::MAX);
            let known = of_one.iter().filter_map(|entry| entry.last_used);
            assert!(known.is_sorted_by_key(Reverse));
            entries.extend(of_one.into_iter().map(|entry| seen(number, entry)));
        }
        // With a gap on disk, two prefixes on one path may have been used last together; and what a
        // start finds on disk is told at one time.
        let mut expected = self.list.seen();
        for all in [&mut entries, &mut expected] {
            all.sort_by_key(|e| (Reverse(e.last_used), e.namespace, e.tokens.clone()));
        }
        assert_eq!(entries, expected);
    }

    /// Takes what has expired, from both.
    fn expire(&mut self) {
        let (pages, places) = self.list.expire(self.now);
        assert_eq!(freed(self.cache.expire(Timestamp(self.now))), sorted(pages, places));
    }

    fn evict(&mut self, operation: Operation) {
        let (request, now) = self.new_request();
        let by = By { request: &request, now: now.0, expires_at: u64::MAX };
        self.expire();
        match operation {
            Operation::Evict { pages } => {
                let expected = self.list.evict(pages, by);
                assert_eq!(self.cache.evict(pages, &request, now), expected);
            }
            Operation::EvictOne { namespace: number, in_use } => {
                let may = |page: usize| !page.is_multiple_of(in_use);
                let expected = self.list.evict_one(number, by, may);
                let evicted = self.cache.evict_one(&namespace(number), &request, now, may);
                assert_eq!(evicted, expected);
            }
            Operation::Release { which } => {
                let parked = self.list.parked_pages();
                if let Some(&page) = parked.get(which % parked.len().max(1)) {
                    self.list.release(page);
                    self.cache.release(page);
                }
            }
            _ => unreachable!(),
        }
    }

    fn keep_up(&mut self, operation: Operation) {
        let (_, now) = self.new_request();
        match operation {
            Operation::Expire { passed } => {
                self.now += passed;
                self.expire();
            }
            Operation::Store { which, life } => {
                if let Some((namespace, tokens)) = self.list.some_whole_prefix(which) {
                    self.store(namespace, &tokens, life);
                }
            }
            Operation::StoreUnknown { namespace, tokens, life } => {
                self.store(namespace, &tokens, life);
                let whole = tokens.len() / PAGE_TOKENS * PAGE_TOKENS;
                self.store(namespace, &tokens[..whole], life);
            }
            Operation::Drop { which, loss } => {
                let index = which % (self.places + 1);
                let place = DiskPage { segment: index % 3, index };
                self.list.note_dropped(place, loss, now.0);
                self.cache.note_dropped(place, loss, now);
            }
            _ => unreachable!(),
        }
    }

    fn store(&mut self, number: usize, tokens: &[u32], life: Life) {
        let (place, (end, expires_at)) = (self.new_place(), self.end(life));
        let (space, now) = (namespace(number), Timestamp(self.now));
        let by = By { request: "", now: self.now, expires_at: end };
        let expected = self.list.note_stored(number, tokens, place, by);
        assert_eq!(self.cache.note_stored(&space, tokens, place, expires_at, now), expected);
    }

    fn operate(&mut self, operation: Operation) {
        let (request, now) = self.new_request();
        let by = By { request: &request, now: now.0, expires_at: u64::MAX };
        match operation {
            Operation::Pin { name, namespace: number, tokens } => {
                let name = format!("{number} {name}");
                let expected = self.list.pin(&name, number, &tokens);
                let pinned = self.cache.pin_prefix(&name, &namespace(number), &tokens, usize::MAX);
                assert_eq!(pinned.ok(), expected);
            }
            Operation::Unpin { name } => {
                for number in 0..NAMESPACES {
                    let name = format!("{number} {name}");
                    let unpinned = self.cache.unpin_prefix(&namespace(number), &name);
                    assert_eq!(unpinned, self.list.unpin_name(&name));
                }
            }
            Operation::EvictPrefix { which } => {
                let all = self.list.seen();
                let Some(Seen { namespace: number, tokens, .. }) =
                    all.get(which % all.len().max(1))
                else {
                    return;
                };
                let (pages, places) = self.list.evict_prefix(*number, tokens, by);
                let evicted = self.cache.evict_prefix(&namespace(*number), tokens, &request, now);
                assert_eq!(freed(evicted), sorted(pages, places));
            }
            Operation::Clear => {
                self.expire();
                let (pages, places) = self.list.clear(By { request: "", ..by });
                let cleared = self.cache.clear(now);
                assert_eq!(cleared.pages, pages, "in this order");
                assert_eq!(freed(cleared), sorted(pages, places));
            }
            Operation::ClearNamespace { namespace: number } => {
                let (pages, places) = self.list.clear_namespace(number, now.0);
                let cleared = self.cache.clear_namespace(&namespace(number), now);
                assert_eq!(freed(cleared), sorted(pages, places));
            }
            _ => unreachable!(),
        }
    }

    fn start(&mut self, number: usize, prompt: Vec<u32>, life: Life) {
        let (request, now) = self.new_request();
        for (most, length) in [(5, prompt.len()), (40, prompt.len() / 2), (0, 1)] {
            let begin = &prompt[..length];
            let continuation = self.cache.continuation(&namespace(number), begin, most);
            assert_eq!(continuation, self.list.continuation(number, begin, most));
        }
        let (end, expires_at) = self.end(life);
        let by = By { request: &request, now: now.0, expires_at: end };
        let expected = self.list.lookup(number, &prompt, by);
        let hit = self.cache.lookup(&namespace(number), &prompt, &request, now, expires_at);
        let held = self.cache.held(&namespace(number), &prompt);
        assert_eq!(held.tokens, hit.reused_tokens);
        assert_eq!(held.pages, hit.pages[..held.tokens / PAGE_TOKENS]);
        self.check_hit(&prompt, &hit, expected);
        self.tokens_of.insert(request, prompt.clone());
        let reused = hit.reused_tokens;
        self.running.push(Running {
            namespace: number,
            prompt,
            pages: hit.pages,
            reused,
            pin: hit.pin,
            restorable: hit.restorable,
        });
    }

    fn check_hit(&self, prompt: &[u32], hit: &Hit<usize>, expected: Expected) {
        assert_eq!(hit.pages, expected.pages);
        assert_eq!(hit.reused_tokens, hit.verdict.reused_tokens);
        assert_eq!(hit.restorable.is_some(), expected.restorable.is_some());
        let restored = hit.restorable.iter().zip(&expected.restorable).map(|(hit, expected)| {
            assert_eq!((&hit.places, &hit.tokens), (&expected.places, &expected.tokens));
            (&hit.verdict, expected.ram, &expected.stop, &expected.compared_with)
        });
        let ram = expected.stop.at;
        let as_held = (&hit.verdict, ram, &expected.stop, &expected.compared_with);
        for (verdict, ram, expected, compared_with) in restored.chain([as_held]) {
            assert_eq!(verdict.prompt_tokens, prompt.len());
            assert_eq!(verdict.reused_tokens, expected.at);
            assert_eq!(verdict.computed_tokens, prompt.len() - expected.at);
            assert_eq!(verdict.reused_from, ReusedFrom { ram, disk: expected.at - ram, public: 0 });
            assert_eq!(&verdict.compared_with, compared_with);
            self.check_the_named_request(prompt, verdict);
            let mut stop = verdict.stop.clone();
            assert_eq!(stop.since.take().is_some(), stop.reason == Reason::FirstRequest);
            assert_eq!(&stop, expected);
        }
    }

    /// The request that a prompt was compared with really goes on as the verdict says.
    fn check_the_named_request(&self, prompt: &[u32], verdict: &Verdict) {
        let stop = &verdict.stop;
        // Of what was only ever stored, no request is known.
        let Some(named) = &verdict.compared_with else { return };
        let named = &self.tokens_of[named];
        assert!(named.starts_with(&prompt[..stop.at]), "{named:?} {prompt:?} {stop:?}");
        if let Some(cached) = &stop.cached {
            assert_eq!(named.get(stop.at), Some(&cached.id), "{named:?} {prompt:?}");
        }
        if stop.held_tokens.is_some() {
            assert_eq!(named.get(stop.at), prompt.get(stop.at));
        }
    }

    /// As an engine does: whole pages are shared, a page reused in part is copied.
    fn finish(&mut self, which: usize, answer: &[u32], life: Life) {
        if which >= self.running.len() {
            return;
        }
        let done = self.running.swap_remove(which);
        self.cache.unpin(done.pin);
        self.list.unpin(&done.pages);
        let tokens = [&done.prompt[..], answer].concat();
        let mut pages = done.pages[..done.reused / PAGE_TOKENS].to_vec();
        pages.extend(self.new_pages(tokens.len().div_ceil(PAGE_TOKENS) - pages.len()));
        self.publish(done.namespace, &tokens, &pages, life);
    }

    /// As an engine does: what was read joins the full pages that were in memory.
    fn restore(&mut self, which: usize) {
        if self.running.get(which).is_none_or(|running| running.restorable.is_none()) {
            return;
        }
        let Running { namespace: number, prompt, pages, pin, restorable, .. } =
            self.running.swap_remove(which);
        self.cache.unpin(pin);
        self.list.unpin(&pages);
        let Restorable { places, tokens, .. } = restorable.unwrap();
        let mut path = pages[..tokens.len() / PAGE_TOKENS - places.len()].to_vec();
        path.extend(self.new_pages(places.len()));
        let (_, now) = self.new_request();
        let by = By { request: "", now: now.0, expires_at: now.0 };
        self.insert(number, &tokens, &path, by, |cache, namespace| {
            cache.insert_restored(namespace, &tokens, &path, now)
        });
        self.start(number, prompt, None);
    }

    fn publish(&mut self, number: usize, tokens: &[u32], pages: &[usize], life: Life) {
        let (request, now) = self.new_request();
        let (end, expires_at) = self.end(life);
        let by = By { request: &request, now: now.0, expires_at: end };
        self.tokens_of.insert(request.clone(), tokens.to_vec());
        self.insert(number, tokens, pages, by, |cache, namespace| {
            cache.insert(namespace, tokens, pages, &request, now, expires_at)
        });
    }

    fn insert(
        &mut self,
        number: usize,
        tokens: &[u32],
        pages: &[usize],
        by: By<'_>,
        insert: impl FnOnce(&mut PromptCache<usize>, &Namespace) -> Vec<usize>,
    ) {
        let before = self.list.owned_pages();
        let expected = self.list.insert(number, tokens, pages, by);
        let unused = insert(&mut self.cache, &namespace(number));
        assert_eq!(sorted(unused.clone(), Vec::new()), sorted(expected, Vec::new()));
        // Each page is the cache's or the caller's, and never both's.
        let mut all = [&before[..], pages].concat();
        all.sort_unstable();
        all.dedup();
        let owned = [unused, self.list.owned_pages()].concat();
        assert_eq!(sorted(owned, Vec::new()).0, all);
    }
}

const UNBOUNDED: Most = Most { pages: usize::MAX, namespace_pages: None, ghosts: 1_000 };

fn most() -> impl Strategy<Value = Most> {
    let pages = prop_oneof![2_usize..40, Just(usize::MAX)];
    let namespace_pages = prop_oneof![Just(None), (1_usize..20).prop_map(Some)];
    let ghosts = prop_oneof![Just(0_usize), 1_usize..12, Just(1_000)];
    (pages, namespace_pages, ghosts).prop_map(|(pages, namespace_pages, ghosts)| Most {
        pages,
        namespace_pages,
        ghosts,
    })
}

/// Regression: the list took the newest of the pages that begin with the published tokens, a fuller
/// one, although a page with just these tokens was held.
#[test]
fn a_pinned_page_published_again_is_used_and_not_the_fuller_one_beside_it() {
    let tokens: Vec<u32> = (0..20).collect();
    let publish = |held: usize| Operation::Publish {
        namespace: 0,
        tokens: tokens[..held].into(),
        life: None,
    };
    let mut pair = Pair::new(UNBOUNDED);
    pair.apply(publish(18));
    pair.apply(Operation::Start { namespace: 0, prompt: tokens.clone(), life: None });
    pair.apply(publish(20));
    pair.apply(publish(18));
    // With the fuller page, both tokens after the changed one would be identical.
    let changed = [&tokens[..17], &[77, 18, 19]].concat();
    pair.apply(Operation::Start { namespace: 0, prompt: changed, life: None });
    pair.apply(Operation::Abort { which: 1 });
    pair.apply(Operation::Abort { which: 0 });
    pair.apply(Operation::Evict { pages: 1 });
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(2_000)
    })]

    /// 200,000 operations, more or less.
    #[test]
    fn the_cache_does_what_a_list_does(
        operations in prop::collection::vec(operation(3, tokens()), 1..=200),
        most in most(),
    ) {
        let mut pair = Pair::new(most);
        for operation in operations {
            pair.apply(operation);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    })]

    #[test]
    fn it_does_so_with_hundreds_of_siblings(
        published in prop::collection::vec(siblings(), 100..300),
        operations in prop::collection::vec(operation(1, siblings()), 1..80),
    ) {
        let mut pair = Pair::new(UNBOUNDED);
        for tokens in published {
            pair.apply(Operation::Publish { namespace: 0, tokens, life: None });
        }
        for operation in operations {
            pair.apply(operation);
        }
    }

    #[test]
    fn it_does_so_when_few_sequences_come_again_and_again(
        operations in prop::collection::vec(operation(1, few()), 1..80),
        ghosts in prop_oneof![Just(0_usize), 1_usize..12, Just(1_000)],
    ) {
        let mut pair = Pair::new(Most { ghosts, ..UNBOUNDED });
        for operation in operations {
            pair.apply(operation);
        }
    }

    /// The reuse of a pair of prompts is their common prefix, less the rule of the last token.
    #[test]
    fn a_pair_of_prompts_shares_its_common_prefix(
        shared in prop::collection::vec(0_u32..50_000, 0..200),
        first in prop::collection::vec(0_u32..50_000, 1..100),
        second in prop::collection::vec(0_u32..50_000, 1..100),
    ) {
        let (first, second) = ([&shared[..], &first].concat(), [&shared[..], &second].concat());
        let common = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
        let everyone = Namespace::public();
        let mut cache = PromptCache::new(Limits::default(), Timestamp(0));
        let pages: Vec<_> = (0..first.len().div_ceil(PAGE_TOKENS)).collect();
        let unused = cache.insert(&everyone, &first, &pages, "first", Timestamp(1), None);
        prop_assert!(unused.is_empty());
        let hit = cache.lookup(&everyone, &second, "second", Timestamp(2), None);
        prop_assert_eq!(hit.reused_tokens, common.min(second.len() - 1));
        prop_assert_eq!(&hit.pages[..], &pages[..hit.reused_tokens.div_ceil(PAGE_TOKENS)]);
        let another = Namespace::from_salt("x");
        let elsewhere = cache.lookup(&another, &second, "third", Timestamp(3), None);
        prop_assert_eq!(elsewhere.reused_tokens, 0);
        prop_assert_eq!(elsewhere.verdict.stop.reason, Reason::FirstRequest);
    }
}
