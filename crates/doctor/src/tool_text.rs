//! Tools for a model whose chat template knows none: described in the system prompt, and calls of
//! earlier turns written as the model is asked to write them.

use package::Rendered;
use reply::{CallShape, Format};
use serde_json::{Value, json};

/// A conversation in which tools and calls are text.
pub(crate) struct Told {
    pub(crate) messages: Vec<Value>,
    /// Whether the first message is new.
    is_longer: bool,
}

impl Told {
    /// `messages` with `tools` described in the system prompt. It is at the end of what the caller
    /// wrote there, so that callers with the same beginning share it.
    pub(crate) fn new(messages: &[Value], tools: &Value, format: Format) -> Self {
        let shape = format.call_shape();
        let mut messages: Vec<Value> =
            messages.iter().map(|message| with_calls_as_text(message, shape)).collect();
        let text = description(tools, shape);
        let has_system = messages.first().is_some_and(|message| message["role"] == "system");
        if !has_system {
            messages.insert(0, json!({"role": "system", "content": text}));
            return Self { messages, is_longer: true };
        }
        let content = &mut messages[0]["content"];
        match content {
            Value::Array(parts) => {
                parts.push(json!({"type": "text", "text": format!("\n\n{text}")}))
            }
            Value::String(said) => *said = format!("{said}\n\n{text}"),
            other => *other = Value::from(text),
        }
        Self { messages, is_longer: false }
    }

    /// The rendered text, with the messages counted as the caller counts them.
    pub(crate) fn count_as_asked(&self, mut rendered: Rendered) -> Rendered {
        if self.is_longer {
            rendered.spans.retain_mut(|span| match span.message.checked_sub(1) {
                Some(message) => {
                    span.message = message;
                    true
                }
                None => false,
            });
        }
        rendered
    }
}

fn description(tools: &Value, shape: CallShape) -> String {
    let list: Vec<String> = tools.as_array().into_iter().flatten().map(Value::to_string).collect();
    let call = format!(
        "{}{}{{\"parameter\": \"value\"}}{}{}",
        shape.before,
        shape.prefix("name_of_the_tool"),
        shape.suffix,
        shape.after
    );
    format!(
        "You can call these tools, each with a JSON Schema of its parameters:\n{}\nTo call one, \
         answer only with its name and arguments, in this form:\n{call}",
        list.join("\n"),
    )
}

/// A turn that calls tools, with the calls at the end of its text.
fn with_calls_as_text(message: &Value, shape: CallShape) -> Value {
    let Some(calls) = message["tool_calls"].as_array().filter(|calls| !calls.is_empty()) else {
        return message.clone();
    };
    let one = |call: &Value| {
        let function = &call["function"];
        let arguments = match &function["arguments"] {
            Value::String(text) => text.clone(),
            Value::Null => "{}".to_owned(),
            other => other.to_string(),
        };
        let name = function["name"].as_str().unwrap_or_default();
        format!("{}{arguments}{}", shape.prefix(name), shape.suffix)
    };
    let calls: Vec<String> = calls.iter().map(one).collect();
    let calls =
        format!("{}{}{}", shape.before, calls.join(shape.between.unwrap_or("\n")), shape.after);
    let mut message = message.clone();
    let content = &mut message["content"];
    match content {
        Value::Array(parts) => parts.push(json!({"type": "text", "text": calls})),
        Value::String(said) if !said.is_empty() => *said = format!("{said}\n{calls}"),
        other => *other = Value::from(calls),
    }
    if let Value::Object(message) = &mut message {
        message.remove("tool_calls");
    }
    message
}

#[cfg(test)]
mod tests {
    use package::Span;

    use super::*;

    fn format() -> Format {
        Format::of("<tool_call>")
    }

    fn tools() -> Value {
        json!([{"type": "function", "function": {"name": "weather", "parameters": {}}}])
    }

    #[test]
    fn tools_are_described_in_the_system_prompt() {
        let user = json!({"role": "user", "content": "Hi"});
        let told = Told::new(std::slice::from_ref(&user), &tools(), format());
        assert!(told.is_longer && told.messages.len() == 2);
        let text = told.messages[0]["content"].as_str().unwrap();
        assert!(text.contains("\"weather\"") && text.contains("<tool_call>"), "{text}");
        let system = json!({"role": "system", "content": "Be brief."});
        let told = Told::new(&[system, user.clone()], &tools(), format());
        assert!(!told.is_longer && told.messages.len() == 2);
        let text = told.messages[0]["content"].as_str().unwrap();
        assert!(text.starts_with("Be brief.\n\n") && text.contains("weather"), "{text}");
        let parts = json!({"role": "system", "content": [{"type": "text", "text": "Be brief."}]});
        let told = Told::new(&[parts, user], &tools(), format());
        assert_eq!(told.messages[0]["content"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_a_call_was_written_as_is_read_back() {
        let turn = json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function",
             "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}},
            {"id": "2", "type": "function", "function": {"name": "weather", "arguments": {"a": 1}}},
        ]});
        let told = Told::new(std::slice::from_ref(&turn), &tools(), format());
        let turn = &told.messages[1];
        assert!(turn["tool_calls"].is_null());
        let declared = [("weather", &Value::Null)].into_iter().collect();
        let mut reader = reply::Reader::new(format(), declared, false);
        let mut read = reply::Reply::default();
        read.extend(reader.push(turn["content"].as_str().unwrap()));
        read.extend(reader.finish());
        let arguments: Vec<&str> = read.calls.iter().map(|call| call.arguments.as_str()).collect();
        assert_eq!(arguments, ["{\"city\": \"Paris\"}", "{\"a\":1}"]);
    }

    #[test]
    fn messages_are_counted_as_the_caller_counts_them() {
        let span = |message| Span { range: 0..1, message, role: "user".to_owned(), start_char: 0 };
        let rendered = Rendered { text: "xy".to_owned(), spans: vec![span(0), span(1), span(2)] };
        let told = Told::new(&[json!({"role": "user", "content": "Hi"})], &tools(), format());
        let spans = told.count_as_asked(rendered).spans;
        assert_eq!(spans.iter().map(|span| span.message).collect::<Vec<_>>(), [0, 1]);
    }
}
