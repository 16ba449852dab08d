//! One behaviour each.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};

use cache::disk::{
    Damage, DamageKind, DiskEvent, DiskStore, DropReason, NextPage, OpenError, ReadError, Wanted,
    secret,
};
use cache::{DiskPage, PAGE_TOKENS, Timestamp};

use crate::support::*;

#[test]
fn pages_come_back_after_their_parents_when_the_store_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path(), 1, 0).store;
    let events = put(&mut store, 1, &tokens(&[5, 6, 7]), 0);
    assert_eq!(stored(&events).len(), 3);
    drop(store);
    let opened = open(directory.path(), 1, 10);
    assert!(opened.damage.is_empty(), "{:?}", opened.damage);
    let names =
        |pages: &[(Name, _)]| pages.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&opened.pages), names(&stored(&events)));
    assert_eq!(opened.pages[2].0, (NAMESPACE, tokens(&[5, 6, 7])));
    assert!(opened.pages.iter().all(|page| reads(&opened.store, 1, page)));
    assert!(opened.store.stats().read_rate.is_some_and(|rate| rate > 0.0));
}

#[test]
fn a_second_process_writes_on_where_a_first_one_ended() {
    let directory = tempfile::tempdir().unwrap();
    for id in 0..5 {
        let mut store = open(directory.path(), 1, 0).store;
        put(&mut store, 1, &tokens(&[id]), 0);
    }
    assert_eq!(segments(directory.path()).len(), 1);
    assert_eq!(open(directory.path(), 1, 0).pages.len(), 5);
}

#[test]
fn another_model_is_recognized_and_not_served() {
    let directory = tempfile::tempdir().unwrap();
    put(&mut open(directory.path(), 1, 0).store, 1, &tokens(&[5, 6, 7]), 0);
    let opened = open(directory.path(), 2, 0);
    assert!(opened.pages.is_empty());
    let held =
        |namespace, ids: &[u32]| opened.store.held_under_other_model(namespace, &tokens(ids));
    assert_eq!(held(&NAMESPACE, &[5, 6, 9]), 32);
    assert_eq!(held(&NAMESPACE, &[9, 6, 7]), 0);
    assert_eq!(held(&[2; 32], &[5, 6, 7]), 0);
    // What the other model adds is seen, and what is deleted of it.
    let mut store = opened.store;
    put(&mut open(directory.path(), 1, 0).store, 1, &tokens(&[8]), 0);
    refresh(&mut store, 1000);
    assert_eq!(store.held_under_other_model(&NAMESPACE, &tokens(&[8, 9])), 16);
    fs::remove_file(&segments(directory.path())[0]).unwrap();
    refresh(&mut store, 2000);
    assert_eq!(store.held_under_other_model(&NAMESPACE, &tokens(&[8, 9])), 0);
}

#[test]
fn two_stores_find_what_the_other_wrote_and_store_it_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = open(directory.path(), 1, 0).store;
    let mut second = open(directory.path(), 1, 0).store;
    put(&mut first, 1, &tokens(&[5, 6]), 0);
    let seen = found(&refresh(&mut second, 1000));
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|record| reads(&second, 1, record)));
    let again = put(&mut second, 1, &tokens(&[5, 6, 7]), 1000);
    assert_eq!(stored(&again).len(), 3);
    assert_eq!(second.stats().written_pages, 1);
    drop(second);
    assert_eq!(found(&refresh(&mut first, 2000)).len(), 1);
}

