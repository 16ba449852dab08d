//! What a verdict says of the span that changed: its text, its kind, and the tool it lies in.

use std::path::Path;

use doctor::{Explained, Prompt, PromptMaker};
use package::{ChatTemplate, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Prints a date, declares tools, and prints the calls of tools.
const TEMPLATE: &str = "\
Today is {{ strftime_now('%Y-%m-%d') }}.\n\
{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}\
{% for message in messages %}<{{ message.role }}>{{ message.content }}\
{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}\n\
{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
/// As above, with a line that a variable asks for.
const WITH_STYLE: &str = "{% if style is defined %}Style: {{ style }}.\n{% endif %}";

struct Fixture {
    tokenizer: Tokenizer,
    template: ChatTemplate,
}

impl Fixture {
    fn new() -> Self {
        let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/goldens");
        let tokenizer = Tokenizer::from_directory(&goldens.join("llama-gqa2-biased"));
        let template = format!("{WITH_STYLE}{TEMPLATE}");
        let template = ChatTemplate::new(&template, "", "").expect("a template");
        Self { tokenizer: tokenizer.expect("a tokenizer"), template }
    }

    fn maker<'a>(&'a self, date: &'a str) -> PromptMaker<'a> {
        PromptMaker {
            tokenizer: &self.tokenizer,
            chat_template: Some(&self.template),
            date: Some(date),
            context: None,
            known: None,
        }
    }

    /// The verdict on the second body after the first, each on its date.
    fn why_on(&self, first: (&Value, &str), second: (&Value, &str)) -> Value {
        let (earlier, maker) = (self.maker(first.1), self.maker(second.1));
        let read = |name: &str, body: &Value, maker| {
            Prompt::read(name, body.to_string().as_bytes(), maker).expect("a prompt")
        };
        let (first, second) = (read("a.json", first.0, earlier), read("b.json", second.0, maker));
        let verdict = doctor::why(&first, &second, maker);
        serde_json::to_value(Explained::new(&verdict)).expect("JSON")
    }

    fn why(&self, first: &Value, second: &Value) -> Value {
        let date = "2026-11-30";
        self.why_on((first, date), (second, date))
    }
}

fn chat(system: &str) -> Value {
    let question = json!({"role": "user", "content": "What is a refrain? Be brief, please."});
    json!({"messages": [{"role": "system", "content": system}, question]})
}

fn tool(name: &str, properties: &str) -> Value {
    let properties: Value = serde_json::from_str(properties).expect("JSON");
    json!({"type": "function", "function": {
        "name": name, "description": format!("Looks {name} up."),
        "parameters": {"type": "object", "properties": properties, "required": []},
    }})
}

fn with_tools(tools: &[Value]) -> Value {
    let mut body = chat("Be brief.");
    body["tools"] = json!(tools);
    body
}

const UUIDS: [&str; 2] =
    ["6fa459ea-ee8a-4ca4-894e-db77e160355e", "16fd2706-8baf-433b-82eb-8c7fada847da"];
const IDS: [&str; 2] = ["req_8f3a91c2d4", "req_77e0aa01bc"];
const HEX: [&str; 2] = ["5f2b9c0d1e3a4b6c8d7e9f01", "507f1f77bcf86cd799439011"];
/// What stands around a change, both words, and the change's kind.
const CHANGES: &[(&str, [&str; 2], &str)] = &[
    ("Today's date is {}.\nYou are", ["2026-01-05", "2026-01-06"], "date"),
    ("Today's date is {}.\nYou are", ["2026-01-05", "2025-12-31"], "date"),
    ("Date: {}\nYou are", ["5/1/2026", "6/1/2026"], "date"),
    ("Date: {}\nYou are", ["05.01.2026", "06.01.2026"], "date"),
    ("It is Monday, January {}, 2026. You are", ["5", "6"], "date"),
    ("It is {}, 2026. You are", ["January 31", "February 1"], "date"),
    ("It is {}, a workday. You are", ["Monday", "Tuesday"], "date"),
    ("It is the {} January 2026. You are", ["5th", "6th"], "date"),
    ("今天是2026年1月{}日。You are", ["5", "16"], "date"),
    ("Current time: {}\nYou are", ["2026-01-05T10:32:11Z", "2026-01-06T09:00:00Z"], "date"),
    ("Log of {} follows here", ["20260105", "20260212"], "date"),
    ("Current time: {} AM\nYou are", ["10:32", "10:41"], "time"),
    ("Current time: {}\nYou are", ["10:32 AM", "10:32 PM"], "time"),
    ("Current time: {} o'clock\nYou are", ["9:59", "10:00"], "time"),
    ("Now: {}\nYou are", ["2026-01-05T10:32:11Z", "2026-01-05T10:33:40Z"], "time"),
    ("Now: {}\nYou are", ["20260105T103211Z", "20260105T103340Z"], "time"),
    ("Now: 2026-01-05 {}\nYou are", ["10:32:11.123", "10:32:12.007"], "time"),
    ("It is {} now. You are", ["10 am", "11 am"], "time"),
    ("Epoch {} in seconds", ["1767607931", "1767607999"], "time"),
    ("Epoch {} in milliseconds", ["1767607931123", "1767607931987"], "time"),
    ("Session {} of a user", UUIDS, "uuid"),
    ("Request {} of a user", IDS, "random_id"),
    ("Request <{}> of a user", ["call_AbCdEfGhIjKlMn", "call_ZyXwVuTsRqPoNm"], "random_id"),
    ("Document {} follows here", HEX, "random_id"),
    ("This is message {} of 50 today", ["41", "42"], "counter"),
    ("This is message {} of 50 today", ["9", "10"], "counter"),
    ("This is message {} of 50 today", ["1", "11"], "counter"),
    ("You have {} credits left", ["1,204", "1,187"], "counter"),
    ("You are{}a helpful agent", [" ", "  "], "white_space"),
    ("You are helpful.{}Be brief now.", ["\r\n", "\n"], "white_space"),
    ("You are helpful.{}Be brief now.", ["\n\n", "\n"], "white_space"),
    ("You are a {} agent, and brief", ["helpful", "careful"], "other"),
    ("You serve {} today, as always", ["Alice", "Bob"], "other"),
    ("You may {} or not, as always", ["March", "August"], "other"),
    ("Use getUserName or {} here", ["getUserMail", "setUserMail"], "other"),
];

#[test]
fn a_change_in_a_message_is_told_by_its_kind() {
    let fixture = Fixture::new();
    for (around, words, kind) in CHANGES {
        let [first, second] = words.map(|word| chat(&around.replace("{}", word)));
        for [first, second] in [[&first, &second], [&second, &first]] {
            let verdict = fixture.why(first, second);
            let stop = &verdict["stop"];
            assert_eq!(stop["kind"], *kind, "{around}: {words:?}: {verdict}");
            assert_eq!((&stop["message"], &stop["role"]), (&json!(0), &json!("system")));
            assert!(stop.get("tool").is_none() && stop.get("path").is_none());
            let hint = match *kind {
                "date" | "time" | "counter" => "number",
                "uuid" => "random_id",
                "other" => "order",
                kind => kind,
            };
            assert_eq!(verdict["hint"], hint, "{around}: {words:?}");
            assert!(verdict["advice"].as_str().is_some_and(|advice| !advice.is_empty()));
        }
        if !["white_space", "other"].contains(kind) {
            // The span is whole words, of which a case may have more than differ.
            let stop = &fixture.why(&first, &second)["stop"];
            for (side, word) in [("cached_text", words[0]), ("request_text", words[1])] {
                let text = stop[side].as_str().expect("a text");
                assert!(word.contains(text) || text.contains(word), "{text} is not {word}");
            }
        }
    }
}

#[test]
fn a_change_in_a_tool_is_told_by_the_tool_and_the_path() {
    let fixture = Fixture::new();
    let city =
        r#"{"city": {"type": "string", "description": "Where"}, "unit": {"type": "string"}}"#;
    let reordered =
        r#"{"unit": {"type": "string"}, "city": {"type": "string", "description": "Where"}}"#;
    let inner =
        r#"{"city": {"description": "Where", "type": "string"}, "unit": {"type": "string"}}"#;
    let dated = city.replace("Where", "Where on 2026-01-05");
    let [weather, clock] = [tool("weather", city), tool("clock", "{}")];
    let of = |tools: &[&Value]| {
        with_tools(&tools.iter().map(|tool| (*tool).clone()).collect::<Vec<_>>())
    };
    let described = {
        let mut tool = weather.clone();
        tool["function"]["description"] = json!("Looks the weather up ]], {now}.");
        tool
    };
    let first = of(&[&clock, &weather]);
    let path = "parameters.properties";
    let cases = [
        (of(&[&weather, &clock]), "reordered_tools", "weather", "name"),
        (of(&[&clock, &tool("weather", reordered)]), "reordered_keys", "weather", path),
        (of(&[&clock, &tool("weather", inner)]), "reordered_keys", "weather", path),
        (of(&[&clock, &tool("weather", &dated)]), "other", "weather", path),
        (of(&[&clock, &described]), "other", "weather", "description"),
        (of(&[&clock, &tool("climate", city)]), "other", "climate", "name"),
        (of(&[&tool("clock", city), &weather]), "other", "clock", path),
    ];
    for (second, kind, tool, path) in cases {
        let verdict = fixture.why(&first, &second);
        let stop = &verdict["stop"];
        assert_eq!(stop["role"], "template", "{verdict}");
        assert_eq!((&stop["kind"], &stop["tool"]), (&json!(kind), &json!(tool)), "{verdict}");
        let found = stop["path"].as_str().expect("a path");
        assert!(found.starts_with(path), "{found} is not below {path}");
    }
    // A date that changes in a definition is not the template's.
    let dates = ["5", "6"].map(|day| {
        let properties = city.replace("Where", &format!("Where on 2026-01-0{day}, or then"));
        of(&[&clock, &tool("weather", &properties)])
    });
    let stop = &fixture.why(&dates[0], &dates[1])["stop"];
    assert_eq!((&stop["kind"], &stop["tool"]), (&json!("date"), &json!("weather")));
    assert_eq!(stop["path"], "parameters.properties.city.description");
    assert_eq!(stop["cached_text"], "2026-01-05");
}

#[test]
fn a_change_in_a_calls_arguments_is_told_by_the_tool_and_the_path() {
    let fixture = Fixture::new();
    let body = |arguments: Value| {
        let function = json!({"name": "weather", "arguments": arguments});
        let call = json!({"id": "call_1", "type": "function", "function": function});
        json!({"messages": [
            {"role": "user", "content": "Will it rain?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "user", "content": "And then, and after that?"},
        ]})
    };
    let first = body(json!({"days": [1, 2], "city": "Bern"}));
    for (arguments, kind, path) in [
        (json!({"days": [1, 2], "city": "Rome"}), "other", "arguments.city"),
        (json!({"days": [1, 3], "city": "Bern"}), "counter", "arguments.days[1]"),
        (json!({"city": "Bern", "days": [1, 2]}), "reordered_keys", "arguments.city"),
    ] {
        let stop = &fixture.why(&first, &body(arguments))["stop"];
        assert_eq!(
            (&stop["kind"], &stop["tool"], &stop["path"]),
            (&json!(kind), &json!("weather"), &json!(path)),
            "{stop}"
        );
    }
}

#[test]
fn what_the_template_adds_is_told_from_what_messages_say() {
    let fixture = Fixture::new();
    let body = chat("Be brief.");
    let verdict = fixture.why_on((&body, "2026-11-29"), (&body, "2026-11-30"));
    assert_eq!(
        (&verdict["stop"]["kind"], &verdict["hint"]),
        (&json!("template_date"), &json!("template_date"))
    );
    assert_eq!(verdict["stop"]["request_text"], "2026-11-30");
    let mut other = body.clone();
    other["messages"][1]["role"] = json!("assistant");
    let verdict = fixture.why(&body, &other);
    assert_eq!(
        (&verdict["stop"]["kind"], &verdict["hint"]),
        (&json!("structure"), &json!("structure"))
    );
    // JSON in a message is a message's.
    let [first, second] =
        [r#"{"name": "x", "input": 1}"#, r#"{"input": 1, "name": "x"}"#].map(chat);
    let stop = &fixture.why(&first, &second)["stop"];
    assert_eq!((&stop["kind"], stop.get("tool")), (&json!("reordered_keys"), None));
}

/// A conversation of these texts, a system message and then user and assistant in turn.
fn conversation(texts: &[&str]) -> Value {
    let message = |(index, text): (usize, &&str)| {
        let role = ["system", "user", "assistant"][if index == 0 { 0 } else { 2 - index % 2 }];
        json!({"role": role, "content": text})
    };
    json!({"messages": texts.iter().enumerate().map(message).collect::<Vec<_>>()})
}

#[test]
fn messages_that_changed_as_a_whole_are_told_by_their_number() {
    const TEXTS: [&str; 7] = [
        "You are brief and kind.",
        "What is a refrain?",
        "A part of a song that comes back.",
        "And a chorus, as it were?",
        "Much the same, sung by all.",
        "Which song has a good one?",
        "Many a folk song.",
    ];
    let fixture = Fixture::new();
    let all = conversation(&TEXTS);
    let with = |number: usize, text: &str| {
        let mut texts = TEXTS;
        texts[number] = text;
        conversation(&texts)
    };
    let without = |gone: std::ops::Range<usize>| {
        let mut body = all.clone();
        body["messages"].as_array_mut().expect("messages").drain(gone);
        body
    };
    let shorter = with(3, "And a chorus");
    let cases = [
        (&all, &shorter, "message_shortened", 3, json!([12, 12]), Value::Null),
        (&shorter, &all, "message_lengthened", 3, json!([12, 25]), Value::Null),
        (&without(3..5), &all, "messages_inserted", 3, Value::Null, json!(2)),
        (&without(1..5), &all, "messages_inserted", 1, Value::Null, json!(4)),
        (&without(2..3), &all, "messages_inserted", 2, Value::Null, json!(1)),
        // What ends a message of this template may stand in messages too, and counts none.
        (&all, &without(3..5), "messages_removed", 3, Value::Null, Value::Null),
        (&all, &without(1..3), "messages_removed", 1, Value::Null, Value::Null),
    ];
    for (first, second, kind, message, chars, messages) in cases {
        let verdict = fixture.why(first, second);
        let stop = &verdict["stop"];
        assert_eq!((&stop["kind"], &stop["message"]), (&json!(kind), &json!(message)), "{verdict}");
        assert_eq!((&stop["chars"], &stop["messages"]), (&chars, &messages), "{kind}: {verdict}");
        assert_eq!(stop["role"], second["messages"][message]["role"]);
        let (held, asked) = (&stop["cached_text"], &stop["request_text"]);
        match kind {
            "message_shortened" => assert_eq!((held, asked), (&json!(", as it were?"), &json!(""))),
            "message_lengthened" => {
                assert_eq!((held, asked), (&json!(""), &json!(", as it were?")));
            }
            "messages_inserted" => {
                let text = asked.as_str().expect("a text");
                assert!(text.starts_with(TEXTS[message]) && held == "", "{stop}");
            }
            _ => assert!(held.as_str().is_some_and(|text| text.contains(TEXTS[message]))),
        }
        assert!(verdict["advice"].is_string(), "{verdict}");
    }
    // One without content among those that were put in is one of them.
    let mut more = all.clone();
    let new = [("assistant", "First."), ("user", ""), ("assistant", "Then.")];
    let new = new.map(|(role, content)| json!({"role": role, "content": content}));
    more["messages"].as_array_mut().expect("messages").splice(3..3, new);
    let stop = &fixture.why(&all, &more)["stop"];
    assert_eq!((&stop["kind"], &stop["message"]), (&json!("messages_inserted"), &json!(3)));
    assert_eq!(stop["messages"], 3, "{stop}");
    // Other words are other words.
    for (number, text) in [(1, "What is a verse?"), (3, "So what of a chorus?")] {
        let stop = &fixture.why(&all, &with(number, text))["stop"];
        assert_eq!((&stop["kind"], &stop["message"]), (&json!("other"), &json!(number)), "{stop}");
    }
}

#[test]
fn a_call_that_was_put_in_with_its_result_is_counted() {
    let fixture = Fixture::new();
    let all = conversation(&["Be kind.", "And a chorus?", "Much the same.", "Which song?"]);
    let function = json!({"name": "weather", "arguments": {"city": "Bern"}});
    let call = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "call_1", "type": "function", "function": function},
    ]});
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": "It rains there."});
    let mut more = all.clone();
    more["messages"].as_array_mut().expect("messages").splice(2..2, [call, result]);
    let stop = &fixture.why(&all, &more)["stop"];
    assert_eq!((&stop["kind"], &stop["message"]), (&json!("messages_inserted"), &json!(2)));
    assert_eq!((&stop["messages"], &stop["role"]), (&json!(2), &json!("assistant")), "{stop}");
}

