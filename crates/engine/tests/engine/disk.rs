//! The prompt cache on disk, from one engine to the next.

use std::path::Path;

use engine::{DiskTierOptions, EngineOptions};

use crate::{greedy, options, prompt, run, start};

fn on_disk(directory: &Path) -> EngineOptions {
    let disk = DiskTierOptions {
        directory: directory.to_path_buf(),
        budget_bytes: 64 << 20,
        report: |line| panic!("{line}"),
    };
    EngineOptions { disk: Some(disk), ..options() }
}

#[test]
fn an_engine_that_ends_in_order_has_written_all_before() {
    let directory = tempfile::tempdir().unwrap();
    let first = start(on_disk(directory.path()));
    let expected: Vec<_> =
        (0..20).map(|family| run(&first, greedy(&prompt(family, 100), 4)).answers).collect();
    first.shutdown();
    let second = start(on_disk(directory.path()));
    assert_eq!(second.stats().disk.unwrap().pages, 20 * 6);
    for (family, expected) in expected.iter().enumerate() {
        let again = run(&second, greedy(&prompt(family, 100), 4));
        assert_eq!(again.answers, *expected);
        let verdict = again.verdict;
        let code = verdict.stop.reason.code();
        assert!(verdict.reused_from.disk == 96 || code == "cheaper_to_compute", "{verdict:?}");
    }
}
