//! An engine's events as those of a response, and the response as it stands at each of them.

use std::sync::Arc;

use doctor::{Computed, from_response_input};
use engine::{Event, FinishReason, TokenInfo};
use package::PromptMap;
use serde_json::{Value, json};

use super::echo::Echo;
use super::items::Items;
use super::usage::usage;
use crate::error::ApiError;
use crate::job::Outcomes;
use crate::openai::{diagnostics, logprobs};
use crate::state::{App, now_s};
use crate::stored_responses::{Owner, StoredResponse};

/// What a response says besides its output.
pub(super) struct Header {
    pub(super) id: String,
    pub(super) created_s: u64,
    pub(super) echo: Echo,
    pub(super) use_cache: bool,
    pub(super) logprobs: bool,
}

/// What is kept of a request until its response is kept with it.
pub(super) struct Keeping {
    pub(super) owner: Owner,
    /// The items of its input.
    pub(super) input: Vec<Value>,
    /// The conversation's messages, without instructions.
    pub(super) messages: Vec<Value>,
    /// How many messages the prompt is of, instructions included.
    pub(super) count: usize,
    pub(super) prompt: Vec<u32>,
    pub(super) map: PromptMap,
}

/// Writes one response.
pub(super) struct Writer {
    app: App,
    header: Header,
    items: Items,
    outcomes: Outcomes,
    /// `None` where the response is not to be kept.
    keeping: Option<Keeping>,
    /// The tokens that were drawn, each with its bytes in the text.
    drawn: Vec<(u32, Vec<u8>)>,
    prompt_tokens: usize,
    /// Why the answer ended, once it has.
    end: Option<(FinishReason, Option<usize>)>,
    /// The response, once it is there.
    whole: Option<Value>,
}

impl Writer {
    pub(super) fn new(
        app: App,
        header: Header,
        items: Items,
        outcomes: Outcomes,
        keeping: Option<Keeping>,
    ) -> Self {
        let (drawn, prompt_tokens, end, whole) = (Vec::new(), 0, None, None);
        Self { app, header, items, outcomes, keeping, drawn, prompt_tokens, end, whole }
    }

    /// The response, once it is there.
    pub(super) fn whole(self) -> Option<Value> {
        self.whole
    }

    /// Whether nothing more comes.
    pub(super) fn is_over(&self) -> bool {
        self.whole.is_some()
    }

    /// The event with which a response begins.
    pub(super) fn begin(&self) -> Value {
        json!({"type": "response.created", "response": self.response("in_progress")})
    }

    /// The last event of a response that failed.
    pub(super) fn fail(&mut self, error: &ApiError) -> Value {
        let mut response = self.response("failed");
        response["error"] = json!({"code": "server_error", "message": error.message()});
        self.whole = Some(response.clone());
        json!({"type": "response.failed", "response": response})
    }

    /// Adds the events that `event` makes; `None` is the end of all events.
    pub(super) fn take(
        &mut self,
        event: Option<Event>,
        out: &mut Vec<Value>,
    ) -> Result<(), ApiError> {
        match event.ok_or_else(ApiError::broken_off)? {
            Event::Started { verdict } => {
                self.prompt_tokens = verdict.prompt_tokens;
                let response = self.response("in_progress");
                out.push(json!({"type": "response.in_progress", "response": response}));
            }
            Event::Progress { tokens } => {
                let mut response = self.response("in_progress");
                let prompt_tokens = self.prompt_tokens;
                response["refrain"] = json!({"progress": {
                    "prompt": 0, "tokens": tokens, "prompt_tokens": prompt_tokens,
                }});
                out.push(json!({"type": "response.in_progress", "response": response}));
            }
            Event::PromptLogprobs(_) => {}
            Event::Delta { text, tokens, .. } => {
                self.drawn.extend(tokens.iter().map(|token| (token.id, token.bytes.clone())));
                self.items.push(&text, self.logprobs(&tokens), out)?;
            }
            Event::Finished { reason, stop, .. } => {
                self.items.finish(reason == FinishReason::Length, out)?;
                self.end = Some((reason, stop));
            }
            Event::Done { verdict, timings, tokens } => {
                self.outcomes.push(0, verdict, timings, tokens);
                self.close(out)?;
            }
            Event::Failed(failure) => return Err(failure.into()),
        }
        Ok(())
    }

    fn logprobs(&self, tokens: &[TokenInfo]) -> Vec<Value> {
        let tokens = if self.header.logprobs { tokens } else { &[] };
        match logprobs::chat(tokens, &self.app.package.tokenizer)["content"].take() {
            Value::Array(rows) => rows,
            _ => Vec::new(),
        }
    }

    fn close(&mut self, out: &mut Vec<Value>) -> Result<(), ApiError> {
        let (reason, stop) = self.end.unwrap_or((FinishReason::Length, None));
        let status = match reason {
            FinishReason::Stop => "completed",
            FinishReason::Length => "incomplete",
        };
        let mut response = self.response(status);
        match reason {
            FinishReason::Stop => response["completed_at"] = Value::from(now_s()),
            FinishReason::Length => {
                response["incomplete_details"] = json!({"reason": "max_output_tokens"});
            }
        }
        let lengths = self.drawn.iter().map(|(_, bytes)| bytes.len());
        let reasoning_tokens = self.items.reasoning_tokens(lengths);
        response["usage"] = usage(self.outcomes.tokens(), reasoning_tokens, self.header.use_cache);
        response["refrain"] = self.outcomes.refrain();
        if let Some(diagnosis) = self.outcomes.diagnosis() {
            response["prompt_cache_diagnostics"] = diagnostics::in_their_words(diagnosis);
        }
        if let Some(keeping) = self.keeping.take() {
            self.keep(keeping, &response, stop.is_none())?;
        }
        out.push(json!({"type": format!("response.{status}"), "response": response}));
        self.whole = Some(response);
        Ok(())
    }

    /// Keeps the response. `is_text_all`: what was drawn is the reply and nothing more, so that a
    /// conversation can go on from its ids.
    fn keep(&self, keeping: Keeping, response: &Value, is_text_all: bool) -> Result<(), ApiError> {
        let Keeping { owner, input, mut messages, count, prompt, map } = keeping;
        // What was said is what an input may be.
        let reply = from_response_input(&response["output"])?;
        let is_one = reply.len() == 1;
        messages.extend(reply);
        let computed = (is_text_all && is_one).then(|| {
            let drawn = self.drawn.iter().map(|(id, bytes)| (*id, bytes.as_slice()));
            Arc::new(Computed::new((prompt, &map), count, drawn))
        });
        let stored = StoredResponse {
            body: response.to_string(),
            input: Value::from(input).to_string(),
            messages: Value::from(messages).to_string(),
            computed,
        };
        self.app.stored_responses.keep(&self.header.id, owner, stored);
        Ok(())
    }

    /// The response as it stands.
    fn response(&self, status: &str) -> Value {
        let mut response = json!({
            "id": self.header.id,
            "object": "response",
            "created_at": self.header.created_s,
            "completed_at": null,
            "status": status,
            "error": null,
            "incomplete_details": null,
            "model": self.app.package.name,
            "output": self.items.done(),
            "usage": null,
        });
        if let Value::Object(response) = &mut response {
            let fields = self.header.echo.fields().iter();
            response.extend(fields.map(|(name, value)| (name.clone(), value.clone())));
        }
        response
    }
}
