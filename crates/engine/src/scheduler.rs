//! The scheduler: admit, plan a step, run it, hand out.
//!
//! A step computes one row for each answer being decoded, and beside them as many prompt rows
//! as the step's time allows. A request is admitted when there are pages for what it has to
//! compute now; when pages run out later, the last in rank gives its own up, keeps what the
//! prompt cache can hold of them, and goes on when there is room again. Whoever is first in
//! rank is never stopped, so that all come to their end. What goes wrong inside a step fails
//! one request.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use cache::{Namespace, Timestamp};
use package::Package;
use tokio::sync::mpsc::Sender;

use crate::admission::{self, Load};
use crate::disk_tier::Wake;
use crate::drain::DrainRate;
use crate::guessing::{Guessing, Speculation};
use crate::kv_memory::KvMemory;
use crate::model::Model;
use crate::order::Order;
use crate::prefill_order::{self, Prompt};
use crate::rank::Rank;
use crate::request::{EngineError, Event, RequestLimits};
use crate::restoring::Restoring;
use crate::room::{self, Outlook};
use crate::running::{Choice, Running, Waiting};
use crate::sampler::Sampler;
use crate::sequence::Sequence;
use crate::shared_prefix::Candidate;
use crate::stats::EngineStats;
use crate::step::{self, Observer, Part};
use crate::step_budget::StepBudget;
use crate::verdict::PrefillRate;

/// What the scheduler keeps to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) request: RequestLimits,
    /// Answers computed at the same time.
    pub(crate) running: usize,
    /// How long a request may wait for its turn.
    pub(crate) max_wait: Duration,
    /// Prompt rows in one step.
    pub(crate) chunk_tokens: usize,
    /// How long a step may take beside answers that are decoded.
    pub(crate) step_budget: Option<Duration>,
    /// Whether prefixes are kept at all.
    pub(crate) prompt_cache: bool,
    pub(crate) speculation: Speculation,
}

/// All requests that wait or run, and the memory they share.
pub(crate) struct Scheduler {
    package: Arc<Package>,
    limits: Limits,
    memory: KvMemory,
    sampler: Sampler,
    waiting: VecDeque<Waiting>,
    running: Vec<Running>,
    /// Requests that were admitted and whose prefix is being read from disk.
    restoring: Vec<Restoring>,
    /// Is called when something has come for one of them.
    wake: Wake,
    /// Whether the last step had nothing to do but wait for that.
    waits_for_disk: bool,
    /// The last events of requests that ended, with their channels.
    closing: Vec<(Sender<Event>, Event)>,
    /// Requests that ever came.
    arrived: u64,
    budget: StepBudget,
    guessing: Guessing,
    rate: PrefillRate,
    drain: DrainRate,
    stats: EngineStats,
    now: Timestamp,
}

impl Scheduler {
    /// A scheduler with nothing to do. `wake` is called from other threads when a step that
    /// [waited for the disk](Self::waits_for_disk) is to be followed by another.
    pub(crate) fn new(package: Arc<Package>, limits: Limits, memory: KvMemory, wake: Wake) -> Self {
        Scheduler {
            package,
            limits,
            memory,
            sampler: Sampler::default(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            restoring: Vec::new(),
            wake,
            waits_for_disk: false,
            closing: Vec::new(),
            arrived: 0,
            budget: StepBudget::new(limits.step_budget, limits.chunk_tokens),
            guessing: Guessing::new(limits.speculation),
            rate: PrefillRate::default(),
            drain: DrainRate::default(),
            stats: EngineStats::default(),
            now: wall_clock(),
        }
    }

    /// Queues a request that [`RequestLimits::check`] found good.
    pub(crate) fn submit(&mut self, waiting: Waiting) {
        let rank = Rank::new(&waiting.request, waiting.submitted, self.arrived);
        self.arrived += 1;
        self.waiting.push_back(Waiting { rank, ..waiting });
    }

    /// Takes back what has not been admitted.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// Requests not yet admitted.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there is nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty() && self.restoring.is_empty()
    }

