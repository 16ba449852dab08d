//! OpenAI's API.

pub(crate) mod chat;
pub(crate) mod completions;
mod diagnostics;
mod logprobs;
mod message;
mod parameters;
pub(crate) mod responses;
mod stream;
mod usage;

use crate::body;
use crate::error::ApiError;
use crate::fields::Fields;

/// Parses `body` as each kind of request; for fuzzing. Gives the bodies of the errors.
pub fn parse_request(body: &[u8]) -> Vec<serde_json::Value> {
    let parse = |kind: fn(Fields) -> Result<(), ApiError>| {
        body::parse(body).map(Fields::new).and_then(kind).err()
    };
    let chat = parse(|fields| chat::parse(fields).map(drop));
    let text = parse(|fields| completions::parse(fields).map(drop));
    let response = parse(|fields| responses::call::parse(fields).map(drop));
    [chat, text, response].into_iter().flatten().map(|error| error.body()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::parse_request;

    /// Any JSON value, not deep.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
            Just(json!({"role": "user", "content": "Hi"})),
            Just(json!({"type": "function_call", "call_id": "1", "name": "f", "arguments": ""})),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z]{1,8}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// The names that requests use, so that random values meet the code that takes them.
    fn field() -> impl Strategy<Value = String> {
        let names = [
            "messages",
            "prompt",
            "model",
            "n",
            "max_tokens",
            "max_completion_tokens",
            "stop",
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "seed",
            "logit_bias",
            "logprobs",
            "top_logprobs",
            "stream",
            "stream_options",
            "tools",
            "tool_choice",
            "response_format",
            "echo",
            "best_of",
            "suffix",
            "stop_token_ids",
            "cache_salt",
            "chat_template_kwargs",
            "presence_penalty",
            "user",
            "metadata",
            "input",
            "instructions",
            "previous_response_id",
            "text",
            "reasoning",
            "include",
            "truncation",
            "background",
        ];
        prop::sample::select(names.to_vec()).prop_map(str::to_owned)
    }

    proptest! {
        #[test]
        fn any_object_is_parsed_or_refused_with_a_message(
            fields in prop::collection::btree_map(field(), value(), 0..8),
        ) {
            let body = Value::Object(fields.into_iter().collect::<Map<_, _>>());
            for error in parse_request(body.to_string().as_bytes()) {
                let message = error["error"]["message"].as_str();
                prop_assert!(message.is_some_and(|text| !text.is_empty()));
                prop_assert_eq!(&error["error"]["type"], "invalid_request_error");
            }
        }

        #[test]
        fn any_bytes_are_refused_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..256),
        ) {
            parse_request(&bytes);
        }
    }

    #[test]
    fn wrong_fields_are_named() {
        let cases = [
            (json!({}), "messages"),
            (json!({"messages": []}), "messages"),
            (json!({"messages": "Hi"}), "messages"),
            (json!({"messages": [{"role": "alien", "content": "Hi"}]}), "messages[0].role"),
            (json!({"messages": [{"role": "user"}]}), "messages[0].content"),
            (
                json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
                "messages[0].content[0]",
            ),
        ];
        let with = |field: &str, value: Value| {
            let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
            body[field] = value;
            body
        };
        let fields = [
            ("max_tokens", json!(-1)),
            ("max_tokens", json!(1.5)),
            ("temperature", json!("hot")),
            ("temperature", json!(3)),
            ("n", json!(0)),
            ("stop", json!([1])),
            ("stop", json!("")),
            ("seed", json!("x")),
            ("logit_bias", json!({"a": 1})),
            ("logit_bias", json!({"1": 101})),
            ("top_logprobs", json!(2)),
            ("stream_options", json!({"include_usage": true})),
            ("tool_choice", json!("required")),
            ("response_format", json!({"type": "xml"})),
        ];
        let cases = cases
            .into_iter()
            .chain(fields.into_iter().map(|(field, value)| (with(field, value), field)));
        for (body, field) in cases {
            let errors = parse_request(body.to_string().as_bytes());
            assert_eq!(errors[0]["error"]["param"], field, "{body}");
        }
    }

    #[test]
    fn a_body_that_is_not_an_object_is_refused() {
        for body in [&b"[]"[..], b"", b"{", b"\"text\"", b"{\"messages\": \xff}"] {
            assert_eq!(parse_request(body)[0]["error"]["param"], "body");
        }
        let deep = [b"{\"a\":".repeat(10_000), b"1".to_vec()].concat();
        assert_eq!(parse_request(&deep)[0]["error"]["param"], "body");
    }
}
