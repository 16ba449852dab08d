//! The scheduler: admit, plan a step, run it, hand out.
//!
//! A step computes one row for each answer being decoded, and one chunk of the prompt that
//! has waited longest. A request is admitted when the pages it may come to need are not
//! promised to others, so that a running request never lacks memory; it gives up what it
//! did not need when it ends. What goes wrong inside a step fails one request.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use cache::{Timestamp, Verdict};
use kernels::KvStore;
use package::Package;
use tokio::sync::mpsc::UnboundedSender;

use crate::drain::DrainRate;
use crate::kv_memory::KvMemory;
use crate::model::{Batch, Model};
use crate::output::OutputText;
use crate::random;
use crate::request::{
    EngineError, Event, FinishReason, Request, RequestLimits, TokenInfo, TokenLogprobs,
};
use crate::running::{Choice, Clock, Prefix, Running, Waiting};
use crate::sampler::{ChoiceState, LogSoftmax, Sampler, are_numbers};
use crate::sequence::{By, Sequence};
use crate::stats::EngineStats;
use crate::taps::NoTaps;
use crate::verdict::PrefillRate;

/// Prompt rows in one step when logits of all of them are wanted, to bound their memory.
const LOGIT_ROWS_MAX: usize = 64;

/// What the scheduler keeps to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) request: RequestLimits,
    /// Answers computed at the same time.
    pub(crate) running: usize,
    /// Prompt rows in one step.
    pub(crate) chunk_tokens: usize,
    /// Whether prefixes are kept at all.
    pub(crate) prompt_cache: bool,
}

/// What requests take of the limits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    answers: usize,
    pages: usize,
    /// Requests that wait for others to end.
    pub(crate) waiting: usize,
}

impl Load {
    /// Adds a request if it can run beside the others and none waits before it. Alone, every
    /// request can that [`RequestLimits::check`] found good.
    pub(crate) fn add(&mut self, request: &Request, limits: &Limits) -> bool {
        let answers = self.answers + request.choices;
        let pages = self.pages + limits.request.pages_needed(request);
        let full = answers > limits.running || pages > limits.request.pages;
        if self.waiting > 0 || full && self.answers > 0 {
            return false;
        }
        (self.answers, self.pages) = (answers, pages);
        true
    }
}

/// What an observer is shown of a step.
pub(crate) enum Seen<'a> {
    /// The rows that are computed together.
    Step(&'a [Rows<'a>]),
    /// The logits that a token is drawn from.
    Logits { request: &'a str, logits: &'a [f32] },
}

/// Rows of one choice in a step.
pub(crate) struct Rows<'a> {
    pub(crate) request: &'a str,
    pub(crate) positions: Range<usize>,
}

/// Looks at steps from outside; changes nothing.
pub(crate) type Observer<'o> = dyn FnMut(Seen<'_>) + 'o;

/// Part of a step: successive rows of one choice.
#[derive(Clone, Debug)]
struct Part {
    running: usize,
    choice: usize,
    positions: Range<usize>,
    /// Those rows whose logits are wanted, at the end of `positions`.
    logits: Range<usize>,
    prefill: bool,
}