#[test]
fn the_least_recently_used_segment_goes_first_and_everybody_notices() {
    let directory = tempfile::tempdir().unwrap();
    let small = options(directory.path(), 1, 64 << 10);
    let mut store = open_with(&small, 0).store;
    let mut other = open_with(&small, 0).store;
    let first = stored(&put(&mut store, 1, &tokens(&[1, 2]), 1000));
    let used = pages(1, NAMESPACE, &tokens(&[1])).remove(0).page;
    let mut dropped = Vec::new();
    for id in 10..200 {
        let now = 1000 + u64::from(id) * 1000;
        store.note_used(used.clone(), Timestamp(now));
        for event in put(&mut store, 1, &tokens(&[id]), now) {
            if let DiskEvent::Dropped { place, reason } = event {
                assert_eq!(reason, DropReason::Evicted);
                dropped.push(place);
            }
        }
    }
    assert!(!dropped.is_empty());
    assert!(!dropped.contains(&first[0].1), "a page in use was dropped");
    assert!(reads(&store, 1, &first[0]));
    let gone = |&place: &DiskPage| {
        let wanted = wanted(&first[0].0, place);
        store.reader().read(&wanted, &mut Vec::new()) == Err(ReadError::Gone)
    };
    assert!(dropped.iter().all(gone));
    let bytes: u64 =
        segments(directory.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(bytes <= 64 << 10, "{bytes}");
    let known = found(&refresh(&mut other, 300_000));
    assert!(known.len() > 20 && known.iter().all(|record| reads(&other, 1, record)));
    for path in segments(directory.path()) {
        fs::remove_file(path).unwrap();
    }
    let vanished = refresh(&mut other, 302_000);
    let is_vanished = |event: &DiskEvent| {
        matches!(event, DiskEvent::Dropped { reason: DropReason::Vanished, .. })
    };
    assert_eq!(vanished.iter().filter(|event| is_vanished(event)).count(), known.len());
}

#[test]
fn a_segment_that_somebody_writes_is_not_deleted_by_others() {
    let directory = tempfile::tempdir().unwrap();
    let small = options(directory.path(), 1, 64 << 10);
    let mut idle = open_with(&small, 0).store;
    let mut busy = open_with(&small, 0).store;
    let first = stored(&put(&mut idle, 1, &tokens(&[1]), 0));
    for id in 10..200 {
        put(&mut busy, 1, &tokens(&[id]), u64::from(id) * 1000);
    }
    assert!(busy.stats().dropped_pages > 0);
    let later = open_with(&small, 300_000);
    let page = later.pages.iter().find(|(name, _)| *name == first[0].0).unwrap();
    assert!(reads(&later.store, 1, page));
}

#[test]
fn a_damaged_page_is_refused_told_and_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path(), 1, 0).store;
    let records = stored(&put(&mut store, 1, &tokens(&[5, 6]), 0));
    let path = &segments(directory.path())[0];
    let last = fs::metadata(path).unwrap().len() - 1;
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, last).unwrap();
    file.write_all_at(&[byte[0] ^ 16], last).unwrap();
    let second = wanted(&records[1].0, records[1].1);
    let read = store.reader().read(&second, &mut Vec::new());
    assert_eq!(read, Err(ReadError::Damaged));
    assert!(reads(&store, 1, &records[0]));
    store.flush();
    let told = store.poll(Timestamp(0));
    let [DiskEvent::Damaged(damage), DiskEvent::Dropped { place, reason }] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(damage.kind, DamageKind::Page { index: 1 });
    assert_eq!((place, reason), (&records[1].1, &DropReason::Damaged));
    // Given again, it is written again.
    let again = stored(&put(&mut store, 1, &tokens(&[5, 6]), 0));
    assert!(again.iter().all(|record| reads(&store, 1, record)));
}

#[test]
fn what_is_not_a_sound_segment_is_told_once_and_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    put(&mut open(directory.path(), 1, 0).store, 1, &tokens(&[5, 6, 7]), 0);
    let segment = segments(directory.path()).remove(0);
    let whole = fs::read(&segment).unwrap();
    fs::write(&segment, &whole[..whole.len() - 1]).unwrap();
    fs::write(path("notes.txt"), "not ours").unwrap();
    fs::create_dir(path("folder")).unwrap();
    let names: Vec<_> = (0..4).map(|number| format!("{number:032x}.segment")).collect();
    fs::write(path(&names[0]), "").unwrap();
    fs::write(path(&names[1]), vec![0xa5; 10_000]).unwrap();
    let mut version = whole.clone();
    version[8] = 9;
    fs::write(path(&names[2]), &version).unwrap();
    // In the first record's header.
    let mut header = whole;
    header[4096 + 40] ^= 1;
    fs::write(path(&names[3]), &header).unwrap();

    let mut opened = open(directory.path(), 1, 0);
    let mut kinds: Vec<_> = opened.damage.iter().map(|damage| damage.kind).collect();
    kinds.sort_by_key(|kind| format!("{kind:?}"));
    let expected = [
        DamageKind::Foreign,
        DamageKind::Foreign,
        DamageKind::Headers { records: 1 },
        DamageKind::NotASegment,
        DamageKind::NotASegment,
        DamageKind::Truncated { pages: 1 },
        DamageKind::Version(9),
    ];
    assert_eq!(kinds, expected, "{:?}", opened.damage);
    let line = Damage { file: "a".into(), kind: DamageKind::Truncated { pages: 1 } };
    assert_eq!(line.to_string(), "a: truncated: 1 pages are lost");
    // The first two are in the truncated segment, the last in the copy.
    assert_eq!(opened.pages.len(), 3);
    assert!(opened.pages.iter().all(|page| reads(&opened.store, 1, page)));
    let again = refresh(&mut opened.store, 1000);
    let is_told = |event: &&DiskEvent| match event {
        // The segment's copy names pages that it does not have.
        DiskEvent::Damaged(damage) => !matches!(damage.kind, DamageKind::Page { .. }),
        _ => false,
    };
    assert_eq!(again.iter().filter(is_told).count(), 0, "{again:?}");
    assert!(path("notes.txt").exists());
}

