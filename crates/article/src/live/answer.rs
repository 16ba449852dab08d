//! An answer's parts.

use serde_json::Value;

/// The body of an answer to one prompt, or to several.
pub(super) struct Answer(pub(super) Value);

impl Answer {
    fn count(&self, value: &Value) -> usize {
        value.as_u64().unwrap_or(u64::MAX) as usize
    }

    fn verdict(&self) -> &Value {
        &self.0["refrain"]["verdict"]
    }

    /// Tokens of the prompt.
    pub(super) fn prompt(&self) -> usize {
        self.count(&self.verdict()["prompt_tokens"])
    }

    /// Of these, reused ones.
    pub(super) fn reused(&self) -> usize {
        self.count(&self.verdict()["reused_tokens"])
    }

    /// The others.
    pub(super) fn computed(&self) -> usize {
        self.count(&self.verdict()["computed_tokens"])
    }

    /// Tokens of the answer.
    pub(super) fn output(&self) -> usize {
        self.count(&self.0["refrain"]["tokens"]["output"])
    }

    /// Where reuse stopped, and why.
    pub(super) fn stop(&self) -> &Value {
        &self.verdict()["stop"]
    }

    /// Why reuse stopped.
    pub(super) fn reason(&self) -> &str {
        self.stop()["reason"].as_str().unwrap_or_default()
    }

    /// The position at which it stopped.
    pub(super) fn at(&self) -> usize {
        self.count(&self.stop()["at"])
    }

    /// A time, if it is known.
    pub(super) fn time_ms(&self, name: &str) -> Option<f64> {
        self.0["refrain"]["timings"][name].as_f64()
    }

    /// The text of the first choice.
    pub(super) fn text(&self) -> &str {
        let choice = &self.0["choices"][0];
        choice["text"].as_str().or(choice["message"]["content"].as_str()).unwrap_or_default()
    }

    /// The log-probabilities of the first choice.
    pub(super) fn logprobs(&self) -> &Value {
        &self.0["choices"][0]["logprobs"]
    }

    /// The names of the fields that had no effect.
    pub(super) fn ignored(&self) -> &Value {
        &self.0["refrain"]["ignored"]
    }
}

/// Whether a key of this name is anywhere in a value.
pub(super) fn has_key(value: &Value, name: &str) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| key == name || has_key(value, name)),
        Value::Array(values) => values.iter().any(|value| has_key(value, name)),
        _ => false,
    }
}
