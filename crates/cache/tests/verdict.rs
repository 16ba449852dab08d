//! Every reason, as a caller meets it, and the verdict's JSON.

use cache::{Limits, Namespace, PAGE_TOKENS, PromptCache, Reason, Timestamp, Verdict};
use serde_json::json;

const NOW: Timestamp = Timestamp(1_000);

fn new_cache() -> PromptCache<usize> {
    PromptCache::new(Limits::default(), Timestamp(500))
}

/// Publishes `tokens` on pages `first_page..` and returns the pages to free.
fn publish(
    cache: &mut PromptCache<usize>,
    tokens: &[u32],
    first_page: usize,
    request: &str,
) -> Vec<usize> {
    let pages: Vec<_> = (first_page..first_page + tokens.len().div_ceil(PAGE_TOKENS)).collect();
    cache.insert(&Namespace::public(), tokens, &pages, request, NOW, None)
}

fn verdict(cache: &mut PromptCache<usize>, tokens: &[u32]) -> Verdict {
    let hit = cache.lookup(&Namespace::public(), tokens, "asking", NOW, None);
    cache.unpin(hit.pin);
    hit.verdict
}

/// The article's two prompts, in the ids of the GPT-2 vocabulary:
/// `You are a helpful assistant.\nCurrent time: 2026-01-05 10:00:01\nTools:`, and `…:02…`.
fn article_prompt(second: u32) -> Vec<u32> {
    let date = [1160, 2075, 12, 486, 12, 2713];
    let before = [&[1639, 389, 257, 7613, 8796, 13, 198, 11297, 640, 25], &date[..]].concat();
    [&before[..], &[838, 25, 405, 25, second, 198, 33637, 25]].concat()
}

#[test]
fn the_articles_clock_is_found() {
    let mut cache = new_cache();
    assert!(publish(&mut cache, &article_prompt(486), 0, "chatcmpl-1").is_empty());
    let verdict = verdict(&mut cache, &article_prompt(2999));
    assert_eq!(
        serde_json::to_value(&verdict).unwrap(),
        json!({
            "prompt_tokens": 24, "reused_tokens": 20, "computed_tokens": 4,
            "reused_from": {"ram": 20, "disk": 0},
            "stop": {
                "reason": "different_token", "at": 20,
                "cached": {"id": 486, "text": null}, "request": {"id": 2999, "text": null},
                "message": null, "role": null, "chars": null, "identical_after": 3
            },
            "compared_with": "chatcmpl-1"
        })
    );
}

#[test]
fn an_unknown_prompt_is_the_first_since_the_start() {
    let mut cache = new_cache();
    assert_eq!(verdict(&mut cache, &[1, 2]).stop.since, Some(Timestamp(500)));
    assert!(publish(&mut cache, &[1, 2, 3], 0, "a").is_empty());
    let other = verdict(&mut cache, &[9, 2, 3]);
    assert_eq!((other.stop.reason, other.reused_tokens), (Reason::FirstRequest, 0));
    assert_eq!(other.compared_with, None);
    assert_eq!(serde_json::to_value(&other.stop).unwrap()["since"], json!(500));
}

#[test]
fn an_appended_conversation_stops_at_the_end_of_what_is_held() {
    for held in [1, 15, 16, 17, 32, 40] {
        let mut cache = new_cache();
        let tokens: Vec<u32> = (0..60).collect();
        assert!(publish(&mut cache, &tokens[..held], 0, "first turn").is_empty());
        let appended = verdict(&mut cache, &tokens);
        assert_eq!((appended.stop.reason, appended.stop.at), (Reason::EndOfCached, held));
        assert_eq!(appended.compared_with.as_deref(), Some("first turn"));
        assert_eq!(appended.computed_tokens, 60 - held);
    }
}

#[test]
fn the_last_token_is_always_computed() {
    let tokens: Vec<u32> = (0..40).collect();
    let mut cache = new_cache();
    assert!(publish(&mut cache, &tokens, 0, "a").is_empty());
    for len in 1..=40 {
        let hit = cache.lookup(&Namespace::public(), &tokens[..len], "b", NOW, None);
        assert_eq!(hit.verdict.stop.reason, Reason::EndOfPrompt);
        assert_eq!(hit.reused_tokens, len - 1);
        assert_eq!(hit.pages, (0..(len - 1).div_ceil(PAGE_TOKENS)).collect::<Vec<_>>());
        cache.unpin(hit.pin);
    }
}

