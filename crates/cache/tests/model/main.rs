//! Random operations, on the prompt cache and on the simplest model of one, with the same results:
//! pages, verdicts, who owns which page, what is evicted and in which order.

mod list;

use std::collections::HashMap;

use cache::{Limits, Namespace, PAGE_TOKENS, Pin, PromptCache, Reason, Timestamp, Verdict};
use list::List;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Operation {
    /// A request begins: it looks up its prompt and keeps the pages pinned.
    Start {
        namespace: usize,
        prompt: Vec<u32>,
    },
    /// A running request ends and publishes prompt and answer.
    Finish {
        which: usize,
        answer: Vec<u32>,
    },
    /// A running request goes away and publishes nothing.
    Abort {
        which: usize,
    },
    /// Pages that were computed without a lookup.
    Publish {
        namespace: usize,
        tokens: Vec<u32>,
    },
    Evict {
        pages: usize,
    },
    Clear,
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

fn operation(
    namespaces: usize,
    tokens: impl Strategy<Value = Vec<u32>> + Clone,
) -> impl Strategy<Value = Operation> {
    let namespace = 0..namespaces;
    prop_oneof![
        12 => (namespace.clone(), tokens.clone())
            .prop_map(|(namespace, prompt)| Operation::Start { namespace, prompt }),
        10 => (0_usize..8, prop::collection::vec(0_u32..3, 0..20))
            .prop_map(|(which, answer)| Operation::Finish { which, answer }),
        2 => (0_usize..8).prop_map(|which| Operation::Abort { which }),
        4 => (namespace, tokens)
            .prop_map(|(namespace, tokens)| Operation::Publish { namespace, tokens }),
        8 => (0_usize..6).prop_map(|pages| Operation::Evict { pages }),
        1 => Just(Operation::Clear),
    ]
}

struct Running {
    namespace: usize,
    prompt: Vec<u32>,
    pages: Vec<usize>,
    reused: usize,
    pin: Pin,
}

struct Pair {
    cache: PromptCache<usize>,
    list: List,
    running: Vec<Running>,
    pages: usize,
    requests: usize,
    /// What each request looked up or published.
    tokens_of: HashMap<String, Vec<u32>>,
}

fn namespace(number: usize) -> Namespace {
    match number {
        0 => Namespace::public(),
        _ => Namespace::from_salt(&number.to_string()),
    }
}

/// Bytes that one ghost is charged with, as the figures tell.
fn bytes_per_ghost() -> usize {
    let mut cache = PromptCache::new(Limits::default(), Timestamp(0));
    assert!(cache.insert(&Namespace::public(), &[1], &[1_usize], "a", Timestamp(0)).is_empty());
    assert_eq!(cache.evict(1, "b", Timestamp(0)), [1]);
    cache.stats().ghost_bytes
}

impl Pair {
    fn new(pages_max: usize, ghosts_max: usize) -> Self {
        let limits = Limits { pages: pages_max, ghost_bytes: ghosts_max * bytes_per_ghost() };
        Self {
            cache: PromptCache::new(limits, Timestamp(0)),
            list: List::new(pages_max, ghosts_max),
            running: Vec::new(),
            pages: 0,
            requests: 0,
            tokens_of: HashMap::new(),
        }
    }

    fn new_pages(&mut self, count: usize) -> Vec<usize> {
        self.pages += count;
        (self.pages - count..self.pages).collect()
    }

    fn new_request(&mut self) -> (String, Timestamp) {
        self.requests += 1;
        (format!("request {}", self.requests), Timestamp(self.requests as u64))
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Start { namespace, prompt } => self.start(namespace, prompt),
            Operation::Finish { which, answer } => self.finish(which, &answer),
            Operation::Abort { which } => {
                if which < self.running.len() {
                    let gone = self.running.swap_remove(which);
                    self.cache.unpin(gone.pin);
                    self.list.unpin(&gone.pages);
                }
            }
            Operation::Publish { namespace, tokens } => {
                let pages = self.new_pages(tokens.len().div_ceil(PAGE_TOKENS));
                self.publish(namespace, &tokens, &pages);
            }
            Operation::Evict { pages } => {
                let (request, now) = self.new_request();
                let expected = self.list.evict(pages, &request);
                assert_eq!(self.cache.evict(pages, &request, now), expected);
            }
            Operation::Clear => {
                let (_, now) = self.new_request();
                let expected = self.list.clear();
                assert_eq!(self.cache.clear(now), expected);
            }
        }
        let stats = self.cache.stats();
        assert_eq!(stats.pages, self.list.held_pages().len());
        assert_eq!(stats.tokens, self.list.held_tokens());
        assert_eq!(stats.ghosts, self.list.ghosts());
        assert_eq!(stats.namespaces, self.list.namespaces());
    }

    fn start(&mut self, number: usize, prompt: Vec<u32>) {
        let (request, now) = self.new_request();
        for (most, length) in [(5, prompt.len()), (40, prompt.len() / 2), (0, 1)] {
            let begin = &prompt[..length];
            let continuation = self.cache.continuation(&namespace(number), begin, most);
            assert_eq!(continuation, self.list.continuation(number, begin, most));
        }
        let expected = self.list.lookup(number, &prompt, &request);
        let held = self.cache.held(&namespace(number), &prompt);
        let hit = self.cache.lookup(&namespace(number), &prompt, &request, now);
        assert_eq!(hit.pages, expected.pages);
        assert_eq!(held.tokens, hit.reused_tokens);
        assert_eq!(held.pages, hit.pages[..held.tokens / PAGE_TOKENS]);
        assert_eq!(hit.reused_tokens, expected.stop.at);
        assert_eq!(hit.verdict.prompt_tokens, prompt.len());
        assert_eq!(hit.verdict.computed_tokens, prompt.len() - hit.reused_tokens);
        assert_eq!(hit.verdict.compared_with, expected.compared_with);
        self.check_the_named_request(&prompt, &hit.verdict);
        self.tokens_of.insert(request, prompt.clone());
        let mut stop = hit.verdict.stop;
        assert_eq!(stop.since.take().is_some(), stop.reason == Reason::FirstRequest);
        assert_eq!(stop.evicted_at.take().is_some(), stop.reason == Reason::Evicted);
        assert_eq!(stop.last_used.take().is_some(), stop.reason == Reason::Evicted);
        assert_eq!(stop, expected.stop);
        let reused = hit.reused_tokens;
        self.running.push(Running {
            namespace: number,
            prompt,
            pages: hit.pages,
            reused,
            pin: hit.pin,
        });
    }

    /// The request that a prompt was compared with really goes on as the verdict says.
    fn check_the_named_request(&self, prompt: &[u32], verdict: &Verdict) {
        let stop = &verdict.stop;
        let Some(named) = &verdict.compared_with else {
            assert_eq!(stop.reason, Reason::FirstRequest);
            return;
        };
        let named = &self.tokens_of[named];
        assert!(named.starts_with(&prompt[..stop.at]), "{named:?} {prompt:?} {stop:?}");
        if let Some(cached) = &stop.cached {
            assert_eq!(named.get(stop.at), Some(&cached.id), "{named:?} {prompt:?}");
        }
        if stop.reason == Reason::Evicted {
            assert_eq!(named.get(stop.at), prompt.get(stop.at));
        }
    }

    /// As an engine does: whole pages are shared, a page reused in part is copied.
    fn finish(&mut self, which: usize, answer: &[u32]) {
        if which >= self.running.len() {
            return;
        }
        let done = self.running.swap_remove(which);
        self.cache.unpin(done.pin);
        self.list.unpin(&done.pages);
        let tokens = [&done.prompt[..], answer].concat();
        let mut pages = done.pages[..done.reused / PAGE_TOKENS].to_vec();
        pages.extend(self.new_pages(tokens.len().div_ceil(PAGE_TOKENS) - pages.len()));
        self.publish(done.namespace, &tokens, &pages);
    }

    fn publish(&mut self, number: usize, tokens: &[u32], pages: &[usize]) {
        let before = self.list.held_pages();
        let (request, now) = self.new_request();
        self.tokens_of.insert(request.clone(), tokens.to_vec());
        let mut expected = self.list.insert(number, tokens, pages, &request);
        let mut unused = self.cache.insert(&namespace(number), tokens, pages, &request, now);
        expected.sort_unstable();
        unused.sort_unstable();
        assert_eq!(unused, expected);
        // Each page is the cache's or the caller's, and never both's.
        let mut owned = [unused, self.list.held_pages()].concat();
        let mut all = [&before[..], pages].concat();
        owned.sort_unstable();
        all.sort_unstable();
        all.dedup();
        assert_eq!(owned, all);
    }
}

