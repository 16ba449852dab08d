//! Pages whose bytes follow from their keys, and stores in a directory of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cache::disk::{
    Damage, DiskEvent, DiskOptions, DiskStore, NewPage, SequencePage, StoredRun, Wanted,
};
use cache::{DiskPage, PAGE_TOKENS, Timestamp};

pub(crate) const PAGE_BYTES: usize = 300;
pub(crate) const NAMESPACE: [u8; 32] = [1; 32];

/// A page by its namespace and its path from the start of the sequence.
pub(crate) type Name = ([u8; 32], Vec<u32>);

/// A store just opened, and what it said of its directory.
pub(crate) struct Opened {
    pub(crate) store: DiskStore,
    pub(crate) pages: Vec<(Name, DiskPage)>,
    pub(crate) damage: Vec<Damage>,
}

pub(crate) fn options(directory: &Path, model: u8, budget_bytes: u64) -> DiskOptions {
    DiskOptions {
        directory: directory.to_path_buf(),
        budget_bytes,
        model: [model; 32],
        page_bytes: PAGE_BYTES,
        queue_bytes: 1 << 20,
    }
}

pub(crate) fn open_with(options: &DiskOptions, now: u64) -> Opened {
    let mut pages = Vec::new();
    let opened = DiskStore::open(options, Timestamp(now), |run| pages.extend(of_run(&run)));
    let opened = opened.unwrap();
    Opened { store: opened.store, pages, damage: opened.damage }
}

pub(crate) fn open(directory: &Path, model: u8, now: u64) -> Opened {
    open_with(&options(directory, model, 1 << 20), now)
}

pub(crate) fn of_run(run: &StoredRun) -> Vec<(Name, DiskPage)> {
    run.paths().map(|(path, place, _)| ((run.namespace, path.to_vec()), place)).collect()
}

/// What a page of this name holds under this model.
pub(crate) fn content(model: u8, (namespace, path): &Name) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new_keyed(&[model; 32]);
    hasher.update(namespace);
    for token in path {
        hasher.update(&token.to_be_bytes());
    }
    let mut bytes = vec![0; PAGE_BYTES];
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// The full pages of `tokens`.
pub(crate) fn pages(model: u8, namespace: [u8; 32], tokens: &[u32]) -> Vec<NewPage> {
    let tokens: Arc<[u32]> = tokens.into();
    let page = |depth| {
        let page = SequencePage { namespace, tokens: Arc::clone(&tokens), depth, expires_at: None };
        let bytes = content(model, &name(&page));
        NewPage { page, bytes }
    };
    (0..tokens.len() / PAGE_TOKENS).map(page).collect()
}

pub(crate) fn name(page: &SequencePage) -> Name {
    (page.namespace, page.path().to_vec())
}

/// Pages full of one token id each.
pub(crate) fn tokens(ids: &[u32]) -> Vec<u32> {
    ids.iter().flat_map(|&id| [id; PAGE_TOKENS]).collect()
}

/// Stores the pages of `tokens` and returns what was said meanwhile.
pub(crate) fn put(store: &mut DiskStore, model: u8, tokens: &[u32], now: u64) -> Vec<DiskEvent> {
    for page in pages(model, NAMESPACE, tokens) {
        store.append(page, Timestamp(now)).unwrap();
    }
    store.flush();
    store.poll(Timestamp(now))
}

/// Looks at the directory and returns what is said of it.
pub(crate) fn refresh(store: &mut DiskStore, now: u64) -> Vec<DiskEvent> {
    let mut events = store.poll(Timestamp(now));
    store.flush();
    events.extend(store.poll(Timestamp(now)));
    events
}

pub(crate) fn wanted(name: &Name, place: DiskPage) -> Wanted {
    let (namespace, path) = name;
    Wanted::run(namespace, path, path.len() / PAGE_TOKENS - 1, &[place])[0]
}

/// True if the page comes back as it was given; panics if another comes.
pub(crate) fn reads(store: &DiskStore, model: u8, (name, place): &(Name, DiskPage)) -> bool {
    let mut page = Vec::new();
    let is_there = store.reader().read(&wanted(name, *place), &mut page).is_ok();
    assert!(!is_there || page == content(model, name), "other bytes than were stored");
    is_there
}

pub(crate) fn stored(events: &[DiskEvent]) -> Vec<(Name, DiskPage)> {
    let stored = |event: &DiskEvent| match event {
        DiskEvent::Stored(page, place) => Some((name(page), *place)),
        _ => None,
    };
    events.iter().filter_map(stored).collect()
}

pub(crate) fn found(events: &[DiskEvent]) -> Vec<(Name, DiskPage)> {
    let found = |event: &DiskEvent| match event {
        DiskEvent::Found(run) => of_run(run),
        _ => Vec::new(),
    };
    events.iter().flat_map(found).collect()
}

pub(crate) fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "segment"))
        .collect();
    paths.sort();
    paths
}
