//! Places on disk, the end of a page's life, shares, and the operator's pins, as a caller meets
//! them.

use cache::{
    DiskPage, Freed, Hit, Limits, Loss, Namespace, PAGE_TOKENS, PinRefused, PromptCache, Reason,
    Restorable, ReusedFrom, Timestamp, Verdict,
};

const NOW: Timestamp = Timestamp(1_000);
const EVERYONE: Namespace = Namespace::public();

fn new_cache() -> PromptCache<usize> {
    PromptCache::new(Limits::default(), NOW)
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).collect()
}

fn place(index: u32) -> DiskPage {
    DiskPage { segment: 0, index }
}

fn publish_until(
    cache: &mut PromptCache<usize>,
    tokens: &[u32],
    first_page: usize,
    expires_at: Option<Timestamp>,
) -> Vec<usize> {
    let pages: Vec<_> = (first_page..first_page + tokens.len().div_ceil(PAGE_TOKENS)).collect();
    cache.insert(&EVERYONE, tokens, &pages, "publisher", NOW, expires_at)
}

fn publish(cache: &mut PromptCache<usize>, tokens: &[u32], first_page: usize) {
    assert!(publish_until(cache, tokens, first_page, None).is_empty());
}

/// Notes pages `0..` of a sequence as stored at the places of the same numbers.
fn store(cache: &mut PromptCache<usize>, tokens: &[u32]) {
    for (index, end) in (PAGE_TOKENS..=tokens.len()).step_by(PAGE_TOKENS).enumerate() {
        assert!(cache.note_stored(&EVERYONE, &tokens[..end], place(index as u32), None, NOW));
    }
}

fn ask_at(cache: &mut PromptCache<usize>, tokens: &[u32], now: Timestamp) -> Hit<usize> {
    cache.lookup(&EVERYONE, tokens, "asking", now, Some(Timestamp(0)))
}

fn ask(cache: &mut PromptCache<usize>, tokens: &[u32]) -> Hit<usize> {
    ask_at(cache, tokens, NOW)
}

fn places(range: std::ops::Range<u32>) -> Vec<DiskPage> {
    range.map(place).collect()
}

/// The places to restore.
fn stored(hit: &Hit<usize>) -> Vec<DiskPage> {
    hit.restorable.as_ref().map(|restorable| restorable.places.clone()).unwrap_or_default()
}

/// The verdict if all is restored.
fn foreseen(hit: &Hit<usize>) -> Verdict {
    hit.restorable.clone().unwrap().verdict
}

#[test]
fn a_page_that_leaves_memory_is_reused_from_disk() {
    let mut cache = new_cache();
    publish(&mut cache, &tokens(40), 0);
    store(&mut cache, &tokens(32));
    assert_eq!(cache.evict(2, "hungry", NOW), [2, 1]);
    let hit = ask(&mut cache, &tokens(50));
    assert_eq!((&hit.pages[..], hit.reused_tokens), (&[0][..], 16));
    assert_eq!(stored(&hit), places(1..2));
    assert_eq!(hit.verdict.stop.reason, Reason::CheaperToCompute);
    assert_eq!(hit.verdict.stop.held_tokens, Some(40), "the ghost goes on after it");
    let restored = foreseen(&hit);
    assert_eq!(restored.reused_from, ReusedFrom { ram: 16, disk: 16, public: 0 });
    assert_eq!((restored.stop.reason, restored.stop.at), (Reason::Evicted, 32));
    assert_eq!(restored.stop.evicted_for.as_deref(), Some("hungry"));
    // Restored, it is a page like any other.
    cache.unpin(hit.pin);
    assert!(cache.insert_restored(&EVERYONE, &tokens(32), &[0, 7], NOW).is_empty());
    let hit = ask(&mut cache, &tokens(50));
    assert_eq!((&hit.pages[..], stored(&hit).len()), (&[0, 7][..], 0));
    assert_eq!(hit.verdict.stop.reason, Reason::Evicted);
    assert_eq!((cache.stats().stored_pages, cache.stats().ghosts), (2, 1));
}

