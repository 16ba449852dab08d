//! Streamed answers: engine events in, server-sent events out.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use engine::{Event, FinishReason, TokenInfo, TokenLogprobs};
use futures_util::stream::{self, StreamExt};
use package::{Package, Tokenizer};
use serde_json::{Value, json};

use super::diagnostics;
use super::logprobs::{self, TextLogprobs, characters};
use super::message::{Deltas, finish_reason};
use super::usage::usage;
use crate::error::ApiError;
use crate::job::{Job, Outcomes};

/// Which endpoint's chunks are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Chat,
    Text,
}

/// What the chunks of one response have in common.
pub(crate) struct Header {
    pub(crate) shape: Shape,
    pub(crate) id: String,
    pub(crate) created_s: u64,
    pub(crate) logprobs: bool,
    pub(crate) include_usage: bool,
    /// The prompts, where they are to be echoed before the answer.
    pub(crate) echo: Option<Vec<Echo>>,
}

/// A prompt that comes back before its answer.
pub(crate) struct Echo {
    pub(crate) text: String,
    pub(crate) ids: Vec<u32>,
}

impl Echo {
    /// The prompt's rows as text completions show them, and how many characters they cover.
    pub(crate) fn logprobs(
        &self,
        rows: &[Option<TokenLogprobs>],
        tokenizer: &Tokenizer,
    ) -> (TextLogprobs, usize) {
        let (mut logprobs, mut offset) = (TextLogprobs::default(), 0);
        for (row, &id) in rows.iter().zip(&self.ids) {
            let bytes = tokenizer.bytes(id).unwrap_or_default();
            let logprob = row.as_ref().map(|row| row.logprob);
            let top = row.as_ref().map_or(&[][..], |row| &row.top);
            logprobs.push(bytes, logprob, top, offset, tokenizer);
            offset += characters(bytes);
        }
        (logprobs, offset)
    }
}

