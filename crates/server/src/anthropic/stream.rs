//! Streamed answers, in the order of events that Anthropic's clients rely on:
//! <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.

use std::convert::Infallible;

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use cache::Verdict;
use engine::{Event, FinishReason};
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};

use super::content::Blocks;
use super::diagnostics;
use super::error;
use super::header::Header;
use crate::error::ApiError;
use crate::job::{Job, Outcomes};

/// Answers `job` as a stream that ends with `message_stop`.
pub(super) fn respond(job: Job, header: Header) -> Response {
    let blocks = job.reading.as_ref().map(|reading| Blocks::new(reading.reader()));
    let (events, outcomes) = job.run();
    let mut messages =
        Messages { header, outcomes, blocks, verdict: None, end: None, is_over: false };
    let events = events
        .map(|(_, event)| Some(event))
        .chain(stream::iter([None]))
        .flat_map(move |event| stream::iter(messages.on_event(event)))
        .map(|data| {
            let name = data["type"].as_str().unwrap_or_default();
            Ok::<_, Infallible>(SseEvent::default().event(name).data(data.to_string()))
        });
    let ping = SseEvent::default().event("ping").data(json!({"type": "ping"}).to_string());
    Sse::new(events).keep_alive(KeepAlive::new().event(ping)).into_response()
}

/// The state of a stream.
struct Messages {
    header: Header,
    outcomes: Outcomes,
    /// Once the request has started.
    verdict: Option<Verdict>,
    blocks: Option<Blocks>,
    /// Why the answer ended, once it has.
    end: Option<(FinishReason, Option<usize>)>,
    /// Whether the last event was sent.
    is_over: bool,
}

impl Messages {
    /// The events that `event` causes; `None` is the end of all events.
    fn on_event(&mut self, event: Option<Event>) -> Vec<Value> {
        let mut out = Vec::new();
        if !self.is_over
            && let Err(error) = self.take(event, &mut out)
        {
            self.is_over = true;
            out.push(error::body(&error));
        }
        out
    }

    fn take(&mut self, event: Option<Event>, out: &mut Vec<Value>) -> Result<(), ApiError> {
        match event.ok_or_else(ApiError::broken_off)? {
            Event::Started { verdict } => {
                let mut message = self.header.envelope();
                message["usage"] = self.header.counting.usage(&verdict, 0);
                if let Some(diagnosis) = self.outcomes.diagnose(&verdict) {
                    message["diagnostics"] = diagnostics::in_their_words(diagnosis);
                }
                out.push(json!({"type": "message_start", "message": message}));
                self.verdict = Some(verdict);
            }
            Event::Progress { .. } | Event::PromptLogprobs(_) => {}
            Event::Delta { text, .. } => {
                self.blocks.iter_mut().try_for_each(|blocks| blocks.push(&text, out))?;
            }
            Event::Finished { reason, stop, .. } => {
                self.blocks.iter_mut().try_for_each(|blocks| blocks.finish(out))?;
                self.end = Some((reason, stop));
            }
            Event::Done { verdict, timings, tokens } => {
                self.outcomes.push(0, verdict, timings, tokens);
                self.close(out);
            }
            Event::Failed(failure) => return Err(failure.into()),
        }
        Ok(())
    }

    fn close(&mut self, out: &mut Vec<Value>) {
        self.is_over = true;
        let (reason, stop) = self.end.unwrap_or((FinishReason::Length, None));
        let has_calls = self.blocks.as_ref().is_some_and(|blocks| blocks.has_calls);
        let (reason, sequence) = self.header.stop(reason, stop, has_calls);
        let output = self.outcomes.tokens().output;
        let usage =
            self.verdict.as_ref().map(|verdict| self.header.counting.usage(verdict, output));
        out.push(json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": usage,
            "refrain": self.outcomes.refrain(),
        }));
        out.push(json!({"type": "message_stop"}));
    }
}
