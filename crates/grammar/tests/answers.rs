//! What answers may be, byte by byte.

mod bytes;

use bytes::{ENDS, VOCABULARY, accepts, ids, takes};
use grammar::{Constraint, Failure, Grammar, GrammarError, Tool, Vocabulary, VocabularyError};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// `<call>`, a special token.
const CALL: u32 = 256;
/// `</call>`, a special token.
const CALLED: u32 = 257;

fn compile(grammar: &Grammar) -> Constraint {
    grammar.compile(&VOCABULARY).expect("compiles")
}

fn schema(schema: Value) -> Result<Constraint, GrammarError> {
    Grammar::JsonSchema(schema).compile(&VOCABULARY)
}

#[test]
fn a_json_object_is_any_object_and_nothing_else() {
    let constraint = compile(&Grammar::JsonObject);
    for text in ["{}", r#"{"a": [1, -2.5e3, {"b": null}], "": "é\n\u0000"}"#, "{\n  \"a\": true\n}"]
    {
        assert!(accepts(&constraint, text), "{text}");
    }
    for text in ["", "[]", "1", " {}", "{\"a\": 1", "{a: 1}", "{\"a\": 01}", "{}x", "{\n\n\n}"] {
        assert!(!accepts(&constraint, text), "{text}");
    }
}

#[test]
fn an_answer_is_finished_when_nothing_can_follow() {
    let mut constraint = compile(&Grammar::Choice(vec!["a".into(), "ab".into(), "".into()]));
    assert!(!constraint.is_finished());
    let allowed: Vec<u32> = constraint.allowed().expect("a set").ids().collect();
    assert_eq!(allowed, [u32::from(b'a'), ENDS[0], ENDS[1]]);
    constraint.advance(u32::from(b'a')).expect("allowed");
    assert!(!constraint.is_finished());
    let refused = constraint.advance(u32::from(b'c'));
    assert_eq!(refused, Err(Failure::NotAllowed { token: u32::from(b'c') }));
    let mut other = constraint.clone();
    constraint.advance(u32::from(b'b')).expect("allowed");
    assert!(constraint.is_finished());
    assert_eq!(constraint.allowed().expect("a set").ids().collect::<Vec<_>>(), ENDS);
    assert!(!other.is_finished());
    other.advance(ENDS[0]).expect("may end");
    assert!(other.is_finished());
    assert_eq!(other.advance(u32::from(b'b')), Err(Failure::NotAllowed { token: u32::from(b'b') }));
    let beyond = VOCABULARY.size() as u32;
    assert_eq!(constraint.advance(beyond), Err(Failure::NotAllowed { token: beyond }));
}

#[test]
fn choices_and_patterns_are_matched_as_a_whole() {
    let odd = ["tab\t\"quoted\" \\ / \u{7f} é", "<end>"];
    let constraint = compile(&Grammar::Choice(odd.map(str::to_owned).into()));
    assert!(odd.iter().all(|text| accepts(&constraint, text)));
    assert!(!accepts(&constraint, "tab"));
    let constraint = compile(&Grammar::Regex(r"^(?:\d{3}|[a-f&&g/]+)?$".into()));
    for (text, matches) in
        [("123", true), ("", true), ("a&/", true), ("12", false), ("١٢٣", false), ("123\n", false)]
    {
        assert_eq!(accepts(&constraint, text), matches, "{text:?}");
    }
}

fn calls(parallel: bool) -> Grammar {
    let tool = |name: &str, schema: Value| Tool {
        prefix: format!(r#"{{"name": "{name}", "arguments": "#),
        schema,
        suffix: "}\n".into(),
    };
    let city = json!({"type": "object", "properties": {"city": {"type": "string"}},
        "required": ["city"], "additionalProperties": false});
    Grammar::Calls {
        before: "<call>\n".into(),
        between: "</call>\n<call>\n".into(),
        after: "</call>".into(),
        tools: vec![tool("weather", city), tool("now", json!({"type": "object"}))],
        parallel,
    }
}

/// Tokens of a text in which `<call>` and `</call>` are the special tokens.
fn call_tokens(text: &str) -> Vec<u32> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let special = [("<call>", CALL), ("</call>", CALLED)];
        let special = special.iter().find(|(name, _)| rest.starts_with(name));
        let length = special.map_or(char.len_utf8(), |(name, id)| {
            tokens.push(*id);
            name.len()
        });
        if special.is_none() {
            tokens.extend(ids(&rest[..length]));
        }
        rest = &rest[length..];
    }
    tokens
}

