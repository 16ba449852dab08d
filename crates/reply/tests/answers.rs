//! Answers as models' documentation shows them, and what every answer must keep.

use proptest::prelude::*;
use reply::{Call, Format, Part, Reader, Reply, Tools};
use serde_json::{Value, json};

/// A text of each format's template that shows the format.
const SIGNS: [(&str, &str); 14] = [
    ("hermes", "<tool_call></think>"),
    ("glm", "<tool_call><arg_key></think>"),
    ("llama", "<|python_tag|></think>"),
    ("llama", "<|start_header_id|>\"parameters\""),
    ("json", "</think>"),
    ("mistral", "[TOOL_CALLS][/THINK]"),
    ("mistral-args", "[TOOL_CALLS][ARGS][/THINK]"),
    ("gemma", "<start_of_turn>"),
    ("cohere", "<|START_ACTION|><|END_THINKING|>"),
    ("command-r", "Action: tool_name"),
    ("deepseek", "<｜tool▁call▁begin｜></think>"),
    ("kimi", "<|tool_call_begin|></think>"),
    ("python", "<|tool_call_start|><|thought_end|>"),
    ("firefunction", "<functioncall>"),
];

fn format(name: &str) -> Format {
    let (_, sign) = SIGNS.iter().find(|(one, _)| *one == name).expect("a format");
    Format::of(sign)
}

fn tools() -> Tools {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer"});
    let weather = json!({"type": "object", "properties": {"city": text, "days": number}});
    let write = json!({"properties": {"path": text, "content": text, "mode": {}}});
    [("get_weather", &weather), ("write", &write), ("now", &Value::Null)].into_iter().collect()
}

/// Reads an answer in pieces, and checks that calls come one after the other.
fn read<'a>(reader: Reader, pieces: impl IntoIterator<Item = &'a str>) -> Reply {
    let mut reader = reader;
    let mut parts: Vec<Part> = Vec::new();
    for piece in pieces {
        parts.extend(reader.push(piece));
    }
    parts.extend(reader.finish());
    let mut calls = 0;
    let mut open = false;
    for part in &parts {
        match part {
            Part::Reasoning(text) | Part::Text(text) => {
                assert!(!text.is_empty());
                open = false;
            }
            Part::CallStart { index, name } => {
                assert!(*index == calls && !name.is_empty());
                (calls, open) = (calls + 1, true);
            }
            Part::CallArguments { index, fragment } => {
                assert!(open && index + 1 == calls && !fragment.is_empty());
            }
            Part::CallEnd { index } => {
                assert!(open && index + 1 == calls);
                open = false;
            }
        }
    }
    let mut reply = Reply::default();
    reply.extend(parts);
    reply
}

fn read_whole(format: Format, answer: &str) -> Reply {
    let whole = read(Reader::new(format, tools(), false), [answer]);
    let characters = answer.char_indices().map(|(at, c)| &answer[at..at + c.len_utf8()]);
    let bit_by_bit = read(Reader::new(format, tools(), false), characters);
    assert_eq!(whole, bit_by_bit, "{answer}");
    whole
}

fn calls(reply: &Reply) -> Vec<(&str, Value)> {
    let arguments = |call: &Call| {
        assert!(call.whole, "{call:?}");
        serde_json::from_str(&call.arguments).unwrap_or_else(|_| panic!("{call:?}"))
    };
    reply.calls.iter().map(|call| (call.name.as_str(), arguments(call))).collect()
}

