//! `POST /tokenize` and `POST /detokenize`.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use serde_json::{Map, Value, json};

use crate::body;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::state::App;

/// A text may be longer than the context here, but not by much more than anyone wants to count.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Text (`prompt`), or a conversation (`messages`, and `tools`) through the chat template, to token
/// ids.
pub(crate) async fn tokenize(State(app): State<App>, body: Body) -> Result<Json<Value>, ApiError> {
    let mut fields = Fields::new(body::json_object(body).await?);
    let ids = app.prepare(move |app| tokenize_fields(app, &mut fields)).await?;
    Ok(Json(json!({
        "tokens": ids, "count": ids.len(), "max_model_len": app.engine.info().context,
    })))
}

fn tokenize_fields(app: &App, fields: &mut Fields) -> Result<Vec<u32>, ApiError> {
    if let Some(messages) = fields.array("messages")? {
        if fields.has("prompt") {
            let message = "give either 'prompt' or 'messages', not both";
            return Err(ApiError::bad_request("prompt", message));
        }
        let messages = doctor::check_messages(Some(messages))?;
        let tools = doctor::check_tools(fields.array("tools")?)?;
        let (encoding, _) = app.prompt_maker(None).chat(&messages, tools.as_ref(), &Map::new())?;
        return Ok(encoding.ids);
    }
    let bos = fields.boolean("add_special_tokens")?.unwrap_or(true);
    let Some(text) = fields.string("prompt")? else {
        let message = "give 'prompt' (a text) or 'messages' (a conversation)";
        return Err(ApiError::bad_request("prompt", message));
    };
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("'prompt' may have at most {TEXT_BYTES_MAX} bytes");
        return Err(ApiError::bad_request("prompt", message));
    }
    let encoding = app.package.tokenizer.encode(&text, bos);
    encoding
        .map(|encoding| encoding.ids)
        .map_err(|error| ApiError::bad_request("prompt", error.to_string()))
}

/// Token ids (`tokens`) to text; bytes that are not UTF-8 become U+FFFD.
pub(crate) async fn detokenize(
    State(app): State<App>,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let mut fields = Fields::new(body::json_object(body).await?);
    let values = fields
        .array("tokens")?
        .ok_or_else(|| ApiError::bad_request("tokens", "'tokens' is missing"))?;
    let ids = doctor::token_ids("tokens", &values, app.package.tokenizer.vocab_size())?;
    Ok(Json(json!({"prompt": app.package.tokenizer.decode(&ids, true)})))
}
