//! Conversations in the form that a template takes.
//!
//! Clients send a message's content as a text or as a list of parts, and a tool call's arguments
//! as JSON in a text; templates are written for one or the other.

use super::error::ChatError;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Which form of content a template takes, found out by trying both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentForm {
    /// Text only.
    Text,
    /// A list of parts only.
    Parts,
    /// Both.
    Either,
}

/// Whether a template must get an empty text for content that is null, found out by trying both:
/// it fails on null or writes it out. One that tells them apart gets null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EmptyForNull {
    /// In messages with tool calls, where clients send null.
    pub(super) with_calls: bool,
    /// In other messages.
    pub(super) without_calls: bool,
}

/// How a template wants its messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forms {
    pub(super) content: ContentForm,
    /// Of what tools return.
    pub(super) result: ContentForm,
    pub(super) null: EmptyForNull,
}

/// A piece of a message's own content: the whole text, or the text of one part.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) message: usize,
    /// Where it begins in the message's content, in Unicode scalars. Of a list of parts, the
    /// content is the texts one after the other.
    pub(super) start_char: usize,
    pub(super) text: String,
}

/// All pieces of a conversation, in order.
pub(super) fn pieces(messages: &[Value]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (message, value) in messages.iter().enumerate() {
        let mut start_char = 0;
        for text in texts(&value["content"]) {
            pieces.push(Piece { message, start_char, text: text.to_owned() });
            start_char += text.chars().count();
        }
    }
    pieces
}

fn texts(content: &Value) -> Vec<&str> {
    match content {
        Value::String(text) => vec![text],
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => Vec::new(),
    }
}

/// Prepares the messages for a template that takes these forms.
///
/// `texts` replaces the texts of the conversation's [`pieces`], in order. With
/// `parse_arguments`, tool calls get their arguments as a map.
///
/// # Errors
/// [`ChatError::Content`] for parts that are no text when the template takes only text.
pub(super) fn prepare(
    messages: &[Value],
    forms: Forms,
    parse_arguments: bool,
    texts: Option<&[Cow<'_, str>]>,
) -> Result<Vec<Value>, ChatError> {
    let mut texts = texts.map(|texts| texts.iter());
    let mut prepared = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        let Value::Object(fields) = message else {
            prepared.push(message.clone());
            continue;
        };
        let mut fields = fields.clone();
        let mut replacement = || texts.as_mut().and_then(Iterator::next).map(|text| &**text);
        fill_null(&mut fields, forms.null);
        if let Some(content) = fields.get_mut("content") {
            // An empty text that stands for null is no piece, so that no text replaces it.
            if !message["content"].is_null() {
                replace_texts(content, &mut replacement);
            }
            let is_result = message["role"] == "tool";
            convert(content, if is_result { forms.result } else { forms.content }, index)?;
        }
        if parse_arguments {
            parse_tool_calls(&mut fields);
        }
        prepared.push(Value::Object(fields));
    }
    Ok(prepared)
}

/// Clients may also leave the content of an assistant's message out.
fn fill_null(fields: &mut Map<String, Value>, null: EmptyForNull) {
    let has_calls = fields.get("tool_calls").is_some_and(|calls| !calls.is_null());
    let is_null = match fields.get("content") {
        Some(content) => content.is_null(),
        None => fields.get("role").is_some_and(|role| role == "assistant"),
    };
    if is_null && if has_calls { null.with_calls } else { null.without_calls } {
        fields.insert("content".to_owned(), Value::from(""));
    }
}

fn replace_texts<'a>(content: &mut Value, replacement: &mut impl FnMut() -> Option<&'a str>) {
    match content {
        Value::String(text) => {
            if let Some(new) = replacement() {
                *text = new.to_owned();
            }
        }
        Value::Array(parts) => {
            for part in parts.iter_mut().filter(|part| part["text"].is_string()) {
                if let Some(new) = replacement() {
                    part["text"] = Value::from(new);
                }
            }
        }
        _ => {}
    }
}

fn convert(content: &mut Value, form: ContentForm, message: usize) -> Result<(), ChatError> {
    match (form, &content) {
        (ContentForm::Parts, Value::String(text)) => {
            *content = json!([{"type": "text", "text": text}]);
        }
        (ContentForm::Text, Value::Array(parts)) => {
            let other = parts.iter().find(|part| !part["text"].is_string());
            if let Some(part) = other {
                let kind = part["type"].as_str().unwrap_or("without a type");
                let problem = format!("this model takes only text, no part {kind:?}");
                return Err(ChatError::Content { message, problem });
            }
            *content = Value::from(texts(content).join("\n"));
        }
        _ => {}
    }
    Ok(())
}

/// Turns `tool_calls[].function.arguments` from JSON in a text into a map.
fn parse_tool_calls(message: &mut Map<String, Value>) {
    let Some(Value::Array(calls)) = message.get_mut("tool_calls") else { return };
    for call in calls {
        let call = if call["function"].is_object() { &mut call["function"] } else { call };
        let parsed = call["arguments"].as_str().map(serde_json::from_str::<Value>);
        if let Some(Ok(arguments @ Value::Object(_))) = parsed {
            call["arguments"] = arguments;
        }
    }
}
