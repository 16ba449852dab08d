//! From `messages` to token ids: checking a conversation, rendering it by the model's chat
//! template, and tokenizing it. Steps 1 and 2 of a request's life.

use cache::Namespace;
use package::{ChatRequest, ChatTemplate, Encoding, PromptMap, Rendered, Tokenizer};
use reply::Format;
use serde_json::{Map, Value};

use crate::error::{PromptError, PromptTooLong, shown};
use crate::known_texts::KnownTexts;
use crate::tool_text::Told;
use crate::tools::ToolChoice;

const MESSAGES_MAX: usize = 16_384;
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

/// Checks `messages` and returns them as the template gets them: a `developer` message becomes a
/// `system` one, since no open model's template knows the newer name.
///
/// # Errors
/// [`PromptError`] that names the first message, part or field at fault.
pub fn check_messages(messages: Option<Vec<Value>>) -> Result<Vec<Value>, PromptError> {
    let messages = messages.ok_or_else(|| PromptError::new("messages", "'messages' is missing"))?;
    if messages.is_empty() {
        return Err(PromptError::new("messages", "'messages' must hold at least one message"));
    }
    if messages.len() > MESSAGES_MAX {
        let message = format!("'messages' may hold at most {MESSAGES_MAX} messages");
        return Err(PromptError::new("messages", message));
    }
    messages.into_iter().enumerate().map(|(index, message)| check_one(index, message)).collect()
}

fn check_one(index: usize, message: Value) -> Result<Value, PromptError> {
    let at = format!("messages[{index}]");
    let mut message = match message {
        Value::Object(message) => message,
        other => return Err(PromptError::wrong_type(&at, "an object", &other)),
    };
    let role = match message.get("role") {
        Some(Value::String(role)) => role.clone(),
        Some(other) => {
            return Err(PromptError::wrong_type(&format!("{at}.role"), "a string", other));
        }
        None => {
            let field = format!("{at}.role");
            return Err(PromptError::new(field, format!("'{at}.role' is missing")));
        }
    };
    if !ROLES.contains(&role.as_str()) {
        let text = format!("'{at}.role' is {role:?}; it must be one of {}", ROLES.join(", "));
        return Err(PromptError::new(format!("{at}.role"), text));
    }
    if role == "developer" {
        message.insert("role".into(), "system".into());
    }
    check_content(&at, &role, &message)?;
    check_tool_calls(&format!("{at}.tool_calls"), message.get("tool_calls"))?;
    Ok(Value::Object(message))
}

/// Checks the calls of an assistant's turn: their names, and arguments as JSON in a text or as a
/// map. What else they hold is the template's.
fn check_tool_calls(field: &str, calls: Option<&Value>) -> Result<(), PromptError> {
    let calls = match calls {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(calls)) => calls,
        Some(other) => return Err(PromptError::wrong_type(field, "an array", other)),
    };
    for (index, call) in calls.iter().enumerate() {
        let at = format!("{field}[{index}]");
        if !call.is_object() {
            return Err(PromptError::wrong_type(&at, "an object", call));
        }
        optional_text(&format!("{at}.id"), &call["id"])?;
        match &call["type"] {
            Value::Null => {}
            kind if kind == "function" => {}
            kind => {
                let message = format!("'{at}.type' must be \"function\", and is {}", shown(kind));
                return Err(PromptError::new(format!("{at}.type"), message));
            }
        }
        let at = format!("{at}.function");
        let function = match &call["function"] {
            Value::Object(function) => function,
            Value::Null => return Err(PromptError::new(&at, format!("'{at}' is missing"))),
            other => return Err(PromptError::wrong_type(&at, "an object", other)),
        };
        let name = format!("{at}.name");
        match function.get("name") {
            Some(Value::String(text)) if !text.is_empty() => {}
            None => return Err(PromptError::new(&name, format!("'{name}' is missing"))),
            Some(Value::String(_)) => {
                return Err(PromptError::new(&name, format!("'{name}' is empty")));
            }
            Some(other) => return Err(PromptError::wrong_type(&name, "a string", other)),
        }
        match function.get("arguments") {
            None | Some(Value::Null | Value::String(_) | Value::Object(_)) => {}
            Some(other) => {
                let field = format!("{at}.arguments");
                return Err(PromptError::wrong_type(&field, "a string of JSON", other));
            }
        }
    }
    Ok(())
}

fn optional_text(field: &str, value: &Value) -> Result<(), PromptError> {
    match value {
        Value::Null | Value::String(_) => Ok(()),
        other => Err(PromptError::wrong_type(field, "a string", other)),
    }
}

fn check_content(at: &str, role: &str, message: &Map<String, Value>) -> Result<(), PromptError> {
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
            Err(PromptError::new(field.clone(), format!("'{field}' is missing")))
        }
        Some(other) => Err(PromptError::wrong_type(&field, "a string or an array of parts", other)),
    }
}

fn check_part(at: &str, part: &Value) -> Result<(), PromptError> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or("");
    if kind != "text" {
        let message = format!("'{at}' has type {kind:?}; this model reads only \"text\" parts");
        return Err(PromptError::new(at, message));
    }
    match part.get("text") {
        Some(Value::String(_)) => Ok(()),
        Some(other) => Err(PromptError::wrong_type(&format!("{at}.text"), "a string", other)),
        None => Err(PromptError::new(at, format!("'{at}.text' is missing"))),
    }
}

