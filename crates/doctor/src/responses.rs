//! Requests of OpenAI's Responses API, in the form that chat templates take, which is that of chat
//! completions: <https://platform.openai.com/docs/api-reference/responses/create>.

use serde_json::{Map, Value, json};

use crate::error::{PromptError, shown};

/// Most items of an input, which become as many messages at most.
const ITEMS_MAX: usize = 16_384;
const ROLES: [&str; 4] = ["user", "assistant", "system", "developer"];

/// The messages that `input` makes: a text is the user's; of items, the reasoning, the text and the
/// calls of one turn become one message of the assistant, and each output of a function one of its
/// own.
///
/// # Errors
/// [`PromptError`] that names the first item, part or field at fault: one that is no text, above
/// all.
pub fn from_response_input(input: &Value) -> Result<Vec<Value>, PromptError> {
    let items = match input {
        Value::String(text) => return Ok(vec![json!({"role": "user", "content": text})]),
        Value::Array(items) => items,
        other => {
            let wanted = "a string or an array of items";
            return Err(PromptError::wrong_type("input", wanted, other));
        }
    };
    if items.len() > ITEMS_MAX {
        let message = format!("'input' may hold at most {ITEMS_MAX} items");
        return Err(PromptError::new("input".to_owned(), message));
    }
    let mut turns = Turns::default();
    for (index, item) in items.iter().enumerate() {
        turns.push(&format!("input[{index}]"), item)?;
    }
    turns.close();
    Ok(turns.messages)
}

/// `tools`, in the form of chat completions. `strict` is left out: arguments that must match are
/// asked for by `tool_choice`.
///
/// # Errors
/// [`PromptError`] for a tool that is no function: nothing else can be called here.
pub fn from_response_tools(tools: &[Value]) -> Result<Vec<Value>, PromptError> {
    let function = |(index, tool): (usize, &Value)| {
        let at = format!("tools[{index}]");
        let Value::Object(tool) = tool else {
            return Err(PromptError::wrong_type(&at, "an object", tool));
        };
        if tool.get("type").is_none_or(|kind| kind != "function") {
            let kind = tool.get("type").map_or_else(|| "missing".to_owned(), shown);
            let message = format!("'{at}.type' is {kind}: only functions can be called here");
            return Err(PromptError::new(format!("{at}.type"), message));
        }
        // As chat completions have it.
        if tool.contains_key("function") {
            return Ok(Value::Object(tool.clone()));
        }
        // In the order that OpenAI's clients use, which templates that print JSON keep.
        let fields = ["name", "description", "parameters"].into_iter();
        let said = fields.filter_map(|name| Some((name, tool.get(name)?)));
        let said = said.filter(|(_, value)| !value.is_null());
        let function: Map<_, _> = said.map(|(name, one)| (name.to_owned(), one.clone())).collect();
        Ok(json!({"type": "function", "function": function}))
    };
    tools.iter().enumerate().map(function).collect()
}

/// The messages so far, and the assistant's turn that may go on.
#[derive(Default)]
struct Turns {
    messages: Vec<Value>,
    open: Option<Turn>,
}

/// A turn of the assistant.
#[derive(Default)]
struct Turn {
    reasoning: String,
    /// Its text, in parts.
    parts: Vec<Value>,
    calls: Vec<Value>,
}

impl Turns {
    fn push(&mut self, at: &str, item: &Value) -> Result<(), PromptError> {
        let Value::Object(fields) = item else {
            return Err(PromptError::wrong_type(at, "an object", item));
        };
        let kind = match fields.get("type") {
            None if fields.contains_key("role") => "message",
            Some(Value::String(kind)) => kind.as_str(),
            Some(other) => {
                return Err(PromptError::wrong_type(&format!("{at}.type"), "a string", other));
            }
            None => {
                let field = format!("{at}.type");
                return Err(PromptError::new(field, format!("'{at}' has no 'type' and no 'role'")));
            }
        };
        match kind {
            "message" => self.message(at, item),
            "reasoning" => {
                let said = reasoning(at, item)?;
                self.turn().reasoning.push_str(&said);
                Ok(())
            }
            "function_call" => {
                let call = json!({
                    "id": text(at, item, "call_id")?,
                    "type": "function",
                    "function": {
                        "name": name(at, item)?, "arguments": text(at, item, "arguments")?,
                    },
                });
                self.turn().calls.push(call);
                Ok(())
            }
            "function_call_output" => {
                let call = text(at, item, "call_id")?;
                let content = content(&format!("{at}.output"), &item["output"])?;
                let result = json!({"role": "tool", "tool_call_id": call, "content": content});
                self.add(result);
                Ok(())
            }
            other => {
                let message = format!(
                    "'{at}' has type {:?}; this server takes messages, function calls, their \
                     outputs and reasoning",
                    shown(&other)
                );
                Err(PromptError::new(at, message))
            }
        }
    }