#[test]
fn calls_are_written_as_the_format_has_them() {
    let one = "<call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</call>";
    let other = "<call>\n{\"name\": \"now\", \"arguments\": {\n  \"zone\": 1\n}}\n</call>";
    let both = format!("{one}\n{other}");
    for (parallel, text, allowed) in [
        (false, one, true),
        (false, other, true),
        (false, both.as_str(), false),
        (true, both.as_str(), true),
        (true, one, true),
        (true, "<call>\n{\"name\": \"weather\", \"arguments\": {}}\n</call>", false),
        (true, "<call>\n{\"name\": \"other\", \"arguments\": {}}\n</call>", false),
        (true, "", false),
    ] {
        let constraint = compile(&calls(parallel));
        assert_eq!(takes(&constraint, &call_tokens(text)), allowed, "{parallel} {text}");
    }
    // The text of a special token is not the token.
    assert!(!accepts(&compile(&calls(true)), one));
}

#[test]
fn an_answer_may_be_calls_or_a_text_of_a_form() {
    let one = "<call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</call>";
    let wrong = "<call>\n{\"name\": \"weather\", \"arguments\": {}}\n</call>";
    let either = compile(&calls(false)).or(compile(&Grammar::JsonObject));
    for (text, allowed) in [(one, true), (wrong, false), ("{\"a\": 1}", true), ("[]", false)] {
        assert_eq!(takes(&either, &call_tokens(text)), allowed, "{text}");
    }
    // Where nothing marks a call, what begins as one is one, and what does not is a text.
    let plain = |parallel| match calls(parallel) {
        Grammar::Calls { tools, .. } => {
            let [before, between, after] = ["", "", ""].map(str::to_owned);
            compile(&Grammar::Calls { before, between, after, tools, parallel })
        }
        other => panic!("{other:?}"),
    };
    let call = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n";
    let either = plain(false).or(compile(&Grammar::JsonObject));
    for (text, allowed) in [
        (call, true),
        ("{\"name\": \"weather\", \"arguments\": {\"town\": 1}}", false),
        ("{\"name\": \"weather\", \"age\": 3}", true),
        ("{\"name\": \"wea\"}", true),
        ("{\"name\": \"now\", \"argument\": 3}", true),
        ("{}", true),
        ("{\"name\": ", false),
    ] {
        assert_eq!(accepts(&either, text), allowed, "{text}");
    }
    let texts = ["", "{\"name\": \"weather\"", "{\"name\": \"weather\", \"arguments\": 1}"];
    let choice = plain(true).or(compile(&Grammar::Choice(texts.map(str::to_owned).into())));
    assert!(accepts(&choice, texts[0]) && accepts(&choice, texts[1]) && accepts(&choice, call));
    assert!(!accepts(&choice, texts[2]), "it begins as a call");
    assert!(accepts(&choice, &format!("{call}{call}")));
    // What is forced is known once there is one way to go on.
    let mut either = either;
    assert!(either.forced().is_empty());
    for &token in &ids("{\"name\": \"weather\", \"arguments\": ") {
        either.advance(token).expect("allowed");
    }
    assert_eq!(either.allowed().expect("a set").ids().collect::<Vec<_>>(), ids("{"));
}

