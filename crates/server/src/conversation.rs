//! From `messages` to token ids: checking a conversation, rendering it by the model's chat
//! template, and tokenizing it. Steps 1 and 2 of a request's life.

use package::{ChatRequest, Encoding, PromptMap};
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::fields::wrong_type;
use crate::state::App;

const MESSAGES_MAX: usize = 16_384;
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

/// Checks `messages` and returns them as the template gets them: a `developer` message becomes a
/// `system` one, since no open model's template knows the newer name.
pub(crate) fn check(messages: Option<Vec<Value>>) -> Result<Vec<Value>, ApiError> {
    let messages =
        messages.ok_or_else(|| ApiError::bad_request("messages", "'messages' is missing"))?;
    if messages.is_empty() {
        return Err(ApiError::bad_request("messages", "'messages' must hold at least one message"));
    }
    if messages.len() > MESSAGES_MAX {
        let message = format!("'messages' may hold at most {MESSAGES_MAX} messages");
        return Err(ApiError::bad_request("messages", message));
    }
    messages.into_iter().enumerate().map(|(index, message)| check_one(index, message)).collect()
}

fn check_one(index: usize, message: Value) -> Result<Value, ApiError> {
    let at = format!("messages[{index}]");
    let mut message = match message {
        Value::Object(message) => message,
        other => return Err(wrong_type(&at, "an object", &other)),
    };
    let role = match message.get("role") {
        Some(Value::String(role)) => role.clone(),
        Some(other) => return Err(wrong_type(&format!("{at}.role"), "a string", other)),
        None => {
            let field = format!("{at}.role");
            return Err(ApiError::bad_request(field, format!("'{at}.role' is missing")));
        }
    };
    if !ROLES.contains(&role.as_str()) {
        let text = format!("'{at}.role' is {role:?}; it must be one of {}", ROLES.join(", "));
        return Err(ApiError::bad_request(format!("{at}.role"), text));
    }
    if role == "developer" {
        message.insert("role".into(), "system".into());
    }
    check_content(&at, &role, &message)?;
    Ok(Value::Object(message))
}

fn check_content(at: &str, role: &str, message: &Map<String, Value>) -> Result<(), ApiError> {
    let field = format!("{at}.content");
    match message.get("content") {
        Some(Value::String(_)) => Ok(()),
        Some(Value::Array(parts)) => parts
            .iter()
            .enumerate()
            .try_for_each(|(index, part)| check_part(&format!("{field}[{index}]"), part)),
        // An assistant's turn may hold only tool calls.
        None | Some(Value::Null) if role == "assistant" => Ok(()),
        None | Some(Value::Null) => {
            Err(ApiError::bad_request(field.clone(), format!("'{field}' is missing")))
        }
        Some(other) => Err(wrong_type(&field, "a string or an array of parts", other)),
    }
}

fn check_part(at: &str, part: &Value) -> Result<(), ApiError> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or("");
    if kind != "text" {
        let message = format!("'{at}' has type {kind:?}; this model reads only \"text\" parts");
        return Err(ApiError::bad_request(at, message));
    }
    match part.get("text") {
        Some(Value::String(_)) => Ok(()),
        Some(other) => Err(wrong_type(&format!("{at}.text"), "a string", other)),
        None => Err(ApiError::bad_request(at, format!("'{at}.text' is missing"))),
    }
}

/// Renders and tokenizes a checked conversation. The map tells which tokens came from which
/// message.
pub(crate) fn encode(
    app: &App,
    messages: &[Value],
    variables: &Map<String, Value>,
) -> Result<(Encoding, PromptMap), ApiError> {
    let template = app.package.chat_template.as_ref().ok_or_else(|| {
        let message = "this model has no chat template; use /v1/completions";
        ApiError::bad_request("messages", message)
    })?;
    let rendered = template
        .render(&ChatRequest {
            messages,
            tools: None,
            add_generation_prompt: true,
            date: app.options.template_date.as_deref(),
            variables,
        })
        .map_err(|error| ApiError::bad_request("messages", error.to_string()))?;
    // The template itself places the token that begins a text.
    let encoding = app.encode(&rendered.text, false, "messages")?;
    let map = PromptMap::new(&rendered, &encoding);
    Ok((encoding, map))
}
