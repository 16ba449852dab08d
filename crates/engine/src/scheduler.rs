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
use crate::drain::DrainRate;
use crate::guessing::{Guessing, Speculation};
use crate::kv_memory::{By, KvMemory};
use crate::model::Model;
use crate::order::Order;
use crate::prefill_order::{self, Prompt};
use crate::rank::Rank;
use crate::request::{EngineError, Event, FinishReason, RequestLimits, TokenInfo, TokenLogprobs};
use crate::restoring::Restoring;
use crate::room::{self, Outlook};
use crate::running::{Choice, Running, Waiting};
use crate::sampler::{LogSoftmax, Sampler, are_numbers};
use crate::sequence::{OutOfPages, Sequence};
use crate::shared_prefix::Candidate;
use crate::stats::EngineStats;
use crate::step::{self, Observer, Part, Seen};
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
    /// A scheduler with nothing to do.
    pub(crate) fn new(package: Arc<Package>, limits: Limits, memory: KvMemory) -> Self {
        Scheduler {
            package,
            limits,
            memory,
            sampler: Sampler::default(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            restoring: Vec::new(),
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
        self.restore();
        self.admit();
        let plan = self.plan();
        let mut plan = self.make_room(plan);
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
            match room::outlook(&candidate, answers, &self.running, &self.memory) {
                Outlook::NoRoom => break,
                Outlook::Shared { leader, held } => {
                    self.stats.waiting_for_prefix += 1;
                    next.held_before.get_or_insert(held);
                    let left = next.request.prompt.len() - held;
                    self.running[leader].want(next.request.priority, left);
                }
                Outlook::Room => waiting[at].take().into_iter().for_each(|next| self.start(next)),
            }
        }
        self.waiting = waiting.into_iter().flatten().collect();
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
            match room::outlook(&candidate, 1, &self.running, &self.memory) {
                Outlook::NoRoom => return Some(rank),
                Outlook::Shared { leader, held } => {
                    let left = candidate.tokens.len() - held;
                    let priority = candidate.request.priority;
                    self.running[leader].want(priority, left);
                }
                Outlook::Room => self.resume(index, choice),
            }
        }
        None
    }

    /// Lets an answer that was preempted go on.
    fn resume(&mut self, index: usize, choice: usize) {
        let prompt_cache = self.limits.prompt_cache;
        let running = &mut self.running[index];
        if let Err(error) = room::resume(running, choice, prompt_cache, &mut self.memory, self.now)
        {
            self.fail(index, EngineError::Step(error.to_string()));
        }
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

    /// Makes room for the plan's rows, in the order of ranks. When no page is left, the last in
    /// rank that runs is preempted; what it had planned is left out.
    fn make_room(&mut self, mut plan: Vec<Part>) -> Vec<Part> {
        plan.sort_by_key(|part| (self.running[part.running].rank, part.choice));
        plan.retain(|part| {
            while self.may_run(part) {
                match self.room_for(part) {
                    Ok(()) => return true,
                    Err(error) => self.preempt_last(part, error),
                }
            }
            false
        });
        plan
    }

    fn may_run(&self, part: &Part) -> bool {
        let running = &self.running[part.running];
        !running.ended && running.choices[part.choice].sequence.is_attached()
    }

    fn room_for(&mut self, part: &Part) -> Result<(), OutOfPages> {
        let Running { request, choices, .. } = &mut self.running[part.running];
        let by = By::of(request, self.now);
        let sequence = &mut choices[part.choice].sequence;
        sequence.make_room(part.positions.len(), &mut self.memory, by)
    }

    fn guess(&mut self, plan: &mut [Part]) {
        let memory = (&mut self.memory, self.limits.prompt_cache);
        self.guessing.guess(plan, &mut self.running, memory, self.now);
        for part in plan {
            self.running[part.running].proposed += part.guessed.len();
            self.stats.proposed_tokens += part.guessed.len() as u64;
        }
    }

    /// Preempts the last in rank. If that is the only one, nothing but the prompt cache can stand
    /// in its way.
    fn preempt_last(&mut self, part: &Part, error: OutOfPages) {
        let running = self.running.iter().enumerate();
        let attached = running.flat_map(|(index, running)| {
            let open = running.open_choices().filter(|(_, open)| open.sequence.is_attached());
            open.map(move |(choice, _)| (running.rank, index, choice))
        });
        let attached: Vec<_> = attached.collect();
        match attached.iter().max() {
            Some(&(_, index, choice)) if attached.len() > 1 => self.preempt(index, choice),
            _ => {
                self.memory.give_up_cached(self.now);
                if self.room_for(part).is_err() {
                    self.fail(part.running, EngineError::Step(error.to_string()));
                }
            }
        }
    }

    /// Takes an answer's pages for others. It goes on later, and nobody sees a difference.
    fn preempt(&mut self, index: usize, choice: usize) {
        self.stats.preemptions += 1;
        self.retire(index, choice);
    }

    /// Preempts a request's answers, for tests; returns how many.
    pub(crate) fn preempt_request(&mut self, id: &str) -> usize {
        let before = self.stats.preemptions;
        for index in 0..self.running.len() {
            for choice in 0..self.running[index].choices.len() {
                let Running { request, choices, .. } = &self.running[index];
                let open = choices[choice].finished.is_none();
                if request.id == id && open && choices[choice].sequence.is_attached() {
                    self.preempt(index, choice);
                }
            }
        }
        (self.stats.preemptions - before) as usize
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

    // Hand out.

    fn hand_out(&mut self, plan: &[Part], logits: &[f32], observer: &mut Observer<'_>) {
        let mut rows = logits.chunks_exact(self.limits.request.vocab);
        for part in plan {
            let running = &mut self.running[part.running];
            if !running.ended {
                running.choices[part.choice].sequence.advance(part.positions.len());
                running.prompt_rows += if part.prefill { part.positions.len() } else { 0 };
                self.publish_chunk(part);
            }
            for (position, row) in part.logits.clone().zip(&mut rows) {
                self.take_row(part, position, row, observer);
            }
            let guessed = part.guessed.iter().zip(part.positions.end..);
            for ((&token, position), row) in guessed.zip(&mut rows) {
                if self.running[part.running].accept(part.choice, position, token) {
                    self.stats.accepted_tokens += 1;
                    self.take_row(part, position, row, observer);
                }
            }
            self.learn(part);
        }
    }

    /// Compares what was guessed with what was drawn, and gives back what wrong guesses took.
    fn learn(&mut self, part: &Part) {
        let Choice { sequence, guesses, .. } = &mut self.running[part.running].choices[part.choice];
        guesses.learn(sequence.tokens().get(part.positions.end..).unwrap_or(&[]));
        if !part.guessed.is_empty() {
            sequence.trim(&mut self.memory);
        }
    }

    fn take_row(&mut self, part: &Part, position: usize, row: &[f32], observer: &mut Observer<'_>) {
        // An earlier row of the step may have failed the request.
        if self.running[part.running].ended {
            return;
        }
        if !are_numbers(row) {
            return self.fail(part.running, EngineError::NotNumbers);
        }
        let running = &mut self.running[part.running];
        if let (Some(count), Some(&next)) =
            (running.request.prompt_logprobs, running.request.prompt.get(position + 1))
        {
            let row = LogSoftmax::new(row);
            let logprobs = TokenLogprobs { logprob: row.of(next), top: row.top(count) };
            running.prompt_logprobs.push(Some(logprobs));
            return;
        }
        let choices = if running.clock.prefilled.is_some() {
            part.choice..part.choice + 1
        } else {
            self.end_prefill(part.running);
            0..self.running[part.running].choices.len()
        };
        for choice in choices {
            self.draw(part.running, choice, row, observer);
        }
    }

    /// The prompt is computed: publishes its full pages and gives each choice its sequence.
    fn end_prefill(&mut self, index: usize) {
        let running = &mut self.running[index];
        running.clock.prefilled = Some(Instant::now());
        if running.request.prompt_logprobs.is_some() {
            running.prompt_logprobs.insert(0, None);
            let logprobs = std::mem::take(&mut running.prompt_logprobs);
            running.send(Event::PromptLogprobs(logprobs));
        }
        self.publish(index, 0, true);
        for choice in 1..self.running[index].request.choices {
            let running = &self.running[index];
            let by = By::of(&running.request, self.now);
            let fork = running.choices[0].sequence.fork(&mut self.memory, by);
            let choice = running.choice(choice, fork, self.limits.request.vocab);
            self.running[index].choices.push(choice);
        }
    }

    /// Draws a choice's next token and sends what can be sent.
    fn draw(&mut self, index: usize, choice: usize, row: &[f32], observer: &mut Observer<'_>) {
        let running = &mut self.running[index];
        if running.answer_tokens == 0 {
            return self.finish(index, choice, FinishReason::Length, false);
        }
        let id = &running.request.id;
        observer(Seen::Logits { request: id, logits: row });
        let request = &running.request;
        let drawing = &mut running.choices[choice];
        let position = drawing.sequence.tokens().len();
        let token = self.sampler.sample(row, &request.sampling, &drawing.state, position);
        drawing.state.accept(token);
        drawing.drawn += 1;
        running.clock.note_token();
        self.stats.output_tokens += 1;

        let tokenizer = &self.package.tokenizer;
        let ends = !request.ignore_end && tokenizer.end_ids().contains(&token);
        if ends || request.stop_ids.contains(&token) {
            return self.finish(index, choice, FinishReason::Stop, false);
        }
        let hidden = tokenizer.is_special(token);
        let bytes = tokenizer.bytes(token).filter(|_| !hidden).unwrap_or_default().to_vec();
        let row = request.logprobs.map(|count| (LogSoftmax::new(row), count));
        let logprob = row.map(|(row, _)| row.of(token));
        let top = row.map(|(row, count)| row.top(count)).unwrap_or_default();
        drawing.sequence.push(token);
        let piece = drawing.output.push(TokenInfo { id: token, bytes, logprob, top });
        let (stopped, full) = (piece.stopped, drawing.drawn >= running.answer_tokens);
        running.send_piece(choice, piece);
        if stopped {
            self.finish(index, choice, FinishReason::Stop, true);
        } else if full {
            self.finish(index, choice, FinishReason::Length, false);
        }
    }

    /// Ends one answer, and the request with its last.
    fn finish(&mut self, index: usize, choice: usize, reason: FinishReason, cut: bool) {
        let running = &mut self.running[index];
        if !cut {
            let piece = running.choices[choice].output.finish();
            running.send_piece(choice, piece);
        }
        running.choices[choice].finished = Some(reason);
        running.send(Event::Finished { choice, reason });
        self.retire(index, choice);
        let running = &self.running[index];
        let open = running.open_choices().count();
        if open == 0 && running.choices.len() == running.request.choices {
            let done = running.done(self.rate.lost_ms(&running.verdict));
            self.closing.push((running.events.clone(), done));
            self.stats.requests_done += 1;
            self.end(index);
        }
    }

    /// Publishes what a part added to a prompt that goes on, for those who wait for it.
    fn publish_chunk(&mut self, part: &Part) {
        let running = &self.running[part.running];
        let pending = running.choices[part.choice].sequence.pending();
        if part.prefill && (pending > 0 || running.clock.prefilled.is_some()) {
            self.publish(part.running, part.choice, true);
        }
    }

    /// Offers a choice's computed rows to the prompt cache: all of them, or the full pages
    /// alone while the sequence goes on writing to the last one.
    fn publish(&mut self, index: usize, choice: usize, full_pages: bool) {
        let Running { request, choices, .. } = &self.running[index];
        if !request.use_cache || !self.limits.prompt_cache {
            return;
        }
        let sequence = &choices[choice].sequence;
        let mut tokens = &sequence.tokens()[..sequence.computed()];
        if full_pages {
            tokens = &tokens[..tokens.len() / cache::PAGE_TOKENS * cache::PAGE_TOKENS];
        }
        self.memory.publish(tokens, sequence.pages(), By::of(request, self.now));
    }

    /// Notes what a choice has published, to be written to disk.
    fn note_for_disk(&mut self, index: usize, choice: usize) {
        let Running { request, choices, .. } = &self.running[index];
        if request.use_cache && request.keep_on_disk {
            let sequence = &choices[choice].sequence;
            let tokens = &sequence.tokens()[..sequence.computed()];
            let by = By::of(request, self.now);
            self.memory.note_for_disk(tokens, sequence.pages(), by);
        }
    }

    /// Publishes a choice's rows and gives up its pages.
    fn retire(&mut self, index: usize, choice: usize) {
        self.publish(index, choice, false);
        self.note_for_disk(index, choice);
        self.running[index].choices[choice].sequence.release(&mut self.memory);
    }

    /// Ends a request, keeping what it computed.
    fn end(&mut self, index: usize) {
        let open: Vec<usize> = self.running[index].open_choices().map(|open| open.0).collect();
        for choice in open {
            self.retire(index, choice);
        }
        self.running[index].ended = true;
    }

    /// Ends a request whose step failed: what it computed is not trusted.
    fn fail(&mut self, index: usize, error: EngineError) {
        for choice in &mut self.running[index].choices {
            choice.sequence.release(&mut self.memory);
        }
        self.stats.requests_failed += 1;
        self.closing.push((self.running[index].events.clone(), Event::Failed(error)));
        self.running[index].ended = true;
    }

    /// Fails all that runs, after a step of which nothing is known.
    pub(crate) fn fail_all(&mut self, error: &EngineError) {
        for index in 0..self.running.len() {
            if !self.running[index].ended {
                self.fail(index, error.clone());
            }
        }
        self.running.clear();
        for restoring in std::mem::take(&mut self.restoring) {
            let waiting = restoring.abandon(&mut self.memory);
            self.stats.requests_failed += 1;
            self.closing.push((waiting.events, Event::Failed(error.clone())));
        }
    }
}

/// Now, as the prompt cache counts it.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_millis() as u64)
}

mod start;

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