/// Regression: the list took the newest of the pages that begin with the published tokens, a fuller
/// one, although a page with just these tokens was held.
#[test]
fn a_pinned_page_published_again_is_used_and_not_the_fuller_one_beside_it() {
    let tokens: Vec<u32> = (0..20).collect();
    let publish = |held: usize| Operation::Publish { namespace: 0, tokens: tokens[..held].into() };
    let mut pair = Pair::new(usize::MAX, 1_000);
    pair.apply(publish(18));
    pair.apply(Operation::Start { namespace: 0, prompt: tokens.clone() });
    pair.apply(publish(20));
    pair.apply(publish(18));
    // With the fuller page, both tokens after the changed one would be identical.
    let changed = [&tokens[..17], &[77, 18, 19]].concat();
    pair.apply(Operation::Start { namespace: 0, prompt: changed });
    pair.apply(Operation::Abort { which: 1 });
    pair.apply(Operation::Abort { which: 0 });
    pair.apply(Operation::Evict { pages: 1 });
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    })]

    #[test]
    fn the_cache_does_what_a_list_does(
        operations in prop::collection::vec(operation(3, tokens()), 1..120),
        pages_max in prop_oneof![2_usize..40, Just(usize::MAX)],
        ghosts_max in prop_oneof![Just(0_usize), 1_usize..12, Just(1_000)],
    ) {
        let mut pair = Pair::new(pages_max, ghosts_max);
        for operation in operations {
            pair.apply(operation);
        }
    }

    #[test]
    fn it_does_so_with_hundreds_of_siblings(
        published in prop::collection::vec(siblings(), 100..300),
        operations in prop::collection::vec(operation(1, siblings()), 1..80),
    ) {
        let mut pair = Pair::new(usize::MAX, 1_000);
        for tokens in published {
            pair.apply(Operation::Publish { namespace: 0, tokens });
        }
        for operation in operations {
            pair.apply(operation);
        }
    }

    #[test]
    fn it_does_so_when_few_sequences_come_again_and_again(
        operations in prop::collection::vec(operation(1, few()), 1..80),
        ghosts_max in prop_oneof![Just(0_usize), 1_usize..12, Just(1_000)],
    ) {
        let mut pair = Pair::new(usize::MAX, ghosts_max);
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
        prop_assert!(cache.insert(&everyone, &first, &pages, "first", Timestamp(1)).is_empty());
        let hit = cache.lookup(&everyone, &second, "second", Timestamp(2));
        prop_assert_eq!(hit.reused_tokens, common.min(second.len() - 1));
        prop_assert_eq!(&hit.pages[..], &pages[..hit.reused_tokens.div_ceil(PAGE_TOKENS)]);
        let elsewhere = cache.lookup(&Namespace::from_salt("x"), &second, "third", Timestamp(3));
        prop_assert_eq!(elsewhere.reused_tokens, 0);
        prop_assert_eq!(elsewhere.verdict.stop.reason, Reason::FirstRequest);
    }
}
