//! The barrier under loom: each test runs through the orders in which the threads can take their
//! steps, and through what each may still or already see of the others' writes.
//!
//! Loom itself ends with a panic when all threads wait, and when two use a cell at once or without
//! an order between them.

use super::barrier::Barrier;
use super::sync::{Without, without};
use loom::cell::UnsafeCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is checked: `regions` one after the other by `threads`, the caller's included.
struct Model {
    threads: usize,
    regions: usize,
    /// How often a wait looks before it parks: looking finds the condition without a mutex.
    spins: usize,
    /// How many times a thread may be interrupted where it need not wait; all of them if `None`.
    interruptions: Option<usize>,
}

impl Model {
    /// Every part is run once in each region, with that region's job, and is seen by the caller
    /// when the region ends. It comes to an end, also when the caller takes parts over.
    fn check(self) {
        let (by_worker, by_caller) = (count(), count());
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = self.interruptions;
        let (threads, regions, spins) = (self.threads, self.regions, self.spins);
        let (counted_worker, counted_caller) = (by_worker.clone(), by_caller.clone());
        builder.check(move || {
            let barrier = Arc::new(Barrier::new(threads - 1, spins, 0));
            // For each part the last region that ran it; a plain write, as the kernels' are.
            // Loom runs all its threads on this one.
            let parts = Rc::new((0..threads).map(|_| UnsafeCell::new(0)).collect::<Vec<_>>());
            let mark = |parts: &[UnsafeCell<usize>], part: usize, region: usize| {
                parts[part].with_mut(|last| {
                    // SAFETY: loom checks that nobody else uses the cell.
                    let last = unsafe { &mut *last };
                    assert_eq!(*last + 1, region, "part {part} was run in region {last}");
                    *last = region;
                });
            };
            let workers: Vec<_> = (1..threads)
                .map(|worker| {
                    let (barrier, parts) = (barrier.clone(), parts.clone());
                    let counted = counted_worker.clone();
                    let part = move |region| {
                        mark(&parts, worker, region);
                        counted.fetch_add(1, Ordering::Relaxed);
                    };
                    loom::thread::spawn(move || barrier.work(worker, part, |_| {}))
                })
                .collect();
            for region in 1..=regions {
                let part = |part| {
                    mark(&parts, part, region);
                    counted_caller.fetch_add(usize::from(part > 0), Ordering::Relaxed);
                };
                // SAFETY: only this thread calls, and a panic here ends the test.
                unsafe { barrier.run(region, part) };
                for (part, last) in parts.iter().enumerate() {
                    // SAFETY: loom checks that nobody writes the cell.
                    let last = last.with(|last| unsafe { *last });
                    assert_eq!(last, region, "part {part} was not run");
                }
            }
            barrier.stop();
            for worker in workers {
                worker.join().expect("a worker");
            }
        });
        for (who, count) in [("a worker", by_worker), ("the caller", by_caller)] {
            assert!(count.load(Ordering::Relaxed) > 0, "{who} never ran a worker's part");
        }
    }
}

/// A count over all orders, which loom does not see.
fn count() -> Arc<AtomicUsize> {
    Arc::default()
}

#[test]
fn two_threads_once_with_many_interruptions() {
    Model { threads: 2, regions: 1, spins: 0, interruptions: Some(5) }.check();
}

#[test]
fn two_threads_that_park_at_once() {
    Model { threads: 2, regions: 3, spins: 0, interruptions: Some(3) }.check();
}

#[test]
fn two_threads_that_look_before_they_park() {
    Model { threads: 2, regions: 2, spins: 1, interruptions: Some(4) }.check();
}

#[test]
fn three_threads_that_park_at_once() {
    Model { threads: 3, regions: 1, spins: 0, interruptions: Some(3) }.check();
}

#[test]
fn three_threads_that_look_before_they_park() {
    Model { threads: 3, regions: 2, spins: 1, interruptions: Some(2) }.check();
}

/// A barrier from which something was taken away; the check must fail.
fn broken(missing: Without) {
    without(missing);
    Model { threads: 2, regions: 2, spins: 1, interruptions: Some(3) }.check();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn it_notices_that_a_beginning_or_an_end_is_not_released() {
    broken(Without::Release);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn it_notices_that_a_beginning_or_an_end_is_not_acquired() {
    broken(Without::Acquire);
}

#[test]
#[should_panic(expected = "deadlock")]
fn it_notices_that_sleeper_and_notifier_miss_each_other() {
    broken(Without::Fence);
}

#[test]
fn nothing_is_missing_where_nothing_is_taken_away() {
    broken(Without::Nothing);
}
