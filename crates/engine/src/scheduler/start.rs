//! From a request whose turn has come to one that runs: its prefix, from memory or from disk.

use std::ops::Range;
use std::time::Instant;

use cache::disk::ReadRun;
use cache::{Reason, Restorable, ReusedFrom, Verdict};

use super::Scheduler;
use crate::kv_memory::By;
use crate::random;
use crate::request::{EngineError, Event};
use crate::restoring::{Progress, Restored, Restoring};
use crate::room;
use crate::running::{Clock, Prefix, Running, Waiting};
use crate::sequence::Sequence;

impl Scheduler {
    /// Finds the request's prefix. It runs at once, or when the pages that lie on disk have come,
    /// where reading them takes less time than computing their tokens.
    pub(super) fn start(&mut self, waiting: Waiting) {
        let admitted = Instant::now();
        let prefix = self.find_prefix(&waiting);
        match self.restore_of(&waiting, prefix) {
            Ok((prefix, restorable, run)) => {
                let looked_up = Instant::now();
                self.restoring
                    .push(Restoring::new(waiting, admitted, looked_up, prefix, restorable, run));
            }
            Err(prefix) => {
                let clock = Clock::new(waiting.submitted, admitted);
                self.launch(waiting, prefix, clock);
            }
        }
    }

    fn find_prefix(&mut self, waiting: &Waiting) -> Prefix {
        let (tokenizer, cached) = (&self.package.tokenizer, self.limits.prompt_cache);
        room::find_prefix(&waiting.request, &mut self.memory, tokenizer, cached, self.now)
    }

    /// What to read from disk, if that is worth it: otherwise the prefix keeps the verdict that
    /// computing the tokens is cheaper.
    #[expect(clippy::result_large_err, reason = "the prefix goes on either way")]
    fn restore_of(
        &self,
        waiting: &Waiting,
        mut prefix: Prefix,
    ) -> Result<(Prefix, Restorable, ReadRun), Prefix> {
        let Some(restorable) = prefix.restorable.take() else { return Err(prefix) };
        let gained = restorable.verdict.reused_tokens - prefix.reused;
        let read_s = self.memory.read_s(restorable.places.len());
        let compute_s = self.rate.ms_per_token().map(|ms| ms * 1e-3 * gained as f64);
        // What was never measured is taken for worth it: a disk that reads less than it computes
        // is the exception.
        if read_s.zip(compute_s).is_some_and(|(read_s, compute_s)| read_s >= compute_s) {
            return Err(prefix);
        }
        let namespace = &waiting.request.namespace;
        match self.memory.read(namespace, &restorable, self.now, &self.wake) {
            Some(run) => Ok((prefix, restorable, run)),
            None => Err(prefix),
        }
    }

    /// Takes what has been read from disk, and lets those run for whom all has come. `false` if
    /// nothing has come for anybody.
    pub(super) fn restore(&mut self) -> bool {
        let (mut at, mut came) = (0, false);
        while at < self.restoring.len() {
            if self.restoring[at].waiting.events.is_closed() {
                self.stats.requests_cancelled += 1;
                self.restoring.remove(at).abandon(&mut self.memory);
                continue;
            }
            let restoring = &mut self.restoring[at];
            let namespace = restoring.waiting.request.namespace;
            let id = restoring.waiting.request.id.clone();
            let expires_at = restoring.waiting.request.expires_at(self.now);
            let by = By { namespace: &namespace, request: &id, now: self.now, expires_at };
            let progress = restoring.advance(&mut self.memory, by);
            came |= progress != Progress::Waiting;
            match progress {
                Progress::Waiting | Progress::Reading => at += 1,
                Progress::Over => {
                    let restoring = self.restoring.remove(at);
                    let (admitted, looked_up) = (restoring.admitted, restoring.looked_up);
                    let (waiting, restored) = restoring.finish(&mut self.memory, by);
                    self.launch_restored(waiting, &restored, (admitted, looked_up));
                }
            }
        }
        came
    }

