//! `GET /v1/models` and `GET /v1/models/{id}`.

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::state::App;

pub(crate) async fn list(State(app): State<App>) -> Json<Value> {
    Json(json!({"object": "list", "data": [describe(&app)]}))
}

pub(crate) async fn show(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    if id == app.package.name { Ok(Json(describe(&app))) } else { Err(app.unknown_model(&id)) }
}

fn describe(app: &App) -> Value {
    json!({
        "id": app.package.name,
        "object": "model",
        "created": app.started_s,
        "owned_by": "refrain",
        "max_model_len": app.engine.info().context,
    })
}