/// What turns conversations and texts into token ids.
#[derive(Debug, Clone, Copy)]
pub struct PromptMaker<'a> {
    /// The model's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// The model's chat template, if it has one.
    pub chat_template: Option<&'a ChatTemplate>,
    /// The date that the template sees; `None` is today's.
    pub date: Option<&'a str>,
    /// Tokens of the context, where they are known: a longer prompt is refused.
    pub context: Option<usize>,
    /// Texts whose tokens are remembered, and whose they are.
    pub known: Option<(&'a KnownTexts, Namespace)>,
}

impl PromptMaker<'_> {
    /// Whether tools are part of a prompt whose answer may call them like this. A template that
    /// reads them shows them always, so that a turn without calls begins as the others do; where
    /// they are told as text, only while they may be called.
    pub fn shows_tools(&self, choice: &ToolChoice) -> bool {
        choice.may_call() || self.chat_template.is_some_and(ChatTemplate::uses_tools)
    }

    /// Renders a [checked](check_messages) conversation, with [checked](crate::check_tools)
    /// `tools`, up to where the answer begins. A template that knows no tools gets them as text.
    ///
    /// # Errors
    /// [`PromptError`] about `messages` where there is no template, or it refuses them.
    pub fn render(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        variables: &Map<String, Value>,
    ) -> Result<Rendered, PromptError> {
        let failed = |message: String| PromptError::new("messages", message);
        let template = self.chat_template.ok_or_else(|| {
            failed(
                "this model has no chat template for messages: give {\"prompt\": ...}, which a \
                 server takes at /v1/completions, or choose a model with a template"
                    .to_owned(),
            )
        })?;
        let told = tools
            .filter(|_| !template.uses_tools())
            .map(|tools| Told::new(messages, tools, Format::of(template.source())));
        let request = ChatRequest {
            messages: told.as_ref().map_or(messages, |told| &told.messages),
            tools: tools.filter(|_| told.is_none()),
            add_generation_prompt: true,
            date: self.date,
            variables,
        };
        let rendered = template.render(&request).map_err(|error| failed(error.to_string()))?;
        Ok(match &told {
            Some(told) => told.count_as_asked(rendered),
            None => rendered,
        })
    }

    /// Tokenizes a text that came in `field`; one that cannot fit the context is refused before
    /// that costs anything.
    ///
    /// # Errors
    /// [`PromptError`] about `field` for a text that is too long.
    pub fn encode(&self, text: &str, bos: bool, field: &str) -> Result<Encoding, PromptError> {
        let tokens = self.tokenizer.tokens_at_least(text);
        match self.context {
            Some(context) if tokens > context => {
                let error = PromptTooLong { tokens, at_least: true, context };
                Err(PromptError::too_long(field, error))
            }
            _ => match self.known {
                Some((known, namespace)) => known.encode(namespace, self.tokenizer, text, bos),
                None => self.tokenizer.encode(text, bos),
            }
            .map_err(|error| PromptError::new(field, error.to_string())),
        }
    }

    /// [Renders](Self::render) and tokenizes a conversation. The map tells which tokens came from
    /// which message.
    ///
    /// # Errors
    /// As [`render`](Self::render), and for a text that is too long.
    pub fn chat(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        variables: &Map<String, Value>,
    ) -> Result<(Encoding, PromptMap), PromptError> {
        let rendered = self.render(messages, tools, variables)?;
        // The template itself places the token that begins a text.
        let encoding = self.encode(&rendered.text, false, "messages")?;
        let map = PromptMap::new(&rendered, &encoding);
        Ok((encoding, map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::check_messages;

    fn with_calls(calls: &Value) -> Result<Vec<Value>, crate::PromptError> {
        check_messages(Some(vec![json!({"role": "assistant", "tool_calls": calls})]))
    }

    #[test]
    fn the_field_of_a_call_at_fault_is_named() {
        let call = |function: Value| json!([{"id": "1", "type": "function", "function": function}]);
        let cases = [
            (json!(1), ""),
            (json!("x"), ""),
            (json!({}), ""),
            (json!([1]), "[0]"),
            (json!([{}]), "[0].function"),
            (json!([{"id": 1, "function": {"name": "f"}}]), "[0].id"),
            (json!([{"type": "custom", "function": {"name": "f"}}]), "[0].type"),
            (call(json!("f")), "[0].function"),
            (call(json!({})), "[0].function.name"),
            (call(json!({"name": ""})), "[0].function.name"),
            (call(json!({"name": 1})), "[0].function.name"),
            (call(json!({"name": "f", "arguments": [1]})), "[0].function.arguments"),
        ];
        for (calls, place) in cases {
            let error = with_calls(&calls).expect_err(place);
            assert_eq!(error.field, format!("messages[0].tool_calls{place}"), "{calls}");
            assert!(error.message.contains(&error.field), "{error}");
        }
        for arguments in [json!(null), json!("{}"), json!({"a": 1})] {
            assert!(with_calls(&call(json!({"name": "f", "arguments": arguments}))).is_ok());
        }
        assert!(with_calls(&json!(null)).is_ok());
        assert!(with_calls(&json!([])).is_ok());
    }
}
