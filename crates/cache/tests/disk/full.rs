//! A disk that takes no more: a process of its own whose files may not grow beyond a limit.

use std::process::Command;

use cache::Timestamp;
use cache::disk::DiskEvent;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::support::*;

/// Set in the process that has the limit: its directory.
const DIRECTORY: &str = "CACHE_TEST_FULL_DIRECTORY";
/// How long a file may become there: less than the table of a segment.
const FILE_BYTES: u64 = 800_000;

/// Runs this test again in a shell that lets it live on when a file reaches the limit.
#[test]
fn writing_rests_while_the_disk_is_full_and_goes_on_later() {
    if let Ok(directory) = std::env::var(DIRECTORY) {
        return fill(directory.as_ref());
    }
    let directory = tempfile::tempdir().unwrap();
    let status = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" --exact \"$1\" --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .arg("full::writing_rests_while_the_disk_is_full_and_goes_on_later")
        .env(DIRECTORY, directory.path())
        .status()
        .unwrap();
    assert!(status.success());
}

fn limit(bytes: Option<u64>) {
    setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

fn fill(directory: &std::path::Path) {
    let wide = options(directory, 1, 16 << 20);
    let mut store = open_with(&wide, 0).store;
    limit(Some(FILE_BYTES));
    for page in pages(1, NAMESPACE, &tokens(&[5, 6, 7])) {
        // Comes back once the first has failed.
        let _ = store.append(page, Timestamp(0));
    }
    store.flush();
    let events = store.poll(Timestamp(0));
    let [DiskEvent::Paused { .. }, rest @ ..] = &events[..] else { panic!("{events:?}") };
    assert!(
        !rest.is_empty() && rest.iter().all(|event| matches!(event, DiskEvent::Refused { .. }))
    );
    // What is offered meanwhile comes back at once.
    let page = pages(1, NAMESPACE, &tokens(&[5])).remove(0);
    assert!(store.append(page, Timestamp(29_999)).is_err());
    // It fails again, and nothing is said again.
    let again = put(&mut store, 1, &tokens(&[5]), 30_000);
    assert!(matches!(again[..], [DiskEvent::Refused { .. }]), "{again:?}");
    limit(None);
    let events = put(&mut store, 1, &tokens(&[5, 6, 7]), 60_000);
    assert_eq!(stored(&events).len(), 3, "{events:?}");
    assert!(events.iter().any(|event| matches!(event, DiskEvent::Resumed)));
    assert!(stored(&events).iter().all(|record| reads(&store, 1, record)));
    drop(store);
    assert_eq!(open_with(&wide, 0).pages.len(), 3);
}
