//! An answer as a message of OpenAI's, whole or in deltas.

use engine::{FinishReason, TokenInfo};
use reply::{Part, Reader, Reply};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::state::new_id;

/// The assistant's message. A turn that only calls has no content.
pub(super) fn message(reply: &Reply) -> Result<Value, ApiError> {
    let is_only_calls = reply.text.is_empty() && !reply.calls.is_empty();
    let content = if is_only_calls { Value::Null } else { Value::from(reply.text.as_str()) };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !reply.reasoning.is_empty() {
        message["reasoning_content"] = Value::from(reply.reasoning.as_str());
    }
    let calls = reply.calls.iter().map(|call| {
        let function = json!({"name": call.name, "arguments": call.arguments});
        Ok(json!({"id": new_id("call_")?, "type": "function", "function": function}))
    });
    let calls = calls.collect::<Result<Vec<Value>, ApiError>>()?;
    if !calls.is_empty() {
        message["tool_calls"] = Value::from(calls);
    }
    Ok(message)
}

/// `finish_reason`: an answer that called tools and was not cut off waits for their results.
pub(super) fn finish_reason(reason: FinishReason, has_calls: bool) -> &'static str {
    match reason {
        FinishReason::Stop if has_calls => "tool_calls",
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}

/// What a stream says of one answer, piece by piece.
pub(super) struct Deltas {
    /// `None` once the answer has ended.
    reader: Option<Reader>,
    /// Tokens whose log-probabilities have not been said.
    pub(super) tokens: Vec<TokenInfo>,
    pub(super) has_calls: bool,
}

impl Deltas {
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader: Some(reader), tokens: Vec::new(), has_calls: false }
    }

    /// The `delta` objects that more of the answer's text makes.
    pub(super) fn push(&mut self, text: &str) -> Result<Vec<Value>, ApiError> {
        let parts = self.reader.as_mut().map(|reader| reader.push(text));
        self.say(parts.unwrap_or_default())
    }

    /// Those that were held back until the answer's end.
    pub(super) fn finish(&mut self) -> Result<Vec<Value>, ApiError> {
        let parts = self.reader.take().map(Reader::finish);
        self.say(parts.unwrap_or_default())
    }

    fn say(&mut self, parts: Vec<Part>) -> Result<Vec<Value>, ApiError> {
        let mut deltas = Vec::with_capacity(parts.len());
        for part in parts {
            deltas.push(match part {
                Part::Reasoning(text) => json!({"reasoning_content": text}),
                Part::Text(text) => json!({"content": text}),
                Part::CallStart { index, name } => {
                    self.has_calls = true;
                    json!({"tool_calls": [{
                        "index": index,
                        "id": new_id("call_")?,
                        "type": "function",
                        "function": {"name": name, "arguments": ""},
                    }]})
                }
                Part::CallArguments { index, fragment } => {
                    let function = json!({"arguments": fragment});
                    json!({"tool_calls": [{"index": index, "function": function}]})
                }
                Part::CallEnd { .. } => continue,
            });
        }
        Ok(deltas)
    }
}
