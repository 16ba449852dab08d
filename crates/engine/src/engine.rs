//! The handle that servers and commands hold, and the thread that computes.
//!
//! One thread owns the model, the KV memory and the prompt cache; handles put requests into
//! its inbox and get their events through channels. Dropping a request's [`Events`] cancels
//! it; dropping the last handle ends the thread once it has finished what runs.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use package::Package;

use crate::admission::Load;
use crate::drain;
use crate::model::Model;
use crate::options::{EngineInfo, EngineOptions, Plan, StartError};
use crate::order::Order;
use crate::order_error::{ORDERS_MAX, OrderError};
use crate::request::{EngineError, Event, Events, Request, SubmitError, events_of};
use crate::running::Waiting;
use crate::scheduler::Scheduler;
use crate::stats::EngineStats;

/// A running model. Cheap to clone, and to use from any thread.
#[derive(Clone)]
pub struct Engine {
    handle: Arc<Handle>,
}

/// Tells the thread to end when the last handle goes.
struct Handle {
    shared: Arc<Shared>,
    plan: Plan,
}

/// What handles and the thread exchange.
struct Shared {
    inbox: Mutex<Inbox>,
    changed: Condvar,
}

#[derive(Default)]
struct Inbox {
    arrived: Vec<Waiting>,
    orders: Vec<Order>,
    /// Requests that the scheduler has taken but not admitted.
    scheduled: usize,
    /// What running requests take, with those of the inbox and the queue that fit beside
    /// them; and how many do not.
    load: Load,
    /// Something has come from disk since the last step began.
    woken: bool,
    stopping: bool,
    ended: bool,
    stats: EngineStats,
}