/// All requests that wait or run, and the memory they share.
pub(crate) struct Scheduler {
    package: Arc<Package>,
    limits: Limits,
    memory: KvMemory,
    sampler: Sampler,
    waiting: VecDeque<Waiting>,
    running: Vec<Running>,
    /// The last events of requests that ended, with their channels.
    closing: Vec<(UnboundedSender<Event>, Event)>,
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
            closing: Vec::new(),
            rate: PrefillRate::default(),
            drain: DrainRate::default(),
            stats: EngineStats::default(),
            now: wall_clock(),
        }
    }

    /// Queues a request that [`RequestLimits::check`] found good.
    pub(crate) fn submit(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
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
        self.waiting.is_empty() && self.running.is_empty()
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
        self.admit();
        let plan = self.plan();
        if !plan.is_empty() {
            self.stats.steps += 1;
            self.run(model, &plan, observer);
        }
        let running = self.running.len();
        self.running.retain(|running| !running.ended);
        self.drain.note(started.elapsed(), running - self.running.len());
    }

    /// Sends the last events of those who ended.
    pub(crate) fn close(&mut self) {
        for (events, event) in self.closing.drain(..) {
            // A receiver that has gone needs none.
            let _ = events.send(event);
        }
    }

    /// Counters and gauges as of now.
    pub(crate) fn stats(&self) -> EngineStats {
        let pool = self.memory.pool();
        let cached = self.memory.cache().stats();
        EngineStats {
            running: self.running.len(),
            waiting: self.waiting.len(),
            pages: pool.pages(),
            pages_free: pool.free_pages(),
            pages_cached: cached.pages,
            tokens_cached: cached.tokens,
            ghosts: cached.ghosts,
            kv_saturated: pool.store().saturated(),
            request_s: self.drain.request_s(),
            ..self.stats.clone()
        }
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
            }
        }
        self.running.retain(|running| !running.ended);
    }

    /// Admits in the order of arrival, as long as answers and pages are left.
    fn admit(&mut self) {
        while let Some(next) = self.waiting.front() {
            if !self.load().add(&next.request, &self.limits) {
                return;
            }
            let needed = self.limits.request.pages_needed(&next.request);
            if let Some(waiting) = self.waiting.pop_front() {
                self.start(waiting, needed);
            }
        }
    }

    /// What the running requests take.
    fn load(&self) -> Load {
        Load {
            answers: self.running.iter().map(|running| running.request.choices).sum(),
            pages: self.running.iter().map(|running| running.pages_reserved).sum(),
            waiting: 0,
        }
    }

    /// What running requests take, and those that the next step will admit.
    pub(crate) fn expected_load(&self) -> Load {
        let mut load = self.load();
        let fits = |next: &&Waiting| load.add(&next.request, &self.limits);
        let fitting = self.waiting.iter().take_while(fits).count();
        load.waiting = self.waiting.len() - fitting;
        load
    }

    /// Finds the request's prefix and lets it run.
    fn start(&mut self, waiting: Waiting, pages_reserved: usize) {
        let Waiting { request, events, submitted } = waiting;
        let admitted = Instant::now();
        let prefix = self.find_prefix(&request);
        let by = By { request: &request.id, now: self.now };
        let (pages, reused, memory) = (&prefix.pages, prefix.reused, &mut self.memory);
        let sequence = Sequence::resume(&request.prompt, pages, reused, memory, by);
        let sequence = match sequence {
            Ok(sequence) => sequence,
            Err(error) => {
                prefix.pin.into_iter().for_each(|pin| self.memory.unpin(pin));
                self.stats.requests_failed += 1;
                self.closing.push((events, Event::Failed(EngineError::Step(error.to_string()))));
                return;
            }
        };
        self.stats.prompt_tokens += prefix.verdict.prompt_tokens as u64;
        self.stats.reused_tokens += prefix.verdict.reused_tokens as u64;
        let seed = request.sampling.seed.unwrap_or_else(random::fresh_seed);
        let mut running = Running {
            answer_tokens: self.limits.request.answer_tokens(&request),
            verdict: prefix.verdict,
            looked_up: prefix.pin.is_some(),
            pin: prefix.pin,
            pages_reserved,
            choices: Vec::with_capacity(request.choices),
            prompt_logprobs: Vec::new(),
            served_at_step: self.stats.steps,
            clock: Clock::new(submitted, admitted),
            ended: false,
            seed,
            request,
            events,
        };
        running.choices.push(self.choice(&running, 0, sequence));
        self.running.push(running);
    }

    fn find_prefix(&mut self, request: &Request) -> Prefix {
        let tokens = request.prompt.len();
        let none = |verdict| Prefix { pages: Vec::new(), reused: 0, verdict, pin: None };
        if !request.use_cache || !self.limits.prompt_cache {
            return none(Verdict::disabled_by_request(tokens));
        }
        if request.prompt_logprobs.is_some() {
            return none(Verdict::rows_requested(tokens));
        }
        let hit = self.memory.lookup(&request.namespace, &request.prompt, &request.id, self.now);
        let mut verdict = hit.verdict;
        let map = request.prompt_map.as_ref();
        doctor::complete(&mut verdict, &self.package.tokenizer, map);
        Prefix { pages: hit.pages, reused: hit.reused_tokens, verdict, pin: Some(hit.pin) }
    }

    fn choice(&self, running: &Running, index: usize, sequence: Sequence) -> Choice {
        let Running { request, seed, .. } = running;
        let vocab = self.limits.request.vocab;
        Choice {
            sequence,
            output: OutputText::new(&request.stop),
            state: ChoiceState::new(&request.sampling, *seed, index, &request.prompt, vocab),
            drawn: 0,
            finished: None,
        }
    }

    // Plan.

    /// One row for each answer being decoded, then one chunk of a prompt.
    fn plan(&mut self) -> Vec<Part> {
        let mut plan = Vec::with_capacity(self.limits.running + 1);
        let mut longest_unserved: Option<usize> = None;
        for (index, running) in self.running.iter().enumerate() {
            for (choice, Choice { sequence, .. }) in running.open_choices() {
                if sequence.pending() == 1 {
                    plan.push(Part::new(running, index, choice, 1));
                } else if longest_unserved
                    .is_none_or(|other| running.served_at_step < self.running[other].served_at_step)
                {
                    longest_unserved = Some(index);
                }
            }
        }
        if let Some(index) = longest_unserved {
            let step = self.stats.steps + 1;
            let running = &mut self.running[index];
            running.served_at_step = step;
            let chunk = match running.request.prompt_logprobs {
                Some(_) => self.limits.chunk_tokens.min(LOGIT_ROWS_MAX),
                None => self.limits.chunk_tokens,
            };
            let rows = running.choices[0].sequence.pending().min(chunk);
            plan.push(Part::new(running, index, 0, rows));
        }
        plan
    }

    // Run.

    /// Runs the parts in one step; if that fails, each on its own, so that only those fail
    /// that cannot be computed.
    fn run(&mut self, model: &mut Model, plan: &[Part], observer: &mut Observer<'_>) {
        let started = Instant::now();
        match self.run_together(model, plan, observer) {
            Ok(()) if plan.iter().any(|part| part.prefill) => {
                let rows = plan.iter().map(|part| part.positions.len()).sum();
                self.rate.note(rows, started.elapsed());
            }
            Ok(()) => {}
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
        for part in plan {
            let Running { request, choices, .. } = &mut self.running[part.running];
            let by = By { request: &request.id, now: self.now };
            let sequence = &mut choices[part.choice].sequence;
            sequence
                .make_room(part.positions.len(), &mut self.memory, by)
                .map_err(|error| EngineError::Step(error.to_string()))?;
        }
        self.show(plan, observer);
        let store = self.memory.pool_mut().store_mut();
        let logits = forward(model, store, &self.running, plan)?;
        self.hand_out(plan, logits, observer);
        Ok(())
    }

    fn show(&self, plan: &[Part], observer: &mut Observer<'_>) {
        let rows: Vec<Rows<'_>> = plan
            .iter()
            .map(|part| Rows {
                request: &self.running[part.running].request.id,
                positions: part.positions.clone(),
            })
            .collect();
        observer(Seen::Step(&rows));
    }

    // Hand out.

    fn hand_out(&mut self, plan: &[Part], logits: &[f32], observer: &mut Observer<'_>) {
        let mut rows = logits.chunks_exact(self.limits.request.vocab);
        for part in plan {
            let running = &mut self.running[part.running];
            if !running.ended {
                running.choices[part.choice].sequence.advance(part.positions.len());
            }
            for (position, row) in part.logits.clone().zip(&mut rows) {
                self.take_row(part, position, row, observer);
            }
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
            if let Err(error) = self.end_prefill(part.running) {
                return self.fail(part.running, error);
            }
            0..self.running[part.running].choices.len()
        };
        for choice in choices {
            self.draw(part.running, choice, row, observer);
        }
    }

    /// The prompt is computed: publishes its full pages and gives each choice its sequence.
    fn end_prefill(&mut self, index: usize) -> Result<(), EngineError> {
        let running = &mut self.running[index];
        running.clock.prefilled = Some(Instant::now());
        if running.request.prompt_logprobs.is_some() {
            running.prompt_logprobs.insert(0, None);
            let logprobs = std::mem::take(&mut running.prompt_logprobs);
            running.send(Event::PromptLogprobs(logprobs));
        }
        self.unpin(index);
        self.publish(index, 0, true);
        for choice in 1..self.running[index].request.choices {
            let running = &self.running[index];
            let by = By { request: &running.request.id, now: self.now };
            let fork = running.choices[0]
                .sequence
                .fork(&mut self.memory, by)
                .map_err(|error| EngineError::Step(error.to_string()))?;
            let choice = self.choice(running, choice, fork);
            self.running[index].choices.push(choice);
        }
        Ok(())
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
        let (namespace, pages) = (&request.namespace, sequence.pages());
        self.memory.publish(namespace, tokens, pages, &request.id, self.now);
    }

    /// Publishes a choice's rows and gives up its pages.
    fn retire(&mut self, index: usize, choice: usize) {
        self.publish(index, choice, false);
        self.running[index].choices[choice].sequence.release(&mut self.memory);
    }

    /// Ends a request, keeping what it computed.
    fn end(&mut self, index: usize) {
        let open: Vec<usize> = self.running[index].open_choices().map(|open| open.0).collect();
        self.unpin(index);
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
        self.unpin(index);
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
    }

    fn unpin(&mut self, index: usize) {
        if let Some(pin) = self.running[index].pin.take() {
            self.memory.unpin(pin);
        }
    }
}

