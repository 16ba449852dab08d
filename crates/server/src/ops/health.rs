//! `GET /health`: 200 once the server can answer.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::state::App;

pub(crate) async fn show(State(app): State<App>) -> Json<Value> {
    Json(json!({"status": "ok", "model": app.package.name}))
}
