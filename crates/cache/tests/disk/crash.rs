//! Processes that are killed while they write.

use std::process::{Command, Stdio};
use std::time::Duration;

use cache::Timestamp;

use crate::support::*;

/// Set in the process that is to be killed: its directory.
const DIRECTORY: &str = "CACHE_TEST_CRASH_DIRECTORY";
const KILLS: u64 = 40;

/// Runs this test again as a process that writes until it is killed.
#[test]
fn a_process_killed_while_it_writes_leaves_sound_pages_only() {
    if let Ok(directory) = std::env::var(DIRECTORY) {
        return write_for_ever(directory.as_ref());
    }
    let directory = tempfile::tempdir().unwrap();
    let mut pages = 0;
    for round in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::a_process_killed_while_it_writes_leaves_sound_pages_only"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(5_000 + 1_237 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let opened = open(directory.path(), 1, 0);
        let torn = |damage: &&cache::disk::Damage| {
            !matches!(damage.kind, cache::disk::DamageKind::Headers { .. })
        };
        assert_eq!(opened.damage.iter().filter(torn).count(), 0, "{:?}", opened.damage);
        assert!(opened.pages.iter().all(|page| reads(&opened.store, 1, page)));
        pages = opened.pages.len();
    }
    assert!(pages > 100, "the processes wrote {pages} pages: too few to mean anything");
}

fn write_for_ever(directory: &std::path::Path) {
    let opened = open(directory, 1, 0);
    let store = opened.store;
    for id in opened.pages.len() as u32.. {
        for page in pages(1, NAMESPACE, &tokens(&[id, id + 1])) {
            // A page that comes back is none that this test could miss.
            let _ = store.append(page, Timestamp(0));
        }
    }
}
