//! What is said offline is what a server says: verdicts of random pairs of requests, which differ
//! in every place, field by field.

mod live;
mod pairs;

use std::collections::BTreeSet;

use doctor::{Prompt, PromptError, PromptMaker};
use package::Package;
use serde_json::{Value, json};

use live::Live;
use pairs::Pairs;

/// The offline verdict as JSON.
fn offline(
    first: &Value,
    second: &Value,
    package: &Package,
) -> Result<(Value, [Prompt; 2]), PromptError> {
    let maker = PromptMaker {
        tokenizer: &package.tokenizer,
        chat_template: package.chat_template.as_ref(),
        date: Some(live::DATE),
    };
    let first = Prompt::read("a.json", first.to_string().as_bytes(), maker)?;
    let second = Prompt::read("b.json", second.to_string().as_bytes(), maker)?;
    let verdict = doctor::why(&first, &second, maker.tokenizer);
    Ok((serde_json::to_value(verdict).expect("a verdict is JSON"), [first, second]))
}

/// The live verdict on the second request, with what only a server knows taken out, and the first
/// request's id as its file's name.
fn live_verdict(live: &Live, first: &Value, second: &Value) -> Value {
    let id = live.ask(first)["id"].clone();
    let mut verdict = live.ask(second)["refrain"]["verdict"].clone();
    verdict["stop"].as_object_mut().expect("a stop").remove("since");
    if verdict["compared_with"] == id {
        verdict["compared_with"] = json!("a.json");
    }
    verdict
}

#[test]
fn offline_and_live_verdicts_are_equal_on_random_pairs() {
    let live = Live::start();
    let mut pairs = Pairs::new(2026);
    let (mut reasons, mut roles) = (BTreeSet::new(), BTreeSet::new());
    for index in 0..400 {
        let pair = pairs.next(index);
        let expected = live_verdict(&live, &pair.first, &pair.second);
        let (first, second) = (pair.offline(&pair.first), pair.offline(&pair.second));
        let (found, _) = offline(&first, &second, &live.package).expect("prompts");
        assert_eq!(found, expected, "{}: {first} then {second}", pair.edit);
        reasons.insert(expected["stop"]["reason"].as_str().unwrap_or_default().to_owned());
        roles.extend(expected["stop"]["role"].as_str().map(str::to_owned));
    }
    let all = [
        "different_token",
        "disabled_by_request",
        "end_of_cached",
        "end_of_prompt",
        "first_request",
        "rows_requested",
    ];
    assert_eq!(reasons.iter().map(String::as_str).collect::<Vec<_>>(), all);
    let all = ["assistant", "system", "template", "user"];
    assert_eq!(roles.iter().map(String::as_str).collect::<Vec<_>>(), all);
}

#[test]
fn tools_and_their_results_are_part_of_the_prompt() {
    let package = live::package();
    let call = |city: &str, description: &str| {
        json!({
            "system": "Be brief.",
            "tools": [{"name": "weather", "description": description,
                       "input_schema": {"type": "object"}}],
            "messages": [
                {"role": "user", "content": "Will it rain?"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                    {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": city}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "Yes."},
                    {"type": "text", "text": "Then?", "cache_control": {"type": "ephemeral"}},
                ]},
            ],
        })
    };
    let openai = json!({
        "tools": [{"type": "function", "function": {
            "name": "weather", "parameters": {"type": "object"}, "description": "Now"}}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Will it rain?"},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "t1",
                "type": "function",
                "function": {"name": "weather", "arguments": "{\"city\":\"Bern\"}"}}]},
            {"role": "tool", "tool_call_id": "t1", "content": "Yes."},
            {"role": "user", "content": [{"type": "text", "text": "Then?"}]},
        ],
    });
    let (same, [first, second]) =
        offline(&call("Bern", "Now"), &openai, &package).expect("prompts");
    assert_eq!(first.tokens, second.tokens);
    assert_eq!(same["stop"]["reason"], "end_of_prompt");
    let (other, _) =
        offline(&call("Bern", "Now"), &call("Rome", "Now"), &package).expect("prompts");
    assert_eq!(other["stop"]["cached"]["text"], "B");
    assert_eq!(other["stop"]["role"], "template");
    let (tools, _) =
        offline(&call("Bern", "Now"), &call("Bern", "New"), &package).expect("prompts");
    assert_eq!(tools["stop"]["request"]["text"], "e");
}

#[test]
fn what_is_no_prompt_is_refused_by_name() {
    let package = live::package();
    let maker = PromptMaker {
        tokenizer: &package.tokenizer,
        chat_template: package.chat_template.as_ref(),
        date: None,
    };
    let read = |name: &str, text: &str| Prompt::read(name, text.as_bytes(), maker);
    let cases = [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "neither 'messages' nor 'prompt'"),
        (r#"{"prompt": ["a", "b"]}"#, "several prompts"),
        (r#"{"prompt": ""}"#, "empty"),
        (r#"{"prompt": [99999]}"#, "99999"),
        (r#"{"messages": "Hi"}"#, "'messages'"),
        (r#"{"messages": [{"role": "alien", "content": "Hi"}]}"#, "messages[0].role"),
        (r#"{"messages": [{"role": "user", "content": "Hi"}], "cache_salt": 1}"#, "cache_salt"),
        (r#"{"system": 1, "messages": [{"role": "user", "content": "Hi"}]}"#, "'system'"),
        (
            r#"{"system": "", "messages": [{"role": "user", "content": [{"type": "image"}]}]}"#,
            "messages[0].content[0]",
        ),
    ];
    for (text, part) in cases {
        let error = read("a.json", text).expect_err(text);
        assert!(error.message.contains(part), "{text}: {error}");
    }
    // Any other file is a text, unless it is a request.
    for text in ["{", "[1]", "{}", "Hi\n"] {
        assert_eq!(read("a.txt", text).expect(text).shape, doctor::Shape::Text);
    }
    let body = read("a", r#"{"prompt": "Hi"}"#).expect("a body");
    assert_eq!(body.shape, doctor::Shape::OpenaiCompletion);
}