    fn message(&mut self, at: &str, item: &Value) -> Result<(), PromptError> {
        let role = text(at, item, "role")?;
        if !ROLES.contains(&role) {
            let field = format!("{at}.role");
            let role = shown(&role);
            let known = ROLES.join(", ");
            let message = format!("'{field}' is {role:?}; it must be one of {known}");
            return Err(PromptError::new(field, message));
        }
        let content = content(&format!("{at}.content"), &item["content"])?;
        if role != "assistant" {
            self.add(json!({"role": role, "content": content}));
            return Ok(());
        }
        // Two texts one after the other are two turns.
        if self.open.as_ref().is_some_and(|turn| !turn.parts.is_empty() && turn.calls.is_empty()) {
            self.close();
        }
        self.turn().parts.extend(match content {
            Value::Array(parts) => parts,
            text => vec![json!({"type": "text", "text": text})],
        });
        Ok(())
    }

    fn turn(&mut self) -> &mut Turn {
        self.open.get_or_insert_default()
    }

    /// Adds a message that is not the assistant's.
    fn add(&mut self, message: Value) {
        self.close();
        self.messages.push(message);
    }

    /// Ends the assistant's turn, if there is one.
    fn close(&mut self) {
        let Some(Turn { reasoning, mut parts, calls }) = self.open.take() else { return };
        let content = match parts.len() {
            0 if calls.is_empty() => Value::from(""),
            0 => Value::Null,
            1 => parts[0]["text"].take(),
            _ => Value::from(parts),
        };
        let mut message = json!({"role": "assistant", "content": content});
        if !reasoning.is_empty() {
            message["reasoning_content"] = Value::from(reasoning);
        }
        if !calls.is_empty() {
            message["tool_calls"] = Value::from(calls);
        }
        self.messages.push(message);
    }
}

/// The text of a message or of an output.
fn content(field: &str, content: &Value) -> Result<Value, PromptError> {
    match content {
        Value::String(_) => Ok(content.clone()),
        Value::Array(parts) => parts
            .iter()
            .enumerate()
            .map(|(index, part)| text_part(&format!("{field}[{index}]"), part))
            .collect(),
        Value::Null => Err(PromptError::new(field, format!("'{field}' is missing"))),
        other => Err(PromptError::wrong_type(field, "a string or an array of parts", other)),
    }
}

fn text_part(at: &str, part: &Value) -> Result<Value, PromptError> {
    let kind = part["type"].as_str().unwrap_or_default();
    let said = match kind {
        "input_text" | "output_text" | "text" => text(at, part, "text")?,
        "refusal" => text(at, part, "refusal")?,
        other => {
            let message =
                format!("'{at}' has type {:?}; this model reads only text", shown(&other));
            return Err(PromptError::new(at, message));
        }
    };
    Ok(json!({"type": "text", "text": said}))
}

/// What was reasoned, where it is said: a summary is not what the model wrote, and what is
/// encrypted cannot be read.
fn reasoning(at: &str, item: &Value) -> Result<String, PromptError> {
    let field = format!("{at}.content");
    match &item["content"] {
        Value::Null => Ok(String::new()),
        Value::Array(parts) => {
            let one = |(index, part)| text(&format!("{field}[{index}]"), part, "text");
            parts.iter().enumerate().map(one).collect()
        }
        other => Err(PromptError::wrong_type(&field, "an array of parts", other)),
    }
}