#[test]
fn what_a_start_finds_on_disk_is_held() {
    let mut cache = new_cache();
    store(&mut cache, &tokens(48));
    assert_eq!((cache.stats().pages, cache.stats().ghosts, cache.stats().stored_pages), (0, 0, 3));
    let hit = ask(&mut cache, &tokens(48));
    assert_eq!((stored(&hit), hit.reused_tokens), (places(0..3), 0));
    let restored = foreseen(&hit);
    assert_eq!((restored.stop.reason, restored.reused_tokens), (Reason::EndOfPrompt, 47));
    assert_eq!(restored.reused_from, ReusedFrom { ram: 0, disk: 47, public: 0 });
    let changed = [&tokens(32)[..], &[77, 78]].concat();
    let hit = ask(&mut cache, &changed);
    assert_eq!(stored(&hit), places(0..2));
    let restored = foreseen(&hit);
    assert_eq!((restored.stop.reason, restored.stop.at), (Reason::DifferentToken, 32));
    assert_eq!(restored.stop.cached.unwrap().id, 32);
}

/// Restores what a hit says into pages from `first_page` on, where nothing else is held.
fn restore(cache: &mut PromptCache<usize>, hit: Hit<usize>, first_page: usize) -> Verdict {
    let Restorable { places, tokens, verdict } = hit.restorable.unwrap();
    let pages: Vec<_> = (first_page..first_page + places.len()).collect();
    assert!(cache.insert_restored(&EVERYONE, &tokens, &pages, NOW).is_empty());
    cache.unpin(hit.pin);
    verdict
}

#[test]
fn a_page_on_disk_is_reused_in_part() {
    let mut cache = new_cache();
    store(&mut cache, &tokens(48));
    let changed = [&tokens(20)[..], &[77, 78]].concat();
    let hit = ask(&mut cache, &changed);
    assert_eq!(hit.verdict.stop.reason, Reason::CheaperToCompute, "if nothing is restored");
    assert_eq!(hit.verdict.stop.held_tokens, Some(20));
    let restorable = hit.restorable.clone().unwrap();
    assert_eq!((restorable.places, restorable.tokens), (places(0..2), tokens(32)));
    let foreseen = restore(&mut cache, hit, 5);
    assert_eq!(foreseen.reused_from, ReusedFrom { ram: 0, disk: 20, public: 0 });
    assert_eq!((foreseen.stop.reason, foreseen.stop.at), (Reason::DifferentToken, 20));
    assert_eq!(foreseen.stop.cached.as_ref().map(|cached| cached.id), Some(20));
    let hit = ask(&mut cache, &changed);
    assert_eq!((&hit.pages[..], hit.reused_tokens), (&[5, 6][..], 20));
    assert_eq!((hit.verdict.stop, hit.restorable), (foreseen.stop, None));
    // Who reuses the page in part does not contain it.
    assert_eq!(hit.verdict.compared_with, None);
    let hit = ask(&mut cache, &tokens(16));
    assert_eq!(hit.verdict.compared_with.as_deref(), Some("asking"));
}

#[test]
fn a_repeated_prompt_is_restored_but_for_its_last_token() {
    let mut cache = new_cache();
    store(&mut cache, &tokens(48));
    for (length, pages) in [(48, 3), (40, 3), (34, 3), (33, 2), (32, 2), (2, 1)] {
        let hit = ask(&mut cache, &tokens(length));
        assert_eq!(stored(&hit), places(0..pages), "{length}");
        let verdict = foreseen(&hit);
        assert_eq!((verdict.computed_tokens, verdict.stop.reason), (1, Reason::EndOfPrompt));
    }
    assert!(ask(&mut cache, &tokens(1)).restorable.is_none(), "nothing of it would be used");
}

