//! `GET /v1/models` and `GET /v1/models/{id}`, which both providers have: whose clients ask is
//! known by a header.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::anthropic;
use crate::error::ApiError;
use crate::state::App;

pub(crate) async fn list(State(app): State<App>, headers: HeaderMap) -> Json<Value> {
    let names: Vec<&str> = app.model_names().collect();
    let is_anthropic = anthropic::is_client(&headers);
    let models: Vec<Value> = names.iter().map(|name| describe(&app, name, is_anthropic)).collect();
    Json(if is_anthropic {
        json!({
            "data": models, "has_more": false, "first_id": names.first(), "last_id": names.last(),
        })
    } else {
        json!({"object": "list", "data": models})
    })
}

pub(crate) async fn show(
    State(app): State<App>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let is_anthropic = anthropic::is_client(&headers);
    if app.model_names().any(|name| name == id) {
        return Json(describe(&app, &id, is_anthropic)).into_response();
    }
    let error = app.unknown_model(&id);
    if is_anthropic { anthropic::respond_error(error) } else { ApiError::into_response(error) }
}

/// The served model under one of its names.
fn describe(app: &App, name: &str, is_anthropic: bool) -> Value {
    let context = app.engine.info().context;
    if is_anthropic {
        return json!({
            "type": "model",
            "id": name,
            "display_name": app.package.name,
            // What they have for a day that is not known.
            "created_at": "1970-01-01T00:00:00Z",
            "lifecycle": "active",
            "max_input_tokens": context,
            "max_tokens": context,
        });
    }
    json!({
        "id": name,
        "object": "model",
        "created": app.started_s,
        "owned_by": "refrain",
        "max_model_len": context,
    })
}
