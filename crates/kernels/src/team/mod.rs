//! A persistent team of threads for regions of a microsecond and more.

mod barrier;
#[cfg(all(loom, test))]
mod loom_tests;
mod read_ahead;
mod sync;

use self::barrier::Barrier;
pub use self::read_ahead::WeightPlace;
use self::read_ahead::{Next, Reading};
use crate::isa::{Isa, IsaError};
use std::any::Any;
use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

/// The most threads a team can have.
const MAX_THREADS: usize = 1024;
/// Spins before yielding, about 30 microseconds: longer than what one thread
/// does alone between two regions of a step.
const SPINS: usize = 3_000;

/// Why a team could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TeamError {
    /// The instruction set cannot be used here.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// A team has 1 to 1024 threads.
    #[error("a team cannot have {0} threads: use 1 to {MAX_THREADS}")]
    Threads(usize),
    /// The system refused a thread.
    #[error("cannot start a thread: {0}")]
    Spawn(#[from] std::io::Error),
}

/// Threads that run the kernels, kept between calls.
///
/// Work is divided into as many fixed parts as there are threads. The thread
/// that calls a kernel takes part 0; the others wait for theirs by spinning,
/// then yielding, then sleeping. A part whose thread has not begun when the
/// caller is done with its own, because the system lets another program run
/// there, is taken by the caller: it waits only for what others are doing, not
/// for what they have yet to begin.
pub struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    isa: Isa,
    /// Held while a region runs.
    running: Mutex<()>,
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Team").field("threads", &self.threads()).field("isa", &self.isa).finish()
    }
}

impl Team {
    /// A team of `threads` threads, the caller's included, that uses the
    /// instruction set of [`Isa::detect`].
    ///
    /// # Errors
    /// See [`TeamError`].
    pub fn new(threads: usize) -> Result<Team, TeamError> {
        Team::with_isa(threads, Isa::detect()?)
    }

    /// A team that uses the instruction set `isa`.
    ///
    /// # Errors
    /// See [`TeamError`].
    pub fn with_isa(threads: usize, isa: Isa) -> Result<Team, TeamError> {
        if !isa.is_available() {
            return Err(IsaError::Unavailable(isa).into());
        }
        if threads == 0 || threads > MAX_THREADS {
            return Err(TeamError::Threads(threads));
        }
        // With more threads than processors a spinning thread only keeps away
        // the one that it waits for.
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let spins = if threads > processors { 0 } else { SPINS };
        let shared = Arc::new(Shared::new(threads - 1, spins));
        let mut team = Team { shared, workers: Vec::new(), isa, running: Mutex::new(()) };
        for worker in 1..threads {
            let shared = Arc::clone(&team.shared);
            let builder = std::thread::Builder::new().name(format!("team-{worker}"));
            // If this fails, dropping the team stops the threads started so far.
            team.workers.push(builder.spawn(move || shared.work(worker))?);
        }
        Ok(team)
    }

    /// How many threads work, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// The instruction set that the kernels use; available on this processor.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Says which weights a matmul will read soon: threads that wait bring what they will begin
    /// with into their caches. It makes no difference but of time.
    pub fn read_ahead(&self, weights: WeightPlace) {
        self.shared.next.set(weights);
    }

    /// Calls `f(part)` once for every part in `0 .. threads`, side by side, and
    /// returns when all have ended.
    ///
    /// If another region of this team is running (of another thread, or around
    /// this call), all calls are made here, one after the other: calls must
    /// not wait for each other.
    ///
    /// # Panics
    /// With the panic of a call, after all calls have ended.
    pub(crate) fn run<F: Fn(usize) + Sync>(&self, f: F) {
        let guard = self.running.try_lock();
        let alone = self.workers.is_empty();
        if alone || matches!(guard, Err(TryLockError::WouldBlock)) {
            (0..self.threads()).for_each(f);
            return;
        }
        let job = Job { call: call::<F>, data: std::ptr::from_ref(&f).cast() };
        let mut panic = None;
        let part = |part| {
            let result = catch_unwind(AssertUnwindSafe(|| f(part)));
            if let Err(caught) = result {
                panic.get_or_insert(caught);
            }
        };
        // SAFETY: the lock keeps other regions out, and `part` catches every panic.
        unsafe { self.shared.barrier.run(job, part) };
        let of_worker = self.shared.panic_of_worker();
        drop(guard);
        if let Some(panic) = panic.or(of_worker) {
            resume_unwind(panic);
        }
    }

    /// Divides `0 .. count` into one contiguous range per worker, as equal as
    /// can be, and calls `f(worker, range)` as [`run`](Team::run) does.
    pub(crate) fn run_ranges<F: Fn(usize, Range<usize>) + Sync>(&self, count: usize, f: F) {
        let threads = self.threads();
        self.run(|worker| f(worker, range_of(worker, threads, count)));
    }
}

/// The share of `worker` in `0 .. count`.
pub(crate) fn range_of(worker: usize, threads: usize, count: usize) -> Range<usize> {
    let cut = |worker: usize| (count as u128 * worker as u128 / threads as u128) as usize;
    cut(worker)..cut(worker + 1)
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.barrier.stop();
        for worker in self.workers.drain(..) {
            // A worker catches every panic of a job, so this cannot fail.
            let _ = worker.join();
        }
    }
}

