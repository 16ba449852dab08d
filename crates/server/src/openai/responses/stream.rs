//! A response as a stream of events, in the order that OpenAI's clients rely on:
//! <https://platform.openai.com/docs/api-reference/responses-streaming>.

use std::convert::Infallible;

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use engine::Event;
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::{Value, json};

use super::writer::Writer;
use crate::error::ApiError;

/// Answers with what `writer` makes of `events`.
pub(super) fn respond(
    events: impl Stream<Item = (usize, Event)> + Send + 'static,
    writer: Writer,
) -> Response {
    let mut events_out = Numbered { writer, next: 0 };
    let begun = events_out.begin();
    let events = events
        .map(|(_, event)| Some(event))
        .chain(stream::iter([None]))
        .flat_map(move |event| stream::iter(events_out.on_event(event)));
    let events = stream::iter(begun).chain(events).map(|data| {
        let name = data["type"].as_str().unwrap_or_default();
        Ok::<_, Infallible>(SseEvent::default().event(name).data(data.to_string()))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// A writer whose events are counted.
struct Numbered {
    writer: Writer,
    /// The number of the next event.
    next: u64,
}

impl Numbered {
    fn begin(&mut self) -> Vec<Value> {
        let begun = vec![self.writer.begin()];
        self.number(begun)
    }

    /// The events that `event` causes; `None` is the end of all events.
    fn on_event(&mut self, event: Option<Event>) -> Vec<Value> {
        let mut out = Vec::new();
        if !self.writer.is_over()
            && let Err(error) = self.writer.take(event, &mut out)
        {
            out.push(error_event(&error));
            out.push(self.writer.fail(&error));
        }
        self.number(out)
    }

    fn number(&mut self, mut events: Vec<Value>) -> Vec<Value> {
        for event in &mut events {
            event["sequence_number"] = Value::from(self.next);
            self.next += 1;
        }
        events
    }
}

fn error_event(error: &ApiError) -> Value {
    let body = error.body();
    let code = match &body["error"]["code"] {
        Value::Null => &body["error"]["type"],
        code => code,
    };
    let param = &body["error"]["param"];
    json!({"type": "error", "code": code, "message": error.message(), "param": param})
}
