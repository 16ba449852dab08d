//! Requests whose prefix is being read from disk, among others, on a small pool.

use std::path::Path;
use std::sync::Mutex;

use cache::{PAGE_TOKENS, Reason, Stop};
use kernels::PageId;

use super::tests::{answer, counted, going, model, package, plan, run_alone, submit};
use super::world_tests::OnDisk;
use super::*;
use crate::disk_tier::DiskTierOptions;
use crate::request::{Events, Request};

/// A scheduler of so many pages on a directory that holds the full pages of `tokens`.
fn holding(
    model: &mut Model,
    pages: usize,
    tokens: &[u32],
    directory: &tempfile::TempDir,
) -> OnDisk {
    let mut first = OnDisk::new(model, 100, 64, directory.path());
    let _events = submit(&mut first.scheduler, going("first", tokens.to_vec(), 1));
    while !first.scheduler.is_idle() {
        first.step(model);
    }
    first.write();
    drop(first);
    let second = OnDisk::new(model, pages, 64, directory.path());
    let stored = second.scheduler.stats().disk.unwrap().pages;
    assert_eq!(stored, tokens.len() / PAGE_TOKENS);
    second
}

/// Takes all free pages but so many.
fn starve(scheduler: &mut Scheduler, left: usize) -> Vec<PageId> {
    let free = scheduler.stats().pages_free;
    (left..free).map(|_| scheduler.memory.allocate(scheduler.test()).unwrap()).collect()
}

fn finish(on_disk: &mut OnDisk, model: &mut Model) {
    while !on_disk.scheduler.is_idle() {
        on_disk.step(model);
        on_disk.scheduler.audit(&[]);
    }
    assert_eq!(on_disk.scheduler.stats().requests_failed, 0);
    assert_eq!(on_disk.scheduler.stats().pages_in_use, 0);
}

fn compare(model: &mut Model, all: &mut [(Request, Events)]) {
    for (request, events) in all {
        assert_eq!(answer(events, 1), run_alone(model, request), "{}", request.id);
    }
}

#[test]
fn who_is_being_restored_is_counted_before_others_are_admitted() {
    let (mut model, directory) = (model(), tempfile::tempdir().unwrap());
    let mut on_disk = holding(&mut model, 8, &counted(0, 90), &directory);
    let requests = [going("restored", counted(0, 90), 4), going("other", counted(100, 60), 4)];
    let mut all = requests.map(|request| {
        let events = submit(&mut on_disk.scheduler, request.clone());
        // Six pages for the one, four for the other, and there are eight.
        on_disk.scheduler.step(&mut model, &mut |_| {});
        (request, events)
    });
    assert_eq!(on_disk.scheduler.stats().waiting, 1);
    finish(&mut on_disk, &mut model);
    assert_eq!(on_disk.scheduler.stats().preemptions, 0);
    assert_eq!(on_disk.scheduler.stats().restored_tokens, 80);
    compare(&mut model, &mut all);
}

/// An answer that has filled two pages, and a request of whose pages four of seven have been read.
fn beside_an_answer(
    model: &mut Model,
    directory: &tempfile::TempDir,
    priority: i32,
) -> (OnDisk, [(Request, Events); 2]) {
    let mut on_disk = holding(model, 20, &counted(0, 120), directory);
    let answered = going("answered", counted(100, 30), 40);
    let restored = Request { priority, ..going("restored", counted(0, 120), 4) };
    let first = submit(&mut on_disk.scheduler, answered.clone());
    on_disk.step(model);
    let second = submit(&mut on_disk.scheduler, restored.clone());
    // 30 tokens of the prompt are computed, and then the first of the answer.
    on_disk.step(model);
    on_disk.wait_until_came(4);
    on_disk.step(model);
    assert_eq!(on_disk.scheduler.restoring[0].pages().len(), 4);
    assert_eq!(on_disk.scheduler.running[0].choices[0].sequence.computed(), 32);
    (on_disk, [(answered, first), (restored, second)])
}

