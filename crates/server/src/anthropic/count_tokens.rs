//! `POST /v1/messages/count_tokens`.

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use doctor::ToolChoice;
use serde_json::json;

use super::error;
use super::messages::{take_conversation, take_thinking};
use crate::body;
use crate::callers::Caller;
use crate::calling::Calling;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::question::Question;
use crate::state::App;

pub(crate) async fn count(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Response {
    answer(app, caller, body).await.unwrap_or_else(error::respond)
}

async fn answer(app: App, caller: Caller, body: Body) -> Result<Response, ApiError> {
    let mut fields = Fields::new(body::json_object(body).await?);
    app.check_model(fields.string("model")?.as_deref())?;
    let salt = fields.string("cache_salt")?;
    let (conversation, ..) = take_conversation(&mut fields)?;
    let calling = Calling::take_anthropic(&mut fields, conversation.tools.as_ref())?;
    let effort = take_thinking(&mut fields)?;
    let namespace = app.namespace(&caller, salt.as_deref());
    let question = Question {
        id: String::new(),
        conversation,
        calling: Calling { choice: as_shown(calling.choice), ..calling },
        wanted: None,
        effort,
        compare_with: None,
        computed: None,
        namespace,
        use_cache: false,
    };
    let tokens = app.prepare(move |app| Ok(question.prepare(app)?.request.prompt.len())).await?;
    Ok(Json(json!({"input_tokens": tokens})).into_response())
}

/// A choice with the same prompt, for an answer that is not computed.
fn as_shown(choice: ToolChoice) -> ToolChoice {
    if choice.may_call() { ToolChoice::Auto } else { ToolChoice::None }
}
