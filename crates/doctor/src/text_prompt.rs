//! The `prompt` of a completion: a text, token ids, or several of either.

use serde_json::Value;

use crate::conversation::PromptMaker;
use crate::error::{PromptError, shown};

const PROMPTS_MAX: usize = 128;

/// One prompt, not tokenized yet.
#[derive(Debug, Clone, PartialEq)]
pub enum TextPrompt {
    /// A text.
    Text(String),
    /// Token ids, not checked yet.
    Ids(Vec<Value>),
}

impl TextPrompt {
    /// The prompts in the value of a `prompt` field.
    ///
    /// # Errors
    /// [`PromptError`] for a value that is no prompt, and for more than 128 of them.
    pub fn parse(value: Option<Value>) -> Result<Vec<TextPrompt>, PromptError> {
        let values = match value {
            None => return Err(PromptError::new("prompt", "'prompt' is missing")),
            Some(Value::String(text)) => return Ok(vec![TextPrompt::Text(text)]),
            Some(Value::Array(values)) => values,
            Some(other) => {
                return Err(PromptError::wrong_type("prompt", "a string or an array", &other));
            }
        };
        if values.is_empty() {
            return Err(PromptError::new("prompt", "'prompt' is an empty array"));
        }
        if values[0].is_number() {
            return Ok(vec![TextPrompt::Ids(values)]);
        }
        if values.len() > PROMPTS_MAX {
            let message = format!("'prompt' may hold at most {PROMPTS_MAX} prompts");
            return Err(PromptError::new("prompt", message));
        }
        let wanted = "an array of strings or of arrays of ids";
        let one = |value: Value| match value {
            Value::String(text) => Ok(TextPrompt::Text(text)),
            Value::Array(ids) => Ok(TextPrompt::Ids(ids)),
            other => Err(PromptError::wrong_type("prompt", wanted, &other)),
        };
        values.into_iter().map(one).collect()
    }

    /// The prompt's token ids; a text gets the BOS that the tokenizer adds.
    ///
    /// # Errors
    /// [`PromptError`] for a text that is too long, and for ids that are none.
    pub fn encode(&self, maker: PromptMaker<'_>) -> Result<Vec<u32>, PromptError> {
        match self {
            TextPrompt::Text(text) => {
                maker.encode(text, true, "prompt").map(|encoding| encoding.ids)
            }
            TextPrompt::Ids(ids) => token_ids("prompt", ids, maker.tokenizer.vocab_size()),
        }
    }
}

/// The token ids in the array field `name`, each below `vocabulary`.
///
/// # Errors
/// [`PromptError`] about `name`.
pub fn token_ids(name: &str, values: &[Value], vocabulary: usize) -> Result<Vec<u32>, PromptError> {
    let one = |value: &Value| match value.as_u64() {
        None => {
            let value = shown(value);
            Err(PromptError::new(name, format!("'{name}' holds {value}, which is no token id")))
        }
        Some(id) if id < vocabulary as u64 => Ok(id as u32),
        Some(id) => {
            let message = format!("'{name}' holds id {id}; the vocabulary has {vocabulary}");
            Err(PromptError::new(name, message))
        }
    };
    values.iter().map(one).collect()
}
