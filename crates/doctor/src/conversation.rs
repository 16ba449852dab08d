//! From `messages` to token ids: checking a conversation, rendering it by the model's chat
//! template, and tokenizing it. Steps 1 and 2 of a request's life.

use package::{ChatRequest, ChatTemplate, Encoding, PromptMap, Rendered, Tokenizer};
use serde_json::{Map, Value};

use crate::error::{PromptError, PromptTooLong};

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
    Ok(Value::Object(message))
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
}

impl PromptMaker<'_> {
    /// Renders a [checked](check_messages) conversation, with [checked](crate::check_tools)
    /// `tools`, up to where the answer begins.
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
        let request = ChatRequest {
            messages,
            tools,
            add_generation_prompt: true,
            date: self.date,
            variables,
        };
        template.render(&request).map_err(|error| failed(error.to_string()))
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
            _ => self
                .tokenizer
                .encode(text, bos)
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