proptest! {
    /// What two constraints allow together is what one of them does, wherever nothing decides.
    #[test]
    fn either_is_the_union(
        one in prop::collection::vec("[ab]{0,6}", 1..6),
        other in prop::collection::vec("[ab]{0,6}", 1..6),
        text in "[ab]{0,6}",
    ) {
        let is_in = one.contains(&text) || other.contains(&text);
        let either = compile(&Grammar::Choice(one)).or(compile(&Grammar::Choice(other)));
        prop_assert_eq!(accepts(&either, &text), is_in);
    }
}

#[test]
fn what_is_forced_is_what_comes() {
    let mut constraint = compile(&calls(false));
    constraint.advance(CALL).expect("allowed");
    let begin = ids("\n{\"name\": \"");
    assert_eq!(constraint.forced(), begin[..begin.len() - 1]);
    for id in begin {
        assert!(constraint.allowed().expect("a set").has(id));
        constraint.advance(id).expect("allowed");
    }
    assert!(constraint.forced().is_empty());
    constraint.advance(u32::from(b'w')).expect("allowed");
    let rest = ids(&"weather\", \"arguments\": {"[1..]);
    assert_eq!(constraint.forced(), rest[..constraint.forced().len()]);
    assert!(constraint.forced().len() + 3 > rest.len());
}

#[test]
fn limits_are_kept_and_errors_name_what_is_wrong() {
    let nested = (0..100).fold(json!(true), |inner, _| json!({"items": inner}));
    let many = Value::Object((0..21_000).map(|i| (format!("p{i}"), json!(true))).collect());
    let long = json!({"enum": ["x".repeat(300_000)]});
    for too_large in [nested, json!({"properties": many}), long] {
        let error = schema(too_large).expect_err("too large");
        assert!(matches!(error, GrammarError::TooLarge { .. }), "{error}");
    }
    let texts = vec!["x".to_owned(); 2_000];
    let error = Grammar::Choice(texts).compile(&VOCABULARY).expect_err("too many");
    assert!(matches!(error, GrammarError::TooLarge { .. }));
    let unsupported = [
        (json!({"properties": {"a/b": {"uniqueItems": true}}}), "#/properties/a~1b/uniqueItems"),
        (json!({"type": "object", "propertyNames": {"maxLength": 2}}), "#/propertyNames"),
        (json!({"items": {"pattern": "(?=a)"}}), "#/items/pattern"),
        (json!({"oneOf": [{"type": "string"}, {"maxLength": 2}]}), "#/oneOf"),
        (json!({"anyOf": [true, {"$ref": "https://example.com/a"}]}), "#/anyOf/1/$ref"),
        (json!({"patternProperties": {"a": true, "^.a": true}}), "#/patternProperties"),
        (json!({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"minLength": 1}}}}), "#/$defs/a/not"),
        (json!({"type": "string", "format": "regex"}), "#/format"),
    ];
    for (value, place) in unsupported {
        match schema(value.clone()) {
            Err(GrammarError::Unsupported { path, .. }) => assert_eq!(path, place),
            other => panic!("{value}: {other:?}"),
        }
    }
    let invalid = [
        (json!({"type": "text"}), "#/type"),
        (json!({"properties": {"a": {"minLength": -1}}}), "#/properties/a/minLength"),
        (json!({"multipleOf": 0}), "#/multipleOf"),
        (json!({"$ref": "#"}), "#"),
        (json!({"$ref": "#/$defs/none"}), "#/$ref"),
        (json!([]), "#"),
        (json!(false), "#"),
        (json!({"type": "string", "minLength": 3, "maxLength": 2}), "#"),
    ];
    for (value, place) in invalid {
        match schema(value.clone()) {
            Err(GrammarError::Invalid { path, .. }) => assert_eq!(path, place, "{value}"),
            other => panic!("{value}: {other:?}"),
        }
    }
}

