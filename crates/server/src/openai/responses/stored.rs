//! Responses that are kept: `GET` and `DELETE /v1/responses/{id}`, `GET …/input_items`, and
//! `POST …/cancel`. Where a `cache_salt` was used, `?cache_salt=…` finds its responses.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use cache::Namespace;
use serde_json::{Value, json};

use crate::callers::Caller;
use crate::error::ApiError;
use crate::state::App;
use crate::stored_responses::StoredResponse;

const LIMIT_DEFAULT: usize = 20;
const LIMIT_MAX: usize = 100;

/// What a query says.
struct Query {
    namespace: Namespace,
    is_ascending: bool,
    limit: usize,
    /// The id of the item after which the list begins.
    after: Option<String>,
    stream: bool,
}

impl Query {
    fn read(app: &App, caller: &Caller, query: Option<&str>) -> Result<Self, ApiError> {
        let (mut salt, mut after) = (None, None);
        let (mut is_ascending, mut limit, mut stream) = (false, LIMIT_DEFAULT, false);
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let wrong = |wanted: &str| {
                let shown = doctor::shown(&value);
                ApiError::bad_request(&*name, format!("'{name}' is {shown:?}; it must be {wanted}"))
            };
            match &*name {
                "cache_salt" => salt = Some(value),
                "after" => after = Some(value.into_owned()),
                "stream" => stream = value == "true",
                "order" => match &*value {
                    "asc" => is_ascending = true,
                    "desc" => is_ascending = false,
                    _ => return Err(wrong("asc or desc")),
                },
                "limit" => {
                    let number = value.parse().ok().filter(|n| (1..=LIMIT_MAX).contains(n));
                    limit = number.ok_or_else(|| wrong("a number from 1 to 100"))?;
                }
                _ => {}
            }
        }
        let salt: Option<Cow<'_, str>> = salt;
        let namespace = app.namespace(caller, salt.as_deref());
        Ok(Self { namespace, is_ascending, limit, after, stream })
    }

    fn find(&self, app: &App, id: &str) -> Result<Arc<StoredResponse>, ApiError> {
        app.stored_responses.find(id, self.namespace).ok_or_else(|| not_found(id))
    }
}

fn not_found(id: &str) -> ApiError {
    ApiError::not_found(format!("there is no stored response {:?}", doctor::shown(&id)), None)
}

pub(crate) async fn show(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let query = Query::read(&app, &caller, query.as_deref())?;
    let stored = query.find(&app, &id)?;
    if query.stream {
        let what = "a stored response is whole; only one that is made can be streamed";
        return Err(ApiError::unsupported("stream", what));
    }
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, stored.body.clone()).into_response())
}

pub(crate) async fn delete(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, ApiError> {
    let query = Query::read(&app, &caller, query.as_deref())?;
    match app.stored_responses.forget(&id, query.namespace) {
        true => Ok(Json(json!({"id": id, "object": "response", "deleted": true}))),
        false => Err(not_found(&id)),
    }
}

/// Only responses that are made in the background can be cancelled, and here is none: who goes
/// away cancels.
pub(crate) async fn cancel(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, ApiError> {
    Query::read(&app, &caller, query.as_deref())?.find(&app, &id)?;
    let message = "only a response that is made in the background can be cancelled, and none is \
                   here: to cancel, close the connection";
    Err(ApiError::bad_request("", message))
}

pub(crate) async fn input_items(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, ApiError> {
    let query = Query::read(&app, &caller, query.as_deref())?;
    let stored = query.find(&app, &id)?;
    let mut items: Vec<Value> = serde_json::from_str(&stored.input)
        .map_err(|error| ApiError::internal(format!("stored items are no JSON: {error}")))?;
    if !query.is_ascending {
        items.reverse();
    }
    if let Some(after) = &query.after {
        let found = items.iter().position(|item| item["id"] == after.as_str());
        let found = found.ok_or_else(|| {
            let after = doctor::shown(after);
            ApiError::bad_request("after", format!("'after' is {after:?}; no item has that id"))
        })?;
        items.drain(..=found);
    }
    let has_more = items.len() > query.limit;
    items.truncate(query.limit);
    let id_of = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    Ok(Json(json!({
        "object": "list",
        "first_id": id_of(items.first()),
        "last_id": id_of(items.last()),
        "has_more": has_more,
        "data": items,
    })))
}