#[test]
fn disk_is_read_where_it_shares_more_of_a_page_than_memory() {
    let mut cache = new_cache();
    let [in_memory, on_disk] = [10, 12].map(|shared| [&tokens(shared)[..], &[99; 16]].concat());
    publish(&mut cache, &in_memory[..16], 0);
    assert!(cache.note_stored(&EVERYONE, &on_disk[..16], place(4), None, NOW));
    let hit = ask(&mut cache, &tokens(30));
    assert_eq!((&hit.pages[..], hit.reused_tokens), (&[0][..], 10));
    assert_eq!(stored(&hit), [place(4)]);
    let verdict = foreseen(&hit);
    assert_eq!(verdict.reused_from, ReusedFrom { ram: 0, disk: 12, public: 0 });
    assert_eq!((verdict.stop.reason, verdict.stop.at), (Reason::DifferentToken, 12));
    let hit = ask(&mut cache, &[&tokens(10)[..], &[7; 9]].concat());
    assert_eq!((hit.reused_tokens, stored(&hit).len()), (10, 0), "no more than memory");
    assert_eq!(hit.verdict.stop.reason, Reason::DifferentToken);
}

#[test]
fn a_ghost_that_shares_more_of_a_page_than_disk_is_the_reason() {
    let mut cache = new_cache();
    store(&mut cache, &tokens(32));
    let other = [&tokens(20)[..], &[99; 12]].concat();
    assert!(cache.note_stored(&EVERYONE, &other, place(7), None, NOW));
    cache.note_dropped(place(1), Loss::Damaged, NOW);
    let hit = ask(&mut cache, &tokens(30));
    assert_eq!(stored(&hit), [place(0), place(7)]);
    let stop = foreseen(&hit).stop;
    assert_eq!((stop.reason, stop.at, stop.held_tokens), (Reason::Damaged, 20, Some(30)));
}

#[test]
fn what_is_restored_keeps_its_request_and_its_life_and_ends_no_sequence() {
    let mut cache = new_cache();
    let life = Some(Timestamp(5_000));
    assert!(publish_until(&mut cache, &tokens(48), 0, life).is_empty());
    for index in 0..3 {
        let path = tokens((index + 1) * PAGE_TOKENS as u32);
        assert!(cache.note_stored(&EVERYONE, &path, place(index), life, NOW));
    }
    assert_eq!(cache.evict(3, "hungry", NOW).len(), 3);
    let changed = [&tokens(20)[..], &[77, 78]].concat();
    let hit = ask(&mut cache, &changed);
    assert_eq!(restore(&mut cache, hit, 5).compared_with.as_deref(), Some("publisher"));
    let again = ask(&mut cache, &changed);
    assert_eq!(again.verdict.compared_with.as_deref(), Some("publisher"));
    let beyond = ask(&mut cache, &[&tokens(32)[..], &[77, 78]].concat());
    let stop = beyond.verdict.stop;
    assert_eq!((stop.reason, stop.cached.unwrap().id), (Reason::DifferentToken, 32));
    cache.unpin(again.pin);
    cache.unpin(beyond.pin);
    assert_eq!(cache.expire(Timestamp(5_000)).pages, [6, 5]);
}

#[test]
fn a_partial_page_in_memory_may_go_as_far_as_disk() {
    let mut cache = new_cache();
    publish(&mut cache, &tokens(15), 0);
    store(&mut cache, &tokens(16));
    let hit = ask(&mut cache, &tokens(16));
    assert_eq!((hit.reused_tokens, stored(&hit).len()), (15, 0));
    assert!(hit.restorable.is_none());
}

