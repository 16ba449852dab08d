//! What is said offline is what a server says: verdicts of random pairs of requests, which differ
//! in every place, field by field.

mod live;
mod pairs;
mod random;
mod tools;

use std::collections::BTreeSet;

use doctor::{Prompt, PromptError, PromptMaker};
use package::Package;
use serde_json::{Value, json};
use server::Reception;

use live::{CONTEXT, Live};
use pairs::{EDITS, Given, Pairs};

fn maker(package: &Package) -> PromptMaker<'_> {
    PromptMaker {
        tokenizer: &package.tokenizer,
        chat_template: package.chat_template.as_ref(),
        date: Some(live::DATE),
        context: Some(package.config.context),
        known: None,
    }
}

/// The offline verdict on bodies, as JSON.
fn offline(
    first: &Value,
    second: &Value,
    package: &Package,
) -> Result<(Value, [Prompt; 2]), PromptError> {
    let (first, second) = (first.to_string(), second.to_string());
    offline_files(("json", first), ("json", second), package)
}

/// The offline verdict on files, each given by the ending of its name and its contents.
fn offline_files(
    first: (&str, String),
    second: (&str, String),
    package: &Package,
) -> Result<(Value, [Prompt; 2]), PromptError> {
    let maker = maker(package);
    let read = |name: &str, (ending, text): (&str, String)| {
        Prompt::read(&format!("{name}.{ending}"), text.as_bytes(), maker)
    };
    let (first, second) = (read("a", first)?, read("b", second)?);
    let verdict = doctor::why(&first, &second, maker);
    let explained = doctor::Explained::new(&verdict);
    Ok((serde_json::to_value(explained).expect("a verdict is JSON"), [first, second]))
}

/// The live verdict on the second request, with what only a server knows taken out, and the first
/// request's id as its file's name.
fn live_verdict(live: &Live, first: &Value, second: &Value, name: &str) -> Value {
    let id = live.ask(first)["id"].clone();
    let answer = live.ask(second);
    assert_eq!(answer["refrain"]["ignored"], json!([]), "{second}");
    let mut verdict = answer["refrain"]["verdict"].clone();
    verdict["stop"].as_object_mut().expect("a stop").remove("since");
    if verdict["compared_with"] == id {
        verdict["compared_with"] = json!(name);
    }
    verdict
}

#[test]
fn offline_and_live_verdicts_are_equal_on_random_pairs() {
    let live = Live::start();
    let mut pairs = Pairs::new(2026);
    let (mut reasons, mut roles) = (BTreeSet::new(), BTreeSet::new());
    let (mut edits, mut changes, mut shapes) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for index in 0..16 * EDITS.len() {
        let pair = pairs.next(index);
        let (first, second) = (pair.offline(&pair.first), pair.offline(&pair.second));
        let name = format!("a.{}", first.0);
        let expected = live_verdict(&live, &pair.first, &pair.second, &name);
        let said = format!("{}: {} then {}", pair.edit, first.1, second.1);
        let (found, [_, prompt]) = offline_files(first, second, &live.package).expect("prompts");
        assert_eq!(found, expected, "{said}");
        check_place(pair.edit, &expected, &said);
        let reason = expected["stop"]["reason"].as_str().unwrap_or_default();
        reasons.insert(reason.to_owned());
        roles.extend(expected["stop"]["role"].as_str().map(str::to_owned));
        edits.insert(pair.edit);
        if ["different_token", "template_changed"].contains(&reason) {
            changes.insert(pair.edit);
        }
        shapes.insert((pair.given, format!("{:?}", prompt.shape)));
    }
    let all = [
        "different_token",
        "disabled_by_request",
        "end_of_cached",
        "end_of_prompt",
        "first_request",
        "rows_requested",
        "template_changed",
    ];
    assert_eq!(reasons.iter().map(String::as_str).collect::<Vec<_>>(), all);
    let all = ["assistant", "system", "template", "user"];
    assert_eq!(roles.iter().map(String::as_str).collect::<Vec<_>>(), all);
    assert_eq!(edits, BTreeSet::from(EDITS));
    // Some change nothing, take the cache away, only go on, or share no token.
    let unchanged = [
        "same",
        "salt",
        "not cached",
        "no cache",
        "null",
        "rows",
        "ids",
        "appended",
        "same text",
        "longer text",
        "other text",
    ];
    let changed = BTreeSet::from(EDITS).into_iter().filter(|edit| !unchanged.contains(edit));
    let missing: Vec<_> = changed.filter(|edit| !changes.contains(edit)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "edits that never changed a token that was held");
    let given: BTreeSet<_> = shapes.iter().map(|(given, shape)| (*given, shape.as_str())).collect();
    for shape in [
        (Given::Openai, "OpenaiChat"),
        (Given::Openai, "OpenaiCompletion"),
        (Given::Anthropic, "AnthropicMessages"),
        (Given::Text, "Text"),
    ] {
        assert!(given.contains(&shape), "{given:?}");
    }
}

