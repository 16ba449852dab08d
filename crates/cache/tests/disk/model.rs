//! Random operations on stores that share a directory, and harm done to its files, against a map.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cache::disk::{DiskEvent, DiskOptions, DiskStore};
use cache::{DiskPage, PAGE_TOKENS, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::*;

/// The models of the stores: two processes serve one, and another another.
const MODELS: [u8; 3] = [1, 1, 2];
const DEPTH_MAX: usize = 5;

#[derive(Clone, Debug)]
enum Operation {
    /// Offers the pages of one of 2 × 32 paths.
    Offer { store: usize, namespace: u8, path: u8, depth: usize },
    /// Notices what the others did.
    Refresh { store: usize },
    /// Uses a page.
    Touch { store: usize, page: usize },
    /// Reads all that is known.
    Read { store: usize },
    /// Ends the process, and starts it again.
    Restart { store: usize },
    /// Harms a file, by its number.
    Harm { file: usize, harm: Harm },
}

#[derive(Clone, Debug)]
enum Harm {
    /// Cuts it, at this part of 65,536.
    Truncate(u16),
    /// Flips a bit, at this part of 65,536.
    Flip(u16, u8),
    Delete,
    /// Makes a file beside it that has its first bytes.
    Copy,
}

fn operation(with_harm: bool) -> impl Strategy<Value = Operation> {
    let store = 0..MODELS.len();
    let offer = (store.clone(), 1..3u8, 0..32u8, 1..=DEPTH_MAX).prop_map(
        |(store, namespace, path, depth)| Operation::Offer { store, namespace, path, depth },
    );
    let harm = prop_oneof![
        any::<u16>().prop_map(Harm::Truncate),
        (any::<u16>(), 0..8u8).prop_map(|(at, bit)| Harm::Flip(at, bit)),
        Just(Harm::Delete),
        Just(Harm::Copy),
    ];
    let harm = (0..64usize, harm).prop_map(|(file, harm)| Operation::Harm { file, harm });
    prop_oneof![
        6 => offer,
        2 => store.clone().prop_map(|store| Operation::Refresh { store }),
        2 => (store.clone(), 0..64usize).prop_map(|(store, page)| Operation::Touch { store, page }),
        2 => store.clone().prop_map(|store| Operation::Read { store }),
        1 => store.prop_map(|store| Operation::Restart { store }),
        if with_harm { 2 } else { 0 } => harm,
    ]
}

/// A store, and the places that it has told.
struct Process {
    model: u8,
    store: DiskStore,
    told: HashMap<Name, DiskPage>,
}

impl Process {
    fn start(options: &DiskOptions, now: u64) -> Self {
        let opened = open_with(options, now);
        let model = options.model[0];
        let mut process = Self { model, store: opened.store, told: HashMap::new() };
        for (name, place) in opened.pages {
            process.find(name, place);
        }
        process
    }

    fn find(&mut self, name: Name, place: DiskPage) {
        let (namespace, path) = &name;
        let parent = (*namespace, path[..path.len() - PAGE_TOKENS].to_vec());
        assert!(parent.1.is_empty() || self.told.contains_key(&parent), "told before its parent");
        self.told.insert(name, place);
    }

    /// Believes the events, as the prefix tree would.
    fn hear(&mut self, events: Vec<DiskEvent>) {
        for event in events {
            match event {
                DiskEvent::Found(run) => {
                    for (name, place) in of_run(&run) {
                        self.find(name, place);
                    }
                }
                DiskEvent::Stored(page, place) => {
                    self.told.insert(name(&page), place);
                }
                DiskEvent::Dropped { place: gone, .. } => {
                    self.told.retain(|_, place| *place != gone);
                }
                DiskEvent::Refused { .. } | DiskEvent::Paused { .. } | DiskEvent::Resumed => {}
                DiskEvent::Damaged(_) | DiskEvent::Cleared(_) => {}
            }
        }
    }

    /// Hears what the last operations have led to.
    fn settle(&mut self, now: u64) {
        let events = refresh(&mut self.store, now);
        self.hear(events);
    }

    /// Reads every page that was told; what comes is what was stored, or nothing after harm.
    fn read_all(&mut self, unharmed: bool) {
        for (name, &place) in &self.told {
            let is_there = reads(&self.store, self.model, &(name.clone(), place));
            assert!(is_there || !unharmed, "{name:?} is not at {place:?}");
        }
    }
}

struct World {
    directory: PathBuf,
    budget_bytes: u64,
    processes: Vec<Process>,
    now: u64,
    unharmed: bool,
    /// What was stored for each model; all of it is there while nothing is harmed or evicted.
    stored: [Vec<Name>; 3],
}

impl World {
    fn new(directory: &Path, budget_bytes: u64) -> Self {
        let start = |model| Process::start(&options(directory, model, budget_bytes), 0);
        Self {
            directory: directory.to_path_buf(),
            budget_bytes,
            processes: MODELS.map(start).into(),
            now: 0,
            unharmed: true,
            stored: [const { Vec::new() }; 3],
        }
    }

    fn run(&mut self, operation: &Operation) {
        // The directory is looked at with every fourth operation, or when that is the operation.
        self.now += 300;
        match *operation {
            Operation::Offer { store, namespace, path, depth } => {
                self.offer(store, namespace, path, depth);
            }
            Operation::Refresh { store } => {
                self.now += 1000;
                self.processes[store].settle(self.now);
            }
            Operation::Touch { store, page } => {
                let process = &self.processes[store];
                let mut names: Vec<_> = process.told.keys().collect();
                names.sort();
                if let Some((namespace, path)) = names.get(page) {
                    let used = pages(process.model, *namespace, path).pop().unwrap().page;
                    process.store.note_used(used, Timestamp(self.now));
                }
            }
            Operation::Read { store } => {
                self.processes[store].settle(self.now);
                self.processes[store].read_all(self.unharmed);
            }
            Operation::Restart { store } => self.restart(store),
            Operation::Harm { file, ref harm } => self.harm(file, harm),
        }
    }

    fn offer(&mut self, store: usize, namespace: u8, path: u8, depth: usize) {
        let process = &mut self.processes[store];
        let ids: Vec<_> = (0..depth).map(|level| u32::from(path >> level & 1)).collect();
        for page in pages(process.model, [namespace; 32], &tokens(&ids)) {
            self.stored[usize::from(process.model)].push(name(&page.page));
            // It comes back when writing rests, which needs harm or a full directory.
            let _ = process.store.append(page, Timestamp(self.now));
        }
        process.settle(self.now);
    }

    fn restart(&mut self, store: usize) {
        let model = self.processes[store].model;
        let process = self.processes.remove(store);
        drop(process);
        let process = Process::start(&options(&self.directory, model, self.budget_bytes), self.now);
        self.processes.insert(store, process);
        self.check(store);
    }

    /// After a look at the directory, a process knows all that is in it.
    fn check(&self, store: usize) {
        let process = &self.processes[store];
        let is_roomy = self.budget_bytes >= 1 << 20;
        if self.unharmed && is_roomy {
            for name in &self.stored[usize::from(process.model)] {
                assert!(process.told.contains_key(name), "{name:?} was stored and is not known");
            }
        }
        let lengths = segments(&self.directory).into_iter().filter_map(|path| path.metadata().ok());
        let bytes: u64 = lengths.map(|metadata| metadata.len()).sum();
        let most = self.budget_bytes + MODELS.len() as u64 * (self.budget_bytes / 4);
        assert!(bytes <= most || !self.unharmed, "{bytes} bytes");
    }

    fn harm(&mut self, file: usize, harm: &Harm) {
        let files = segments(&self.directory);
        let Some(path) = files.get(file % files.len().max(1)) else { return };
        self.unharmed = false;
        let length = fs::metadata(path).unwrap().len();
        let offset = |at: u16| length * u64::from(at) / 65_536;
        match *harm {
            Harm::Truncate(at) => {
                OpenOptions::new().write(true).open(path).unwrap().set_len(offset(at)).unwrap();
            }
            Harm::Flip(at, bit) => {
                let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
                let mut byte = [0];
                if file.read_at(&mut byte, offset(at)).unwrap() == 1 {
                    file.write_all_at(&[byte[0] ^ 1 << bit], offset(at)).unwrap();
                }
            }
            Harm::Delete => fs::remove_file(path).unwrap(),
            Harm::Copy => {
                let name = format!("{:032x}.segment", self.now);
                fs::copy(path, self.directory.join(name)).unwrap();
            }
        }
    }
}

fn run(operations: &[Operation], budget_bytes: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(directory.path(), budget_bytes);
    for operation in operations {
        world.run(operation);
    }
    for store in 0..MODELS.len() {
        world.now += 1000;
        world.processes[store].settle(world.now);
        world.check(store);
        world.processes[store].read_all(world.unharmed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Nothing is lost, and each process knows what the others wrote.
    #[test]
    fn stores_with_room_keep_all(operations in vec(operation(false), 0..100)) {
        run(&operations, 1 << 20);
    }

    /// What is told can be read, and the budget holds.
    #[test]
    fn stores_without_room_keep_what_they_say(operations in vec(operation(false), 0..200)) {
        run(&operations, 48 << 10);
    }

    /// Harmed files are never fatal, and nothing comes that was not stored.
    #[test]
    fn harm_is_never_served(operations in vec(operation(true), 0..200)) {
        run(&operations, 96 << 10);
    }
}
