//! Which pages are on disk, by key: pages of this model only, each at its best place.

use std::collections::{BTreeSet, HashMap};

use crate::disk::chain::ChainKey;
use crate::disk::record::{Record, StoredRun};
use crate::disk_page::DiskPage;
use crate::timestamp::Timestamp;

/// Records that are kept in memory at most, some 80 MB of them: four million tokens.
pub(crate) const RECORDS_MAX: usize = 1 << 18;

struct Entry {
    record: Record,
    /// True if all pages before it are here too: only such a page is announced.
    reachable: bool,
}

/// What taking a place away changed.
#[derive(Default)]
pub(crate) struct Removal {
    /// Pages that another place was known for, at that place.
    pub(crate) moved: Vec<Record>,
    /// Pages at the place where they are no more.
    pub(crate) dropped: Vec<Record>,
}

#[derive(Default)]
pub(crate) struct Index {
    entries: HashMap<ChainKey, Entry>,
    /// Further places of pages: two processes may have written the same one.
    duplicates: HashMap<ChainKey, Vec<Record>>,
    /// Parent and child, for each entry.
    children: BTreeSet<(ChainKey, ChainKey)>,
    /// What each segment holds; a key that is gone may still stand here.
    segments: HashMap<u32, Vec<ChainKey>>,
    records: usize,
}

impl Index {
    /// Pages, each counted once.
    pub(crate) fn pages(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.records >= RECORDS_MAX
    }

    pub(crate) fn get(&self, key: &ChainKey) -> Option<&Record> {
        self.entries.get(key).map(|entry| &entry.record)
    }

    /// Whether a page and all before it are here, and it lives.
    pub(crate) fn is_reachable(&self, key: &ChainKey, now: Timestamp) -> bool {
        let entry = self.entries.get(key);
        entry.is_some_and(|entry| entry.reachable && !entry.record.is_expired(now))
    }

    /// How many of these pages, which follow each other from the first of a sequence on, are here
    /// and live, up to the first that does not.
    pub(crate) fn held(&self, keys: &[ChainKey], now: Timestamp) -> usize {
        keys.iter().take_while(|key| self.is_reachable(key, now)).count()
    }

    /// The segments in which pages lie, each once, in the order in which the keys lead to them.
    pub(crate) fn segments_of(&self, keys: &[ChainKey]) -> Vec<u32> {
        let mut segments: Vec<u32> = Vec::new();
        for record in keys.iter().filter_map(|key| self.get(key)) {
            let segment = record.place.segment;
            // Pages that follow each other mostly lie together.
            if segments.last() != Some(&segment) && !segments.contains(&segment) {
                segments.push(segment);
            }
        }
        segments
    }

    /// Takes a record in, unless there is no room, and returns what can be reached through it and
    /// could not before: itself and pages after it, each after its parent.
    pub(crate) fn insert(&mut self, record: Record) -> Vec<Record> {
        if self.is_full() {
            return Vec::new();
        }
        self.records += 1;
        self.segments.entry(record.place.segment).or_default().push(record.key);
        if let Some(entry) = self.entries.get_mut(&record.key) {
            let lasts_longer = lasts(&record) > lasts(&entry.record);
            let spare =
                if lasts_longer { std::mem::replace(&mut entry.record, record) } else { record };
            let announced = lasts_longer && entry.reachable;
            self.duplicates.entry(spare.key).or_default().push(spare);
            return if announced { vec![record] } else { Vec::new() };
        }
        let reachable = record.depth == 0
            || self.entries.get(&record.parent).is_some_and(|parent| parent.reachable);
        self.entries.insert(record.key, Entry { record, reachable: false });
        self.children.insert((record.parent, record.key));
        if reachable { self.reach(record.key) } else { Vec::new() }
    }

    /// The pages that can be reached, each after its parent.
    pub(crate) fn reachable(&self) -> impl Iterator<Item = Record> {
        let starts = self.entries.values().filter(|entry| entry.record.depth == 0);
        let mut waiting: Vec<ChainKey> = starts.map(|entry| entry.record.key).collect();
        std::iter::from_fn(move || {
            let key = waiting.pop()?;
            waiting.extend(self.children_of(key));
            // Every child is an entry.
            self.get(&key).copied()
        })
    }

    /// Joins records that follow one another, and gives `each` run together with the tokens before
    /// it. A record whose start is not known is left out.
    pub(crate) fn runs(
        &self,
        records: impl IntoIterator<Item = Record>,
        mut each: impl FnMut(StoredRun),
    ) {
        let mut open: Option<(ChainKey, StoredRun)> = None;
        for record in records {
            let page = (record.place, record.expires_at);
            match &mut open {
                Some((last, run)) if *last == record.parent => {
                    run.tokens.extend(record.tokens);
                    run.pages.push(page);
                    *last = record.key;
                }
                _ => {
                    if let Some((_, run)) = open.take() {
                        each(run);
                    }
                    open = self.path(&record).map(|tokens| {
                        let namespace = record.namespace;
                        (record.key, StoredRun { namespace, tokens, pages: vec![page] })
                    });
                }
            }
        }
        if let Some((_, run)) = open {
            each(run);
        }
    }