#[test]
fn who_is_being_restored_gives_its_pages_up_before_anybody_fails() {
    for priority in [0, -1] {
        let (mut model, directory) = (model(), tempfile::tempdir().unwrap());
        let (mut on_disk, mut all) = beside_an_answer(&mut model, &directory, priority);
        let starved = starve(&mut on_disk.scheduler, 0);
        let plan = on_disk.scheduler.plan();
        let plan = on_disk.scheduler.make_room(plan);
        on_disk.scheduler.audit(&starved);
        assert_eq!(plan.len(), usize::from(priority == 0), "the answer wants a third page");
        let stats = on_disk.scheduler.stats();
        assert_eq!((stats.preemptions, stats.requests_failed), (1, 0));
        // Who comes last in rank has stopped.
        assert_eq!(stats.waiting, usize::from(priority == 0));
        assert_eq!(stats.preempted, usize::from(priority == -1));
        on_disk.scheduler.memory.release(&starved);
        finish(&mut on_disk, &mut model);
        compare(&mut model, &mut all);
    }
}

#[test]
fn who_was_restored_and_finds_no_room_waits_again() {
    let (mut model, directory) = (model(), tempfile::tempdir().unwrap());
    let mut on_disk = holding(&mut model, 20, &counted(0, 80), &directory);
    let answered = going("answered", counted(100, 20), 40);
    let first = submit(&mut on_disk.scheduler, answered.clone());
    on_disk.step(&mut model);
    // All of it is on disk, and of its last page it needs an own copy.
    let restored = going("restored", counted(0, 80), 4);
    let second = submit(&mut on_disk.scheduler, restored.clone());
    on_disk.step(&mut model);
    on_disk.wait_until_came(4);
    on_disk.step(&mut model);
    on_disk.wait_until_came(5);
    let starved = starve(&mut on_disk.scheduler, 1);
    let max_wait = std::mem::take(&mut on_disk.scheduler.limits.max_wait);
    for _ in 0..2 {
        on_disk.step(&mut model);
        on_disk.scheduler.audit(&starved);
        let stats = on_disk.scheduler.stats();
        assert_eq!((stats.running, stats.waiting), (1, 1));
        assert_eq!((stats.requests_failed, stats.requests_expired), (0, 0), "it was in time");
    }
    on_disk.scheduler.limits.max_wait = max_wait;
    on_disk.scheduler.memory.release(&starved);
    finish(&mut on_disk, &mut model);
    compare(&mut model, &mut [(answered, first), (restored, second)]);
}

#[test]
fn nothing_is_done_until_something_has_come_from_disk() {
    let (mut model, directory) = (model(), tempfile::tempdir().unwrap());
    let mut on_disk = holding(&mut model, 20, &counted(0, 120), &directory);
    on_disk.scheduler.limits.running = 1;
    let requests = [going("restored", counted(0, 120), 1), going("other", counted(100, 9), 1)];
    let mut all = requests.map(|request| {
        let events = submit(&mut on_disk.scheduler, request.clone());
        (request, events)
    });
    on_disk.step(&mut model);
    assert_eq!(on_disk.scheduler.stats().waiting, 1);
    assert!(on_disk.scheduler.waits_for_disk());
    let mut steps = 0;
    while !on_disk.scheduler.is_idle() {
        // Waits until it is told, and fails if it is not.
        on_disk.step(&mut model);
        steps += 1;
    }
    assert!(steps <= 7 + 1 + 2, "{steps} steps for seven pages, the end of them and two requests");
    assert_eq!(on_disk.scheduler.stats().restored_tokens, 112);
    compare(&mut model, &mut all);
}

#[test]
fn a_life_that_became_longer_by_use_is_longer_after_a_restart() {
    let (mut model, directory) = (model(), tempfile::tempdir().unwrap());
    let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
    let mut ends_in = |uses: &[Option<Duration>]| {
        let mut on_disk = OnDisk::new(&model, 20, 64, directory.path());
        for &lifetime in uses {
            let request = Request { lifetime, ..going("one", counted(0, 90), 1) };
            let _events = submit(&mut on_disk.scheduler, request);
            while !on_disk.scheduler.is_idle() {
                on_disk.step(&mut model);
            }
        }
        on_disk.write();
        drop(on_disk);
        let next = OnDisk::new(&model, 20, 64, directory.path());
        let entries = next.scheduler.memory.cache().entries(&Namespace::public(), 9);
        assert_eq!((entries.len(), entries[0].disk_pages), (1, 5));
        let ms = |at: Timestamp| at.0 - next.scheduler.now.0;
        entries[0].expires_at.map(|at| ms(at).div_ceil(60_000))
    };
    // Used again before it is written, and then as it was restored.
    assert_eq!(ends_in(&[minutes(2), minutes(5)]), Some(5));
    assert_eq!(ends_in(&[minutes(5), minutes(20)]), Some(20));
    assert_eq!(ends_in(&[minutes(25)]), Some(20), "a little longer is not worth writing");
    assert_eq!(ends_in(&[minutes(60)]), Some(60));
    assert_eq!(ends_in(&[None]), None);
    assert_eq!(ends_in(&[minutes(5)]), None);
}

