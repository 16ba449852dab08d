//! Asking requests for their key.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::access_log::Record;
use crate::anthropic;
use crate::body;
use crate::callers::Caller;
use crate::error::ApiError;
use crate::log::Entry;
use crate::state::App;

/// The header that Anthropic's clients send their key in.
const KEY_HEADER: &str = "x-api-key";
/// The scheme of `Authorization` that OpenAI's clients send theirs in.
const SCHEME: &str = "bearer ";

/// Lets a request through with its [`Caller`] if it needs no key, or has one; else answers 401.
pub(crate) async fn identify(State(app): State<App>, mut request: Request, next: Next) -> Response {
    match caller(&app, request.headers()) {
        Ok(caller) => {
            Record::current().note_key(caller.name.as_ref());
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => {
            let is_anthropic = anthropic::is_client(request.headers())
                || request.uri().path().starts_with(anthropic::MESSAGES_PATH);
            body::drain(request.into_body()).await;
            if is_anthropic { anthropic::respond_error(error) } else { error.into_response() }
        }
    }
}

fn caller(app: &App, headers: &HeaderMap) -> Result<Caller, ApiError> {
    let Some(callers) = &app.options.callers else { return Ok(Caller::default()) };
    let warn = |text: &str| app.options.say(Entry::Warning, text);
    let key = key(headers).ok_or_else(|| {
        let message = "this server asks for an API key: send it as 'Authorization: Bearer KEY' or \
                       as 'x-api-key: KEY'";
        ApiError::unauthorized(message)
    })?;
    let found = callers.find(key, &warn);
    found.ok_or_else(|| ApiError::unauthorized("this server does not know the API key"))
}

/// The key that a request has, if it has one in a form that keys can have.
fn key(headers: &HeaderMap) -> Option<&str> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let value = value.to_str().ok()?;
        let scheme = value.get(..SCHEME.len())?;
        return scheme.eq_ignore_ascii_case(SCHEME).then(|| value[SCHEME.len()..].trim());
    }
    headers.get(KEY_HEADER)?.to_str().ok().map(str::trim)
}
