//! From a step's logits to what callers get, and the end of answers and requests.

use std::time::Instant;

use super::Scheduler;
use crate::kv_memory::By;
use crate::request::{EngineError, Event, FinishReason, TokenInfo, TokenLogprobs};
use crate::running::{Choice, Running};
use crate::sampler::{LogSoftmax, are_numbers};
use crate::step::{Observer, Part, Seen};

impl Scheduler {
    pub(super) fn hand_out(&mut self, plan: &[Part], logits: &[f32], observer: &mut Observer<'_>) {
        let mut rows = logits.chunks_exact(self.limits.request.vocab);
        for part in plan {
            let running = &mut self.running[part.running];
            if !running.ended {
                running.advance(part.choice, part.positions.len(), part.prefill);
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
            return self.finish(index, choice, FinishReason::Length, None);
        }
        let id = &running.request.id;
        observer(Seen::Logits { request: id, logits: row });
        let request = &running.request;
        let drawing = &mut running.choices[choice];
        let position = drawing.sequence.tokens().len();
        let token = self.sampler.sample(row, &request.sampling, &mut drawing.state, position);
        let token = match token {
            Ok(token) => token,
            Err(failure) => return self.fail(index, failure.into()),
        };
        drawing.drawn += 1;
        running.clock.note_token();
        self.stats.output_tokens += 1;

        let tokenizer = &self.package.tokenizer;
        let may_end = !request.ignore_end || request.constraint.is_some();
        let ends = may_end && tokenizer.end_ids().contains(&token);
        if ends || request.stop_ids.contains(&token) {
            return self.finish(index, choice, FinishReason::Stop, None);
        }
        let hidden = tokenizer.is_special(token) && !request.shown_ids.contains(&token);
        let bytes = tokenizer.bytes(token).filter(|_| !hidden).unwrap_or_default().to_vec();
        let row = request.logprobs.map(|count| (LogSoftmax::new(row), count));
        let logprob = row.map(|(row, _)| row.of(token));
        let top = row.map(|(row, count)| row.top(count)).unwrap_or_default();
        drawing.sequence.push(token);
        let piece = drawing.output.push(TokenInfo { id: token, bytes, logprob, top });
        let (stopped, full) = (piece.stopped, drawing.drawn >= running.answer_tokens);
        running.send_piece(choice, piece);
        if stopped.is_some() {
            self.finish(index, choice, FinishReason::Stop, stopped);
        } else if full {
            self.finish(index, choice, FinishReason::Length, None);
        }
    }

    /// Ends one answer, and the request with its last. A stop string has cut it already.
    fn finish(&mut self, index: usize, choice: usize, reason: FinishReason, stop: Option<usize>) {
        let running = &mut self.running[index];
        if stop.is_none() {
            let piece = running.choices[choice].output.finish();
            running.send_piece(choice, piece);
        }
        running.choices[choice].finished = Some(reason);
        running.send(Event::Finished { choice, reason, stop });
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
    pub(super) fn retire(&mut self, index: usize, choice: usize) {
        self.publish(index, choice, false);
        self.note_for_disk(index, choice);
        self.running[index].choices[choice].sequence.release(&mut self.memory);
    }

    /// Ends a request, keeping what it computed.
    pub(super) fn end(&mut self, index: usize) {
        let open: Vec<usize> = self.running[index].open_choices().map(|open| open.0).collect();
        for choice in open {
            self.retire(index, choice);
        }
        self.running[index].ended = true;
    }

    /// Ends a request whose step failed: what it computed is not trusted.
    pub(super) fn fail(&mut self, index: usize, error: EngineError) {
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
