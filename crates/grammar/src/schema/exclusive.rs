//! `oneOf` as `anyOf`, where no value can satisfy two of its options.

use super::node::Types;
use super::reference::definition;
use crate::error::GrammarError;
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// How far schemas are followed to tell that they have no value in common.
const DEPTH_MAX: usize = 12;
/// How many comparisons are made for that, for one schema.
const COMPARISONS_MAX: usize = 20_000;

/// Rewrites every `oneOf` within the schema, or refuses it.
pub(super) fn resolve(schema: &mut Value, definitions: &[Value]) -> Result<(), GrammarError> {
    let Value::Object(map) = schema else { return Ok(()) };
    for key in ["properties", "patternProperties"] {
        if let Some(Value::Object(schemas)) = map.get_mut(key) {
            schemas.values_mut().try_for_each(|schema| resolve(schema, definitions))?;
        }
    }
    for key in ["additionalProperties", "items"] {
        if let Some(schema) = map.get_mut(key) {
            resolve(schema, definitions)?;
        }
    }
    if let Some(one_of) = map.get("oneOf").cloned() {
        check(map, &one_of, definitions)?;
        map.remove("oneOf");
        let options = one_of["options"].clone();
        if !map.contains_key("anyOf") {
            map.insert("anyOf".to_owned(), options);
        } else if let Some(Value::Array(all_of)) = map.get_mut("allOf") {
            all_of.push(json!({"anyOf": options}));
        } else {
            map.insert("allOf".to_owned(), json!([{"anyOf": options}]));
        }
    }
    for key in ["allOf", "anyOf", "prefixItems"] {
        if let Some(Value::Array(schemas)) = map.get_mut(key) {
            schemas.iter_mut().try_for_each(|schema| resolve(schema, definitions))?;
        }
    }
    Ok(())
}

fn check(
    map: &Map<String, Value>,
    one_of: &Value,
    definitions: &[Value],
) -> Result<(), GrammarError> {
    let mut beside = map.clone();
    beside.remove("oneOf");
    let beside = Value::Object(beside);
    let none = Vec::new();
    let options = one_of["options"].as_array().unwrap_or(&none);
    let mut compared = Compared { definitions, left: COMPARISONS_MAX };
    for (index, first) in options.iter().enumerate() {
        for second in &options[index + 1..] {
            if !compared.are_disjoint(&[first, &beside], &[second, &beside], 0) {
                let path = one_of["path"].as_str().unwrap_or("#");
                return Err(GrammarError::unsupported(OVERLAPPING, path));
            }
        }
    }
    Ok(())
}

const OVERLAPPING: &str = "`oneOf` of options that may hold at once";

/// All schemas that must hold for a value.
type All<'a> = Vec<&'a Value>;

struct Compared<'a> {
    definitions: &'a [Value],
    left: usize,
}

impl<'a> Compared<'a> {
    /// Whether it is plain that no value satisfies all of `first` and all of `second`.
    fn are_disjoint(&mut self, first: &[&'a Value], second: &[&'a Value], depth: usize) -> bool {
        if depth > DEPTH_MAX || self.left == 0 {
            return false;
        }
        self.left -= 1;
        let (first, second) = (self.flat(first), self.flat(second));
        if first.iter().chain(&second).any(|schema| **schema == Value::Bool(false)) {
            return true;
        }
        self.by_value(&first, &second)
            || self.by_property(&first, &second, depth)
            || self.by_options(&first, &second, depth)
            || self.by_options(&second, &first, depth)
    }