impl Part {
    /// The next `rows` rows of a choice.
    fn new(running: &Running, index: usize, choice: usize, rows: usize) -> Self {
        let sequence = &running.choices[choice].sequence;
        let end = sequence.computed() + rows;
        let prompt = running.clock.prefilled.is_none();
        let logits = if prompt && running.request.prompt_logprobs.is_some() {
            sequence.computed()..end
        } else if end == sequence.tokens().len() {
            end - 1..end
        } else {
            end..end
        };
        let prefill = sequence.pending() > 1;
        Part { running: index, choice, positions: sequence.computed()..end, logits, prefill }
    }
}

/// Computes a step's rows. A panic is caught like an error: the rows may be wrong, but the
/// next step overwrites whatever scratch it left.
fn forward<'m>(
    model: &'m mut Model,
    store: &mut KvStore,
    running: &[Running],
    plan: &[Part],
) -> Result<&'m [f32], EngineError> {
    let rows = plan.iter().map(|part| part.positions.len()).sum();
    let mut tokens = Vec::with_capacity(rows);
    let mut places = Vec::with_capacity(rows);
    let mut logit_rows = Vec::with_capacity(plan.len());
    for part in plan {
        let sequence = &running[part.running].choices[part.choice].sequence;
        for position in part.positions.clone() {
            if part.logits.contains(&position) {
                logit_rows.push(tokens.len());
            }
            tokens.push(sequence.tokens()[position]);
            places.push(sequence.place(position));
        }
    }
    let batch = Batch { tokens: &tokens, places: &places, logit_rows: &logit_rows };
    let logits = catch(move || model.forward(store, &batch, &mut NoTaps))
        .ok_or_else(|| EngineError::Step("a kernel panicked".to_string()))?;
    logits.map_err(|error| EngineError::Step(error.to_string()))
}

/// What `step` returns, or `None` if it panics.
fn catch<R>(step: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(step)).ok()
}

/// Now, as the prompt cache counts it.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_millis() as u64)
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
