//! Any bytes as a segment file, or a sound one with any bytes changed: pages as they were stored,
//! or findings; never other pages, never a panic.
#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use cache::Timestamp;
use cache::disk::{DiskOptions, DiskStore, NewPage, SequencePage, StoredRun, Wanted};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

const NOW: Timestamp = Timestamp(1);
const PAGE_BYTES: usize = 64;
const PAGES: usize = 6;

/// A segment with a few pages, the file's name included.
struct Sound {
    directory: TempDir,
    segment: PathBuf,
    bytes: Vec<u8>,
}

static SOUND: LazyLock<Sound> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let store = open(directory.path(), |_| {});
    let tokens: Arc<[u32]> = (0..16 * PAGES as u32).collect();
    for depth in 0..PAGES {
        let (namespace, tokens) = ([0; 32], Arc::clone(&tokens));
        let page = SequencePage { namespace, tokens, depth, expires_at: None };
        store.append(NewPage { page, bytes: content(depth) }, NOW).expect("room for a page");
    }
    drop(store);
    let segment = fs::read_dir(directory.path())
        .expect("the directory")
        .map(|entry| entry.expect("its entry").path())
        .find(|path| path.extension().is_some_and(|ending| ending == "segment"))
        .expect("a segment");
    let bytes = fs::read(&segment).expect("the segment");
    Sound { directory, segment, bytes }
});

fn open(directory: &Path, each: impl FnMut(StoredRun)) -> DiskStore {
    let options = DiskOptions {
        directory: directory.to_path_buf(),
        budget_bytes: 64 << 10,
        model: [1; 32],
        page_bytes: PAGE_BYTES,
        queue_bytes: 1 << 20,
    };
    DiskStore::open(&options, NOW, each).expect("whatever is in the directory is no error").store
}

fn content(depth: usize) -> Vec<u8> {
    vec![depth as u8 + 1; PAGE_BYTES]
}

/// The sound segment with changes of three bytes each, where (two) and what; and cut.
fn changed(edits: &[u8]) -> Vec<u8> {
    let mut bytes = SOUND.bytes.clone();
    let (edits, cut) = edits.as_chunks::<3>();
    for &[low, high, value] in edits {
        let length = bytes.len();
        bytes[usize::from(u16::from_le_bytes([low, high])) % length] ^= value;
    }
    if let [low, high] = *cut {
        bytes.truncate(usize::from(u16::from_le_bytes([low, high])));
    }
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let file = if kind % 2 == 0 { rest.to_vec() } else { changed(rest) };
    fs::write(&SOUND.segment, file).expect("room for the segment");
    let mut wanted = Vec::new();
    let store = open(SOUND.directory.path(), |run| {
        let places: Vec<_> = run.pages.iter().map(|&(place, _)| place).collect();
        let run = Wanted::run(&run.namespace, &run.tokens, run.first(), &places);
        wanted.extend(run.into_iter().enumerate());
    });
    let mut page = Vec::new();
    for (depth, wanted) in wanted {
        if store.reader().read(&wanted, &mut page).is_ok() {
            assert_eq!(page, content(depth), "another page than was stored");
        }
    }
});