    /// The schemas with those that they refer to, or hold in `allOf`.
    fn flat(&self, schemas: &[&'a Value]) -> All<'a> {
        let mut all: All<'a> = Vec::new();
        let mut seen = HashSet::new();
        let mut open: All<'a> = schemas.iter().rev().copied().collect();
        while let Some(schema) = open.pop() {
            all.push(schema);
            if let Some(index) = schema.get("$ref").and_then(definition)
                && seen.insert(index)
            {
                open.push(&self.definitions[index]);
            }
            open.extend(schema.get("allOf").and_then(Value::as_array).into_iter().flatten());
        }
        all
    }

    /// By types, or since one side has few values, which the other doesn't.
    fn by_value(&self, first: &All, second: &All) -> bool {
        let types = types(first).and(types(second));
        if !types.has(Types::ALL) || ranges_are_disjoint(types, first, second) {
            return true;
        }
        let first_values = values(first);
        let second_values = values(second);
        match (first_values, second_values) {
            (Some(one), Some(other)) => {
                !one.iter().any(|value| other.iter().any(|it| are_equal(value, it)))
            }
            (Some(values), None) | (None, Some(values)) => {
                !values.iter().any(|value| types.has(Types::of(value)))
            }
            (None, None) => false,
        }
    }

    /// Since a property that one side requires has no value that both allow.
    fn by_property(&mut self, first: &All<'a>, second: &All<'a>, depth: usize) -> bool {
        if types(first).and(types(second)) != Types::OBJECT {
            return false;
        }
        let required = first.iter().chain(second).filter_map(|schema| schema.get("required"));
        let names = required.filter_map(Value::as_array).flatten().filter_map(Value::as_str);
        let names: Vec<&str> = names.collect();
        names.into_iter().any(|name| {
            let (first, second) = (property(first, name), property(second, name));
            self.are_disjoint(&first, &second, depth + 1)
        })
    }

    /// Since each of the options that the first side has is disjoint from the second.
    fn by_options(&mut self, first: &All<'a>, second: &All<'a>, depth: usize) -> bool {
        let lists = first.iter().filter_map(|schema| {
            let one_of = schema.get("oneOf").map(|one_of| &one_of["options"]);
            schema.get("anyOf").or(one_of).and_then(Value::as_array)
        });
        let lists: Vec<&'a Vec<Value>> = lists.collect();
        lists.into_iter().any(|options| {
            options.iter().all(|option| {
                // Without the schema that holds the options, which would lead here again.
                let without = first.iter().filter(|schema| {
                    schema.get("anyOf").is_none() && schema.get("oneOf").is_none()
                });
                let mut with: All<'a> = without.copied().collect();
                with.push(option);
                self.are_disjoint(&with, second, depth + 1)
            })
        })
    }
}

fn types(schemas: &All) -> Types {
    let types = schemas.iter().filter_map(|schema| Types::read(schema.get("type")?));
    types.fold(Types::ALL, Types::and)
}

/// The values that the schemas list, if one does: those of the shortest list.
fn values<'a>(schemas: &All<'a>) -> Option<Vec<&'a Value>> {
    let lists = schemas.iter().flat_map(|schema| {
        let one = schema.get("const").map(|value| vec![value]);
        let several = schema.get("enum").and_then(Value::as_array);
        [one, several.map(|values| values.iter().collect())].into_iter().flatten()
    });
    lists.min_by_key(Vec::len)
}

/// Equality as JSON Schema has it: numbers by value, objects without regard to order.
fn are_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| are_equal(a, b))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has = |(key, value)| other.get(key).is_some_and(|it| are_equal(value, it));
            one.len() == other.len() && one.iter().all(has)
        }
        _ => one == other,
    }
}

/// Whether the values are numbers, and the bounds of both sides leave none.
fn ranges_are_disjoint(types: Types, first: &All, second: &All) -> bool {
    let all = || first.iter().chain(second);
    let bounds = |key: &'static str| all().filter_map(move |schema| schema.get(key)?.as_f64());
    let least = bounds("minimum").chain(bounds("exclusiveMinimum")).fold(f64::MIN, f64::max);
    let most = bounds("maximum").chain(bounds("exclusiveMaximum")).fold(f64::MAX, f64::min);
    let excluded = bounds("exclusiveMinimum").chain(bounds("exclusiveMaximum"));
    let is_excluded = least == most && excluded.into_iter().any(|bound| bound == least);
    types.and(Types::NUMBER) == types && (least > most || is_excluded)
}

/// What the schemas ask of a property, if it is there.
fn property<'a>(schemas: &All<'a>, name: &str) -> All<'a> {
    let asked = schemas.iter().filter_map(|schema| {
        let named = schema.get("properties").and_then(|properties| properties.get(name));
        // Whether a pattern is one of this name's is not looked at.
        let others = schema.get("additionalProperties");
        named.or(others.filter(|_| schema.get("patternProperties").is_none()))
    });
    asked.collect()
}