/// Requests share a vocabulary, and a constraint goes where its answer is computed.
#[test]
fn threads_may_have_them() {
    fn goes<T: Send>(_: &T) {}
    fn is_shared<T: Send + Sync>(_: &T) {}
    is_shared(&*VOCABULARY);
    goes(&compile(&Grammar::JsonObject));
}

#[test]
fn a_vocabulary_has_an_end() {
    let tokens = || [(&b"a"[..], false)];
    let none = Vocabulary::new(tokens(), &[]).expect_err("no end");
    assert_eq!(none, VocabularyError::NoEnd { ends: vec![] });
    let beyond = Vocabulary::new(tokens(), &[1]).expect_err("no such token");
    assert_eq!(beyond, VocabularyError::NoEnd { ends: vec![1] });
}

/// A chain of references is followed by recursion, as far as a schema can be long.
#[test]
fn long_chains_of_references_and_wide_objects_do_no_harm() {
    let link = |i: usize| {
        let next = json!({"$ref": format!("#/$defs/d{}", i + 1)});
        (format!("d{i}"), json!({"type": "array", "items": next}))
    };
    let mut definitions: serde_json::Map<String, Value> = (0..4_000).map(link).collect();
    definitions.insert("d4000".into(), json!({"type": "null"}));
    let constraint = schema(json!({"$ref": "#/$defs/d0", "$defs": definitions}));
    assert!(accepts(&constraint.expect("compiles"), "[[[]]]"));
    let wide = |count: usize| {
        let names = (0..count).map(|i| (format!("p{i}"), json!({"type": "null"})));
        schema(json!({"type": "object", "properties": Value::Object(names.collect())}))
    };
    let constraint = wide(1_000).expect("compiles");
    assert!(accepts(&constraint, r#"{"p7":null,"p999":null,"q":1}"#));
    assert!(matches!(wide(1_001), Err(GrammarError::TooLarge { .. })));
}

/// What multiplies is refused before it takes long.
#[test]
fn products_of_options_come_to_an_end() {
    let option = |list: usize, index: usize| {
        let names = (0..5).map(|other| format!("p{list}.{other}"));
        let properties: Value = names.map(|name| (name, json!({"const": index}))).collect();
        json!({"type": "object", "properties": properties})
    };
    let list = |list: usize| {
        let options: Vec<Value> = (0..12).map(|index| option(list, index)).collect();
        json!({"anyOf": options})
    };
    let lists: Vec<Value> = (0..12).map(list).collect();
    let many_states = |index| json!({"pattern": format!("[ab]*a[ab]{{{}}}$", 8 + index)});
    let states: Vec<Value> = (0..12).map(many_states).collect();
    let schemas = [json!({"allOf": lists}), json!({"type": "string", "allOf": states})];
    for products in schemas {
        let started = Instant::now();
        let error = schema(products).expect_err("too large");
        assert!(matches!(error, GrammarError::TooLarge { .. }), "{error}");
        println!("refused after {:?}", started.elapsed());
        assert!(started.elapsed() < Duration::from_secs(60));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is asked, there is an answer or an error.
    #[test]
    fn no_pattern_panics(pattern in r"[a-c.^$|()\[\]{}*+?\\,:=!<0-9dDwWsSbBuxpkné\-&]{0,24}") {
        let _ = Grammar::Regex(pattern.clone()).compile(&VOCABULARY);
        let _ = schema(json!({"type": "string", "pattern": pattern}));
    }

    /// A choice lets through its texts, and those only.
    #[test]
    fn a_choice_is_one_of_its_texts(
        texts in prop::collection::vec("[ab\\\\\"\n\u{7f}é]{0,4}", 1..6),
        other in "[ab\\\\\"\n\u{7f}é]{0,4}",
    ) {
        let constraint = compile(&Grammar::Choice(texts.clone()));
        for text in &texts {
            prop_assert!(accepts(&constraint, text));
        }
        prop_assert_eq!(accepts(&constraint, &other), texts.contains(&other));
    }
}
