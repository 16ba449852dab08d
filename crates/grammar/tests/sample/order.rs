//! Values in the order of keys that a constraint asks for.
//!
//! An answer lists an object's properties in the schema's order. A value has no such order, so it
//! is written in the first one that the constraint lets through.

use grammar::Constraint;
use serde_json::{Map, Value};

/// How many properties are tried at most, for one value.
const TRIES_MAX: usize = 300;

/// Finds the order.
pub(crate) struct Order<'a> {
    /// A text's tokens.
    encode: &'a dyn Fn(&str) -> Vec<u32>,
    /// The names of each `properties` in the schema: hints at the order.
    named: Vec<Vec<String>>,
    left: usize,
}

impl<'a> Order<'a> {
    pub(crate) fn new(schema: &Value, encode: &'a dyn Fn(&str) -> Vec<u32>) -> Self {
        let mut named = Vec::new();
        note(schema, &mut named);
        Order { encode, named, left: TRIES_MAX }
    }

    /// The value as the constraint lets it through, if it does in some order of its keys.
    pub(crate) fn written(&mut self, constraint: &Constraint, value: &Value) -> Option<String> {
        self.left = TRIES_MAX;
        let mut text = String::new();
        self.value(constraint.clone(), value, &mut text)?;
        Some(text)
    }

    fn piece(&self, mut at: Constraint, piece: &str, text: &mut String) -> Option<Constraint> {
        for id in (self.encode)(piece) {
            at.advance(id).ok()?;
        }
        text.push_str(piece);
        Some(at)
    }

    fn value(&mut self, at: Constraint, value: &Value, text: &mut String) -> Option<Constraint> {
        match value {
            Value::Array(items) => {
                let mut at = self.piece(at, "[", text)?;
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        at = self.piece(at, ",", text)?;
                    }
                    at = self.value(at, item, text)?;
                }
                self.piece(at, "]", text)
            }
            Value::Object(map) => {
                let at = self.piece(at, "{", text)?;
                let mut keys: Vec<&String> = map.keys().collect();
                let known =
                    |names: &&Vec<String>| keys.iter().filter(|key| names.contains(key)).count();
                let hint = self.named.iter().max_by_key(known);
                let place = |key: &&String| hint?.iter().position(|name| name == *key);
                keys.sort_by_key(|key| place(key).unwrap_or(usize::MAX));
                self.properties(at, map, &keys, true, text)
            }
            Value::Number(number) => {
                // A number's value is asked for, not how it was written.
                let number = number.to_string();
                self.piece(at, number.strip_suffix(".0").unwrap_or(&number), text)
            }
            scalar => self.piece(at, &scalar.to_string(), text),
        }
    }

    /// Writes the properties of these keys, in whatever order goes, and the end of the object.
    fn properties(
        &mut self,
        at: Constraint,
        map: &Map<String, Value>,
        keys: &[&String],
        is_first: bool,
        text: &mut String,
    ) -> Option<Constraint> {
        if keys.is_empty() {
            return self.piece(at, "}", text);
        }
        let length = text.len();
        for (index, &key) in keys.iter().enumerate() {
            self.left = self.left.checked_sub(1)?;
            let comma = if is_first { "" } else { "," };
            let begin = format!("{comma}{}:", Value::String(key.clone()));
            let property = self.piece(at.clone(), &begin, text);
            let property = property.and_then(|at| self.value(at, &map[key], text));
            let mut others = keys.to_vec();
            others.remove(index);
            let all = property.and_then(|at| self.properties(at, map, &others, false, text));
            if all.is_some() {
                return all;
            }
            text.truncate(length);
        }
        None
    }
}

fn note(value: &Value, named: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::Object(properties)) = map.get("properties") {
                named.push(properties.keys().cloned().collect());
            }
            map.values().for_each(|value| note(value, named));
        }
        Value::Array(list) => list.iter().for_each(|value| note(value, named)),
        _ => {}
    }
}
