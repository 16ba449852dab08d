//! The items of a request's input, as they are listed.

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::state::new_id;

/// The items of an `input` that was checked: a text as the message that it is, each item with an id
/// and with what its kind has and the request left out.
pub(super) fn listed(input: Value) -> Result<Vec<Value>, ApiError> {
    let items = match input {
        Value::String(text) => vec![json!({"role": "user", "content": text})],
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    let objects = items.into_iter().filter_map(|item| match item {
        Value::Object(item) => Some(item),
        _ => None,
    });
    objects.map(complete).collect()
}

fn complete(mut item: Map<String, Value>) -> Result<Value, ApiError> {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message").to_owned();
    item.insert("type".to_owned(), Value::from(kind.as_str()));
    let prefix = match kind.as_str() {
        "function_call" => "fc_",
        "function_call_output" => "fco_",
        "reasoning" => "rs_",
        _ => "msg_",
    };
    if !item.get("id").is_some_and(Value::is_string) {
        item.insert("id".to_owned(), Value::from(new_id(prefix)?));
    }
    if kind == "reasoning" {
        item.entry("summary").or_insert_with(|| json!([]));
        return Ok(Value::Object(item));
    }
    if item.get("status").is_none_or(Value::is_null) {
        item.insert("status".to_owned(), Value::from("completed"));
    }
    if kind == "message" {
        let is_reply = item.get("role").is_some_and(|role| role == "assistant");
        let content = item.get_mut("content").map(Value::take);
        item.insert("content".to_owned(), parts(content.unwrap_or_default(), is_reply));
    }
    Ok(Value::Object(item))
}

/// Content in parts, of the names that the Responses API has for them.
fn parts(content: Value, is_reply: bool) -> Value {
    let part = |text: Value| match is_reply {
        true => json!({"type": "output_text", "text": text, "annotations": []}),
        false => json!({"type": "input_text", "text": text}),
    };
    match content {
        Value::Array(parts) => {
            let named = |mut one: Value| match one["type"].as_str() {
                Some("refusal") => one,
                _ => part(one["text"].take()),
            };
            parts.into_iter().map(named).collect()
        }
        text => json!([part(text)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_listed_whole() {
        let items = listed(json!("Hi")).unwrap();
        assert!(items[0]["id"].as_str().unwrap().starts_with("msg_"));
        assert_eq!(items[0]["content"], json!([{"type": "input_text", "text": "Hi"}]));
        assert_eq!((&items[0]["role"], &items[0]["type"]), (&json!("user"), &json!("message")));
        let input = json!([
            {"role": "assistant", "content": "Hm.", "id": "msg_1"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "1", "status": "incomplete"},
            {"type": "reasoning", "id": "rs_1"},
        ]);
        let items = listed(input).unwrap();
        assert_eq!(items[0]["id"], "msg_1");
        assert_eq!(items[0]["content"][0]["type"], "output_text");
        assert!(items[1]["id"].as_str().unwrap().starts_with("fc_"));
        assert_eq!(
            (&items[1]["status"], &items[2]["status"]),
            (&json!("completed"), &json!("incomplete"),)
        );
        assert_eq!(items[3]["summary"], json!([]));
    }
}