#[test]
fn what_disk_lost_is_explained() {
    let losses = [
        (Loss::Evicted, Reason::Evicted),
        (Loss::Expired, Reason::Expired),
        (Loss::Damaged, Reason::Damaged),
    ];
    for (loss, reason) in losses {
        let mut cache = new_cache();
        store(&mut cache, &tokens(48));
        cache.note_dropped(place(1), loss, Timestamp(2_000));
        let hit = ask(&mut cache, &tokens(50));
        assert_eq!(stored(&hit), places(0..1), "what lies after a gap is no use");
        let stop = foreseen(&hit).stop;
        assert_eq!((stop.reason, stop.at, stop.held_tokens), (reason, 16, Some(48)));
        let times = [stop.evicted_at, stop.expired_at, stop.damaged_at];
        assert_eq!(times.iter().flatten().collect::<Vec<_>>(), [&Timestamp(2_000)]);
        assert_eq!(cache.stats().ghosts, 1);
        // What fills the gap makes the rest useful again.
        assert!(cache.note_stored(&EVERYONE, &tokens(32), place(9), None, NOW));
        let hit = ask(&mut cache, &tokens(50));
        assert_eq!(stored(&hit), [place(0), place(9), place(2)]);
        assert_eq!(foreseen(&hit).stop.reason, Reason::EndOfCached);
    }
}

#[test]
fn only_whole_pages_that_live_are_noted() {
    let mut cache = new_cache();
    assert!(!cache.note_stored(&EVERYONE, &[], place(0), None, NOW));
    assert!(!cache.note_stored(&EVERYONE, &tokens(15), place(0), None, NOW));
    assert!(!cache.note_stored(&EVERYONE, &tokens(16), place(0), Some(NOW), NOW));
    cache.note_dropped(place(0), Loss::Damaged, NOW);
    assert_eq!((cache.stats().namespaces, cache.stats().stored_pages), (0, 0));
    // A place stands for one page, and a page has one place.
    assert!(cache.note_stored(&EVERYONE, &tokens(16), place(0), None, NOW));
    assert!(cache.note_stored(&EVERYONE, &tokens(16), place(1), None, NOW));
    assert_eq!(cache.stats().stored_pages, 1);
    assert!(cache.note_stored(&EVERYONE, &[5; 16], place(1), None, NOW));
    assert!(ask(&mut cache, &tokens(20)).restorable.is_none());
}

#[test]
fn ghosts_before_a_stored_page_stay() {
    let mut cache = PromptCache::new(Limits { ghost_bytes: 0, ..Limits::default() }, NOW);
    assert!(cache.note_stored(&EVERYONE, &tokens(48), place(2), None, NOW));
    assert_eq!(cache.stats().ghosts, 2);
    publish(&mut cache, &tokens(32), 0);
    let hit = ask(&mut cache, &tokens(50));
    assert_eq!((hit.reused_tokens, stored(&hit)), (32, vec![place(2)]));
    cache.unpin(hit.pin);
    cache.note_dropped(place(2), Loss::Evicted, NOW);
    assert_eq!(cache.evict(2, "hungry", NOW).len(), 2);
    assert_eq!((cache.stats().ghosts, cache.stats().namespaces), (0, 0));
}

#[test]
fn a_page_lives_as_long_as_its_longest_living_user_says() {
    let mut cache = new_cache();
    assert!(publish_until(&mut cache, &tokens(40), 0, Some(Timestamp(5_000))).is_empty());
    let hit = cache.lookup(&EVERYONE, &tokens(20), "longer", NOW, Some(Timestamp(9_000)));
    assert_eq!(hit.reused_tokens, 19);
    cache.unpin(hit.pin);
    assert_eq!(cache.expire(Timestamp(4_999)), Freed::default());
    let hit = ask_at(&mut cache, &tokens(50), Timestamp(5_000));
    assert_eq!((hit.reused_tokens, hit.verdict.stop.reason), (32, Reason::Expired));
    assert_eq!(hit.verdict.stop.expired_at, Some(Timestamp(5_000)));
    assert_eq!(hit.verdict.stop.held_tokens, Some(40));
    cache.unpin(hit.pin);
    assert_eq!(cache.expire(Timestamp(8_999)).pages, [2], "since the lookup");
    assert_eq!(cache.expire(Timestamp(9_000)).pages, [1, 0]);
    assert_eq!((cache.stats().pages, cache.stats().expired_pages), (0, 3));
    assert!(publish_until(&mut cache, &tokens(40), 5, None).is_empty());
    assert_eq!(cache.expire(Timestamp(u64::MAX - 1)), Freed::default(), "for ever");
}

