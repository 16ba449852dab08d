//! The prompt cache and its disk tier together, as an engine joins them: pages are written, read
//! back, deleted and lost, and the process starts anew at random. The list says what the tree must
//! answer, and a set of names what lies on disk.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use cache::disk::{
    DamageKind, DiskEvent, DiskOptions, DiskStore, DropReason, NewPage, ReadError, SequencePage,
    StoredRun, Wanted,
};

use super::*;

const PAGE_BYTES: usize = 64;
const ROOMY_BYTES: u64 = 1 << 20;
const NARROW_BYTES: u64 = 40 << 10;
/// When pages that die on disk do.
const END_MS: u64 = 6_000;

#[derive(Clone, Debug)]
enum Step {
    /// What needs no disk.
    Do(Operation),
    /// Some whole pages that are known are written.
    WriteOut {
        which: Vec<usize>,
    },
    /// What has happened on disk is told to the tree.
    Hear,
    /// A second passes, and the directory is looked at.
    Look,
    /// What a request could restore is read, and handed to the tree.
    Restore {
        which: usize,
    },
    /// Somebody deletes a file.
    LoseFile {
        which: usize,
    },
    /// A page on disk loses a bit.
    Damage {
        which: usize,
        bit: usize,
    },
    /// An operator gives up a prefix, or a namespace, in both tiers.
    EvictPrefix {
        which: usize,
    },
    ClearNamespace {
        namespace: usize,
    },
    /// Everything is given up in both tiers.
    Clear,
    /// The process ends, in order, and starts again.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let tokens = || prop_oneof![tokens(), few()];
    let needs_no_disk = |operation: &Operation| {
        !matches!(
            operation,
            Operation::Restore { .. }
                | Operation::Store { .. }
                | Operation::StoreUnknown { .. }
                | Operation::Drop { .. }
                | Operation::EvictPrefix { .. }
                | Operation::Clear
                | Operation::ClearNamespace { .. }
        )
    };
    let namespaces = 3;
    let operations = operation(namespaces, tokens()).prop_filter("needs the disk", needs_no_disk);
    prop_oneof![
        60 => operations.prop_map(Step::Do),
        16 => prop::collection::vec(any::<usize>(), 1..8)
            .prop_map(|which| Step::WriteOut { which }),
        8 => Just(Step::Hear),
        2 => Just(Step::Look),
        12 => (0_usize..8).prop_map(|which| Step::Restore { which }),
        1 => any::<usize>().prop_map(|which| Step::LoseFile { which }),
        2 => any::<usize>().prop_map(|which| Step::EvictPrefix { which }),
        1 => (0..namespaces).prop_map(|namespace| Step::ClearNamespace { namespace }),
        1 => Just(Step::Clear),
        2 => (any::<usize>(), 0..8 * PAGE_BYTES)
            .prop_map(|(which, bit)| Step::Damage { which, bit }),
        3 => Just(Step::Restart),
    ]
}

/// A full page: its namespace, and all tokens up to its end.
type Name = (usize, Vec<u32>);

/// One namespace's pages die on disk, but for the first of a sequence; the others live for ever.
fn end_of((number, path): &Name) -> Option<Timestamp> {
    (*number == 1 && path.len() > PAGE_TOKENS).then_some(Timestamp(END_MS))
}

/// The pages before one.
fn paths_before((number, path): &Name) -> impl Iterator<Item = Name> {
    (PAGE_TOKENS..path.len()).step_by(PAGE_TOKENS).map(|end| (*number, path[..end].to_vec()))
}

fn content((number, path): &Name) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&namespace(*number).to_bytes());
    for token in path {
        hasher.update(&token.to_le_bytes());
    }
    hasher.finalize().as_bytes().repeat(PAGE_BYTES / 32)
}

fn number_of(bytes: [u8; 32]) -> usize {
    let found = (0..NAMESPACES).find(|&number| namespace(number).to_bytes() == bytes);
    found.expect("one of ours")
}