#[test]
fn how_much_is_to_be_reasoned_is_part_of_the_prompt() {
    let fixture = Fixture::new();
    let template = format!("{TEMPLATE}{{% if enable_thinking %}}<think>{{% endif %}}");
    let template = ChatTemplate::new(&template, "", "").expect("a template");
    let maker = PromptMaker { chat_template: Some(&template), ..fixture.maker("2026-11-30") };
    let tokens = |body: Value| {
        let prompt = Prompt::read("a.json", body.to_string().as_bytes(), maker);
        prompt.expect("a prompt").tokens
    };
    let messages = || json!([{"role": "user", "content": "Why?"}]);
    let thinking = tokens(json!({
        "messages": messages(), "chat_template_kwargs": {"enable_thinking": true},
    }));
    let plain = tokens(json!({"messages": messages()}));
    assert_ne!(thinking, plain);
    for (effort, expected) in [("high", &thinking), ("none", &plain)] {
        let chat = json!({"messages": messages(), "reasoning_effort": effort});
        let response = json!({"input": "Why?", "reasoning": {"effort": effort}});
        assert_eq!(&tokens(chat), expected, "{effort}");
        assert_eq!(&tokens(response), expected, "{effort}");
    }
    // What the conversation's own variables say is stronger.
    let own = json!({"enable_thinking": false});
    let body =
        json!({"input": "Why?", "reasoning": {"effort": "high"}, "chat_template_kwargs": own});
    assert_eq!(tokens(body), plain);
}