#[test]
fn an_end_writes_what_waits_or_says_that_it_could_not() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut model = model();
    for (limit, written) in [(Duration::from_secs(20), 5), (Duration::ZERO, 0)] {
        let directory = tempfile::tempdir().unwrap();
        let mut plan = plan(&model, 20, 64);
        let disk = DiskTierOptions {
            directory: directory.path().to_path_buf(),
            budget_bytes: 16 << 20,
            report: |line| SAID.lock().unwrap().push(line.to_string()),
        };
        plan.disk = Some((disk, [7; 32]));
        let mut scheduler = plan.scheduler(&package(), Arc::new(|| {})).unwrap();
        let _events = submit(&mut scheduler, going("one", counted(0, 90), 1));
        while !scheduler.is_idle() {
            scheduler.step(&mut model, &mut |_| {});
        }
        scheduler.write_out(limit);
        assert_eq!(scheduler.stats().disk.unwrap().pages, written);
    }
    let expected = "5 pages of the prompt cache were not written to disk: that was given 0 s";
    assert_eq!(*SAID.lock().unwrap(), [expected]);
}

/// Runs a request to its end, and says why its reuse stopped.
fn ask(on_disk: &mut OnDisk, model: &mut Model, request: Request) -> Stop {
    let mut events = submit(&mut on_disk.scheduler, request);
    while !on_disk.scheduler.is_idle() {
        on_disk.step(model);
    }
    on_disk.scheduler.audit(&[]);
    let started = std::iter::from_fn(|| events.try_recv().ok()).find_map(|event| match event {
        Event::Started { verdict } => Some(verdict),
        _ => None,
    });
    started.expect("it ran").stop
}

/// Hands all that waits to the thread that writes, and hears of nothing.
fn queue(on_disk: &mut OnDisk) {
    let now = on_disk.scheduler.now;
    while on_disk.scheduler.memory.write_to_disk(false, now) {}
}

#[test]
fn what_is_cleared_was_never_seen_whatever_the_disk_is_just_doing() {
    let (mut model, everyone) = (model(), Namespace::public());
    let long = going("long", counted(0, 200), 1);
    // Cleared before anything is written, while it is, and when it was.
    for (queued, written) in [(false, false), (true, false), (true, true)] {
        let directory = tempfile::tempdir().unwrap();
        let mut on_disk = OnDisk::new(&model, 40, 64, directory.path());
        ask(&mut on_disk, &mut model, long.clone());
        if queued {
            queue(&mut on_disk);
        }
        if written {
            on_disk.write();
        }
        let cleared = wall_clock();
        on_disk.scheduler.memory.clear_namespace(&everyone, cleared).unwrap();
        for other in [going("at once", counted(0, 90), 1), going("then", counted(50, 90), 1)] {
            let stop = ask(&mut on_disk, &mut model, other);
            assert_eq!((stop.reason, stop.since), (Reason::FirstRequest, Some(cleared)));
        }
        on_disk.write();
        // What was computed since is known, and on disk, and nothing else.
        let stop = ask(&mut on_disk, &mut model, long.clone());
        assert_eq!((stop.reason, stop.held_tokens), (Reason::EndOfCached, None));
        let stats = on_disk.scheduler.stats();
        assert_eq!((stats.evicted_pages, stats.ghosts), (0, 0));
        drop(on_disk);
        let next = OnDisk::new(&model, 40, 64, directory.path());
        let stored = next.scheduler.memory.cache().entries(&everyone, 9);
        let mut tokens: Vec<_> = stored.iter().map(|entry| entry.tokens.clone()).collect();
        tokens.sort();
        assert_eq!(tokens, [counted(0, 80), counted(50, 80)]);
    }
}