#[test]
fn expired_pages_are_not_replayed_and_a_longer_life_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path(), 1, 0).store;
    let mut put_until = |expires_at: u64| {
        let mut page = pages(1, NAMESPACE, &tokens(&[5])).remove(0);
        page.page.expires_at = Some(Timestamp(expires_at));
        store.append(page, Timestamp(0)).unwrap();
        store.flush();
        stored(&store.poll(Timestamp(0)))[0].1
    };
    let first = put_until(1000);
    assert_eq!(put_until(1100), first, "half of it is good enough");
    assert_ne!(put_until(3000), first);
    drop(store);
    assert_eq!(open(directory.path(), 1, 2999).pages.len(), 1);
    assert_eq!(open(directory.path(), 1, 3000).pages.len(), 0);
}

#[test]
fn a_longer_life_is_written_where_the_page_lies() {
    let directory = tempfile::tempdir().unwrap();
    let until = |expires_at| {
        let mut pages = pages(1, NAMESPACE, &tokens(&[5, 6, 7]));
        pages.iter_mut().for_each(|page| page.page.expires_at = Some(Timestamp(expires_at)));
        pages
    };
    let mut store = open(directory.path(), 1, 0).store;
    for page in until(1000) {
        store.append(page, Timestamp(0)).unwrap();
    }
    store.flush();
    store.poll(Timestamp(0));
    let lengthen = |store: &DiskStore, depth: usize, expires_at, now| {
        store.lengthen(until(expires_at).remove(depth).page, Timestamp(now));
        store.flush();
    };
    let alive = |now| open(directory.path(), 1, now).pages.len();
    // Not for a little more.
    lengthen(&store, 2, 1500, 500);
    assert_eq!((alive(999), alive(1000)), (3, 0));
    lengthen(&store, 1, 3000, 500);
    assert_eq!((alive(1000), alive(2999), alive(3000)), (2, 2, 0));
    // What was deleted, by whomever, stays deleted.
    let other = open(directory.path(), 1, 500).store;
    other.delete_pages(NAMESPACE, tokens(&[5, 6]), 1);
    other.flush();
    lengthen(&store, 2, 9000, 2000);
    assert_eq!((alive(2000), alive(8999)), (1, 1));
    let later = open(directory.path(), 1, 2000);
    assert_eq!(later.damage, Vec::new());
    assert!(reads(&later.store, 1, &later.pages[0]));
    store.poll(Timestamp(2000));
}

#[test]
fn what_follows_a_page_whose_life_is_over_is_refused_until_it_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let page = |depth: usize, expires_at: u64| {
        let mut page = pages(1, NAMESPACE, &tokens(&[5, 6, 7])).remove(depth);
        page.page.expires_at = Some(Timestamp(expires_at));
        page
    };
    let mut store = open(directory.path(), 1, 0).store;
    let mut give = |depth, expires_at, now| {
        store.append(page(depth, expires_at), Timestamp(now)).unwrap();
        store.flush();
        store.poll(Timestamp(now))
    };
    assert_eq!(stored(&give(0, 9000, 0)).len() + stored(&give(1, 1000, 0)).len(), 2);
    // It is told from where on it has to be offered again, and what is over is not worth writing.
    for events in [give(2, 9000, 2000), give(1, 2000, 2000)] {
        let [DiskEvent::Refused { held, .. }] = &events[..] else { panic!("{events:?}") };
        assert_eq!(*held, 1);
    }
    store.lengthen(page(1, 9000).page, Timestamp(2000));
    store.append(page(2, 9000), Timestamp(2000)).unwrap();
    store.flush();
    assert_eq!(stored(&store.poll(Timestamp(2000))).len(), 1);
    assert_eq!(store.stats().written_pages, 3, "its life goes on where it lies");
    drop(store);
    assert_eq!(open(directory.path(), 1, 8999).pages.len(), 3);
}