#[test]
fn a_request_for_embeddings_is_no_prompt() {
    let fixture = Fixture::new();
    let read = |body: Value| {
        Prompt::read("a.json", body.to_string().as_bytes(), fixture.maker("2026-11-30"))
    };
    for body in [
        json!({"input": ["a", "b"], "model": "m"}),
        json!({"input": [1, 2], "model": "m"}),
        json!({"input": [[1], [2]], "model": "m"}),
        json!({"input": "a", "encoding_format": "base64"}),
        json!({"input": "a", "dimensions": 3}),
    ] {
        let error = read(body.clone()).expect_err("no prompt");
        assert!(error.message.contains("embeddings"), "{body}: {}", error.message);
    }
    let item = json!({"role": "user", "content": "a"});
    for body in [json!({"input": "a"}), json!({"input": [item]})] {
        assert!(read(body.clone()).is_ok(), "{body}");
    }
}

#[test]
fn a_verdict_without_a_difference_has_none() {
    let fixture = Fixture::new();
    let body = chat("Be brief.");
    let verdict = fixture.why(&body, &body);
    assert!(verdict["stop"].get("kind").is_none());
    assert_eq!((&verdict["hint"], &verdict["advice"]), (&Value::Null, &Value::Null));
}

#[test]
fn the_same_messages_with_other_variables_are_another_rendering() {
    let fixture = Fixture::new();
    let styled = |style: &str, system: &str| {
        let mut body = chat(system);
        body["chat_template_kwargs"] = json!({"style": style});
        body
    };
    let verdict = fixture.why(&styled("short", "Be kind."), &styled("long", "Be kind."));
    let stop = &verdict["stop"];
    assert_eq!((&stop["reason"], &stop["role"]), (&json!("template_changed"), &json!("template")));
    assert_eq!((&stop["cached_text"], &stop["request_text"]), (&json!("short"), &json!("long")));
    let lost = stop["held_tokens"].as_u64().expect("known") - stop["at"].as_u64().expect("known");
    assert!(lost > 40, "{stop}");
    assert_eq!(verdict["hint"], "structure");
    // From the first token on.
    let verdict = fixture.why(&chat("Be kind."), &styled("long", "Be kind."));
    let stop = &verdict["stop"];
    assert_eq!((&stop["reason"], &stop["at"]), (&json!("template_changed"), &json!(0)));
    // Other messages are another matter, also where more of another rendering is held.
    let verdict = fixture.why(&styled("long", "Be kind."), &chat("Hush."));
    assert_eq!(verdict["stop"]["reason"], "first_request");
    let verdict = fixture.why(&chat("Be kind."), &chat("Be brief."));
    assert_eq!(verdict["stop"]["reason"], "different_token");
    let verdict = fixture.why(&styled("long", "Be kind."), &styled("long", "Be kind."));
    assert_eq!(verdict["stop"]["reason"], "end_of_prompt");
}