/// Deletes all files of pages under a server, which notices it.
fn lose_files(on_disk: &mut OnDisk, directory: &Path) {
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "segment") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let later = Timestamp(wall_clock().0 + 10_000);
    let until = Instant::now() + Duration::from_secs(20);
    while on_disk.scheduler.memory.cache().stats().stored_pages > 0 {
        assert!(Instant::now() < until, "it is not noticed");
        on_disk.scheduler.memory.look_after(later);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_pinned_stays_on_disk_or_is_written_again() {
    let (mut model, everyone) = (model(), Namespace::public());
    let one = going("one", counted(0, 90), 1);
    for (written, deleted) in [(false, false), (true, false), (true, true)] {
        let directory = tempfile::tempdir().unwrap();
        let mut on_disk = OnDisk::new(&model, 40, 64, directory.path());
        ask(&mut on_disk, &mut model, one.clone());
        ask(&mut on_disk, &mut model, going("other", counted(100, 90), 1));
        if written {
            on_disk.write();
        } else {
            queue(&mut on_disk);
        }
        let memory = &mut on_disk.scheduler.memory;
        assert_eq!(memory.pin_prefix(&everyone, "rules", &counted(0, 64), wall_clock()), Ok(64));
        memory.clear_namespace(&everyone, wall_clock()).unwrap();
        if deleted {
            lose_files(&mut on_disk, directory.path());
        }
        on_disk.write();
        drop(on_disk);
        let next = OnDisk::new(&model, 40, 64, directory.path());
        let stored = next.scheduler.memory.cache().entries(&everyone, 9);
        assert_eq!(stored.len(), 1);
        assert_eq!((&stored[0].tokens, stored[0].disk_pages), (&counted(0, 64), 4));
    }
}

#[test]
fn what_was_deleted_under_a_server_is_written_again_with_its_next_use() {
    let (mut model, directory) = (model(), tempfile::tempdir().unwrap());
    let mut on_disk = OnDisk::new(&model, 40, 64, directory.path());
    ask(&mut on_disk, &mut model, going("one", counted(0, 90), 1));
    on_disk.write();
    lose_files(&mut on_disk, directory.path());
    on_disk.write();
    assert_eq!(on_disk.scheduler.stats().disk.unwrap().pages, 0, "nobody has used it since");
    assert_eq!(ask(&mut on_disk, &mut model, going("two", counted(0, 90), 1)).at, 89);
    on_disk.write();
    assert_eq!(on_disk.scheduler.stats().disk.unwrap().pages, 5);
}

#[test]
fn what_goes_on_from_a_pin_that_has_outlived_its_life_is_on_disk_too() {
    let (mut model, everyone) = (model(), Namespace::public());
    for deleted in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let mut on_disk = OnDisk::new(&model, 40, 64, directory.path());
        let life = Duration::from_secs(2);
        let short = Request { lifetime: Some(life), ..going("short", counted(0, 90), 1) };
        ask(&mut on_disk, &mut model, short);
        let memory = &mut on_disk.scheduler.memory;
        assert_eq!(memory.pin_prefix(&everyone, "rules", &counted(0, 64), wall_clock()), Ok(64));
        on_disk.write();
        std::thread::sleep(life);
        if deleted {
            lose_files(&mut on_disk, directory.path());
        }
        on_disk.write();
        assert_eq!(ask(&mut on_disk, &mut model, going("long", counted(0, 120), 1)).at, 64);
        on_disk.write();
        drop(on_disk);
        let next = OnDisk::new(&model, 40, 64, directory.path());
        let stored = next.scheduler.memory.cache().entries(&everyone, 9);
        assert_eq!(stored.len(), 1, "deleted: {deleted}");
        assert_eq!((stored[0].tokens.len(), stored[0].disk_pages), (112, 7));
    }
}

#[test]
fn what_a_running_request_kept_of_a_cleared_namespace_is_written_again() {
    let (mut model, everyone) = (model(), Namespace::public());
    let directory = tempfile::tempdir().unwrap();
    let mut on_disk = OnDisk::new(&model, 40, 64, directory.path());
    ask(&mut on_disk, &mut model, going("first", counted(0, 90), 1));
    let _events = submit(&mut on_disk.scheduler, going("running", counted(0, 90), 30));
    on_disk.step(&mut model);
    assert_eq!(on_disk.scheduler.stats().running, 1);
    // The first one's pages are being written as they are to be deleted.
    queue(&mut on_disk);
    on_disk.scheduler.memory.clear_namespace(&everyone, wall_clock()).unwrap();
    on_disk.write();
    assert_eq!(on_disk.scheduler.stats().disk.unwrap().pages, 0);
    while !on_disk.scheduler.is_idle() {
        on_disk.step(&mut model);
    }
    on_disk.write();
    drop(on_disk);
    let next = OnDisk::new(&model, 40, 64, directory.path());
    let stored = next.scheduler.memory.cache().entries(&everyone, 9);
    assert_eq!(stored.len(), 1);
    assert_eq!((stored[0].tokens.len(), stored[0].disk_pages), (112, 7));
}