struct Joint {
    pair: Pair,
    most: Most,
    directory: tempfile::TempDir,
    budget_bytes: u64,
    store: Option<DiskStore>,
    /// Pages on disk.
    written: BTreeSet<Name>,
    /// Pages that may be there too: a start did not tell of them, since one before them is not
    /// there or their life is over.
    perhaps: BTreeSet<Name>,
    /// What lies where, as it was told.
    told: HashMap<DiskPage, Name>,
    /// Pages of which there is, or was, a copy whose bytes are others than were written.
    damaged: BTreeSet<Name>,
    /// Pages that were offered and that nothing on disk leads to.
    unreachable: BTreeSet<Name>,
    /// Pages that were read.
    read: usize,
}

impl Joint {
    fn new(most: Most, budget_bytes: u64) -> Self {
        let mut joint = Self {
            pair: Pair::new(most),
            most,
            directory: tempfile::tempdir().unwrap(),
            budget_bytes,
            store: None,
            written: BTreeSet::new(),
            perhaps: BTreeSet::new(),
            told: HashMap::new(),
            damaged: BTreeSet::new(),
            unreachable: BTreeSet::new(),
            read: 0,
        };
        joint.open();
        joint
    }

    fn store(&mut self) -> &mut DiskStore {
        self.store.as_mut().unwrap()
    }

    fn open(&mut self) {
        let options = DiskOptions {
            directory: self.directory.path().to_path_buf(),
            budget_bytes: self.budget_bytes,
            model: [7; 32],
            page_bytes: PAGE_BYTES,
            queue_bytes: 1 << 20,
        };
        let mut runs = Vec::new();
        let opened = DiskStore::open(&options, Timestamp(self.pair.now), |run| runs.push(run));
        let opened = opened.unwrap();
        // A page is looked into when it is read, and a few are at once.
        assert!(opened.damage.is_empty(), "{:?}", opened.damage);
        self.store = Some(opened.store);
        runs.iter().for_each(|run| self.find(run));
        if !self.damaged.is_empty() {
            self.hear();
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Do(operation) => self.pair.apply(operation),
            Step::WriteOut { which } => which.into_iter().for_each(|which| self.write_out(which)),
            Step::Hear => self.hear(),
            Step::Look => self.look(),
            Step::Restore { which } => self.restore(which),
            Step::LoseFile { which } => self.lose_file(which),
            Step::EvictPrefix { which } => self.evict_prefix(which),
            Step::ClearNamespace { namespace } => self.clear_namespace(namespace),
            Step::Clear => self.clear(),
            Step::Damage { which, bit } => self.damage(which, bit),
            Step::Restart => self.restart(),
        }
        self.pair.check_figures();
    }

    fn is_roomy(&self) -> bool {
        self.budget_bytes == ROOMY_BYTES
    }

    fn write_out(&mut self, which: usize) {
        let Some(name) = self.pair.list.some_whole_prefix(which) else { return };
        let now = Timestamp(self.pair.now);
        if end_of(&name).is_some_and(|end| end <= now) {
            return;
        }
        let page = SequencePage {
            namespace: namespace(name.0).to_bytes(),
            tokens: Arc::from(&name.1[..]),
            depth: name.1.len() / PAGE_TOKENS - 1,
            expires_at: end_of(&name),
        };
        let taken = self.store().append(NewPage { page, bytes: content(&name) }, now);
        assert!(taken.is_ok(), "there is room in the queue");
        let follows = paths_before(&name).all(|name| self.written.contains(&name));
        match follows {
            true => self.written.insert(name),
            false => self.unreachable.insert(name),
        };
    }

    /// What has happened on disk, told as `DiskTier` tells it.
    fn hear(&mut self) {
        self.store().flush();
        let now = Timestamp(self.pair.now);
        let events = self.store().poll(now);
        self.take(events);
        self.unreachable.clear();
    }