impl Engine {
    /// Loads the package's model, reserves its KV memory and starts the thread. `progress` is
    /// told the bytes loaded and to load.
    ///
    /// # Errors
    /// Options that contradict the model or the machine, weights that cannot be loaded, or a
    /// system that refuses memory or a thread.
    pub fn start(
        package: Arc<Package>,
        options: EngineOptions,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Engine, StartError> {
        let disk = options.disk.clone().filter(|_| options.prompt_cache);
        // While the weights are read anyway: loading gives the file's pages back.
        let (model, digest) = std::thread::scope(|scope| {
            let digest = disk.is_some().then(|| scope.spawn(|| package.weights.digest()));
            let model = options.load(&package, progress);
            (model, digest.map(|digest| digest.join().unwrap_or_else(|panic| resume_unwind(panic))))
        });
        let model = model?;
        let mut plan = options.resolve(&package, &model)?;
        plan.disk = disk.zip(digest.map(|weights| model_of(&weights, &plan.info)));
        let shared =
            Arc::new(Shared { inbox: Mutex::new(Inbox::default()), changed: Condvar::new() });
        let woken = Arc::clone(&shared);
        let scheduler = plan.scheduler(&package, Arc::new(move || woken.wake()))?;
        // Whoever asks at once is to see what is on disk.
        shared.lock().stats = scheduler.stats();
        let ours = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("engine".to_string())
            .spawn(move || Worker { shared: ours, model, scheduler }.run())
            .map_err(StartError::Thread)?;
        Ok(Engine { handle: Arc::new(Handle { shared, plan }) })
    }

    /// Queues a request. Its events begin when its turn comes.
    ///
    /// # Errors
    /// A request out of range, a full queue, or an engine that is shutting down.
    pub fn submit(&self, request: Request) -> Result<Events, SubmitError> {
        self.plan().limits.request.check(&request)?;
        let (events, receiver) = events_of(&request);
        self.queue(vec![Waiting::new(request, events)])?;
        Ok(receiver)
    }

    /// Queues requests that come together: no step begins between the first and the last of them.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit), of any of them; then none is queued.
    pub fn submit_all(&self, requests: Vec<Request>) -> Result<Vec<Events>, SubmitError> {
        requests.iter().try_for_each(|request| self.plan().limits.request.check(request))?;
        let queued = requests.into_iter().map(|request| {
            let (events, receiver) = events_of(&request);
            (Waiting::new(request, events), receiver)
        });
        let (waiting, receivers) = queued.unzip();
        self.queue(waiting)?;
        Ok(receivers)
    }

    /// Puts all of them into the inbox, or none.
    fn queue(&self, arriving: Vec<Waiting>) -> Result<(), SubmitError> {
        let Plan { limits, info, .. } = self.plan();
        let mut inbox = self.handle.shared.lock();
        if inbox.stopping || inbox.ended {
            return Err(SubmitError::ShuttingDown);
        }
        let mut load = inbox.load;
        for Waiting { request, .. } in &arriving {
            if load.add(request, limits.running) {
                continue;
            }
            if load.waiting >= info.max_queue {
                let request_s = inbox.stats.request_s;
                let retry_after_s = drain::retry_after_s(request_s, load.waiting, info.max_running);
                return Err(SubmitError::QueueFull { retry_after_s });
            }
            load.waiting += 1;
        }
        inbox.load = load;
        inbox.arrived.extend(arriving);
        drop(inbox);
        self.handle.shared.changed.notify_all();
        Ok(())
    }

    fn plan(&self) -> &Plan {
        &self.handle.plan
    }

    /// Has something done in the engine's thread, after the step that runs.
    pub(crate) fn order(&self, order: Order) -> Result<(), OrderError> {
        let mut inbox = self.handle.shared.lock();
        if inbox.stopping || inbox.ended {
            return Err(OrderError::ShuttingDown);
        }
        if inbox.orders.len() >= ORDERS_MAX {
            return Err(OrderError::Busy);
        }
        inbox.orders.push(order);
        drop(inbox);
        self.handle.shared.changed.notify_all();
        Ok(())
    }

    /// What the engine was started with, defaults resolved.
    pub fn info(&self) -> &EngineInfo {
        &self.plan().info
    }

    /// Counters and gauges as of the last step.
    pub fn stats(&self) -> EngineStats {
        let inbox = self.handle.shared.lock();
        let waiting = inbox.arrived.len() + inbox.scheduled;
        EngineStats { waiting, ..inbox.stats.clone() }
    }

    /// Accepts nothing more, fails what waits with [`EngineError::ShuttingDown`], and returns
    /// when what runs is finished and the prompt cache is on disk; writing it is given five
    /// seconds, and what is not written then is lost. Blocks: call it from a thread that may.
    pub fn shutdown(&self) {
        let shared = &self.handle.shared;
        shared.stop();
        let mut inbox = shared.lock();
        while !inbox.ended {
            inbox = shared.changed.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Inbox {
    /// Whether nothing has come.
    fn is_empty(&self) -> bool {
        self.arrived.is_empty() && self.orders.is_empty()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Shared {
    /// The inbox holds plain data that is whole after each statement, so a lock that a panic
    /// poisoned is as good as another.
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.lock().stopping = true;
        self.changed.notify_all();
    }

    fn wake(&self) {
        self.lock().woken = true;
        self.changed.notify_all();
    }
}

/// The context string of BLAKE3's key derivation (BLAKE3 paper, section 6.2).
const MODEL_CONTEXT: &str = "refrain 2026 prompt cache: model from weights and numerics id";

/// The engine must have had nothing to do for so long before it prepares memory: the system may
/// take milliseconds to give some, and a request that comes at once after another is not to wait
/// for it.
const REST: Duration = Duration::from_millis(20);

/// Writing the prompt cache to disk at the end may take so long: half the time that is usually
/// given to a process between the signal that asks and the one that does not.
const WRITE_OUT_LIMIT: Duration = Duration::from_secs(5);

/// While it waits for the disk alone, the engine looks so often for callers who went away.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What K/V on disk depend on beside token ids: the weights, and how they are computed with.
fn model_of(weights: &[u8; 32], info: &EngineInfo) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(MODEL_CONTEXT);
    hasher.update(weights).update(info.numerics_id.as_bytes());
    hasher.finalize().into()
}

/// The engine's thread.
struct Worker {
    shared: Arc<Shared>,
    model: Model,
    scheduler: Scheduler,
}

impl Worker {
    fn run(mut self) {
        while self.exchange() {
            let (scheduler, model) = (&mut self.scheduler, &mut self.model);
            let step = AssertUnwindSafe(|| scheduler.compute(model, &mut |_| {}));
            if catch_unwind(step).is_err() {
                let error = EngineError::Step("the scheduler panicked".to_string());
                self.scheduler.fail_all(&error);
            }
        }
        self.scheduler.write_out(WRITE_OUT_LIMIT);
    }

    /// Takes what arrived and reports; sleeps while there is nothing to do, and prepares memory
    /// when that has been so for a while. `false` ends the thread.
    fn exchange(&mut self) -> bool {
        let mut inbox = self.shared.lock();
        let mut rested = false;
        loop {
            for waiting in inbox.arrived.drain(..) {
                self.scheduler.submit(waiting);
            }
            if inbox.stopping {
                for waiting in self.scheduler.take_waiting() {
                    let _ = waiting.events.try_send(Event::Failed(EngineError::ShuttingDown));
                }
            }
            if !inbox.orders.is_empty() {
                let orders = std::mem::take(&mut inbox.orders);
                drop(inbox);
                orders.into_iter().for_each(|order| self.scheduler.carry_out(order));
                inbox = self.shared.lock();
                continue;
            }
            inbox.scheduled = self.scheduler.waiting();
            inbox.load = self.scheduler.expected_load();
            inbox.stats = self.scheduler.stats();
            self.scheduler.close();
            if !self.scheduler.is_idle() {
                if std::mem::take(&mut inbox.woken) || !self.scheduler.waits_for_disk() {
                    return true;
                }
                let changed = &self.shared.changed;
                let waited = changed.wait_timeout(inbox, LOOK_EVERY);
                inbox = waited.unwrap_or_else(PoisonError::into_inner).0;
                inbox.woken = true;
                continue;
            }
            if inbox.stopping {
                return false;
            }
            let changed = &self.shared.changed;
            if !rested {
                let waited =
                    changed.wait_timeout(inbox, REST).unwrap_or_else(PoisonError::into_inner);
                (inbox, rested) = (waited.0, waited.1.timed_out());
                continue;
            }
            drop(inbox);
            let prepared = self.scheduler.prepare();
            inbox = self.shared.lock();
            if !prepared && inbox.is_empty() && !inbox.stopping {
                inbox = match self.scheduler.look_again_in() {
                    None => changed.wait(inbox).unwrap_or_else(PoisonError::into_inner),
                    Some(time) => {
                        changed.wait_timeout(inbox, time).unwrap_or_else(PoisonError::into_inner).0
                    }
                };
                rested = inbox.is_empty();
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
    }
}