/// The same two calls in every way that the formats' documentation and templates have.
const ANSWERS: [(&str, &str); 23] = [
    (
        "hermes",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln\", \
            \"days\": 3}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n\
            </tool_call>",
    ),
    (
        "hermes",
        "<tool_call>\n{ \"arguments\": {\"city\": \"Köln\", \"days\": 3}, \"name\": \
            \"get_weather\"}\n</tool_call> { \"arguments\": {}, \"name\": \"now\"}\n</tool_call> ",
    ),
    (
        "hermes",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nKöln\n</parameter>\n\
            <parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n\
            <function=now>\n</function>\n</tool_call>",
    ),
    (
        "hermes",
        "<tool_call>{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\": \
            \\\"Köln\\\", \\\"days\\\": 3}\"}</tool_call><tool_call>{\"name\":\"now\"}\
            </tool_call>",
    ),
    (
        "glm",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Köln</arg_value>\n\
            <arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call><tool_call>now\
            </tool_call>",
    ),
    (
        "llama",
        "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Köln\", \"days\": 3}}; \
            {\"name\": \"now\", \"parameters\": {}}",
    ),
    (
        "llama",
        "<|python_tag|>{\"type\": \"function\", \"name\": \"get_weather\", \
            \"parameters\": {\"city\": \"Köln\", \"days\": 3}}\n{\"name\": \"now\", \
            \"parameters\": null}",
    ),
    (
        "json",
        "[\n    {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln\", \
            \"days\": 3}},\n    {\"name\": \"now\", \"arguments\": {}}\n]",
    ),
    (
        "json",
        "```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln\", \
            \"days\": 3}}\n{\"name\": \"now\"}\n```",
    ),
    (
        "mistral",
        "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \
            \"Köln\", \"days\": 3}, \"id\": \"abcdefghi\"}, {\"name\": \"now\", \"arguments\": {}, \
            \"id\": \"abcdefghj\"}]",
    ),
    (
        "mistral-args",
        "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Köln\", \"days\": 3}\
            [TOOL_CALLS]now[ARGS]{}",
    ),
    (
        "mistral-args",
        "[TOOL_CALLS]get_weather[CALL_ID]a1B2c3D4e[ARGS]{\"city\": \"Köln\", \"days\": 3}\
            [TOOL_CALLS]now[CALL_ID]a1B2c3D4f[ARGS]{}",
    ),
    ("gemma", "```tool_code\nget_weather(city=\"Köln\", days=3)\nnow()\n```"),
    ("gemma", "[get_weather('K\\u00f6ln', days = 3), now()]"),
    (
        "gemma",
        "```json\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Köln\", \
            \"days\": 3}}\n```\n```tool_code\nnow()\n```\n",
    ),
    (
        "cohere",
        "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \
            \"get_weather\", \"parameters\": {\"city\": \"Köln\", \"days\": 3}},\n    \
            {\"tool_call_id\": \"1\", \"tool_name\": \"now\", \"parameters\": {}}\n]\
            <|END_ACTION|>",
    ),
    (
        "command-r",
        "Action:\n```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        \
            \"parameters\": {\"city\": \"Köln\", \"days\": 3}\n    },\n    {\n        \
            \"tool_name\": \"now\",\n        \"parameters\": {}\n    }\n]```\n",
    ),
    (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n\
            ```json\n{\"city\": \"Köln\", \"days\": 3}\n```<｜tool▁call▁end｜>\n\
            <｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>\
            <｜tool▁calls▁end｜>",
    ),
    (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \
            \"Köln\", \"days\": 3}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}\
            <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        "kimi",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0\
            <|tool_call_argument_begin|>{\"city\": \"Köln\", \"days\": 3}<|tool_call_end|>\
            <|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>\
            <|tool_calls_section_end|>",
    ),
    (
        "python",
        "<|tool_call_start|>[get_weather(city=\"Köln\", days=3), now()]\
            <|tool_call_end|>",
    ),
    (
        "python",
        "<|tool_call_start|>\n```python\nget_weather(city=\"Köln\",days=3)\nnow()\n\
            ```\n<|tool_call_end|>\n",
    ),
    (
        "firefunction",
        "<functioncall>{\"name\": \"get_weather\", \"arguments\": {\"city\": \
            \"Köln\", \"days\": 3}}<functioncall>{\"name\": \"now\", \"arguments\": {}}",
    ),
];

#[test]
fn calls_are_read_in_every_format() {
    let expected = [("get_weather", json!({"city": "Köln", "days": 3})), ("now", json!({}))];
    for (name, answer) in ANSWERS {
        let reply = read_whole(format(name), answer);
        assert_eq!(calls(&reply), expected, "{name}: {answer}");
        assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("", ""), "{name}: {answer}");
    }
}

#[test]
fn text_reasoning_and_calls_come_apart() {
    let answer = "<think>\nA tool\n\nknows.\n</think>\n\nLet me look.\n<tool_call>\n{\"name\": \
        \"now\", \"arguments\": {}}\n</tool_call>";
    let reply = read_whole(format("hermes"), answer);
    assert_eq!(reply.reasoning, "A tool\n\nknows.");
    assert_eq!(reply.text, "Let me look.");
    assert_eq!(calls(&reply), [("now", json!({}))]);

    let cohere = "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>4<|END_RESPONSE|>";
    let reply = read_whole(format("cohere"), cohere);
    assert_eq!((reply.reasoning.as_str(), reply.text.as_str()), ("Hm.", "4"));

    let reply = read_whole(format("hermes"), "<think>\n\n</think>\n\nFour.");
    assert_eq!((reply.reasoning.as_str(), reply.text.as_str()), ("", "Four."));
    let reply = read_whole(format("hermes"), "<think> cut o");
    assert_eq!((reply.reasoning.as_str(), reply.text.as_str()), (" cut o", ""));
    let spoken = "The mark is <think>.</think>";
    assert_eq!(read_whole(format("hermes"), spoken).text, spoken);
}