    fn take(&mut self, events: Vec<DiskEvent>) {
        for event in events {
            match event {
                DiskEvent::Stored(page, place) => {
                    let name = (number_of(page.namespace), page.path().to_vec());
                    self.note(name, place, page.expires_at);
                }
                DiskEvent::Found(run) => self.find(&run),
                DiskEvent::Dropped { place, reason } => self.drop_place(place, reason),
                DiskEvent::Refused { page, .. } => {
                    let name = (number_of(page.namespace), page.path().to_vec());
                    if !self.unreachable.contains(&name) {
                        assert!(!self.is_roomy(), "{page:?}");
                        self.written.remove(&name);
                    }
                }
                DiskEvent::Cleared(_) => {}
                DiskEvent::Damaged(damage) => {
                    assert!(matches!(damage.kind, DamageKind::Page { .. }), "{damage}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn find(&mut self, run: &StoredRun) {
        let number = number_of(run.namespace);
        for (path, place, expires_at) in run.paths() {
            let name = (number, path.to_vec());
            let may_be_there = [&self.written, &self.perhaps, &self.damaged];
            // Of a damaged page an old copy may be found again, whose header is sound.
            assert!(may_be_there.iter().any(|names| names.contains(&name)), "{name:?}");
            self.note(name, place, expires_at);
        }
    }

    fn note(&mut self, name: Name, place: DiskPage, expires_at: Option<Timestamp>) {
        assert_eq!(expires_at, end_of(&name));
        self.perhaps.remove(&name);
        self.told.retain(|_, told| *told != name);
        self.told.insert(place, name.clone());
        let now = self.pair.now;
        let end = expires_at.map_or(u64::MAX, |at| at.0);
        let by = By { request: "", now, expires_at: end };
        let expected = self.pair.list.note_stored(name.0, &name.1, place, by);
        let (space, now) = (namespace(name.0), Timestamp(now));
        let taken = self.pair.cache.note_stored(&space, &name.1, place, expires_at, now);
        assert_eq!(taken, expected);
        self.written.insert(name);
    }

    fn drop_place(&mut self, place: DiskPage, reason: DropReason) {
        let loss = match reason {
            DropReason::Evicted | DropReason::Vanished | DropReason::Deleted => Loss::Evicted,
            DropReason::Damaged => Loss::Damaged,
        };
        let name = self.told.remove(&place);
        if let Some(name) = name {
            if reason == DropReason::Damaged {
                assert!(self.damaged.contains(&name), "{name:?}");
            }
            self.written.remove(&name);
        }
        let now = self.pair.now;
        self.pair.list.note_dropped(place, loss, now);
        self.pair.cache.note_dropped(place, loss, Timestamp(now));
    }

    /// After it the tree knows all that has happened, and all that it knows can be read.
    fn look(&mut self) {
        self.hear();
        self.pair.now += 1_000;
        let now = Timestamp(self.pair.now);
        let events = self.store().poll(now);
        self.take(events);
        self.hear();
        let told: Vec<_> = self.told.iter().map(|(&place, name)| (place, name.clone())).collect();
        for (place, name) in told {
            let read = self.read(place, &name);
            let is_damaged = read == Err(ReadError::Damaged) && self.damaged.contains(&name);
            assert!(read.is_ok() || is_damaged, "{name:?}: {read:?}");
        }
        // What was found damaged is dropped, and told.
        self.hear();
    }

    fn read(&mut self, place: DiskPage, name: &Name) -> Result<(), ReadError> {
        let space = namespace(name.0).to_bytes();
        let wanted = Wanted::run(&space, &name.1, name.1.len() / PAGE_TOKENS - 1, &[place])[0];
        let mut page = Vec::new();
        self.store().reader().read(&wanted, &mut page)?;
        assert_eq!(page, content(name));
        Ok(())
    }

    /// As an engine does: what cannot be read is lost, and what came before it is restored.
    fn restore(&mut self, which: usize) {
        let running = self.pair.running.get(which);
        let Some((number, restorable)) =
            running.and_then(|running| Some((running.namespace, running.restorable.clone()?)))
        else {
            return;
        };
        let first = restorable.tokens.len() / PAGE_TOKENS - restorable.places.len();
        for (index, &place) in restorable.places.iter().enumerate() {
            let end = (first + index + 1) * PAGE_TOKENS;
            let name = (number, restorable.tokens[..end].to_vec());
            if let Err(error) = self.read(place, &name) {
                let loss = match error {
                    ReadError::Gone => Loss::Evicted,
                    ReadError::Damaged => Loss::Damaged,
                };
                assert!(loss == Loss::Evicted || self.damaged.contains(&name), "{name:?}");
                self.written.remove(&name);
                self.perhaps.insert(name);
                let now = self.pair.now;
                self.pair.list.note_dropped(place, loss, now);
                self.pair.cache.note_dropped(place, loss, Timestamp(now));
                let came = self.pair.running[which].restorable.as_mut().unwrap();
                came.places.truncate(index);
                came.tokens.truncate((first + index) * PAGE_TOKENS);
                break;
            }
            self.read += 1;
        }
        self.pair.restore(which);
    }

    fn lose_file(&mut self, which: usize) {
        self.hear();
        let files = fs::read_dir(self.directory.path()).unwrap().map(|file| file.unwrap().path());
        let is_segment = |path: &std::path::PathBuf| path.extension() == Some("segment".as_ref());
        let mut files: Vec<_> = files.filter(is_segment).collect();
        files.sort();
        let Some(file) = files.get(which % files.len().max(1)) else { return };
        fs::remove_file(file).unwrap();
        let before = self.told.clone();
        self.look();
        let lost = before
            .iter()
            .filter(|(place, name)| !self.told.contains_key(place) && !self.damaged.contains(name));
        let segments: BTreeSet<_> = lost.map(|(place, _)| place.segment).collect();
        // Beside what was evicted for room, just the one file's pages are gone, and all of them.
        assert!(segments.len() <= 1 || !self.is_roomy());
        assert!(!self.told.keys().any(|place| segments.contains(&place.segment)));
    }

    /// As an engine does.
    fn evict_prefix(&mut self, which: usize) {
        self.hear();
        let seen = self.pair.list.seen();
        let Some(Seen { namespace: number, tokens, .. }) = seen.get(which % seen.len().max(1))
        else {
            return;
        };
        self.pair.operate(Operation::EvictPrefix { which });
        let space = namespace(*number);
        let alive = self.pair.cache.alive_tokens(&space, tokens) / PAGE_TOKENS;
        self.store().delete_pages(space.to_bytes(), tokens.clone(), alive);
        for end in (alive + 1..=tokens.len() / PAGE_TOKENS).map(|pages| pages * PAGE_TOKENS) {
            let name = (*number, tokens[..end].to_vec());
            self.forget(&name);
        }
        self.hear();
    }

    fn clear_namespace(&mut self, number: usize) {
        self.hear();
        self.pair.operate(Operation::ClearNamespace { namespace: number });
        self.delete_namespace(number);
        self.hear();
    }

    /// As an engine does: what is pinned stays on disk too.
    fn delete_namespace(&mut self, number: usize) {
        let space = namespace(number);
        let pinned = self.pair.cache.pinned().filter(|pin| pin.namespace == space);
        let spared: Vec<_> = pinned.map(|pin| pin.tokens).collect();
        let all = self.written.iter().chain(&self.perhaps);
        let stays = |name: &&Name| spared.iter().any(|tokens| tokens.starts_with(&name.1));
        let gone = all.filter(|name| name.0 == number && !stays(name)).cloned();
        let gone: Vec<_> = gone.collect();
        self.store().delete_namespace(space.to_bytes(), spared);
        gone.iter().for_each(|name| self.forget(name));
    }

    /// Everything in memory that nobody uses or has pinned, and on disk but what is pinned.
    fn clear(&mut self) {
        self.hear();
        self.pair.operate(Operation::Clear);
        (0..NAMESPACES).for_each(|number| self.delete_namespace(number));
        self.hear();
    }

    /// Flips a bit of a page on disk, wherever its bytes stand in a file.
    fn damage(&mut self, which: usize, bit: usize) {
        self.hear();
        let names: BTreeSet<_> = self.told.values().collect();
        let Some(name) = names.iter().nth(which % names.len().max(1)).map(|&name| name.clone())
        else {
            return;
        };
        let wanted = content(&name);
        let files = fs::read_dir(self.directory.path()).unwrap().map(|file| file.unwrap().path());
        for file in files.filter(|file| file.extension() == Some("segment".as_ref())) {
            let mut bytes = fs::read(&file).unwrap();
            let opened = fs::OpenOptions::new().write(true).open(&file).unwrap();
            // It may have been written before, and been deleted there: all copies are harmed.
            while let Some(at) = bytes.windows(PAGE_BYTES).position(|window| window == wanted) {
                bytes[at + bit / 8] ^= 1 << (bit % 8);
                opened.write_all_at(&bytes[at..at + PAGE_BYTES], at as u64).unwrap();
                self.damaged.insert(name.clone());
            }
        }
    }

    fn forget(&mut self, name: &Name) {
        self.written.remove(name);
        self.perhaps.remove(name);
    }

    fn restart(&mut self) {
        if !self.is_roomy() {
            // What was evicted for room is told only while it is listened to.
            self.hear();
        }
        drop(self.store.take());
        let Pair { cache, list, .. } = Pair::new(self.most);
        (self.pair.cache, self.pair.list) = (cache, list);
        self.pair.running.clear();
        self.told.clear();
        let before = self.written.clone();
        self.perhaps.append(&mut self.written);
        self.open();
        if self.is_roomy() {
            let is_there = |name: &Name| {
                let now = Timestamp(self.pair.now);
                let lives = end_of(name).is_none_or(|end| end > now);
                before.contains(name) && lives && !self.damaged.contains(name)
            };
            for (number, path) in &before {
                let ends = (PAGE_TOKENS..=path.len()).step_by(PAGE_TOKENS);
                let mut before_it = ends.map(|end| (*number, path[..end].to_vec()));
                let name = (*number, path.clone());
                let known = self.written.contains(&name);
                assert!(known || !before_it.all(|name| is_there(&name)), "{name:?}");
            }
        }
        self.pair.check_figures();
    }
}

#[test]
fn a_damaged_page_is_lost_and_said_to_be() {
    let mut joint = Joint::new(UNBOUNDED, ROOMY_BYTES);
    let tokens: Vec<u32> = (0..40).collect();
    joint.apply(Step::Do(Operation::Publish { namespace: 0, tokens: tokens.clone(), life: None }));
    joint.apply(Step::WriteOut { which: vec![0, 1] });
    joint.apply(Step::Hear);
    joint.apply(Step::Damage { which: 1, bit: 77 });
    joint.apply(Step::Do(Operation::Evict { pages: 9 }));
    joint.apply(Step::Do(Operation::Start { namespace: 0, prompt: tokens, life: None }));
    joint.apply(Step::Restore { which: 0 });
    assert_eq!((joint.read, joint.pair.running[0].reused, joint.damaged.len()), (1, 16, 1));
    joint.apply(Step::Clear);
    joint.apply(Step::Restart);
    assert!(joint.written.is_empty());
}

#[test]
fn a_start_finds_what_was_written_and_it_is_read() {
    let mut joint = Joint::new(UNBOUNDED, ROOMY_BYTES);
    let tokens: Vec<u32> = (0..40).collect();
    let publication = Operation::Publish { namespace: 0, tokens: tokens.clone(), life: None };
    joint.apply(Step::Do(publication));
    joint.apply(Step::WriteOut { which: vec![0, 1] });
    joint.apply(Step::Restart);
    joint.apply(Step::Do(Operation::Start { namespace: 0, prompt: tokens, life: None }));
    joint.apply(Step::Restore { which: 0 });
    assert_eq!((joint.read, joint.pair.running[0].reused), (2, 32));
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(1_100)
    })]

    /// 110,000 operations, some thousands more or less.
    #[test]
    fn the_cache_does_so_with_its_disk_tier_and_restarts(
        steps in prop::collection::vec(step(), 1..=200),
        most in most(),
        budget_bytes in prop_oneof![Just(ROOMY_BYTES), Just(NARROW_BYTES)],
    ) {
        let mut joint = Joint::new(most, budget_bytes);
        for step in steps {
            joint.apply(step);
        }
        joint.look();
    }
}