#[test]
fn the_most_recent_branch_is_the_one_compared_with() {
    let mut cache = new_cache();
    assert!(publish(&mut cache, &[1, 2, 3, 10, 11], 0, "a").is_empty());
    assert!(publish(&mut cache, &[1, 2, 3, 20, 21], 1, "b").is_empty());
    assert!(publish(&mut cache, &[7, 8], 2, "c").is_empty());
    let newest = verdict(&mut cache, &[1, 2, 3, 30, 31, 32]);
    assert_eq!(newest.compared_with.as_deref(), Some("b"));
    assert_eq!(newest.stop.cached.unwrap().id, 20);
    // "asking" uses the branch of "a" and becomes its last user.
    verdict(&mut cache, &[1, 2, 3, 10, 11]);
    let newest = verdict(&mut cache, &[1, 2, 3, 30, 31, 32]);
    assert_eq!(newest.compared_with.as_deref(), Some("asking"));
    assert_eq!(newest.stop.cached.unwrap().id, 10);
}

/// Regression: a request that shared only the template with a page was named for all of it.
#[test]
fn a_request_is_not_named_for_tokens_that_it_does_not_contain() {
    let template: Vec<u32> = (0..38).collect();
    let ask = |own: &[u32]| [&template[..], own].concat();
    let (a, b, c) = (ask(&[50, 51, 52, 53, 8]), ask(&[60, 8]), ask(&[50, 51, 52, 54, 8]));
    for publishes in [true, false] {
        let mut cache = new_cache();
        assert!(publish(&mut cache, &a, 0, "a").is_empty());
        let hit = cache.lookup(&Namespace::public(), &b, "b", NOW, None);
        assert_eq!(hit.verdict.compared_with.as_deref(), Some("a"));
        cache.unpin(hit.pin);
        if publishes {
            assert_eq!(publish(&mut cache, &b, 10, "b"), [10, 11]);
        }
        let found = verdict(&mut cache, &c);
        assert_eq!((found.stop.reason, found.stop.at), (Reason::DifferentToken, 41));
        assert_eq!(found.stop.cached.map(|cached| cached.id), Some(53));
        assert_eq!(found.compared_with.as_deref(), Some("a"));
        // Nor once the page is gone.
        assert!(!cache.evict(9, "d", NOW).is_empty());
        let found = verdict(&mut cache, &a);
        assert_eq!((found.stop.reason, found.stop.at), (Reason::Evicted, 0));
        assert_eq!(found.compared_with.as_deref(), Some("asking"), "it shared the first page");
        assert!(publish(&mut cache, &template[..32], 20, "e").is_empty());
        let found = verdict(&mut cache, &a);
        assert_eq!((found.stop.reason, found.stop.at), (Reason::Evicted, 32));
        assert_eq!(found.compared_with.as_deref(), Some("a"));
    }
}

/// A published sequence that a fuller page contains does not end that page.
#[test]
fn a_sequence_that_ends_inside_a_page_does_not_end_it() {
    let tokens: Vec<u32> = (0..40).collect();
    let mut cache = new_cache();
    assert!(publish(&mut cache, &tokens, 0, "longer").is_empty());
    assert_eq!(publish(&mut cache, &tokens[..10], 9, "shorter"), [9]);
    let found = verdict(&mut cache, &[&tokens[..16], &[77, 78]].concat());
    assert_eq!(found.stop.reason, Reason::DifferentToken);
    assert_eq!(found.compared_with.as_deref(), Some("longer"));
}

#[test]
fn the_most_recent_branch_may_end_at_the_end_of_a_page() {
    let shared: Vec<u32> = (0..16).collect();
    let (mut longer, mut asked) = (shared.clone(), shared.clone());
    longer.extend([100, 101]);
    asked.extend([200, 201]);
    let mut cache = new_cache();
    assert!(publish(&mut cache, &longer, 0, "longer").is_empty());
    assert_eq!(verdict(&mut cache, &asked).stop.reason, Reason::DifferentToken);
    assert_eq!(
        cache.insert(&Namespace::public(), &shared, &[9], "ends here", NOW, None),
        [9],
        "its page is held already"
    );
    let ended = verdict(&mut cache, &asked);
    assert_eq!(ended.stop.reason, Reason::EndOfCached);
    assert_eq!(ended.compared_with.as_deref(), Some("ends here"));
}

#[test]
fn an_eviction_does_not_name_the_request_of_another_namespace() {
    let tokens: Vec<u32> = (0..16).collect();
    for (other, named) in [(Namespace::public(), Some("hungry")), (Namespace::from_salt(""), None)]
    {
        let mut cache = new_cache();
        assert!(publish(&mut cache, &tokens, 0, "victim").is_empty());
        assert_eq!(cache.evict_one(&other, "hungry", NOW, |_| true), Some(0));
        let stop = verdict(&mut cache, &tokens).stop;
        assert_eq!((stop.reason, stop.evicted_for.as_deref()), (Reason::Evicted, named));
        assert_eq!(stop.evicted_at, Some(NOW));
    }
}