#[test]
fn both_tiers_expire() {
    let mut cache = new_cache();
    let end = Some(Timestamp(5_000));
    assert!(publish_until(&mut cache, &tokens(16), 0, end).is_empty());
    for (index, count) in [16, 32].into_iter().enumerate() {
        let place = place(index as u32);
        assert!(cache.note_stored(&EVERYONE, &tokens(count), place, end, NOW));
    }
    let hit = ask_at(&mut cache, &tokens(40), Timestamp(6_000));
    assert_eq!((hit.reused_tokens, stored(&hit).len()), (0, 0));
    assert_eq!(hit.verdict.stop.reason, Reason::Expired);
    let freed = cache.expire(Timestamp(6_000));
    assert_eq!((freed.pages, freed.stored), (vec![0], vec![place(1), place(0)]));
}

#[test]
fn an_expired_page_in_use_serves_nobody_else_and_stays_until_then() {
    let mut cache = new_cache();
    assert!(publish_until(&mut cache, &tokens(40), 0, Some(Timestamp(5_000))).is_empty());
    let running = ask(&mut cache, &tokens(40));
    assert_eq!(cache.expire(Timestamp(6_000)), Freed::default());
    let late = ask_at(&mut cache, &tokens(40), Timestamp(6_000));
    assert_eq!((late.reused_tokens, late.verdict.stop.reason), (0, Reason::Expired));
    assert_eq!((cache.stats().pages, cache.stats().ghosts), (0, 3));
    cache.unpin(running.pin);
    assert_eq!(cache.expire(Timestamp(6_000)).pages, [2, 1, 0]);
}

#[test]
fn an_expired_page_in_use_can_be_published_again() {
    let mut cache = new_cache();
    assert!(publish_until(&mut cache, &tokens(40), 0, Some(Timestamp(5_000))).is_empty());
    let running = ask(&mut cache, &tokens(40));
    let later = Timestamp(6_000);
    assert_eq!(cache.expire(later), Freed::default());
    let again = cache.insert(&EVERYONE, &tokens(16), &[8], "again", later, None);
    assert_eq!(again, [8], "the one in use is held again");
    cache.unpin(running.pin);
    assert_eq!(cache.stats().pages, 1);
    // Its own pages come back to the cache before they are given back.
    let own = cache.insert(&EVERYONE, &tokens(40), &[0, 1, 9], "asking", later, None);
    assert!(own.is_empty());
    assert_eq!(cache.expire(later).pages, [2]);
    assert_eq!(cache.evict(9, "hungry", later), [9, 1, 0]);
}

#[test]
fn what_has_expired_makes_room_first() {
    let mut cache = new_cache();
    publish(&mut cache, &[5, 6, 7], 0);
    assert!(publish_until(&mut cache, &[8, 9], 1, Some(Timestamp(5_000))).is_empty());
    let one = cache.evict_one(&EVERYONE, "hungry", Timestamp(5_000), |_| true);
    assert_eq!(one, Some(1));
    assert_eq!(cache.expire(Timestamp(5_000)), Freed::default(), "given back once");
}

#[test]
fn a_page_in_use_is_passed_over_until_it_is_released() {
    let mut cache = new_cache();
    for page in 0..3 {
        publish(&mut cache, &[10 + page as u32], page);
    }
    let asked = std::cell::Cell::new(0);
    let evict = |cache: &mut PromptCache<usize>| {
        asked.set(0);
        cache.evict_one(&EVERYONE, "hungry", NOW, |page| {
            asked.set(asked.get() + 1);
            page != 0
        })
    };
    assert_eq!((evict(&mut cache), asked.get()), (Some(1), 2));
    assert_eq!((evict(&mut cache), asked.get()), (Some(2), 1), "not asked again");
    assert_eq!((evict(&mut cache), asked.get()), (None, 0));
    cache.release(0);
    assert_eq!((evict(&mut cache), asked.get()), (None, 1));
    assert_eq!(cache.evict(1, "hungry", NOW), [0], "who wants any gets it");
}

