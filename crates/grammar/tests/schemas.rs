//! Random schemas and values, with the `jsonschema` crate as the judge.

mod bytes;
#[path = "sample/order.rs"]
mod order;

use bytes::{ENDS, VOCABULARY, accepts, ids};
use grammar::{Constraint, Grammar, GrammarError};
use order::Order;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Longest answer that is drawn, in bytes.
const BYTES_MAX: usize = 400;

fn validator(schema: &Value) -> jsonschema::Validator {
    let options = jsonschema::options().with_draft(jsonschema::Draft::Draft202012);
    options.should_validate_formats(true).build(schema).expect("a schema")
}

/// An answer of random bytes among those that are allowed, in favour of those that end something.
fn drawn(mut constraint: Constraint, choices: &[u8]) -> Option<String> {
    let mut text = Vec::new();
    for step in 0..BYTES_MAX {
        let allowed: Vec<u32> = constraint.allowed().expect("a set").ids().collect();
        let may_end = allowed.contains(&ENDS[0]);
        let choice = usize::from(choices[step % choices.len()]) + step / choices.len();
        if may_end && (choice.is_multiple_of(2) || constraint.is_finished()) {
            return Some(String::from_utf8(text).expect("whole characters"));
        }
        let ends: Vec<u32> = allowed
            .iter()
            .copied()
            .filter(|id| b"\"]}".contains(&(*id as u8)) && *id < 256)
            .collect();
        let plain = allowed.iter().copied().filter(|id| (33..127).contains(id));
        let plain: Vec<u32> = plain.collect();
        let from = match (choice % 3, &ends, &plain) {
            (0, ends, _) if !ends.is_empty() => ends,
            (1, _, plain) if !plain.is_empty() => plain,
            _ => &allowed,
        };
        let id = from[choice % from.len()];
        if id >= 256 {
            continue;
        }
        constraint.advance(id).expect("allowed");
        text.push(id as u8);
    }
    None
}