fn name<'a>(at: &str, item: &'a Value) -> Result<&'a str, PromptError> {
    match text(at, item, "name")? {
        "" => Err(PromptError::new(format!("{at}.name"), format!("'{at}.name' is empty"))),
        name => Ok(name),
    }
}

/// A text that must be there.
fn text<'a>(at: &str, object: &'a Value, name: &str) -> Result<&'a str, PromptError> {
    let field = format!("{at}.{name}");
    match &object[name] {
        Value::String(text) => Ok(text),
        Value::Null => {
            let message = format!("'{field}' is missing");
            Err(PromptError::new(field, message))
        }
        other => Err(PromptError::wrong_type(&field, "a string", other)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::conversation::check_messages;

    #[test]
    fn a_turns_items_become_one_message() {
        let input = json!([
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "summary": [], "content": [
                {"type": "reasoning_text", "text": "Hm"},
            ]},
            {"type": "message", "role": "assistant", "content": [
                {"type": "output_text", "text": "I look.", "annotations": []},
            ]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc_1"},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
            {"role": "assistant", "content": "One."},
            {"role": "assistant", "content": "Two."},
        ]);
        let call = json!({
            "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"},
        });
        let expected = json!([
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {
                "role": "assistant", "content": "I look.", "reasoning_content": "Hm",
                "tool_calls": [call],
            },
            {"role": "tool", "tool_call_id": "c", "content": "1"},
            {"role": "assistant", "content": "One."},
            {"role": "assistant", "content": "Two."},
        ]);
        let messages = from_response_input(&input).expect("sound");
        assert_eq!(Value::from(messages), expected);
        let text = from_response_input(&json!("Hi")).expect("a text");
        assert_eq!(Value::from(text), json!([{"role": "user", "content": "Hi"}]));
        let calls = from_response_input(&json!([input[4]])).expect("a call alone");
        assert_eq!(calls[0]["content"], Value::Null);
    }

    #[test]
    fn what_is_no_text_is_refused_by_its_name() {
        let part = |kind: &str| json!([{"role": "user", "content": [{"type": kind}]}]);
        for kind in ["input_image", "input_file", "input_audio"] {
            let error = from_response_input(&part(kind)).expect_err(kind);
            assert_eq!(error.field, "input[0].content[0]");
            assert!(error.message.contains(kind), "{error}");
        }
        for kind in ["item_reference", "computer_call_output", "mcp_call"] {
            let error = from_response_input(&json!([{"type": kind}])).expect_err(kind);
            assert!(error.message.contains(kind), "{error}");
        }
        let tool = from_response_tools(&[json!({"type": "file_search"})]).expect_err("no function");
        assert!(tool.message.contains("file_search"), "{tool}");
    }

    fn item() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            ".{0,6}".prop_map(Value::from),
            Just(Value::Null),
            Just(json!([{"type": "input_text", "text": "x"}])),
            Just(json!([{"type": "refusal", "refusal": "no"}])),
            any::<i32>().prop_map(Value::from),
        ];
        let kinds = ["message", "reasoning", "function_call", "function_call_output", "other"];
        let roles = ["user", "assistant", "system", "developer", "critic"];
        let (kind, role) =
            (prop::sample::select(kinds.to_vec()), prop::sample::select(roles.to_vec()));
        (kind, role, text).prop_map(|(kind, role, text)| {
            json!({
                "type": kind, "role": role, "content": text, "output": text, "name": text,
                "call_id": "c", "arguments": "{}",
            })
        })
    }

    proptest! {
        /// Whatever is taken is a sound conversation, and what is not names its place.
        #[test]
        fn items_become_messages_or_are_refused(items in prop::collection::vec(item(), 1..8)) {
            match from_response_input(&Value::from(items)) {
                Ok(messages) => prop_assert!(check_messages(Some(messages)).is_ok()),
                Err(error) => {
                    prop_assert!(error.field.starts_with("input["), "{}", error.field);
                    prop_assert!(error.message.contains(&error.field), "{error}");
                }
            }
        }
    }
}