#[test]
fn a_namespace_beyond_its_share_gives_up_its_own() {
    let (mine, yours) = (Namespace::from_salt("mine"), Namespace::from_salt("yours"));
    let limits = Limits { namespace_pages: Some(3), ..Limits::default() };
    let mut cache = PromptCache::new(limits, NOW);
    let publish = |cache: &mut PromptCache<usize>, of, first: u32, pages: &[usize]| {
        let tokens: Vec<_> = (first..).take(pages.len() * PAGE_TOKENS).collect();
        cache.insert(of, &tokens, pages, "publisher", NOW, None)
    };
    assert!(publish(&mut cache, &yours, 0, &[0, 1]).is_empty());
    assert!(publish(&mut cache, &mine, 0, &[2, 3]).is_empty());
    assert_eq!(publish(&mut cache, &mine, 500, &[4, 5]), [3]);
    // A sequence longer than the share keeps its beginning.
    assert_eq!(publish(&mut cache, &mine, 900, &[6, 7, 8, 9]), [2, 5, 4, 9]);
    assert_eq!(cache.stats().pages, 5);
    // What somebody beyond their share computes costs nobody else anything.
    assert_eq!(cache.evict_one(&mine, "hungry", NOW, |_| true), Some(8));
    assert_eq!(cache.evict_one(&mine, "hungry", NOW, |_| true), Some(1), "within it again");
}

#[test]
fn pins_together_keep_no_more_pages_than_they_may() {
    let mut cache = new_cache();
    publish(&mut cache, &tokens(48), 0);
    let over = Err(PinRefused::NoRoom { pages_max: 2 });
    assert_eq!(cache.pin_prefix("a", &EVERYONE, &tokens(48), 2), over);
    assert_eq!(cache.pin_prefix("a", &EVERYONE, &tokens(32), 2), Ok(32));
    // A page that several keep counts once, and what a name kept before not at all.
    assert_eq!(cache.pin_prefix("b", &EVERYONE, &tokens(32), 2), Ok(32));
    assert_eq!(cache.pin_prefix("b", &EVERYONE, &tokens(48), 2), over);
    assert_eq!(cache.pin_prefix("b", &EVERYONE, &tokens(16), 2), Ok(16));
    assert_eq!(cache.evict(9, "hungry", NOW), [2]);
    assert!(cache.unpin_all() && !cache.unpin_all());
    assert_eq!(cache.evict(9, "hungry", NOW), [1, 0]);
}

#[test]
fn an_operators_pin_outlives_everything() {
    let mut cache = new_cache();
    assert_eq!(
        cache.pin_prefix("system", &EVERYONE, &tokens(20), usize::MAX),
        Err(PinRefused::NotHeld)
    );
    assert!(publish_until(&mut cache, &tokens(40), 0, Some(Timestamp(5_000))).is_empty());
    assert_eq!(cache.pin_prefix("system", &EVERYONE, &tokens(32), usize::MAX), Ok(32));
    let later = Timestamp(9_000);
    assert_eq!(cache.expire(later).pages, [2]);
    assert!(cache.evict(9, "hungry", later).is_empty());
    assert_eq!(cache.evict_prefix(&EVERYONE, &tokens(32), "", later), Freed::default());
    assert_eq!(cache.clear(later), Freed::default());
    let entry = cache.entries(&EVERYONE, 9).pop().unwrap();
    assert_eq!((entry.tokens, entry.pins), (tokens(32), vec!["system".to_owned()]));
    // Another pin of the same name takes its place.
    assert_eq!(cache.pin_prefix("system", &EVERYONE, &tokens(16), usize::MAX), Ok(16));
    assert_eq!(cache.expire(later).pages, [1]);
    assert!(cache.unpin_prefix(&EVERYONE, "system") && !cache.unpin_prefix(&EVERYONE, "system"));
    assert_eq!(cache.expire(later).pages, [0]);
}