    /// Whether the last step had nothing to do, and the next will have nothing before something
    /// has come from disk, or somebody new, or somebody goes away.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.waits_for_disk
    }

    /// What running requests take, and those that the next steps will admit.
    pub(crate) fn expected_load(&self) -> Load {
        let mut load = self.load();
        let order = admission::order(self.waiting.iter(), &self.running);
        let fits = |at: &usize| load.add(&self.waiting[*at].request, self.limits.running);
        let fitting = order.into_iter().take_while(fits).count();
        load.waiting = self.waiting.len() - fitting;
        load
    }

    /// What those take who were admitted.
    fn load(&self) -> Load {
        let requests = self.running.iter().map(|running| &running.request);
        Load::of(requests.chain(self.restoring.iter().map(|restoring| &restoring.waiting.request)))
    }

    /// A step, and the last events of those who ended in it.
    pub(crate) fn step(&mut self, model: &mut Model, observer: &mut Observer<'_>) {
        self.compute(model, observer);
        self.close();
    }

    /// Drops who went away, admits who fits, and runs one step. Who ends hears of it from
    /// [`close`](Self::close): a caller may ask again at once, and must by then not be refused
    /// for what its own last request took.
    pub(crate) fn compute(&mut self, model: &mut Model, observer: &mut Observer<'_>) {
        let started = Instant::now();
        self.now = wall_clock();
        self.drop_cancelled();
        self.memory.look_after(self.now);
        let came = self.restore();
        self.admit();
        let plan = self.plan();
        let mut plan = self.make_room(plan);
        self.waits_for_disk = plan.is_empty() && !came && !self.restoring.is_empty();
        self.guess(&mut plan);
        if !plan.is_empty() {
            self.stats.steps += 1;
            self.run(model, &plan, observer);
            self.memory.write_to_disk(true, self.now);
        }
        let running = self.running.len();
        self.running.retain(|running| !running.ended);
        self.drain.note(started.elapsed(), running - self.running.len());
    }

    /// Sends the last events of those who ended.
    pub(crate) fn close(&mut self) {
        for (events, event) in self.closing.drain(..) {
            // A receiver that has gone needs none.
            let _ = events.try_send(event);
        }
    }

    /// Uses idle time: commits memory that a later request will need, and writes pages to disk.
    /// `false` if there is none to commit or to write.
    pub(crate) fn prepare(&mut self) -> bool {
        let now = wall_clock();
        self.memory.look_after(now);
        self.memory.prepare() || self.memory.write_to_disk(false, now)
    }

    /// Writes to disk what waits for it, before the end, and takes no longer than the limit.
    pub(crate) fn write_out(&mut self, limit: Duration) {
        self.memory.write_out(limit, wall_clock());
    }

    /// Does what an operator asks.
    pub(crate) fn carry_out(&mut self, order: Order) {
        order(&mut self.memory, wall_clock());
    }

    /// While nothing is to be computed: when to prepare again, where the memory wants it.
    pub(crate) fn look_again_in(&self) -> Option<Duration> {
        self.memory.look_again_in(wall_clock())
    }

    /// Counters and gauges as of now.
    pub(crate) fn stats(&self) -> EngineStats {
        let pool = self.memory.pool();
        let cached = self.memory.cache().stats();
        EngineStats {
            running: self.running.len() + self.restoring.len(),
            waiting: self.waiting.len(),
            preempted: self.sequences().filter(|sequence| !sequence.is_attached()).count(),
            pages: pool.pages(),
            pages_in_use: self.memory.pages_in_use(),
            pages_shared: self.memory.pages_shared(),
            pages_free: pool.free_pages(),
            pages_cached: cached.pages,
            tokens_cached: cached.tokens,
            ghosts: cached.ghosts,
            evicted_pages: cached.evicted_pages,
            expired_pages: cached.expired_pages,
            kv_saturated: pool.store().saturated(),
            request_s: self.drain.request_s(),
            ages: self.memory.ages().clone(),
            disk: self.memory.disk_stats(),
            ..self.stats.clone()
        }
    }

    /// The sequences of all answers that are not finished.
    fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.running.iter().flat_map(Running::open_choices).map(|(_, choice)| &choice.sequence)
    }

    // Admit.

    fn drop_cancelled(&mut self) {
        let waiting = self.waiting.len();
        self.waiting.retain(|waiting| !waiting.events.is_closed());
        self.stats.requests_cancelled += (waiting - self.waiting.len()) as u64;
        for index in 0..self.running.len() {
            if self.running[index].events.is_closed() {
                self.stats.requests_cancelled += 1;
                self.end(index);
            } else if !self.running[index].is_read() {
                self.stats.requests_unread += 1;
                let events = self.running[index].events.clone();
                self.closing.push((events, Event::Failed(EngineError::Unread)));
                self.end(index);
            }
        }
        self.running.retain(|running| !running.ended);
        let expired = admission::take_expired(&mut self.waiting, self.limits.max_wait);
        self.stats.requests_expired += expired.len() as u64;
        self.closing.extend(expired);
    }

    /// Lets who was preempted go on, then admits who waits, each in order and as long as there is
    /// room. Nobody overtakes another for whom there is none.
    fn admit(&mut self) {
        self.running.iter_mut().for_each(|running| running.wanted = None);
        self.stats.waiting_for_prefix = 0;
        let blocked = self.resume_preempted();
        let mut load = self.load();
        let mut waiting: Vec<Option<Waiting>> = self.waiting.drain(..).map(Some).collect();
        for at in admission::order(waiting.iter().flatten(), &self.running) {
            let Some(next) = &mut waiting[at] else { continue };
            let behind = blocked.is_some_and(|rank| rank < next.rank);
            if behind || !load.add(&next.request, self.limits.running) {
                break;
            }
            let candidate = Candidate::of_waiting(next, self.limits.prompt_cache);
            let answers = next.request.choices;
            match self.outlook(&candidate, answers) {
                Outlook::NoRoom => break,
                Outlook::Shared { leader, held } => {
                    self.stats.waiting_for_prefix += 1;
                    next.held_before.get_or_insert(held);
                    let left = next.request.prompt.len() - held;
                    self.running[leader].want(next.request.priority, left);
                }
                Outlook::Room => waiting[at].take().into_iter().for_each(|next| self.start(next)),
            }
            if !self.waiting.is_empty() {
                // It found no room after all, and waits again.
                break;
            }
        }
        self.waiting.extend(waiting.into_iter().flatten());
    }

    /// Attaches answers that gave their pages up. Returns the rank of the first for which there is
    /// no room.
    fn resume_preempted(&mut self) -> Option<Rank> {
        let mut detached: Vec<(Rank, usize, usize)> = Vec::new();
        for (index, running) in self.running.iter().enumerate() {
            let open = running.open_choices().filter(|(_, open)| !open.sequence.is_attached());
            detached.extend(open.map(|(choice, _)| (running.rank, index, choice)));
        }
        detached.sort_unstable();
        for (rank, index, choice) in detached {
            let running = &self.running[index];
            if running.ended {
                continue;
            }
            let candidate = Candidate::of_choice(running, index, choice, self.limits.prompt_cache);
            match self.outlook(&candidate, 1) {
                Outlook::NoRoom => return Some(rank),
                Outlook::Shared { leader, held } => {
                    let left = candidate.tokens.len() - held;
                    let priority = candidate.request.priority;
                    self.running[leader].want(priority, left);
                }
                Outlook::Room if self.resume(index, choice) => {}
                Outlook::Room => return Some(rank),
            }
        }
        None
    }

    fn outlook(&self, candidate: &Candidate<'_>, answers: usize) -> Outlook {
        room::outlook(candidate, answers, &self.running, &self.restoring, &self.memory)
    }

    /// Lets an answer that was preempted go on; `false` if it has to wait for others after all.
    fn resume(&mut self, index: usize, choice: usize) -> bool {
        let (prompt_cache, running) = (self.limits.prompt_cache, &mut self.running[index]);
        let resumed = room::resume(running, choice, prompt_cache, &mut self.memory, self.now);
        if resumed.is_err() && self.is_any_held() {
            return false;
        }
        if let Err(error) = resumed {
            self.fail(index, EngineError::Step(error.to_string()));
        }
        true
    }

    // Plan.

    /// One row for each answer being decoded, then prompt rows within the step's budget.
    fn plan(&mut self) -> Vec<Part> {
        let mut plan = Vec::with_capacity(self.limits.running.min(self.running.len()) + 1);
        let mut prompts = Vec::new();
        let mut caller_rows: HashMap<Namespace, usize> = HashMap::new();
        for Running { request, prompt_rows, .. } in &self.running {
            *caller_rows.entry(request.namespace).or_default() += prompt_rows;
        }
        for (index, running) in self.running.iter().enumerate() {
            let caller_rows = caller_rows.get(&running.request.namespace).copied();
            for (choice, Choice { sequence, .. }) in running.open_choices() {
                match sequence.pending() {
                    _ if !sequence.is_attached() => {}
                    1 => plan.push(Part::new(running, index, choice, 1)),
                    _ => {
                        let caller_rows = caller_rows.unwrap_or(0);
                        prompts.push(Prompt::new(running, (index, choice), caller_rows));
                    }
                }
            }
        }
        let room = self.budget.room(plan.len());
        let step = self.stats.steps + 1;
        for (prompt, rows) in prefill_order::share(prompts, room, step) {
            let running = &mut self.running[prompt.running];
            running.served_at_step = step;
            plan.push(Part::new(running, prompt.running, prompt.choice, rows));
        }
        plan
    }

    fn guess(&mut self, plan: &mut [Part]) {
        let memory = (&mut self.memory, self.limits.prompt_cache);
        self.guessing.guess(plan, &mut self.running, memory, self.now);
        for part in plan {
            self.running[part.running].proposed += part.guessed.len();
            self.stats.proposed_tokens += part.guessed.len() as u64;
        }
    }

    // Run.

    /// Runs the parts in one step; if that fails, each on its own, so that only those fail
    /// that cannot be computed.
    fn run(&mut self, model: &mut Model, plan: &[Part], observer: &mut Observer<'_>) {
        let started = Instant::now();
        match self.run_together(model, plan, observer) {
            Ok(()) => self.note_time(plan, started.elapsed()),
            Err(error) if plan.len() == 1 => self.fail(plan[0].running, error),
            Err(_) => {
                for part in plan {
                    if self.running[part.running].ended {
                        continue;
                    }
                    let alone = std::slice::from_ref(part);
                    if let Err(error) = self.run_together(model, alone, observer) {
                        self.fail(part.running, error);
                    }
                }
            }
        }
    }

    fn run_together(
        &mut self,
        model: &mut Model,
        plan: &[Part],
        observer: &mut Observer<'_>,
    ) -> Result<(), EngineError> {
        step::show(plan, &self.running, observer);
        let store = self.memory.pool_mut().store_mut();
        let logits = step::forward(model, store, &self.running, plan)?;
        self.hand_out(plan, logits, observer);
        Ok(())
    }

    fn note_time(&mut self, plan: &[Part], took: Duration) {
        let (rows, all) = (step::rows(plan), plan.iter().map(Part::rows).sum());
        if rows.prompt > 0 {
            self.rate.note(all, took);
        } else {
            self.guessing.note(all, took);
        }
        // A step with guesses is not an ordinary one.
        if all == rows.decoded + rows.prompt {
            self.budget.note(rows, took);
        }
    }
}

/// Now, as the prompt cache counts it.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_millis() as u64)
}

mod hand_out;
mod preempt;
mod start;

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "scheduler_world_tests.rs"]
mod world_tests;

#[cfg(test)]
#[path = "scheduler_disk_tests.rs"]
mod disk_tests;