#[test]
fn the_same_text_in_other_tokens_is_told_from_another_text() {
    let fixture = Fixture::new();
    let encode = |text: &str| fixture.tokenizer.encode(text, false).expect("encodes").ids;
    let text = "In the beginning was the word, and the word was a token.";
    let whole = encode(text);
    // Letter by letter.
    let split: Vec<u32> = text.chars().flat_map(|letter| encode(&letter.to_string())).collect();
    assert_ne!(whole, split);
    let stop = &fixture.why(&json!({"prompt": split}), &json!({"prompt": whole}))["stop"];
    assert_eq!(stop["reason"], "retokenized");
    assert_eq!(stop["held_tokens"], whole.len());
    let other = encode(&text.replace("token", "letter"));
    let stop = &fixture.why(&json!({"prompt": whole}), &json!({"prompt": other}))["stop"];
    assert_eq!(stop["reason"], "different_token");
}

#[test]
fn a_long_span_is_cut() {
    let fixture = Fixture::new();
    let [first, second] = ["a1", "b2"].map(|letter| chat(&letter.repeat(4_000)));
    let stop = &fixture.why(&first, &second)["stop"];
    for side in ["cached_text", "request_text"] {
        assert_eq!(stop[side].as_str().expect("a text").chars().count(), 201);
    }
}

