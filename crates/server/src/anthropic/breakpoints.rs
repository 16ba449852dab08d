//! What a request says to the prompt cache: `cache_control`.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::fields::wrong_type;

/// As many as Anthropic takes.
const BREAKPOINTS_MAX: usize = 4;
const FIELD: &str = "cache_control";

/// The breakpoints of a request. The prompt cache here keeps every prefix, with or without them:
/// they say how long, and what is counted as written to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Breakpoints {
    /// How many messages the last one ends, `system` and `tools` counted as none.
    pub(super) messages: Option<usize>,
    /// The longest life that was asked for; without one, the server's configuration decides.
    pub(super) lifetime: Option<Duration>,
    count: usize,
}

impl Breakpoints {
    /// Those of a body, in the order that Anthropic gives a prompt: tools, system, messages.
    pub(super) fn of(body: &Map<String, Value>) -> Result<Self, ApiError> {
        let mut found = Self::default();
        for tool in list(body.get("tools")) {
            found.note("tools", tool, 0)?;
        }
        for block in list(body.get("system")) {
            found.note("system", block, 0)?;
        }
        let messages = list(body.get("messages"));
        for (index, message) in messages.iter().enumerate() {
            for block in list(message.get("content")) {
                found.note(&format!("messages[{index}].content"), block, index + 1)?;
            }
        }
        if let Some(control) = body.get(FIELD).filter(|control| !control.is_null()) {
            found.take(FIELD, control, messages.len())?;
        }
        match found.count <= BREAKPOINTS_MAX {
            true => Ok(found),
            false => {
                let message = format!(
                    "a request may have at most {BREAKPOINTS_MAX} blocks with '{FIELD}', and this \
                     has {}",
                    found.count
                );
                Err(ApiError::bad_request(FIELD, message))
            }
        }
    }

    fn note(&mut self, place: &str, block: &Value, messages: usize) -> Result<(), ApiError> {
        match block.get(FIELD) {
            None | Some(Value::Null) => Ok(()),
            Some(control) => self.take(&format!("{place}.{FIELD}"), control, messages),
        }
    }

    fn take(&mut self, field: &str, control: &Value, messages: usize) -> Result<(), ApiError> {
        let Value::Object(control) = control else {
            return Err(wrong_type(field, "an object", control));
        };
        if control.get("type").is_none_or(|kind| kind != "ephemeral") {
            let message = format!("'{field}.type' must be \"ephemeral\"");
            return Err(ApiError::bad_request(field, message));
        }
        let minutes = match control.get("ttl") {
            None | Some(Value::Null) => None,
            Some(ttl) if ttl == "5m" => Some(5),
            Some(ttl) if ttl == "1h" => Some(60),
            Some(_) => {
                let message = format!("'{field}.ttl' must be \"5m\" or \"1h\"");
                return Err(ApiError::bad_request(field, message));
            }
        };
        let lifetime = minutes.map(|minutes| Duration::from_secs(60 * minutes));
        self.lifetime = self.lifetime.max(lifetime);
        self.messages = Some(messages);
        self.count += 1;
        Ok(())
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(body: &Value) -> Result<Breakpoints, ApiError> {
        Breakpoints::of(body.as_object().unwrap())
    }

    #[test]
    fn the_last_breakpoint_and_the_longest_life_count() {
        let block = |control: Value| json!({"type": "text", "text": "x", "cache_control": control});
        let plain = json!({"type": "ephemeral"});
        let body = json!({
            "system": [block(json!({"type": "ephemeral", "ttl": "1h"}))],
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant",
                 "content": [block(json!({"type": "ephemeral", "ttl": "5m"}))]},
                {"role": "user", "content": "b"},
            ],
        });
        let found = of(&body).unwrap();
        assert_eq!(found.messages, Some(2));
        assert_eq!(found.lifetime, Some(Duration::from_secs(3600)));
        let tools = json!({"tools": [{"name": "f", "cache_control": plain}], "messages": []});
        assert_eq!((of(&tools).unwrap().messages, of(&tools).unwrap().lifetime), (Some(0), None));
        let whole = json!({"cache_control": plain, "messages": [{}, {}]});
        assert_eq!(of(&whole).unwrap().messages, Some(2));
        assert_eq!(of(&json!({"messages": [{}]})).unwrap(), Breakpoints::default());
    }

    #[test]
    fn wrong_ones_are_named() {
        let with = |control: Value| json!({"system": [{"text": "x", "cache_control": control}]});
        for (control, word) in [
            (json!("ephemeral"), "must be an object"),
            (json!({"ttl": "5m"}), "type"),
            (json!({"type": "persistent"}), "type"),
            (json!({"type": "ephemeral", "ttl": "2h"}), "ttl"),
            (json!({"type": "ephemeral", "ttl": 300}), "ttl"),
        ] {
            let error = of(&with(control.clone())).unwrap_err();
            assert!(error.message().contains("system.cache_control"), "{}", error.message());
            assert!(error.message().contains(word), "{control}: {}", error.message());
        }
        let block = json!({"cache_control": {"type": "ephemeral"}});
        let five = json!({"system": [block, block, block, block, block]});
        assert!(of(&five).unwrap_err().message().contains("at most 4"));
    }
}