/// A closure without its type: `data` points to it, `call` knows it.
#[derive(Clone, Copy)]
struct Job {
    call: unsafe fn(*const (), usize),
    data: *const (),
}

// SAFETY: the pointer is to a `Sync` closure and is used only in the region of the job, which the
// closure outlives.
unsafe impl Send for Job {}

/// # Safety
/// `data` points to a live `F`.
unsafe fn call<F: Fn(usize) + Sync>(data: *const (), worker: usize) {
    // SAFETY: the caller vouches for `data`.
    unsafe { (*data.cast::<F>())(worker) }
}

struct Shared {
    barrier: Barrier<Job>,
    threads: usize,
    /// What to read while waiting.
    next: Next,
    /// Whether `panic` holds something.
    panicked: AtomicBool,
    /// The first panic of a worker in this region.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Shared {
    fn new(workers: usize, spins: usize) -> Shared {
        let nothing = Job { call: call::<fn(usize)>, data: std::ptr::null() };
        Shared {
            barrier: Barrier::new(workers, spins, nothing),
            threads: workers + 1,
            next: Next::default(),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
        }
    }

    /// What a worker does for all its life.
    fn work(&self, worker: usize) {
        let part = |job: Job| {
            // SAFETY: `run` keeps the closure alive until all parts have ended.
            let call = AssertUnwindSafe(|| unsafe { (job.call)(job.data, worker) });
            if let Err(panic) = catch_unwind(call) {
                self.lock_panic().get_or_insert(panic);
                self.panicked.store(true, Ordering::Release);
            }
        };
        let mut reading = Reading::default();
        self.barrier.work(worker, part, |work| {
            let part = |panels| range_of(worker, self.threads, panels);
            reading.go_on(&self.next, part, work);
        });
    }

    /// Takes the panic of a worker, once all have finished.
    fn panic_of_worker(&self) -> Option<Box<dyn Any + Send>> {
        if !self.panicked.load(Ordering::Acquire) {
            return None;
        }
        self.panicked.store(false, Ordering::Relaxed);
        self.lock_panic().take()
    }

    fn lock_panic(&self) -> MutexGuard<'_, Option<Box<dyn Any + Send>>> {
        self.panic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::{Duration, Instant};

    fn team(threads: usize) -> Team {
        Team::with_isa(threads, Isa::Scalar).unwrap()
    }

    #[test]
    fn every_worker_is_called_once_in_every_region() {
        for threads in [1, 2, 3, 9] {
            let team = team(threads);
            let counts: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
            for round in 1..=500 {
                team.run(|worker| {
                    counts[worker].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == round));
            }
        }
    }

    #[test]
    fn sleeping_workers_wake() {
        let team = team(4);
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(30));
            let calls = AtomicUsize::new(0);
            team.run(|_| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(calls.into_inner(), 4);
        }
    }

    #[test]
    fn a_sleeping_owner_wakes() {
        team(2).run(|worker| std::thread::sleep(Duration::from_millis(60 * worker as u64)));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_team_lives_on() {
        let team = team(3);
        for bad in 0..3 {
            let result = catch_unwind(AssertUnwindSafe(|| {
                team.run(|worker| assert!(worker != bad, "worker {bad} fails"));
            }));
            let message = *result.unwrap_err().downcast::<String>().unwrap();
            assert_eq!(message, format!("worker {bad} fails"));
            let calls = AtomicUsize::new(0);
            team.run(|_| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(calls.into_inner(), 3);
        }
    }

    #[test]
    fn regions_nest_and_come_from_several_threads() {
        let team = team(3);
        let calls = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        team.run(|_| {
                            team.run(|_| {
                                calls.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(calls.into_inner(), 4 * 50 * 9);
    }

    #[test]
    fn more_threads_than_processors_still_get_on() {
        let team = team(32);
        let start = Instant::now();
        for _ in 0..200 {
            team.run(|_| {});
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }

    /// Beside busy programs a region must not cost a scheduler's time slice each.
    #[test]
    fn busy_neighbours_do_not_stop_a_team() {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let stop = AtomicBool::new(false);
        let team = team(processors.max(2));
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..processors {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            for _ in 0..1_000 {
                team.run(|_| {});
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }

    #[test]
    fn impossible_teams_are_refused() {
        assert!(matches!(Team::with_isa(0, Isa::Scalar), Err(TeamError::Threads(0))));
        assert!(matches!(Team::with_isa(5000, Isa::Scalar), Err(TeamError::Threads(5000))));
    }

    /// Whatever they are told to read, and however often that changes while they do.
    #[test]
    fn who_reads_ahead_comes_when_there_is_work() {
        let team = team(3);
        let calls = AtomicUsize::new(0);
        for round in 1..=300 {
            let panels = [7, 1, 5_000][round % 3];
            team.read_ahead(WeightPlace::at(round << 20, 640 * panels, panels));
            team.run(|_| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(calls.load(Ordering::Relaxed), 3 * round);
        }
    }

    #[test]
    fn ranges_cover_everything_once() {
        for (threads, count) in [(1, 0), (2, 7), (3, 2), (5, 100), (7, usize::MAX)] {
            let mut next = 0;
            for worker in 0..threads {
                let range = range_of(worker, threads, count);
                assert_eq!(range.start, next);
                next = range.end;
            }
            assert_eq!(next, count);
        }
    }
}