/// Of an edit whose place is known, the verdict must name it.
fn check_place(edit: &str, verdict: &Value, said: &str) {
    let stop = &verdict["stop"];
    let role = match edit {
        "second" | "day" | "white space in system" => "system",
        edit if edit.contains("tool") => "template",
        "style" => "template",
        _ => return,
    };
    // A variable of the template renders the same messages in another way.
    let reason = if edit == "style" { "template_changed" } else { "different_token" };
    assert_eq!(stop["reason"], reason, "{said}: {verdict}");
    assert_eq!(stop["role"], role, "{said}: {verdict}");
}

/// What a server says of a prompt that does not fit is what is said offline.
#[test]
fn a_prompt_longer_than_the_context_is_refused_in_the_same_words() {
    let live = Live::start();
    let fits = json!({"prompt": vec![1; CONTEXT - 1], "max_tokens": 1});
    let (verdict, _) = offline(&fits, &fits, &live.package).expect("prompts");
    assert_eq!(verdict["prompt_tokens"], CONTEXT - 1);
    let alone = json!({"prompt": vec![1; CONTEXT], "max_tokens": 0, "echo": true, "logprobs": 0});
    live.ask(&alone);
    offline(&alone, &alone, &live.package).expect("a prompt that wants no answer");
    let say = |content: String| json!({"messages": [{"role": "user", "content": content}]});
    let cases = [
        (json!({"prompt": vec![1; CONTEXT]}), "too long: 4096 tokens > 4095 maximum"),
        (json!({"prompt": "tick tock ".repeat(4 * CONTEXT)}), "too long: at least"),
        (say("tick tock ".repeat(4 * CONTEXT)), "too long: at least"),
        (say("z".repeat(CONTEXT)), "maximum context length is 4096"),
    ];
    for (body, part) in cases {
        let refusal = live.refusal(&body);
        assert_eq!(refusal["code"], "context_length_exceeded");
        let error = offline(&fits, &body, &live.package).expect_err(part);
        assert_eq!(refusal["message"], error.message);
        assert_eq!(refusal["param"], error.field);
        assert!(error.message.contains(part), "{error}");
        offline(&body, &fits, &live.package).expect_err("the first is too long");
    }
    let error = Prompt::read("a.txt", "tick ".repeat(CONTEXT * 8).as_bytes(), maker(&live.package));
    assert!(error.is_err_and(|error| error.too_long));
}

#[test]
fn tools_are_part_of_the_prompt_however_they_may_be_called() {
    let live = Live::start();
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {}}});
    let mut body = json!({
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [tool], "tool_choice": "none", "max_tokens": 1,
    });
    let with = live.ask(&body);
    assert_eq!(with["refrain"]["ignored"], json!([]));
    assert_eq!(with["choices"][0]["message"]["role"], "assistant");
    for choice in [json!(null), json!("auto")] {
        body["tool_choice"] = choice;
        let called = live.ask(&body);
        assert_eq!(called["usage"]["prompt_tokens"], with["usage"]["prompt_tokens"]);
    }
    let nameless = json!({"type": "function"});
    let unknown = json!({"type": "function", "function": {"name": "clock"}});
    for choice in [nameless, unknown, json!("sometimes")] {
        body["tool_choice"] = choice;
        assert_eq!(live.refusal(&body)["param"], "tool_choice");
    }
    body["tool_choice"] = json!("none");
    body["tools"][0]["function"]["name"] = json!("no spaces");
    assert_eq!(live.refusal(&body)["param"], "tools[0].function.name");
    body["tools"] = json!([]);
    let without = live.ask(&body);
    let tokens = |answer: &Value| answer["usage"]["prompt_tokens"].as_u64();
    assert!(tokens(&with) > tokens(&without));
}

