//! Processes that are killed while they write.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cache::Timestamp;
use cache::disk::{Damage, DamageKind};

use crate::support::*;

/// Set in the processes that are to be killed: their directory, and the first token they write.
const DIRECTORY: &str = "CACHE_TEST_CRASH_DIRECTORY";
const START: &str = "CACHE_TEST_CRASH_START";
const ROUNDS: u32 = 40;
/// So little that segments are deleted all the time.
const BUDGET_BYTES: u64 = 256 << 10;
/// More ids than one process writes before it is killed.
const IDS: u32 = 1 << 24;

/// Runs this test again as processes that write until they are killed, two at a time, while this
/// one watches.
#[test]
fn processes_killed_while_they_write_leave_sound_pages_only() {
    if let Ok(directory) = std::env::var(DIRECTORY) {
        let start = std::env::var(START).unwrap().parse().unwrap();
        return write_for_ever(directory.as_ref(), start);
    }
    let directory = tempfile::tempdir().unwrap();
    let small = options(directory.path(), 1, BUDGET_BYTES);
    let mut watching = open_with(&small, 0).store;
    let (mut seen, mut most) = (0, 0);
    for round in 0..ROUNDS {
        let mut children = [2 * round, 2 * round + 1].map(|child| spawn(directory.path(), child));
        for (child, wait_us) in children.iter_mut().zip([8_000, 1_237 * u64::from(round)]) {
            std::thread::sleep(Duration::from_micros(wait_us));
            child.kill().unwrap();
            let found = found(&refresh(&mut watching, 1000 * u64::from(round + 1)));
            // Somebody may have deleted one since, but no other comes in its place.
            seen += found.iter().filter(|page| reads(&watching, 1, page)).count();
        }
        for child in &mut children {
            child.wait().unwrap();
        }
        let opened = open_with(&small, 0);
        let is_more_than_torn =
            |damage: &&Damage| !matches!(damage.kind, DamageKind::Headers { .. });
        let damage: Vec<_> = opened.damage.iter().filter(is_more_than_torn).collect();
        assert!(damage.is_empty(), "{damage:?}");
        assert!(opened.pages.iter().all(|page| reads(&opened.store, 1, page)));
        most = most.max(opened.pages.len());
    }
    assert!(seen > 100 && most > 100, "{seen} and {most} pages: too few to mean anything");
}

fn spawn(directory: &Path, child: u32) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::processes_killed_while_they_write_leave_sound_pages_only"])
        .env(DIRECTORY, directory)
        .env(START, (child * IDS).to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn write_for_ever(directory: &Path, start: u32) {
    let mut store = open_with(&options(directory, 1, BUDGET_BYTES), 0).store;
    for id in start.. {
        for page in pages(1, NAMESPACE, &tokens(&[id, id + 1])) {
            // A page that comes back is none that this test could miss.
            let _ = store.append(page, Timestamp(0));
        }
        store.poll(Timestamp(u64::from(id - start) * 10));
    }
}
