//! `GET /health`: 200 once the server can answer; and `GET /ready`: 200 once it should.

use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::state::App;

pub(crate) async fn show(State(app): State<App>) -> Json<Value> {
    Json(json!({"status": "ok", "model": app.package.name}))
}

/// 503 while prompts are computed that callers are to find in the prompt cache.
pub(crate) async fn ready(State(app): State<App>) -> (StatusCode, Json<Value>) {
    let ready = app.options.ready.as_ref().is_none_or(|ready| ready.load(Ordering::Acquire));
    match ready {
        true => (StatusCode::OK, Json(json!({"status": "ready"}))),
        false => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "warming"}))),
    }
}
