//! A message, around its content.

use engine::FinishReason;
use serde_json::{Value, json};

use super::content;
use super::diagnostics;
use super::usage::Counting;
use crate::error::ApiError;
use crate::job::Answer;

/// What an answer says besides its text.
pub(super) struct Header {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) stop: Vec<String>,
    pub(super) counting: Counting,
}

impl Header {
    /// The message without its content: as a stream begins, and as an answer ends.
    pub(super) fn envelope(&self) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
        })
    }

    /// `stop_reason` and `stop_sequence`.
    pub(super) fn stop(
        &self,
        reason: FinishReason,
        stop: Option<usize>,
        has_calls: bool,
    ) -> (&'static str, Value) {
        match (reason, stop.and_then(|stop| self.stop.get(stop))) {
            (_, Some(text)) => ("stop_sequence", Value::from(text.as_str())),
            (FinishReason::Stop, None) if has_calls => ("tool_use", Value::Null),
            (FinishReason::Stop, None) => ("end_turn", Value::Null),
            (FinishReason::Length, None) => ("max_tokens", Value::Null),
        }
    }

    /// A whole answer.
    pub(super) fn message(&self, answer: &Answer) -> Result<Value, ApiError> {
        let mut message = self.envelope();
        for choice in &answer.choices {
            message["content"] = Value::from(content::blocks(&choice.reply)?);
            if let Some(reason) = choice.reason {
                let has_calls = !choice.reply.calls.is_empty();
                let (reason, sequence) = self.stop(reason, choice.stop, has_calls);
                message["stop_reason"] = Value::from(reason);
                message["stop_sequence"] = sequence;
            }
        }
        if let Some(verdict) = answer.outcomes.verdict() {
            message["usage"] = self.counting.usage(verdict, answer.outcomes.tokens().output);
        }
        if let Some(diagnosis) = answer.outcomes.diagnosis() {
            message["diagnostics"] = diagnostics::in_their_words(diagnosis);
        }
        message["refrain"] = answer.outcomes.refrain();
        Ok(message)
    }
}
