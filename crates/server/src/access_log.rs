//! The access log: a line of JSON for each request, once its answer is written or its client has
//! gone. It holds nothing of a prompt or an answer.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use engine::{TokenCounts, whole_nanoseconds};
use http_body::{Frame, SizeHint};
use jiff::Timestamp;
use serde_json::json;

use crate::request_id;
use crate::state::App;

/// More characters of a path are not shown.
const PATH_CHARACTERS_MAX: usize = 256;

tokio::task_local! {
    /// What is known of the request that this task answers.
    static RECORD: Arc<Record>;
}

/// What becomes known of a request while it is answered.
#[derive(Default)]
pub(crate) struct Record(Mutex<Facts>);

#[derive(Default)]
struct Facts {
    key: Option<Arc<str>>,
    response: Option<String>,
    /// Prompts that it has, and those whose answers are complete.
    asked: usize,
    prompts: usize,
    tokens: TokenCounts,
    /// Of all prompts, where it is the same.
    reason: Option<&'static str>,
    ttft_ms: Option<f64>,
}

impl Record {
    /// That of the request which this task answers; nobody reads another one.
    pub(crate) fn current() -> Arc<Record> {
        RECORD.try_with(Arc::clone).unwrap_or_default()
    }

    /// Takes note of whose request it is.
    pub(crate) fn note_key(&self, name: Option<&Arc<str>>) {
        self.with(|facts| facts.key = name.cloned());
    }

    /// Takes note of the id that its answer has, and of how many prompts it has.
    pub(crate) fn note_response(&self, id: &str, prompts: usize) {
        self.with(|facts| (facts.response, facts.asked) = (Some(id.to_owned()), prompts));
    }

    /// Takes note of how one of its prompts went.
    pub(crate) fn note_prompt(
        &self,
        reason: &'static str,
        tokens: &TokenCounts,
        ttft_ms: Option<f64>,
    ) {
        self.with(|facts| {
            let is_first = facts.prompts == 0;
            facts.prompts += 1;
            facts.tokens.input += tokens.input;
            facts.tokens.cached_input += tokens.cached_input;
            facts.tokens.output += tokens.output;
            facts.reason = Some(reason).filter(|reason| is_first || facts.reason == Some(*reason));
            // The first token of all.
            let earlier = |a: f64| facts.ttft_ms.map_or(a, |b| a.min(b));
            facts.ttft_ms = ttft_ms.map(earlier).or(facts.ttft_ms);
        });
    }

    fn with(&self, note: impl FnOnce(&mut Facts)) {
        // Facts are whole after each statement, whoever panicked.
        note(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Answers a request, and writes its line when that is done.
pub(crate) async fn write(State(app): State<App>, request: Request, next: Next) -> Response {
    if app.options.access_log.is_none() {
        return next.run(request).await;
    }
    let record = Arc::<Record>::default();
    let line = Line {
        time: Timestamp::now(),
        began: Instant::now(),
        method: request.method().to_string(),
        path: request.uri().path().chars().take(PATH_CHARACTERS_MAX).collect(),
        record: Arc::clone(&record),
        app,
        answered: None,
        is_whole: false,
        bytes: 0,
    };
    // Where the client goes away before there is an answer, the line is dropped, and so written.
    let mut line = Some(line);
    let response = RECORD.scope(record, next.run(request)).await;
    if let Some(line) = &mut line {
        let id = response.headers().get(&request_id::HEADERS[0]);
        let id = id.and_then(|id| id.to_str().ok()).unwrap_or_default();
        line.answered = Some((response.status().as_u16(), id.to_owned()));
    }
    response.map(|body| Body::new(Watched { body, line }))
}

/// A line that is written when it is dropped.
struct Line {
    time: Timestamp,
    began: Instant,
    method: String,
    path: String,
    record: Arc<Record>,
    app: App,
    /// The status and the request's id.
    answered: Option<(u16, String)>,
    is_whole: bool,
    bytes: u64,
}

impl Drop for Line {
    fn drop(&mut self) {
        let Some(log) = &self.app.options.access_log else { return };
        let is_answered = self.answered.is_some();
        let (status, request) = self.answered.take().unzip();
        let ms = whole_nanoseconds(self.began.elapsed().as_secs_f64() * 1e3);
        let (mut text, began) = (String::new(), format!("{:.3}", self.time));
        self.record.with(|facts| {
            let computed = facts.prompts > 0;
            // Clients of streams hang up at their last event, before the body ends.
            let is_complete = computed && facts.prompts == facts.asked && is_answered;
            let count = |tokens: usize| computed.then_some(tokens);
            text = json!({
                "time": began,
                "request": request,
                "response": facts.response,
                "key": facts.key.as_deref(),
                "method": self.method,
                "path": self.path,
                "status": status,
                "whole": self.is_whole || is_complete,
                "model": computed.then_some(&self.app.package.name),
                "prompts": facts.prompts,
                "reused_tokens": count(facts.tokens.cached_input),
                "computed_tokens": count(facts.tokens.input),
                "output_tokens": count(facts.tokens.output),
                "reason": facts.reason,
                "ttft_ms": facts.ttft_ms.map(whole_nanoseconds),
                "ms": ms,
                "bytes": self.bytes,
            })
            .to_string();
        });
        log(text);
    }
}

/// A body whose line is written when it is, or is given up.
struct Watched {
    body: Body,
    line: Option<Line>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let (Poll::Ready(Some(Ok(frame))), Some(line)) = (&polled, &mut self.line) {
            line.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        if matches!(polled, Poll::Ready(None))
            && let Some(mut line) = self.line.take()
        {
            line.is_whole = true;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Of a body of known length the end is not asked for.
        let is_whole = self.body.is_end_stream();
        if let Some(line) = &mut self.line {
            line.is_whole = is_whole;
        }
    }
}