#[test]
fn an_eviction_is_explained_until_it_is_computed_again() {
    let tokens: Vec<u32> = (0..50).collect();
    let mut cache = new_cache();
    assert!(publish(&mut cache, &tokens, 0, "victim").is_empty());
    assert_eq!(cache.evict(2, "hungry", Timestamp(7_000)), [3, 2], "the end of it first");
    let evicted = verdict(&mut cache, &tokens);
    assert_eq!((evicted.stop.reason, evicted.reused_tokens), (Reason::Evicted, 32));
    assert_eq!(evicted.stop.held_tokens, Some(50));
    assert_eq!(evicted.stop.last_used, Some(NOW));
    assert_eq!(evicted.stop.evicted_at, Some(Timestamp(7_000)));
    assert_eq!(evicted.stop.evicted_for.as_deref(), Some("hungry"));
    assert_eq!(evicted.compared_with.as_deref(), Some("victim"));
    assert_eq!(cache.stats().ghosts, 2);

    assert_eq!(publish(&mut cache, &tokens[..40], 10, "again"), [10, 11]);
    assert_eq!(verdict(&mut cache, &tokens[..40]).stop.reason, Reason::EndOfPrompt);
    // The longer ghost still explains what is missing beyond.
    assert_eq!(verdict(&mut cache, &tokens).stop.held_tokens, Some(50));
    assert_eq!(cache.stats().ghosts, 2);
}

#[test]
fn an_evicted_first_page_is_not_a_first_request() {
    let mut cache = new_cache();
    assert!(publish(&mut cache, &[1, 2, 3, 4], 0, "a").is_empty());
    assert_eq!(cache.evict(1, "b", NOW), [0]);
    let evicted = verdict(&mut cache, &[1, 2, 3, 5]);
    assert_eq!((evicted.stop.reason, evicted.stop.held_tokens), (Reason::Evicted, Some(3)));
}

#[test]
fn without_memory_for_ghosts_an_evicted_prefix_is_forgotten() {
    let limits = Limits { ghost_bytes: 0, ..Limits::default() };
    let mut cache = PromptCache::new(limits, NOW);
    assert!(publish(&mut cache, &[1, 2, 3], 0, "a").is_empty());
    assert_eq!(cache.evict(5, "b", NOW), [0]);
    assert_eq!(verdict(&mut cache, &[1, 2, 3]).stop.reason, Reason::FirstRequest);
    assert_eq!(cache.stats().namespaces, 0);
}

#[test]
fn ghosts_stay_within_their_bytes() {
    let limits = Limits { ghost_bytes: 10_000, ..Limits::default() };
    let mut cache = PromptCache::new(limits, NOW);
    for start in 0..100_u32 {
        let tokens: Vec<u32> = (start * 100..start * 100 + 20).collect();
        assert!(publish(&mut cache, &tokens, 0, "a").is_empty());
        assert_eq!(cache.evict(9, "b", NOW).len(), 2);
        let stats = cache.stats();
        assert!(stats.ghosts > 0 && stats.ghost_bytes <= 10_000, "{stats:?}");
    }
    // The last one is still explained, the first one is not.
    assert_eq!(verdict(&mut cache, &[9900, 9901, 9902]).stop.reason, Reason::Evicted);
    assert_eq!(verdict(&mut cache, &[0, 1, 2]).stop.reason, Reason::FirstRequest);
}

#[test]
fn a_pinned_page_is_neither_evicted_nor_replaced() {
    let tokens: Vec<u32> = (0..20).collect();
    let mut cache = new_cache();
    assert!(publish(&mut cache, &tokens[..18], 0, "a").is_empty());
    let hit = cache.lookup(&Namespace::public(), &tokens, "b", NOW, None);
    assert_eq!(hit.pages, [0, 1]);
    assert!(cache.evict(9, "c", NOW).is_empty());
    assert_eq!(publish(&mut cache, &tokens, 2, "somebody else"), [2]);
    assert_eq!(cache.stats().pages, 3, "the pinned partial page stands beside the fuller one");
    cache.unpin(hit.pin);
    assert_eq!(cache.evict(9, "c", NOW), [1, 3, 0]);
}

