//! How the threads of a team begin and end a region together, and who runs which part.

use super::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, UnsafeCell, fence_between};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Yields before parking, about half a millisecond on an idle machine. Loom parks at once: it
/// looks at every order of steps anyway.
const YIELDS: usize = if cfg!(all(loom, test)) { 0 } else { 1_000 };
/// A yield that takes longer gave the processor to another program. Who goes on yielding there
/// pays with its share of the processor, and gets it back late; who sleeps is let in at once
/// when woken.
const YIELD_MAX: Duration = Duration::from_micros(100);

/// On a cache line (and its neighbour, which is fetched with it) of its own.
#[derive(Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// What starts a region: on one cache line, because a worker needs both.
struct Fork<T> {
    /// How many regions have begun; a change starts one.
    regions: AtomicU64,
    job: UnsafeCell<T>,
}

/// Where a caller and its workers meet. A region is one job in as many parts as there are threads;
/// the caller's part is 0, the worker `w` has part `w`.
///
/// The parts' writes are seen by the caller when the region ends, and the caller's by the parts.
pub(super) struct Barrier<T> {
    fork: Padded<Fork<T>>,
    /// For each part but the caller's, the last region in which it was claimed.
    claims: Vec<Padded<AtomicU64>>,
    /// How many parts but the callers' were finished, ever.
    finished: Padded<AtomicU64>,
    start: Gate,
    done: Gate,
    stop: AtomicBool,
    spins: usize,
}

// SAFETY: `job` is written only in `run`, whose callers keep each other out, before the region
// begins, and read by workers only after they claimed a part of a region that they saw begin,
// before they add to `finished`, for which the region's end waits. It is `Send`: the workers get
// copies.
unsafe impl<T: Copy + Send> Sync for Barrier<T> {}

impl<T: Copy> Barrier<T> {
    /// A barrier for a caller and `workers` others. Each wait looks `spins` times before it yields.
    /// `nothing` is a job that is never run.
    pub(super) fn new(workers: usize, spins: usize, nothing: T) -> Barrier<T> {
        let fork = Fork { regions: AtomicU64::default(), job: UnsafeCell::new(nothing) };
        Barrier {
            fork: Padded(fork),
            claims: (0..workers).map(|_| Padded::default()).collect(),
            finished: Padded::default(),
            start: Gate::default(),
            done: Gate::default(),
            stop: AtomicBool::new(false),
            spins,
        }
    }

    /// Runs a region: `part(0)` here and `job` in the workers, each its part. When the own part
    /// has ended, the parts of workers that have not begun are run here too. Returns when all
    /// parts have ended, and with them every use of `job`.
    ///
    /// # Safety
    /// No other call of `run` or `stop` of this barrier is going on. `part` does not unwind, which
    /// would end the call while workers use `job`.
    pub(super) unsafe fn run(&self, job: T, mut part: impl FnMut(usize)) {
        // SAFETY: no other region runs, and a worker reads the job only between claiming a part
        // and finishing it; all parts of a region are finished before it ends below.
        self.fork.0.job.with_mut(|place| unsafe { *place = job });
        let region = self.fork.0.regions.fetch_add(1, Ordering::SeqCst) + 1;
        self.start.notify();
        part(0);
        for worker in 1..=self.claims.len() {
            if self.claim(worker, region) {
                part(worker);
                // This thread sees its own writes, and those that others released stay so.
                self.finished.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let target = region * self.claims.len() as u64;
        self.done.wait(self.spins, || self.finished.0.load(Ordering::SeqCst) == target);
    }

    /// Runs the parts of `worker`, from 1, until `stop`: `part` gets the job. It does not unwind,
    /// or its region would not end. Before each wait `idle` gets a look at whether there is
    /// something to do, and returns soon when there is.
    pub(super) fn work(
        &self,
        worker: usize,
        part: impl Fn(T),
        mut idle: impl FnMut(&dyn Fn() -> bool),
    ) {
        let mut seen = 0;
        loop {
            idle(&|| self.fork.0.regions.load(Ordering::Relaxed) != seen);
            self.start.wait(self.spins, || self.fork.0.regions.load(Ordering::SeqCst) != seen);
            seen = self.fork.0.regions.load(Ordering::Acquire);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            if !self.claim(worker, seen) {
                continue;
            }
            // SAFETY: the region has begun and does not end before the claimed part is finished.
            let job = self.fork.0.job.with(|job| unsafe { *job });
            part(job);
            self.finished.0.fetch_add(1, Ordering::SeqCst);
            self.done.notify();
        }
    }

    /// Ends the workers. No region can be run any more.
    pub(super) fn stop(&self) {
        // Who sees the number change sees this too.
        self.stop.store(true, Ordering::Relaxed);
        self.fork.0.regions.fetch_add(1, Ordering::SeqCst);
        self.start.notify();
    }

    /// Takes the part `worker` of region number `region`, unless it was taken. Who gets it must
    /// run it and add to `finished`; until then the region does not end.
    ///
    /// All parts of a region are claimed before the next begins, so that a part which is still
    /// free has the number before, and who comes too late finds its region's number or a later
    /// one. Nothing else is known by it, so no order is asked for.
    fn claim(&self, worker: usize, region: u64) -> bool {
        let claim = &self.claims[worker - 1].0;
        claim.compare_exchange(region - 1, region, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Where threads wait for a condition: spinning, then yielding, then asleep.
#[derive(Default)]
struct Gate {
    sleepers: Padded<AtomicUsize>,
    mutex: Mutex<()>,
    condvar: Condvar,
}

impl Gate {
    /// Returns once `ready` holds; its change must be followed by a `notify`.
    ///
    /// A sleeper announces itself before it looks at the condition for the
    /// last time, and a notifier changes the condition before it looks for
    /// sleepers, all sequentially consistent: one of them sees the other.
    fn wait(&self, spins: usize, ready: impl Fn() -> bool) {
        for _ in 0..spins {
            if ready() {
                return;
            }
            std::hint::spin_loop();
        }
        for () in std::iter::repeat_n((), YIELDS) {
            if ready() {
                return;
            }
            let yielded = Instant::now();
            std::thread::yield_now();
            if yielded.elapsed() > YIELD_MAX {
                break;
            }
        }
        self.sleepers.0.fetch_add(1, Ordering::SeqCst);
        fence_between();
        let mut guard = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        while !ready() {
            guard = self.condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        drop(guard);
        self.sleepers.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn notify(&self) {
        fence_between();
        if self.sleepers.0.load(Ordering::SeqCst) > 0 {
            drop(self.mutex.lock().unwrap_or_else(PoisonError::into_inner));
            self.condvar.notify_all();
        }
    }
}
