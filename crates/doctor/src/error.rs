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
    /// Whether it is that the prompt is longer than the context.
    pub too_long: bool,
}

impl PromptError {
    /// `message` is about `field`.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into(), too_long: false }
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

    /// The error for a prompt that came in `field` and does not fit.
    pub fn too_long(field: &str, error: PromptTooLong) -> Self {
        Self { too_long: true, ..Self::new(field, error.to_string()) }
    }
}

/// The prompt leaves no room for an answer. It says so in Anthropic's words and in OpenAI's, by
/// which clients know that they have to shorten the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the prompt is too long: {least}{tokens} tokens > {most} maximum; this model's maximum \
     context length is {context} tokens, the answer's included",
    least = if *at_least { "at least " } else { "" },
    // One that fills the context leaves no room for an answer.
    most = (*context).min(tokens.saturating_sub(1))
)]
pub struct PromptTooLong {
    /// Tokens of the prompt.
    pub tokens: usize,
    /// Whether it may have more than that.
    pub at_least: bool,
    /// Tokens of the context.
    pub context: usize,
}

/// Checks that a prompt of `tokens` and the shortest answer, of `answer` tokens, fit the context.
///
/// # Errors
/// [`PromptTooLong`] where they do not.
pub fn check_length(tokens: usize, answer: usize, context: usize) -> Result<(), PromptTooLong> {
    match tokens.saturating_add(answer) > context {
        true => Err(PromptTooLong { tokens, at_least: false, context }),
        false => Ok(()),
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