/// What is said of a body without a server is what a server says: what it ignores, and why it
/// refuses it.
#[test]
fn what_is_ignored_and_what_is_refused_is_said_offline_too() {
    let live = Live::start();
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {}}});
    let chat = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1});
    let text = json!({"prompt": "Hi", "max_tokens": 1});
    let fields = [
        json!({}),
        json!({"colour": "red", "seed": 1, "user": null}),
        json!({"tools": [tool], "tool_choice": "none"}),
        json!({"tools": [tool]}),
        json!({"tools": [], "tool_choice": "required"}),
        json!({"response_format": {"type": "xml"}}),
        json!({"temperature": "hot"}),
        json!({"suffix": "!"}),
    ];
    let (mut refused, mut ignored) = (0, 0);
    for body in [chat, text] {
        for fields in &fields {
            let mut body = body.clone();
            let all = body.as_object_mut().expect("an object");
            all.extend(fields.as_object().expect("an object").clone());
            let prompt = Prompt::read("a.json", body.to_string().as_bytes(), maker(&live.package));
            let shape = prompt.expect("a prompt").shape;
            let said = Reception::of(shape, body.as_object().expect("an object").clone(), true);
            match said.refused {
                Some(message) => {
                    assert_eq!(live.refusal(&body)["message"], message);
                    refused += 1;
                }
                None => {
                    assert_eq!(live.ask(&body)["refrain"]["ignored"], json!(said.ignored));
                    ignored += said.ignored.len();
                }
            }
        }
    }
    assert!(refused > 5 && ignored > 1, "{refused} refused, {ignored} ignored");
}

#[test]
fn tools_that_a_template_does_not_read_are_ignored_in_every_kind_of_body() {
    let ignored = |shape, body: Value, reads| {
        let body = body.as_object().expect("an object").clone();
        Reception::of(shape, body, reads).ignored
    };
    let openai = json!({"type": "function", "function": {"name": "f"}});
    let chat = |choice: &str| {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        json!({"messages": messages, "tools": [openai], "tool_choice": choice})
    };
    let tools = ["tools"];
    let shape = doctor::Shape::OpenaiChat;
    assert_eq!(ignored(shape, chat("none"), false), tools);
    assert!(ignored(shape, chat("none"), true).is_empty());
    // Where they may be called, they are told as text.
    assert!(ignored(shape, chat("auto"), false).is_empty());
    let mut anthropic = json!({
        "messages": [], "tools": [{"name": "f", "input_schema": {}}],
        "tool_choice": {"type": "none"},
    });
    let shape = doctor::Shape::AnthropicMessages;
    assert_eq!(ignored(shape, anthropic.clone(), false), tools);
    assert!(ignored(shape, anthropic.clone(), true).is_empty());
    anthropic["tool_choice"] = json!({"type": "auto"});
    assert!(ignored(shape, anthropic, false).is_empty());
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
            "name": "weather", "description": "Now", "parameters": {"type": "object"}}}],
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
    let maker = maker(&package);
    let read = |name: &str, text: &str| Prompt::read(name, text.as_bytes(), maker);
    let cases = [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "neither 'messages' nor 'prompt'"),
        (r#"{"prompt": ["a", "b"]}"#, "several prompts"),
        (r#"{"prompt": ""}"#, "empty"),
        (r#"{"prompt": [99999]}"#, "99999"),
        (r#"{"messages": "Hi"}"#, "'messages'"),
        (r#"{"input": [{"type": "mcp_call"}]}"#, "'input[0]'"),
        (r#"{"input": "Hi", "previous_response_id": "resp_1"}"#, "only its server has"),
        (r#"{"input": "Hi", "tools": [{"type": "web_search"}]}"#, "'tools[0].type'"),
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
    let body = read("a", r#"{"input": "Hi", "instructions": "Be brief."}"#).expect("a body");
    assert_eq!(body.shape, doctor::Shape::OpenaiResponse);
    let chat = r#"{"messages": [{"role": "system", "content": "Be brief."},
                                {"role": "user", "content": "Hi"}]}"#;
    assert_eq!(read("a", chat).expect("a body").tokens, body.tokens);
}