fn scalar_schema() -> impl Strategy<Value = Value> {
    let bounds = (-12..12_i32, 0..20_i32, 0..4_u8).prop_map(|(low, width, kind)| {
        let (low, high) = (f64::from(low) / 2.0, f64::from(low + width) / 2.0);
        match kind {
            0 => json!({"type": "number", "minimum": low, "maximum": high}),
            1 => json!({"type": "integer", "exclusiveMinimum": low, "maximum": high}),
            2 => json!({"type": "number", "exclusiveMaximum": high}),
            _ => json!({"minimum": low}),
        }
    });
    let pattern = prop::sample::select(vec![
        "^a",
        "b$",
        "^(a|b)+$",
        "a|^b",
        "^\\d\\d?$",
        "[^ab]",
        "",
        "^[\\w-]*$",
        "\\.",
        "a.c",
        "^\\s",
        "(^a|b)c",
        "a(b$|c)",
        "^$",
    ]);
    let format = prop::sample::select(vec![
        "date",
        "time",
        "date-time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "uuid",
        "uri",
        "uri-reference",
        "json-pointer",
        "password",
    ]);
    let lengths = (0..3_u8, 0..4_u8);
    prop_oneof![
        prop::sample::select(vec![
            "null", "boolean", "number", "integer", "string", "array", "object"
        ])
        .prop_map(|name| json!({"type": name})),
        Just(json!({"type": ["string", "null"]})),
        Just(json!(true)),
        Just(json!(false)),
        bounds,
        (1..5_u8, any::<bool>()).prop_map(|(multiple, half)| {
            let multiple = if half { f64::from(multiple) / 2.0 } else { f64::from(multiple) };
            json!({"type": "number", "multipleOf": multiple})
        }),
        (pattern, lengths).prop_map(|(pattern, (low, more))| {
            json!({"type": "string", "pattern": pattern, "minLength": low, "maxLength": low + more})
        }),
        format.prop_map(|format| json!({"type": "string", "format": format})),
        prop::collection::vec(value(), 1..4).prop_map(|values| json!({"enum": values})),
        value().prop_map(|value| json!({"const": value})),
        Just(json!({"$ref": "#/$defs/leaf"})),
        Just(json!({"$ref": "#/$defs/list"})),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-8..9_i64).prop_map(Value::from),
        (-8..9_i32).prop_map(|number| json!(f64::from(number) + 0.5)),
        "[abc0. é\n]{0,4}".prop_map(Value::from),
        prop::sample::select(vec!["2024-02-29", "2023-02-29", "a@b.c", "::1", "1.2.3.4", "P1D"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]{1,2}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn object_schema(inner: impl Strategy<Value = Value> + Clone) -> impl Strategy<Value = Value> {
    let properties = prop::collection::btree_map("[abc]{1,2}", inner.clone(), 0..4);
    let required = prop::collection::vec("[abc]", 0..2);
    let additional = prop::option::of(prop_oneof![Just(json!(false)), inner.clone()]);
    let pattern = prop::option::of(("\\^[abc]|[ab]\\$|c", inner));
    let counts = (prop::option::of(0..3_u8), prop::option::of(0..4_u8));
    let all = (properties, required, additional, pattern, counts);
    all.prop_map(|(properties, required, additional, pattern, (least, most))| {
        let properties: Map<String, Value> = properties.into_iter().collect();
        let mut schema = json!({"type": "object", "properties": properties, "required": required});
        if let Some(additional) = additional {
            schema["additionalProperties"] = additional;
        }
        if let Some((pattern, inner)) = pattern {
            schema["patternProperties"] = json!({pattern: inner});
        }
        if let (Some(least), true) = (least, required_is_short(&schema)) {
            schema["minProperties"] = json!(least);
        }
        if let Some(most) = most {
            schema["maxProperties"] = json!(most);
        }
        let names = schema["required"].as_array().cloned().unwrap_or_default();
        let mut once: Vec<Value> = Vec::new();
        for name in names {
            if !once.contains(&name) {
                once.push(name);
            }
        }
        schema["required"] = Value::Array(once);
        schema
    })
}

fn required_is_short(schema: &Value) -> bool {
    schema["required"].as_array().is_some_and(|names| names.len() < 2)
}

fn tuple_schema(
    first: impl Strategy<Value = Vec<Value>>,
    rest: impl Strategy<Value = Value>,
) -> impl Strategy<Value = Value> {
    (first, rest, 0..3_u8, 0..4_u8).prop_map(|(first, rest, least, more)| {
        let most = least + more;
        json!({"type": "array", "prefixItems": first, "items": rest, "minItems": least,
            "maxItems": most})
    })
}

fn schema() -> impl Strategy<Value = Value> {
    let inner = scalar_schema().prop_recursive(3, 16, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            3 => object_schema(inner.clone()),
            1 => tuple_schema(list.clone(), inner.clone()),
            1 => (inner.clone(), 0..3_u8).prop_map(|(items, least)| {
                json!({"type": "array", "items": items, "minItems": least})
            }),
            1 => list.clone().prop_map(|list| json!({"anyOf": list})),
            1 => list.clone().prop_map(|list| json!({"oneOf": list})),
            1 => list.clone().prop_map(|list| json!({"allOf": list})),
            1 => (inner.clone(), inner).prop_map(|(one, other)| {
                json!({"anyOf": [one.clone(), other.clone()], "allOf": [one]})
            }),
        ]
    });
    (inner, scalar_schema()).prop_map(|(inner, leaf)| {
        let mut schema = match inner {
            Value::Object(map) => Value::Object(map),
            other => json!({"allOf": [other]}),
        };
        let is_reference = leaf.get("$ref").is_some();
        let leaf = if is_reference { json!({"type": "string"}) } else { leaf };
        let list = json!({"type": "array", "items": {"$ref": "#/$defs/list"}, "maxItems": 2});
        schema["$defs"] = json!({"leaf": leaf, "list": list});
        schema
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_500, max_global_rejects: 100_000, ..ProptestConfig::default()
    })]

    /// What is valid is accepted, what is not is refused, and whatever is drawn is valid.
    #[test]
    fn a_supported_schema_is_held_exactly(
        schema in schema(),
        values in prop::collection::vec(value(), 1..8),
        choices in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let validator = validator(&schema);
        let constraint = match Grammar::JsonSchema(schema.clone()).compile(&VOCABULARY) {
            Ok(constraint) => constraint,
            Err(GrammarError::Invalid { message, .. }) => {
                // Nothing else is wrong with these schemas.
                prop_assert_eq!(message, "no answer can satisfy this");
                for value in values {
                    prop_assert!(!validator.is_valid(&value), "{} {}", schema, value);
                }
                return Ok(());
            }
            Err(_) => return Err(TestCaseError::reject("not supported")),
        };
        let encode = |text: &str| ids(text);
        let mut order = Order::new(&schema, &encode);
        for value in values {
            let text = order.written(&constraint, &value);
            let is_accepted = text.is_some_and(|text| accepts(&constraint, &text));
            prop_assert_eq!(is_accepted, validator.is_valid(&value), "{} {}", schema, value);
        }
        for rotation in 0..4 {
            let rotated = choices.iter().map(|choice| choice.rotate_left(rotation));
            let rotated: Vec<u8> = rotated.collect();
            let Some(text) = drawn(constraint.clone(), &rotated) else { continue };
            if text.bytes().filter(u8::is_ascii_digit).count() > 15 {
                // The judge rounds such numbers before it divides them.
                continue;
            }
            let value: Value = match serde_json::from_str(&text) {
                Ok(value) => value,
                // JSON has numbers that are not read here, such as 1e999.
                Err(error) if error.to_string().starts_with("number out of range") => continue,
                Err(error) => return Err(TestCaseError::fail(format!("{error}: {text}"))),
            };
            prop_assert!(validator.is_valid(&value), "{} {}", schema, text);
        }
    }
}