proptest! {
    #[test]
    fn any_two_prompts_are_explained(
        before in "\\PC{0,60}", held in "\\PC{0,80}", asked in "\\PC{0,80}",
        after in "\\PC{0,60}", json in any::<bool>(),
    ) {
        let fixture = Fixture::new();
        let body = |middle: &str| match json {
            true => with_tools(&[json!({"type": "function", "function": {
                "name": "f", "description": format!("{before}{middle}{after}"),
            }})]),
            false => chat(&format!("{before}{middle}{after}")),
        };
        let verdict = fixture.why(&body(&held), &body(&asked));
        let stop = &verdict["stop"];
        let differs = stop["reason"] == "different_token";
        prop_assert_eq!(differs, stop.get("kind").is_some());
        if differs && held != asked {
            prop_assert_ne!(&stop["cached_text"], &stop["request_text"]);
            prop_assert_eq!(json, stop["tool"] == "f");
        }
    }

    #[test]
    fn an_order_is_all_that_changed(
        keys in prop::collection::btree_set("[a-z]{1,8}", 2..8),
        seed in any::<prop::sample::Index>(),
    ) {
        let fixture = Fixture::new();
        let keys: Vec<String> = keys.into_iter().collect();
        let mut turned = keys.clone();
        turned.rotate_left(1 + seed.index(keys.len() - 1));
        let parameters = |keys: &[String]| {
            let all = keys.iter().map(|key| (key.clone(), json!({"type": "string"})));
            Value::Object(all.collect()).to_string()
        };
        let of_keys = [&keys, &turned].map(|keys| with_tools(&[tool("f", &parameters(keys))]));
        let stop = &fixture.why(&of_keys[0], &of_keys[1])["stop"];
        prop_assert_eq!(&stop["kind"], "reordered_keys");
        let of_tools = [&keys, &turned].map(|names| {
            with_tools(&names.iter().map(|name| tool(name, "{}")).collect::<Vec<_>>())
        });
        let stop = &fixture.why(&of_tools[0], &of_tools[1])["stop"];
        prop_assert_eq!(&stop["kind"], "reordered_tools");
    }
}