    /// The token ids from the start of a page's sequence to its end.
    fn path(&self, record: &Record) -> Option<Vec<u32>> {
        let mut pages = vec![record.tokens];
        let mut record = record;
        while record.depth > 0 {
            // Damage cannot make a circle, since a key is a hash over its parent.
            record = self.get(&record.parent)?;
            pages.push(record.tokens);
        }
        Some(pages.into_iter().rev().flatten().collect())
    }

    /// Marks a page and what follows it as reachable.
    fn reach(&mut self, key: ChainKey) -> Vec<Record> {
        let mut reached = Vec::new();
        let mut waiting = vec![key];
        while let Some(key) = waiting.pop() {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            if !entry.reachable {
                entry.reachable = true;
                reached.push(entry.record);
                waiting.extend(self.children_of(key));
            }
        }
        reached
    }

    fn children_of(&self, key: ChainKey) -> impl Iterator<Item = ChainKey> {
        let all = (key, ChainKey([0; 32]))..=(key, ChainKey([255; 32]));
        self.children.range(all).map(|&(_, child)| child)
    }

    /// Notes that a page lives longer where it lies.
    pub(crate) fn lengthen(&mut self, record: &Record, expires_at: Option<Timestamp>) {
        if let Some(entry) = self.entries.get_mut(&record.key)
            && entry.record.place == record.place
        {
            entry.record.expires_at = expires_at;
        }
    }

    /// Takes a whole segment away.
    pub(crate) fn remove_segment(&mut self, segment: u32) -> Removal {
        let mut removal = Removal::default();
        for key in self.segments.remove(&segment).unwrap_or_default() {
            self.remove_where(key, |place| place.segment == segment, &mut removal);
        }
        removal
    }

    /// Takes one place of a page away.
    pub(crate) fn remove(&mut self, key: ChainKey, place: DiskPage) -> Removal {
        let mut removal = Removal::default();
        self.remove_where(key, |one| one == place, &mut removal);
        removal
    }

    /// The keys of a namespace's pages.
    pub(crate) fn keys_of(&self, namespace: &[u8; 32]) -> Vec<ChainKey> {
        let of_it = self.entries.values().filter(|entry| entry.record.namespace == *namespace);
        of_it.map(|entry| entry.record.key).collect()
    }

    /// Takes a page away, wherever it lies.
    pub(crate) fn remove_all(&mut self, key: ChainKey) -> Removal {
        let mut removal = Removal::default();
        self.remove_where(key, |_| true, &mut removal);
        removal
    }

    /// Whether nothing is known in a segment.
    pub(crate) fn is_empty(&self, segment: u32) -> bool {
        let lies_there = |record: &Record| record.place.segment == segment;
        self.segments.get(&segment).is_none_or(|keys| {
            !keys.iter().any(|key| {
                let spares = self.duplicates.get(key);
                self.get(key).is_some_and(lies_there)
                    || spares.is_some_and(|spares| spares.iter().any(lies_there))
            })
        })
    }

    fn remove_where(
        &mut self,
        key: ChainKey,
        goes: impl Fn(DiskPage) -> bool,
        removal: &mut Removal,
    ) {
        if let Some(spares) = self.duplicates.get_mut(&key) {
            let before = removal.dropped.len();
            removal.dropped.extend(spares.extract_if(.., |spare| goes(spare.place)));
            self.records -= removal.dropped.len() - before;
            if spares.is_empty() {
                self.duplicates.remove(&key);
            }
        }
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| goes(entry.record.place))
        else {
            return;
        };
        self.records -= 1;
        removal.dropped.push(entry.record);
        if let Some(mut spares) = self.duplicates.remove(&key)
            && let Some(spare) = spares.pop()
        {
            entry.record = spare;
            if entry.reachable {
                removal.moved.push(spare);
            }
            if !spares.is_empty() {
                self.duplicates.insert(key, spares);
            }
            return;
        }
        let parent = entry.record.parent;
        self.unreach(key);
        self.entries.remove(&key);
        self.children.remove(&(parent, key));
    }

    /// Marks a page and what follows it as not reachable.
    fn unreach(&mut self, key: ChainKey) {
        let mut waiting = vec![key];
        while let Some(key) = waiting.pop() {
            if let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.reachable) {
                entry.reachable = false;
                waiting.extend(self.children_of(key));
            }
        }
    }
}

fn lasts(record: &Record) -> Timestamp {
    record.expires_at.unwrap_or(Timestamp(u64::MAX))
}