#[test]
fn entries_are_the_longest_prefixes_and_can_be_evicted() {
    let mut cache = new_cache();
    let other = [&tokens(32)[..], &[77, 78]].concat();
    publish(&mut cache, &tokens(40), 0);
    let unused = publish_until(&mut cache, &other, 10, Some(Timestamp(8_000)));
    assert_eq!(unused, [10, 11]);
    store(&mut cache, &tokens(32));
    let entries = cache.entries(&EVERYONE, 9);
    let seen: Vec<_> = entries.iter().map(|e| (&e.tokens[..], e.ram_pages, e.disk_pages)).collect();
    assert_eq!(seen, [(&other[..], 3, 2), (&tokens(40)[..], 3, 2)]);
    assert_eq!(entries[0].expires_at, Some(Timestamp(8_000)));
    assert_eq!(
        (entries[1].request.as_deref(), entries[1].last_used),
        (Some("publisher"), Some(NOW))
    );
    assert_eq!(cache.entries(&EVERYONE, 1).len(), 1);
    assert_eq!(cache.evict_prefix(&EVERYONE, &other, "", NOW).pages, [12], "its own page");
    let freed = cache.evict_prefix(&EVERYONE, &tokens(40), "", NOW);
    assert_eq!((freed.pages, freed.stored), (vec![2, 1, 0], vec![place(1), place(0)]));
    assert!(cache.entries(&EVERYONE, 9).is_empty());
    assert_eq!(cache.evict_prefix(&EVERYONE, &tokens(40), "", NOW), Freed::default());
}

#[test]
fn clearing_empties_both_tiers() {
    let mut cache = new_cache();
    publish(&mut cache, &tokens(16), 0);
    store(&mut cache, &tokens(32));
    let mut freed = cache.clear(NOW);
    freed.stored.sort_by_key(|place| place.index);
    assert_eq!((freed.pages, freed.stored), (vec![0], places(0..2)));
    assert_eq!((cache.stats().namespaces, cache.stats().stored_pages), (0, 0));
}

#[test]
fn a_namespace_is_cleared_alone_and_nothing_of_it_is_known_any_more() {
    let mut cache = new_cache();
    let other = Namespace::from_salt("other");
    publish(&mut cache, &tokens(40), 0);
    store(&mut cache, &tokens(32));
    assert!(cache.insert(&other, &tokens(40), &[7, 8, 9], "another", NOW, None).is_empty());
    assert_eq!(cache.pin_prefix("system", &other, &tokens(16), usize::MAX), Ok(16));
    assert!(!cache.unpin_prefix(&EVERYONE, "system"), "another's");
    let later = Timestamp(2_000);
    let freed = cache.clear_namespace(&EVERYONE, later);
    assert_eq!((freed.pages.len(), freed.stored.len()), (3, 2));
    assert_eq!(cache.alive_tokens(&EVERYONE, &tokens(40)), 0);
    assert_eq!(cache.alive_tokens(&other, &tokens(40)), 32);
    let stop = ask_at(&mut cache, &tokens(40), later).verdict.stop;
    assert_eq!((stop.reason, stop.since), (Reason::FirstRequest, Some(later)));
    let freed = cache.clear_namespace(&other, later);
    assert_eq!((freed.pages.len(), freed.stored.len()), (2, 0), "all but what is pinned");
    let stop = cache.lookup(&other, &[5; 40], "asking", later, None).verdict.stop;
    assert_eq!((stop.reason, stop.since), (Reason::FirstRequest, Some(later)));
    let unseen = Namespace::from_salt("unseen");
    let stop = cache.lookup(&unseen, &tokens(40), "asking", later, None).verdict.stop;
    assert_eq!(stop.since, Some(NOW));
}
