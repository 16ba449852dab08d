//! Why a request's prompt cannot be made.

use std::fmt::Display;

use serde_json::Value;

/// Of a value that is wrong, an error shows this much.
const SHOWN_CHARS_MAX: usize = 40;

/// What is wrong with a request, and with which field of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PromptError {
    /// The field, as `messages[0].content`; empty where none is to blame.
    pub field: String,
    /// What is wrong, naming the field.
    pub message: String,
}

impl PromptError {
    /// `message` is about `field`.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// The error for a value of the wrong type: `field` must be `wanted` ("a string").
    pub fn wrong_type(field: &str, wanted: &str, found: &Value) -> Self {
        let found = match found {
            Value::String(_) => "a string".to_owned(),
            Value::Array(_) => "an array".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            plain => shown(plain),
        };
        Self::new(field, format!("'{field}' must be {wanted}, and is {found}"))
    }
}

/// A value that is wrong, as an error shows it: its beginning.
pub fn shown(value: &impl Display) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