#[test]
fn a_prompt_can_begin_the_reasoning() {
    let format = format("hermes");
    assert!(format.has_reasoning() && format.opens_reasoning("<|im_start|>assistant\n<think>\n"));
    assert!(!format.opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    let reply = read(Reader::new(format, tools(), true), ["\nHm", ".\n</", "think>\n", "\nYes."]);
    assert_eq!((reply.reasoning.as_str(), reply.text.as_str()), ("Hm.", "Yes."));
}

#[test]
fn what_is_no_call_is_text() {
    let texts = [
        ("hermes", "Use <tool_call> for that, or <tool_call>\n{\"name\": 3}</tool_call>."),
        ("hermes", "<tool_call>\n{\"name\": \"now\", \"argum"),
        ("hermes", "<tool_call>\n{\"name\": \"now\", \"arguments\": [1]}\n</tool_call>"),
        ("hermes", "{\"name\": \"now\", \"arguments\": {}}"),
        ("hermes", "<tool_call>\n<function=>\n</function></tool_call>"),
        ("llama", "{\"name\": \"Ann\", \"parameters\": {}}"),
        ("llama", "{\"answer\": {\"name\": \"now\"}}"),
        ("llama", "The call {\"name\": \"now\", \"parameters\": {}} does it."),
        ("llama", "<|python_tag|>brave_search.call(query=\"x\")"),
        ("json", "[]"),
        ("json", " \n[1, 2]"),
        ("gemma", "[1] Shannon (1948)"),
        ("gemma", "[print('x')]"),
        ("gemma", "[get_weather(city=)]"),
        ("gemma", "```tool_code\nx = now()\n```"),
        ("gemma", "now"),
        ("mistral", "[TOOL_CALLS]now[ARGS]oops"),
        (
            "command-r",
            "Action:\n```json\n[{\"tool_name\": \"directly-answer\", \"parameters\": {}}]",
        ),
        ("deepseek", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```python\n1\n```"),
    ];
    for (name, text) in texts {
        let reply = read_whole(format(name), text);
        assert_eq!(reply, Reply { text: text.to_owned(), ..Reply::default() }, "{name}");
    }
}

#[test]
fn without_tools_nothing_is_a_call() {
    let answer = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let reply = read(Reader::new(format("hermes"), Tools::default(), false), [answer]);
    assert_eq!(reply, Reply { text: answer.to_owned(), ..Reply::default() });
}

#[test]
fn an_answer_that_is_held_is_calls_from_its_beginning_or_text() {
    let call = "{\"name\": \"now\", \"arguments\": {}}";
    for (name, answer) in [
        ("json", call.replace("\": ", "\":")),
        ("json", format!(" {call}")),
        ("json", "{\"name\": \"now\"}".to_owned()),
        ("json", "{\"name\": \"get_wea".to_owned()),
        ("hermes", call.to_owned()),
        ("hermes", format!("\"Hm. <tool_call>{call}</tool_call>\"")),
        ("hermes", "<think>Hm.</think>".to_owned()),
    ] {
        let characters = || answer.char_indices().map(|(at, c)| &answer[at..at + c.len_utf8()]);
        let reply = read(Reader::held(format(name), tools()), characters());
        assert_eq!(reply, Reply { text: answer.clone(), ..Reply::default() }, "{name}");
    }
    for (_, sign) in SIGNS {
        let shape = Format::of(sign).call_shape();
        let answer = format!(
            "{}{}{{\"a\": 1}}{}{}",
            shape.before,
            shape.prefix("now"),
            shape.suffix,
            shape.after
        );
        let characters = answer.char_indices().map(|(at, c)| &answer[at..at + c.len_utf8()]);
        let reply = read(Reader::held(Format::of(sign), tools()), characters);
        assert_eq!(calls(&reply), [("now", json!({"a": 1}))], "{sign}");
    }
}

#[test]
fn a_tool_that_was_not_declared_is_called_where_marks_say_so() {
    let answer = "<tool_call>\n{\"name\": \"no_such\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let reply = read_whole(format("hermes"), answer);
    assert_eq!(calls(&reply), [("no_such", json!({"a": 1}))]);
}

#[test]
fn arguments_hold_what_looks_like_marks() {
    let inner = "</tool_call>\n<tool_call>{\"name\": \"now\", \"arguments\": {}}} ]\\ \u{1}";
    let arguments = json!({"path": inner, "content": {"x": [inner, {}]}});
    let answer =
        format!("<tool_call>\n{{\"name\": \"write\", \"arguments\": {arguments}}}\n</tool_call>");
    let reply = read_whole(format("hermes"), &answer);
    assert_eq!(calls(&reply), [("write", arguments.clone())]);
    assert_eq!(reply.calls[0].arguments, arguments.to_string());
    assert_eq!(reply.text, "");
}

/// Weights of small models leave a brace out, or the answer's limit cuts a call off.
#[test]
fn calls_that_go_wrong_late_are_calls() {
    let no_brace = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}\n</tool_call>\nDone.";
    let reply = read_whole(format("hermes"), no_brace);
    assert_eq!(calls(&reply), [("now", json!({}))]);
    assert_eq!(reply.text, "Done.");
    let reply = read_whole(format("hermes"), &format!("So:\n{no_brace}"));
    assert_eq!((reply.text.as_str(), reply.calls.len()), ("So:\nDone.", 1));
    let cut = "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"path\": \"a";
    let reply = read_whole(format("hermes"), cut);
    let call = Call { name: "write".into(), arguments: "{\"path\": \"a".into(), whole: false };
    assert_eq!(reply.calls, [call]);
    let broken = "<tool_call>\n<function=write>\n<parameter=path>\na\n</parameter>\nand so on";
    let reply = read_whole(format("hermes"), broken);
    let call = Call { name: "write".into(), arguments: "{\"path\": \"a\"".into(), whole: false };
    assert_eq!((reply.calls, reply.text.as_str()), (vec![call], "\nand so on"));
}

#[test]
fn elements_and_python_become_json_by_their_schema() {
    let answer = "<tool_call><function=write><parameter=path>\n12\n</parameter><parameter=content>\
        \n\nfn main() {}\n\n</parameter><parameter=mode>\nTrue\n</parameter></function>\
        </tool_call>";
    let reply = read_whole(format("hermes"), answer);
    let expected = json!({"path": "12", "content": "\nfn main() {}\n", "mode": true});
    assert_eq!(calls(&reply), [("write", expected)]);

    let answer = "<|tool_call_start|>[f(a='it\\'s\\n\\d', b=[1.5, -2, None,], c={'k': (True, \
        false)}, d=\"\\x41\\U0001f600\")]<|tool_call_end|>";
    let reply = read_whole(format("python"), answer);
    let expected =
        json!({"a": "it's\n\\d", "b": [1.5, -2, null], "c": {"k": [true, false]}, "d": "A😀"});
    assert_eq!(calls(&reply), [("f", expected)]);
}

/// What may become a call for ever is given up, and no work is done twice for it.
#[test]
fn what_is_held_back_is_limited() {
    let beginnings = [
        ("hermes", "<tool_call>{\"arguments\": {\"a\": \""),
        ("hermes", "<tool_call><function=write><parameter=path>"),
        ("gemma", "[get_weather(city='"),
        ("json", " [{\"parameters\": {\"a\": [\""),
        ("hermes", " \n "),
    ];
    for (name, beginning) in beginnings {
        let mut reader = Reader::new(format(name), tools(), false);
        let mut parts = reader.push(beginning);
        let piece =
            if beginning.trim().is_empty() { " \n".repeat(512) } else { "é<[".repeat(333) };
        for _ in 0..2000 {
            parts.extend(reader.push(&piece));
        }
        let mut reply = Reply::default();
        reply.extend(parts);
        let said = reply.text.len() + reply.calls.iter().map(|c| c.arguments.len()).sum::<usize>();
        assert!(said > 1000 * piece.len(), "{name} {beginning}: {said}");
    }
}

/// Pieces of which answers are made, right and wrong ones.
fn any_answer() -> impl Strategy<Value = (Vec<String>, usize)> {
    let marks: Vec<&str> = SIGNS
        .iter()
        .flat_map(|(_, sign)| {
            let shape = Format::of(sign).call_shape();
            let fixed = [shape.before, shape.after, shape.suffix, shape.between.unwrap_or("")];
            fixed.into_iter().chain(Format::of(sign).markers())
        })
        .chain([
            "now",
            "get_weather(",
            "city='x'",
            ")",
            "=",
            ", ",
            ";",
            "\n",
            " ",
            "```",
            "```json",
        ])
        .chain(["```tool_code", "{\"name\": \"now\", \"arguments\": {", "{\"name\": \"now\"", "}"])
        .chain(["\"parameters\": {\"a\": [1, ", "]", "\"", "\\", "<function=now>", "</function>"])
        .chain(["<parameter=city>", "</parameter>", "functions.now:0", "<think>", "</think>"])
        .chain(["\n```json\n", "function", "<", "[", "[{", "name"])
        .filter(|mark| !mark.is_empty())
        .collect();
    let piece = prop_oneof![
        6 => prop::sample::select(marks).prop_map(str::to_owned),
        1 => "\\PC{0,5}",
        1 => Just("#".to_owned()),
    ];
    (prop::collection::vec(piece, 0..24), 0..SIGNS.len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn pieces_do_not_matter(
        (pieces, format) in any_answer(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        in_reasoning in any::<bool>(),
    ) {
        let text = pieces.concat();
        let format = Format::of(SIGNS[format].1);
        let reader = || Reader::new(format, tools(), in_reasoning);
        let whole = read(reader(), [text.as_str()]);
        let mut ends: Vec<usize> =
            cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
        ends.extend([0, text.len()]);
        ends.sort_unstable();
        let cut = ends.windows(2).map(|pair| &text[pair[0]..pair[1]]);
        prop_assert_eq!(&read(reader(), cut), &whole);
        let characters = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
        prop_assert_eq!(&read(reader(), characters), &whole);
    }

    /// Words that no mark holds are somewhere in the answer, in their order.
    #[test]
    fn nothing_is_lost((pieces, format) in any_answer()) {
        let mut text = String::new();
        for (index, piece) in pieces.iter().enumerate() {
            let word = if piece == "#" { format!("Q{index}Z") } else { piece.clone() };
            text.push_str(&word);
        }
        let mut reader = Reader::new(Format::of(SIGNS[format].1), tools(), false);
        let mut parts = reader.push(&text);
        parts.extend(reader.finish());
        let said: String = parts
            .into_iter()
            .map(|part| match part {
                Part::Reasoning(text) | Part::Text(text) => text,
                Part::CallStart { name, .. } => name,
                Part::CallArguments { fragment, .. } => fragment,
                Part::CallEnd { .. } => String::new(),
            })
            .collect();
        for index in (0..pieces.len()).filter(|index| pieces[*index] == "#") {
            let word = format!("Q{index}Z");
            prop_assert!(said.contains(&word), "{} is lost of {}: {}", word, text, said);
        }
    }

    /// A text is held back only while it may become a mark.
    #[test]
    fn text_comes_at_once(rest in "[a-zé .,\n0-9]{0,60}", format in 0..SIGNS.len()) {
        let mut reader = Reader::new(Format::of(SIGNS[format].1), tools(), false);
        let text = format!("Hi{rest}");
        let mut said = String::new();
        let mut given = String::new();
        for character in text.chars() {
            given.push(character);
            for part in reader.push(&character.to_string()) {
                let Part::Text(text) = part else { panic!("{part:?}") };
                said.push_str(&text);
            }
            prop_assert_eq!(given.strip_prefix(&said).map(|held| held == "\n" || held.is_empty()),
                Some(true));
        }
        for part in reader.finish() {
            let Part::Text(text) = part else { panic!("{part:?}") };
            said.push_str(&text);
        }
        prop_assert_eq!(said, text);
    }

    /// What a grammar makes a model write is read back.
    #[test]
    fn forced_calls_are_read_back(
        texts in prop::collection::vec(any::<String>(), 1..4),
        format in 0..SIGNS.len(),
    ) {
        let format = Format::of(SIGNS[format].1);
        let shape = format.call_shape();
        let count = if shape.between.is_some() { texts.len() } else { 1 };
        let expected: Vec<(&str, Value)> = texts[..count]
            .iter()
            .map(|text| ("get_weather", json!({"city": text, "x": [{"k": text}, 1.5, null]})))
            .collect();
        let written: Vec<String> = expected
            .iter()
            .map(|(name, value)| format!("{}{value}{}", shape.prefix(name), shape.suffix))
            .collect();
        let written = written.join(shape.between.unwrap_or(""));
        let answer = format!("{}{written}{}", shape.before, shape.after);
        let reply = read_whole(format, &answer);
        prop_assert_eq!(calls(&reply), expected);
        prop_assert_eq!(reply.text, "");
    }
}