#[test]
fn of_what_waits_notes_are_dropped_and_orders_are_done() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path(), 1, 0).store;
    let records = stored(&put(&mut store, 1, &tokens(&[5]), 0));
    // Somebody deletes, for a while: who would make lives longer waits for that.
    let lock = OpenOptions::new().write(true).open(directory.path().join("lock")).unwrap();
    lock.lock().unwrap();
    store.delete_pages(NAMESPACE, tokens(&[5]), 0);
    let mut used = pages(1, NAMESPACE, &tokens(&[6])).remove(0).page;
    used.tokens = (0..1 << 20).collect();
    while store.lengthen(used.clone(), Timestamp(0)) {}
    store.note_used(used, Timestamp(0));
    assert_eq!(store.stats().dropped_notes, 2);
    assert!(!store.is_behind(), "there is room for orders");
    (0..4).for_each(|_| store.delete_pages(NAMESPACE, (0..1 << 20).collect(), 0));
    assert!(store.is_behind());
    lock.unlock().unwrap();
    store.flush();
    assert!(!store.is_behind());
    assert!(!reads(&store, 1, &records[0]), "it was deleted");
    assert!(store.lengthen(pages(1, NAMESPACE, &tokens(&[5])).remove(0).page, Timestamp(0)));
}

#[test]
fn a_page_without_its_parent_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path(), 1, 0).store;
    put(&mut store, 1, &tokens(&[5, 6, 7]), 0);
    store.delete_pages(NAMESPACE, tokens(&[5]), 0);
    drop(store);
    let mut opened = open(directory.path(), 1, 0);
    assert!(opened.pages.is_empty());
    let mut more = pages(1, NAMESPACE, &tokens(&[5, 6, 7, 8]));
    let (last, root) = (more.pop().unwrap(), more.remove(0));
    opened.store.append(last, Timestamp(0)).unwrap();
    opened.store.flush();
    let events = opened.store.poll(Timestamp(0));
    assert!(
        matches!(events[..], [DiskEvent::Refused { .. }]),
        "nothing could reach it: {events:?}"
    );
    opened.store.append(root, Timestamp(0)).unwrap();
    opened.store.flush();
    let events = opened.store.poll(Timestamp(0));
    assert_eq!(stored(&events).len(), 1);
    let lengths: Vec<_> = found(&events).iter().map(|((_, path), _)| path.len()).collect();
    assert_eq!(lengths, [32, 48]);
}

#[test]
fn a_run_is_read_in_order_and_ends_at_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path(), 1, 0).store;
    let records = stored(&put(&mut store, 1, &tokens(&[5, 6, 7, 8]), 0));
    let places: Vec<_> = records.iter().map(|&(_, place)| place).collect();
    // What was stored ends with another page than what is asked for.
    let run = Wanted::run(&NAMESPACE, &tokens(&[5, 6, 7, 9]), 1, &places[1..]);
    assert_eq!(run.len(), 3);
    let mut run = store.reader().read_run(run, 2, || {}).unwrap();
    for (name, _) in &records[1..3] {
        let page = run.wait_next().unwrap().unwrap();
        assert_eq!(page, content(1, name));
        run.give_back(page);
    }
    assert_eq!(run.wait_next(), Some(Err(ReadError::Gone)));
    assert_eq!(run.wait_next(), None);
    assert_eq!(run.try_next(), NextPage::End);
}

#[test]
fn a_full_queue_gives_the_page_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut tight = options(directory.path(), 1, 1 << 20);
    tight.queue_bytes = PAGE_BYTES - 1;
    let store = open_with(&tight, 0).store;
    let page = pages(1, NAMESPACE, &tokens(&[5])).remove(0);
    assert_eq!(store.append(page.clone(), Timestamp(0)), Err(page));
    tight.page_bytes = 0;
    let opened = DiskStore::open(&tight, Timestamp(0), |_| {});
    assert!(matches!(opened, Err(OpenError::PageBytes(0))));
}

#[test]
fn a_directory_deleted_under_a_store_is_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b");
    let mut store = open(&path, 1, 0).store;
    put(&mut store, 1, &tokens(&[5, 6]), 0);
    fs::remove_dir_all(&path).unwrap();
    let gone = refresh(&mut store, 1000);
    assert_eq!(gone.len(), 2, "{gone:?}");
    assert_eq!(stored(&put(&mut store, 1, &tokens(&[5, 6]), 1000)).len(), 2);
    drop(store);
    assert_eq!(open(&path, 1, 2000).pages.len(), 2);
}