    fn launch_restored(
        &mut self,
        waiting: Waiting,
        restored: &Restored,
        (admitted, looked_up): (Instant, Instant),
    ) {
        let mut prefix = self.find_prefix(&waiting);
        let found = &mut prefix.verdict;
        // Whatever it can reuse besides came from other requests.
        let Range { start, end } = restored.from_disk;
        let disk = found.reused_tokens.min(end).saturating_sub(start);
        self.stats.restored_tokens += disk as u64;
        match &restored.verdict {
            Some(verdict) if verdict.reused_tokens == found.reused_tokens => {
                found.clone_from(verdict);
            }
            // What it had in memory, it was named for at its first lookup.
            _ if found.compared_with.as_deref() == Some(&*waiting.request.id) => {
                found.compared_with.clone_from(&restored.compared_with);
            }
            _ => {}
        }
        let ram = found.reused_tokens - disk;
        found.reused_from = ReusedFrom { ram, disk, ..found.reused_from };
        let clock = Clock { looked_up, ..Clock::new(waiting.submitted, admitted) };
        self.launch(waiting, prefix, clock);
    }

    /// Lets a request run on its prefix. Without a page for its own copy of the last one, it waits
    /// again for those who hold pages; if nobody does, there is no memory for it.
    fn launch(&mut self, waiting: Waiting, mut prefix: Prefix, clock: Clock) {
        let by = By::of(&waiting.request, self.now);
        let mut sequence = Sequence::new(waiting.request.prompt.clone());
        let (pages, reused) = (&prefix.pages, prefix.reused);
        let attached = room::attach(&mut sequence, pages, reused, &mut self.memory, by);
        let looked_up = prefix.pin.is_some();
        prefix.pin.into_iter().for_each(|pin| self.memory.unpin(pin));
        if attached.is_err() && self.is_any_held() {
            return self.wait_again(waiting);
        }
        let Waiting { request, events, rank, held_before, .. } = waiting;
        if let Err(error) = attached {
            self.stats.requests_failed += 1;
            self.closing.push((events, Event::Failed(EngineError::Step(error.to_string()))));
            return;
        }
        self.explain_otherwise(&request, &mut prefix.verdict);
        self.memory.note_reused(&prefix.pages, self.now);
        self.stats.prompt_tokens += prefix.verdict.prompt_tokens as u64;
        self.stats.reused_tokens += reused as u64;
        let shared = held_before.map_or(0, |held| reused.saturating_sub(held));
        self.stats.shared_prefix_tokens += shared as u64;
        let seed = request.sampling.seed.unwrap_or_else(random::fresh_seed);
        let mut running = Running {
            rank,
            answer_tokens: self.limits.request.answer_tokens(&request),
            verdict: prefix.verdict,
            looked_up,
            choices: Vec::with_capacity(request.choices),
            prompt_logprobs: Vec::new(),
            prompt_rows: 0,
            served_at_step: self.stats.steps,
            wanted: None,
            clock,
            ended: false,
            seed,
            proposed: 0,
            accepted: 0,
            request,
            events,
        };
        running.choices.push(running.choice(0, sequence, self.limits.request.vocab));
        running.send(Event::Started { verdict: running.verdict.clone() });
        self.running.push(running);
    }

    /// Where another model, or another numerics id, holds more of the prompt on disk than was held
    /// for this one, that is the reason.
    fn explain_otherwise(&self, request: &crate::request::Request, verdict: &mut Verdict) {
        let explained = !matches!(
            verdict.stop.reason,
            Reason::FirstRequest | Reason::EndOfCached | Reason::DifferentToken
        );
        if explained {
            return;
        }
        let held = self.memory.held_otherwise(&request.namespace, &request.prompt);
        let at = verdict.stop.at;
        if held > at {
            verdict.stop = cache::Stop::new(Reason::DifferentModel, at);
            verdict.stop.held_tokens = Some(held);
            verdict.compared_with = None;
        }
    }
}
