//! What is deleted does not come back.

use std::fs;

use cache::disk::{DiskEvent, DropReason, ReadError};
use cache::{DiskPage, Timestamp};

use crate::support::*;

#[test]
fn deleted_pages_do_not_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path(), 1, 0).store;
    let records = stored(&put(&mut store, 1, &tokens(&[5, 6, 7]), 0));
    stored(&put(&mut store, 1, &tokens(&[5, 6, 8]), 0));
    let mut other = open(directory.path(), 1, 0).store;
    store.delete_pages(NAMESPACE, tokens(&[5, 6, 7]), 2);
    store.flush();
    let events = store.poll(Timestamp(0));
    let is_deleted = |event: &DiskEvent, place: DiskPage| {
        let reason = DropReason::Deleted;
        matches!(event, DiskEvent::Dropped { place: p, reason: r } if *p == place && *r == reason)
    };
    assert!(events.len() == 1 && is_deleted(&events[0], records[2].1), "{events:?}");
    assert!(!reads(&store, 1, &records[2]) && reads(&store, 1, &records[1]));
    // The other finds out when it reads, and takes it for no damage.
    let elsewhere = open(directory.path(), 1, 0);
    assert_eq!((elsewhere.pages.len(), elsewhere.damage), (3, Vec::new()));
    let read = other.reader().read(&wanted(&records[2].0, records[2].1), &mut Vec::new());
    assert_eq!(read, Err(ReadError::Gone));
    other.flush();
    let told = other.poll(Timestamp(0));
    assert!(told.len() == 1 && is_deleted(&told[0], records[2].1), "{told:?}");
    // It can be stored again, behind what was deleted.
    let again = stored(&put(&mut store, 1, &tokens(&[5, 6, 7]), 1));
    assert!(again.iter().all(|record| reads(&store, 1, record)));
    drop(store);
    let later = open(directory.path(), 1, 2);
    assert_eq!((later.pages.len(), later.damage), (4, Vec::new()));
}

#[test]
fn a_namespace_is_deleted_under_all_models() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path(), 1, 0).store;
    put(&mut store, 1, &tokens(&[5, 6]), 0);
    let mut other = open(directory.path(), 2, 0).store;
    let records = stored(&put(&mut other, 2, &tokens(&[5, 6]), 0));
    let kept = pages(2, [2; 32], &tokens(&[5])).remove(0);
    other.append(kept, Timestamp(0)).unwrap();
    other.flush();
    // A third model, of which nothing is left then.
    let mut third = open(directory.path(), 3, 0).store;
    put(&mut third, 3, &tokens(&[5, 6, 7]), 0);
    drop(third);
    assert_eq!(segments(directory.path()).len(), 3);

    refresh(&mut store, 2000);
    assert_eq!(store.held_under_other_model(&NAMESPACE, &tokens(&[5, 6, 7])), 48);
    store.delete_namespace(NAMESPACE, Vec::new());
    store.flush();
    refresh(&mut store, 4000);
    assert_eq!(store.held_under_other_model(&NAMESPACE, &tokens(&[5, 6, 7])), 0);
    assert_eq!(store.held_under_other_model(&[2; 32], &tokens(&[5])), 16);
    assert_eq!(segments(directory.path()).len(), 1, "the one that is being written stays");
    assert!(records.iter().all(|record| !reads(&other, 2, record)));
    drop((store, other));
    let later = open(directory.path(), 2, 4001);
    assert_eq!((later.pages.len(), later.damage), (1, Vec::new()));
}