#[test]
fn only_the_owner_can_look_into_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    put(&mut open(directory.path(), 1, 0).store, 1, &tokens(&[5]), 0);
    secret(directory.path()).unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(directory.path()), 0o700);
    for entry in fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn a_directory_that_others_look_into_and_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(directory.path().join("notes.txt"), "not ours").unwrap();
    let opened = DiskStore::open(&options(directory.path(), 1, 1 << 20), Timestamp(0), |_| {});
    assert!(matches!(opened, Err(OpenError::Directory { .. })));
    let mode = fs::metadata(directory.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn everybody_gets_the_same_secret() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new");
    let secrets: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| secret(&path).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(secrets.iter().all(|one| *one == secrets[0]));
    assert_ne!(secrets[0], [0; 32]);
    fs::write(path.join("secret"), "too short").unwrap();
    let anew = secret(&path).unwrap();
    assert_ne!(anew, secrets[0]);
    assert_eq!(secret(&path).unwrap(), anew);
}

/// So few bytes that four segments of 14 pages fit.
const FEW_BYTES: u64 = 64 << 10;

#[test]
fn of_a_prompt_larger_than_the_budget_the_beginning_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let small = options(directory.path(), 1, FEW_BYTES);
    let mut store = open_with(&small, 0).store;
    let long: Vec<u32> = (0..200).collect();
    let (mut kept, mut refused) = (Vec::new(), 0);
    for event in put(&mut store, 1, &tokens(&long), 1000) {
        match event {
            DiskEvent::Stored(page, _) => kept.push(page.depth),
            DiskEvent::Refused { .. } => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(kept, (0..kept.len()).collect::<Vec<_>>());
    assert!(kept.len() >= 4 * 14, "{} pages", kept.len());
    let bytes = segments(directory.path()).into_iter().map(|path| path.metadata().unwrap().len());
    assert!(bytes.sum::<u64>() <= FEW_BYTES);
    assert_eq!(refused, 200 - kept.len());
    assert_eq!(store.stats().written_pages, kept.len() as u64, "what is refused is not written");
    // Another prompt makes room for itself; what is left of the first begins where that does.
    let other: Vec<u32> = (1000..1020).collect();
    put(&mut store, 1, &tokens(&other), 2000);
    drop(store);
    let opened = open_with(&small, 3000);
    let of = |first: u32| opened.pages.iter().filter(|((_, path), _)| path[0] == first).count();
    assert_eq!(of(1000), 20);
    assert!(of(0) >= kept.len() - 28, "{} of {} pages are left", of(0), kept.len());
    assert!(opened.pages.iter().all(|page| reads(&opened.store, 1, page)));
}

#[test]
fn what_others_begin_with_goes_after_them() {
    let directory = tempfile::tempdir().unwrap();
    let small = options(directory.path(), 1, FEW_BYTES);
    let mut store = open_with(&small, 0).store;
    let system: Vec<u32> = (0..20).collect();
    for turn in 0..60 {
        // The head is in memory, so that nobody reads it from disk.
        let all = [&system[..], &[1000 + turn, 2000 + turn]].concat();
        let head = if turn == 0 { 0 } else { 20 };
        let now = 1000 * u64::from(turn + 1);
        for page in pages(1, NAMESPACE, &tokens(&all)).into_iter().skip(head) {
            store.append(page, Timestamp(now)).unwrap();
        }
        store.flush();
        store.poll(Timestamp(now));
    }
    assert!(store.stats().dropped_pages > 40, "there was no room for all");
    drop(store);
    let opened = open_with(&small, 100_000);
    let head = opened.pages.iter().filter(|((_, path), _)| path.len() <= 20 * PAGE_TOKENS);
    assert_eq!(head.count(), 20);
    // What lies on disk can be reached.
    assert!(opened.pages.len() > 30, "{} pages", opened.pages.len());
}

#[test]
fn what_is_used_in_memory_counts_as_used_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let small = options(directory.path(), 1, FEW_BYTES);
    let mut store = open_with(&small, 0).store;
    let first: Vec<u32> = (0..30).collect();
    put(&mut store, 1, &tokens(&first), 1000);
    let used = pages(1, NAMESPACE, &tokens(&first)).pop().unwrap().page;
    for id in 100..200 {
        let now = 1000 * u64::from(id);
        store.note_used(used.clone(), Timestamp(now));
        put(&mut store, 1, &tokens(&[id]), now);
    }
    drop(store);
    let opened = open_with(&small, 300_000);
    let left = opened.pages.iter().filter(|((_, path), _)| path[0] == 0).count();
    assert_eq!(left, 30);
}

#[test]
fn a_budget_that_no_page_fits_is_said_to_be_too_small() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open_with(&options(directory.path(), 1, 4096), 0).store;
    let events = put(&mut store, 1, &tokens(&[5]), 0);
    let [DiskEvent::Paused { message, .. }, DiskEvent::Refused { .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(message.contains("less than a file of one page"), "{message}");
}