/// The fuller page beside it is newer, and yet no part of what is published.
#[test]
fn a_pinned_page_published_again_is_recognized_beside_a_fuller_one() {
    let tokens: Vec<u32> = (0..20).collect();
    let mut cache = new_cache();
    assert!(publish(&mut cache, &tokens[..18], 0, "a").is_empty());
    let hit = cache.lookup(&Namespace::public(), &tokens, "b", NOW, None);
    assert_eq!(publish(&mut cache, &tokens, 2, "longer"), [2]);
    assert!(publish(&mut cache, &tokens[..18], 0, "again").is_empty(), "pages 0 and 1 stay held");
    let found = verdict(&mut cache, &[&tokens[..17], &[77, 18, 19]].concat());
    assert_eq!((found.stop.reason, found.stop.at), (Reason::DifferentToken, 17));
    assert_eq!(found.compared_with.as_deref(), Some("again"));
    assert_eq!(found.stop.identical_after, Some(0), "nothing follows in what it is compared with");
    cache.unpin(hit.pin);
    assert_eq!(cache.evict(9, "c", NOW), [3, 1, 0], "the fuller one was used before");
}

#[test]
fn a_fuller_page_replaces_a_partial_one() {
    let tokens: Vec<u32> = (0..20).collect();
    let mut cache = new_cache();
    let everyone = Namespace::public();
    assert!(publish(&mut cache, &tokens[..18], 0, "a").is_empty());
    assert_eq!(
        cache.insert(&everyone, &tokens, &[0, 5], "b", NOW, None),
        [1],
        "page 1 is replaced"
    );
    assert_eq!(
        cache.insert(&everyone, &tokens[..17], &[0, 6], "c", NOW, None),
        [6],
        "held already"
    );
    assert_eq!((cache.stats().pages, cache.stats().tokens), (2, 20));
}

/// Regression: the namespace went away together with its only page, before the new one was there.
#[test]
fn a_namespaces_only_page_can_be_replaced() {
    let mut cache = new_cache();
    assert!(publish(&mut cache, &[1, 2], 0, "a").is_empty());
    assert_eq!(publish(&mut cache, &[1, 2, 3], 1, "b"), [0]);
    assert_eq!(cache.evict(1, "c", NOW), [1]);
    assert!(publish(&mut cache, &[1, 2, 3, 4], 2, "d").is_empty(), "in the place of a ghost");
    assert_eq!(verdict(&mut cache, &[1, 2, 3, 4, 5]).reused_tokens, 4);
    assert_eq!((cache.stats().pages, cache.stats().ghosts), (1, 0));
}

#[test]
fn what_does_not_fit_is_handed_back() {
    let everyone = Namespace::public();
    let mut cache = PromptCache::new(Limits { pages: 2, ..Limits::default() }, NOW);
    let tokens: Vec<u32> = (0..64).collect();
    assert_eq!(cache.insert(&everyone, &tokens, &[0, 1, 2, 3], "a", NOW, None), [2, 3], "full");
    assert_eq!(cache.insert(&everyone, &[], &[4], "a", NOW, None), [4], "a page without tokens");
    assert_eq!(cache.insert(&everyone, &tokens[..8], &[], "a", NOW, None), [0; 0]);
    assert_eq!(cache.lookup(&everyone, &[], "a", NOW, None).reused_tokens, 0);
}

#[test]
fn clearing_forgets_all_but_what_is_in_use() {
    let everyone = Namespace::public();
    let mut cache = new_cache();
    assert!(publish(&mut cache, &[1, 2, 3], 0, "a").is_empty());
    assert!(publish(&mut cache, &[5, 6, 7], 1, "b").is_empty());
    let hit = cache.lookup(&everyone, &[5, 6, 7], "c", NOW, None);
    assert_eq!(cache.clear(Timestamp(9_000)).pages, [0]);
    assert_eq!(verdict(&mut cache, &[1, 2, 3]).stop.since, Some(Timestamp(9_000)));
    assert_eq!(verdict(&mut cache, &[5, 6, 7]).reused_tokens, 2);
    cache.unpin(hit.pin);
    assert_eq!(cache.clear(Timestamp(9_000)).pages, [1]);
    let stats = cache.stats();
    assert_eq!((stats.pages, stats.tokens, stats.ghosts, stats.namespaces), (0, 0, 0, 0));
}

#[test]
fn verdicts_that_no_lookup_gives() {
    let rows = serde_json::to_value(Verdict::rows_requested(7)).unwrap();
    assert_eq!(rows["stop"]["reason"], "rows_requested");
    assert_eq!(rows["computed_tokens"], 7);
    let disabled = serde_json::to_value(Verdict::disabled_by_request(7)).unwrap();
    assert_eq!(disabled["stop"]["reason"], "disabled_by_request");
    for reason in [
        Reason::EndOfPrompt,
        Reason::EndOfCached,
        Reason::DifferentToken,
        Reason::FirstRequest,
        Reason::Evicted,
        Reason::Expired,
        Reason::Damaged,
        Reason::CheaperToCompute,
        Reason::DifferentModel,
        Reason::TemplateChanged,
        Reason::Retokenized,
        Reason::RowsRequested,
        Reason::DisabledByRequest,
    ] {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.code());
    }
}