/// Answers `job` as a stream of chunks that ends with `[DONE]`.
pub(crate) fn respond(job: Job, header: Header, package: Arc<Package>) -> Response {
    let shape = (job.prompts.len(), job.choices);
    let answers = job.reading.iter().flat_map(|reading| {
        std::iter::repeat_with(|| Deltas::new(reading.reader())).take(shape.0 * shape.1)
    });
    let answers = answers.collect();
    let (events, outcomes) = job.run();
    let mut chunks = Chunks::new(shape, answers, outcomes, header, package);
    let events = events
        .map(Some)
        .chain(stream::iter([None]))
        .flat_map(move |event| stream::iter(chunks.on_event(event)))
        .map(|data| Ok::<_, Infallible>(SseEvent::default().data(data)));
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// The state of a stream: what was said of each choice so far.
struct Chunks {
    header: Header,
    package: Arc<Package>,
    choices: usize,
    prompts: usize,
    started: Vec<bool>,
    /// What is said of each answer of a conversation.
    answers: Vec<Deltas>,
    /// Characters said so far, for `text_offset`.
    offset: Vec<usize>,
    outcomes: Outcomes,
    /// Tokens of each prompt, once it has started.
    prompt_tokens: Vec<usize>,
    /// A finished choice's last chunk is held back until it is known not to be the final one.
    last: Option<Value>,
    ended: bool,
}

impl Chunks {
    fn new(
        (prompts, choices): (usize, usize),
        answers: Vec<Deltas>,
        outcomes: Outcomes,
        header: Header,
        package: Arc<Package>,
    ) -> Self {
        Self {
            header,
            package,
            choices,
            prompts,
            started: vec![false; choices * prompts],
            answers,
            offset: vec![0; choices * prompts],
            outcomes,
            prompt_tokens: vec![0; prompts],
            last: None,
            ended: false,
        }
    }

    /// The data of the chunks that `event` causes; `None` is the end of all events.
    fn on_event(&mut self, event: Option<(usize, Event)>) -> Vec<String> {
        if self.ended {
            return Vec::new();
        }
        let mut out: Vec<Value> = self.last.take().into_iter().collect();
        match self.take(event, &mut out) {
            Ok(()) if self.outcomes.len() == self.prompts => self.close(out),
            Ok(()) => out.iter().map(Value::to_string).collect(),
            Err(error) => self.fail(out, &error),
        }
    }

    fn take(
        &mut self,
        event: Option<(usize, Event)>,
        out: &mut Vec<Value>,
    ) -> Result<(), ApiError> {
        let (prompt, event) = event.ok_or_else(ApiError::broken_off)?;
        match event {
            Event::Started { verdict } => self.prompt_tokens[prompt] = verdict.prompt_tokens,
            Event::Progress { tokens } => out.push(self.progress(prompt, tokens)),
            Event::PromptLogprobs(rows) => self.echo(prompt, Some(&rows), out),
            Event::Delta { choice, text, tokens } => {
                self.delta(prompt, choice, &text, tokens, out)?;
            }
            Event::Finished { choice, reason, .. } => self.finish(prompt, choice, reason, out)?,
            Event::Done { verdict, timings, tokens } => {
                self.outcomes.push(prompt, verdict, timings, tokens);
            }
            Event::Failed(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// A chunk that tells how many tokens of a prompt are computed or reused.
    fn progress(&self, prompt: usize, tokens: usize) -> Value {
        let mut chunk = self.envelope(json!([]));
        let prompt_tokens = self.prompt_tokens[prompt];
        chunk["refrain"] = json!({"progress": {
            "prompt": prompt, "tokens": tokens, "prompt_tokens": prompt_tokens,
        }});
        chunk
    }

    fn delta(
        &mut self,
        prompt: usize,
        choice: usize,
        text: &str,
        tokens: Vec<TokenInfo>,
        out: &mut Vec<Value>,
    ) -> Result<(), ApiError> {
        let index = prompt * self.choices + choice;
        self.start(prompt, index, out);
        if let Some(answer) = self.answers.get_mut(index) {
            answer.tokens.extend(tokens);
            let deltas = answer.push(text)?;
            self.say(index, deltas, out);
            return Ok(());
        }
        let logprobs = match self.header.logprobs {
            true => self.text_logprobs(index, &tokens),
            false => Value::Null,
        };
        out.push(self.chunk(index, json!(text), logprobs, Value::Null));
        Ok(())
    }

    /// Chunks of a chat answer. Log-probabilities go with the next that is said, since tokens may
    /// be held back until it is known what they mean.
    fn say(&mut self, index: usize, deltas: Vec<Value>, out: &mut Vec<Value>) {
        for delta in deltas {
            let logprobs = self.chat_logprobs(index);
            out.push(self.chunk(index, delta, logprobs, Value::Null));
        }
    }

    fn chat_logprobs(&mut self, index: usize) -> Value {
        let tokens = self.answers.get_mut(index).map(|answer| std::mem::take(&mut answer.tokens));
        match tokens.filter(|tokens| self.header.logprobs && !tokens.is_empty()) {
            Some(tokens) => logprobs::chat(&tokens, &self.package.tokenizer),
            None => Value::Null,
        }
    }

    fn text_logprobs(&mut self, index: usize, tokens: &[TokenInfo]) -> Value {
        let mut rows = TextLogprobs::default();
        for token in tokens {
            let offset = self.offset[index];
            self.offset[index] += characters(&token.bytes);
            let tokenizer = &self.package.tokenizer;
            rows.push(&token.bytes, token.logprob, &token.top, offset, tokenizer);
        }
        rows.into_json()
    }

    /// What comes before a choice's first words: the role, or the prompt's echo.
    fn start(&mut self, prompt: usize, index: usize, out: &mut Vec<Value>) {
        if self.started[index] {
            return;
        }
        match self.header.shape {
            Shape::Chat => {
                let delta = json!({"role": "assistant", "content": ""});
                out.push(self.chunk(index, delta, Value::Null, Value::Null));
            }
            Shape::Text => self.echo(prompt, None, out),
        }
        self.started[index] = true;
    }

    fn echo(
        &mut self,
        prompt: usize,
        rows: Option<&[Option<TokenLogprobs>]>,
        out: &mut Vec<Value>,
    ) {
        let Some(echo) = self.header.echo.as_ref().map(|prompts| &prompts[prompt]) else {
            return;
        };
        let logprobs = rows.map(|rows| echo.logprobs(rows, &self.package.tokenizer));
        let (logprobs, offset) = logprobs
            .map_or((Value::Null, echo.text.chars().count()), |(rows, offset)| {
                (rows.into_json(), offset)
            });
        for index in prompt * self.choices..(prompt + 1) * self.choices {
            if std::mem::replace(&mut self.started[index], true) {
                continue;
            }
            self.offset[index] = offset;
            out.push(self.chunk(index, json!(echo.text), logprobs.clone(), Value::Null));
        }
    }

    fn finish(
        &mut self,
        prompt: usize,
        choice: usize,
        reason: FinishReason,
        out: &mut Vec<Value>,
    ) -> Result<(), ApiError> {
        let index = prompt * self.choices + choice;
        self.start(prompt, index, out);
        let (mut content, mut has_calls) = (json!(""), false);
        if let Some(answer) = self.answers.get_mut(index) {
            let deltas = answer.finish()?;
            (content, has_calls) = (json!({}), answer.has_calls);
            self.say(index, deltas, out);
        }
        let logprobs = self.chat_logprobs(index);
        let reason = json!(finish_reason(reason, has_calls));
        self.last = Some(self.chunk(index, content, logprobs, reason));
        Ok(())
    }

    /// The final chunk, which carries the verdict, and the end mark.
    fn close(&mut self, mut out: Vec<Value>) -> Vec<String> {
        self.ended = true;
        if self.header.include_usage || out.is_empty() {
            let mut chunk = self.envelope(json!([]));
            if self.header.include_usage {
                chunk["usage"] = usage(self.outcomes.tokens());
            }
            out.push(chunk);
        }
        if let Some(last) = out.last_mut() {
            last["refrain"] = self.outcomes.refrain();
            if let Some(diagnosis) = self.outcomes.diagnosis() {
                last["prompt_cache_diagnostics"] = diagnostics::in_their_words(diagnosis);
            }
        }
        out.iter().map(Value::to_string).chain(["[DONE]".to_owned()]).collect()
    }

    fn fail(&mut self, out: Vec<Value>, error: &ApiError) -> Vec<String> {
        self.ended = true;
        out.iter().map(Value::to_string).chain([error.body().to_string()]).collect()
    }

    /// A chunk with a `delta` of a chat answer, or with more of a text.
    fn chunk(&self, index: usize, content: Value, logprobs: Value, reason: Value) -> Value {
        let mut choice = json!({"index": index, "logprobs": logprobs, "finish_reason": reason});
        match self.header.shape {
            Shape::Chat => choice["delta"] = content,
            Shape::Text => choice["text"] = content,
        }
        self.envelope(json!([choice]))
    }

    fn envelope(&self, choices: Value) -> Value {
        let object = match self.header.shape {
            Shape::Chat => "chat.completion.chunk",
            Shape::Text => "text_completion",
        };
        let mut chunk = json!({
            "id": self.header.id,
            "object": object,
            "created": self.header.created_s,
            "model": self.package.name,
            "choices": choices,
        });
        if self.header.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}
