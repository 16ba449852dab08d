//! Requests as Anthropic's clients send them, in the form that chat templates take, which is
//! OpenAI's: <https://docs.anthropic.com/en/api/messages>.

use serde_json::{Map, Value, json};

use crate::error::PromptError;

/// Blocks that a message of OpenAI's does not have.
const BLOCKS: [&str; 4] = ["tool_use", "tool_result", "thinking", "redacted_thinking"];

/// Whether something in the body is said as only Anthropic's clients say it.
pub(crate) fn is_anthropic(body: &Map<String, Value>) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let tools = list(body.get("tools").unwrap_or(&Value::Null));
    let messages = list(body.get("messages").unwrap_or(&Value::Null));
    let own_block = |block: &Value| BLOCKS.iter().any(|kind| block["type"] == *kind);
    body.contains_key("system")
        || tools.iter().any(|tool| !tool["input_schema"].is_null())
        || messages.iter().any(|message| list(&message["content"]).iter().any(own_block))
}

/// The same conversation in OpenAI's form: `system` becomes the first message, a `tool_use` block
/// a tool call, a `tool_result` block a message of its own. Thinking of earlier turns is left out,
/// as Anthropic does, and so is what tells its cache where to look. What it does not know stays.
///
/// # Errors
/// [`PromptError`] that names the first block at fault: one that is no text, above all.
pub fn from_anthropic(mut body: Map<String, Value>) -> Result<Map<String, Value>, PromptError> {
    let mut messages = Vec::new();
    if let Some(system) = body.remove("system") {
        let content = match system {
            Value::String(text) => Value::from(text),
            Value::Array(blocks) => Value::from(
                blocks
                    .iter()
                    .enumerate()
                    .map(|(index, block)| text_part(&format!("system[{index}]"), block))
                    .collect::<Result<Vec<_>, _>>()?,
            ),
            other => {
                let wanted = "a string or an array of blocks";
                return Err(PromptError::wrong_type("system", wanted, &other));
            }
        };
        messages.push(json!({"role": "system", "content": content}));
    }
    let said = match body.remove("messages") {
        Some(Value::Array(said)) => said,
        Some(other) => return Err(PromptError::wrong_type("messages", "an array", &other)),
        None => Vec::new(),
    };
    for (index, message) in said.into_iter().enumerate() {
        let at = format!("messages[{index}]");
        match message.get("content") {
            Some(Value::Array(blocks)) => push_blocks(&at, &message, blocks, &mut messages)?,
            // Checked, and refused if need be, as OpenAI's are.
            _ => messages.push(message),
        }
    }
    body.insert("messages".to_owned(), Value::from(messages));
    if let Some(Value::Array(tools)) = body.get_mut("tools") {
        tools.iter_mut().for_each(|tool| *tool = function(tool));
    }
    Ok(body)
}

/// One message of blocks: the results of tools first, then the rest.
fn push_blocks(
    at: &str,
    message: &Value,
    blocks: &[Value],
    messages: &mut Vec<Value>,
) -> Result<(), PromptError> {
    let (mut parts, mut calls) = (Vec::new(), Vec::new());
    for (index, block) in blocks.iter().enumerate() {
        let at = format!("{at}.content[{index}]");
        match block["type"].as_str().unwrap_or_default() {
            "tool_result" => messages.push(tool_result(&at, block)?),
            "tool_use" => calls.push(json!({
                "id": block["id"],
                "type": "function",
                "function": {"name": block["name"], "arguments": block["input"].to_string()},
            })),
            "thinking" | "redacted_thinking" => {}
            _ => parts.push(text_part(&at, block)?),
        }
    }
    if parts.is_empty() && calls.is_empty() {
        // A turn of results has become messages of its own.
        let results = blocks.iter().any(|block| block["type"] == "tool_result");
        if results || blocks.is_empty() {
            return Ok(());
        }
        let field = format!("{at}.content");
        let message =
            format!("'{field}' holds only thinking, which no prompt keeps: nothing is left");
        return Err(PromptError::new(field, message));
    }
    let mut turn = json!({"role": message["role"], "content": parts});
    if parts.is_empty() {
        turn["content"] = Value::Null;
    }
    if !calls.is_empty() {
        turn["tool_calls"] = Value::from(calls);
    }
    messages.push(turn);
    Ok(())
}

fn tool_result(at: &str, block: &Value) -> Result<Value, PromptError> {
    let content = match &block["content"] {
        Value::Null => Value::from(""),
        Value::String(text) => Value::from(text.as_str()),
        Value::Array(blocks) => Value::from(
            blocks
                .iter()
                .enumerate()
                .map(|(index, block)| text_part(&format!("{at}.content[{index}]"), block))
                .collect::<Result<Vec<_>, _>>()?,
        ),
        other => {
            let wanted = "a string or an array of blocks";
            return Err(PromptError::wrong_type(&format!("{at}.content"), wanted, other));
        }
    };
    Ok(json!({"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}))
}

/// A text block without what is said to the cache.
fn text_part(at: &str, block: &Value) -> Result<Value, PromptError> {
    match (block["type"].as_str(), block["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(json!({"type": "text", "text": text})),
        (Some("text"), None) => {
            Err(PromptError::new(at, format!("'{at}.text' is missing or not a string")))
        }
        (kind, _) => {
            let kind = kind.unwrap_or_default();
            let message = format!("'{at}' has type {kind:?}; this model reads only text");
            Err(PromptError::new(at, message))
        }
    }
}

/// A tool as OpenAI's clients declare it.
fn function(tool: &Value) -> Value {
    if tool["input_schema"].is_null() {
        return tool.clone();
    }
    // In the order that OpenAI's clients use, which templates that print JSON keep.
    let mut function = json!({"name": tool["name"]});
    if !tool["description"].is_null() {
        function["description"] = tool["description"].clone();
    }
    function["parameters"] = tool["input_schema"].clone();
    json!({"type": "function", "function": function})
}