#[test]
fn a_namespace_is_deleted_with_what_is_queued_and_with_its_empty_segments() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path(), 1, 0).store;
    put(&mut store, 1, &tokens(&[5, 6]), 0);
    for page in pages(1, NAMESPACE, &tokens(&[7, 8])) {
        store.append(page, Timestamp(0)).unwrap();
    }
    store.delete_namespace(NAMESPACE, Vec::new());
    store.flush();
    let events = store.poll(Timestamp(0));
    let (mut told, mut dropped) = (Vec::new(), 0);
    for event in events {
        match event {
            DiskEvent::Stored(_, place) => told.push(place),
            DiskEvent::Dropped { place, reason: DropReason::Deleted } => {
                dropped += 1;
                told.retain(|other| *other != place);
            }
            DiskEvent::Cleared(NAMESPACE) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((told, dropped), (Vec::new(), 4));
    assert!(segments(directory.path()).is_empty());
    let of_another = pages(1, [2; 32], &tokens(&[5])).remove(0);
    store.append(of_another, Timestamp(0)).unwrap();
    put(&mut store, 1, &tokens(&[5, 6]), 0);
    store.delete_namespace(NAMESPACE, Vec::new());
    drop(store);
    let later = open(directory.path(), 1, 1);
    assert_eq!((later.pages.len(), later.damage), (1, Vec::new()));
}

#[test]
fn a_deletion_that_broke_off_serves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path(), 1, 0).store;
    let records = stored(&put(&mut store, 1, &tokens(&[5, 6]), 0));
    drop(store);
    let segment = segments(directory.path()).remove(0);
    let whole = fs::read(&segment).unwrap();
    let store = open(directory.path(), 1, 0).store;
    store.delete_pages(NAMESPACE, tokens(&[5, 6]), 1);
    drop(store);
    let deleted = fs::read(&segment).unwrap();
    let slot = 4096 + 256 * records[1].1.index as usize;
    for written in 0..=256 {
        let mut bytes = whole.clone();
        bytes[slot..slot + written].copy_from_slice(&deleted[slot..slot + written]);
        let (is_whole, is_deleted) = (bytes == whole, bytes == deleted);
        fs::write(&segment, bytes).unwrap();
        let opened = open(directory.path(), 1, 0);
        assert_eq!(opened.pages.len(), if is_whole { 2 } else { 1 }, "after {written} bytes");
        assert_eq!(opened.damage.is_empty(), is_whole || is_deleted, "after {written} bytes");
        assert!(opened.pages.iter().all(|record| reads(&opened.store, 1, record)));
    }
}

#[test]
fn what_is_spared_stays_when_its_namespace_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path(), 1, 0).store;
    put(&mut store, 1, &tokens(&[5, 6, 7]), 0);
    put(&mut store, 1, &tokens(&[5, 8]), 0);
    // The same tokens under another model are another's, who did not ask.
    let mut other = open(directory.path(), 2, 0).store;
    let others = stored(&put(&mut other, 2, &tokens(&[5]), 0));
    for page in pages(1, NAMESPACE, &tokens(&[5, 8, 9])) {
        store.append(page, Timestamp(0)).unwrap();
    }
    // Of a partial page nothing is stored.
    let spared = [&tokens(&[5, 6])[..], &[7, 7]].concat();
    store.delete_namespace(NAMESPACE, vec![spared, tokens(&[5, 8])]);
    store.flush();
    assert!(!reads(&other, 2, &others[0]));
    let events = store.poll(Timestamp(0));
    assert!(matches!(events.last(), Some(DiskEvent::Cleared(NAMESPACE))), "{events:?}");
    drop((store, other));
    let later = open(directory.path(), 1, 1);
    let mut left: Vec<_> = later.pages.iter().map(|((_, path), _)| path.clone()).collect();
    left.sort();
    assert_eq!(left, [tokens(&[5]), tokens(&[5, 6]), tokens(&[5, 8])]);
    assert_eq!(later.damage, Vec::new());
}

#[test]
fn a_namespace_is_deleted_with_what_has_expired_and_what_nobody_has_seen_yet() {
    let directory = tempfile::tempdir().unwrap();
    let mut other = open(directory.path(), 1, 0).store;
    let mut brief = pages(1, NAMESPACE, &tokens(&[5])).remove(0);
    brief.page.expires_at = Some(Timestamp(10));
    other.append(brief, Timestamp(0)).unwrap();
    other.flush();
    let store = open(directory.path(), 1, 100).store;
    put(&mut other, 1, &tokens(&[6, 7]), 100);
    store.delete_namespace(NAMESPACE, Vec::new());
    drop((store, other));
    let now = 5;
    let later = open(directory.path(), 1, now);
    assert_eq!((later.pages.len(), later.damage), (0, Vec::new()));
}
