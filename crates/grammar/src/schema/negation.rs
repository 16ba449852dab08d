//! `not`, where what it says can be said without it.

use super::Walk;
use super::node::{Node, Types};
use crate::error::GrammarError;
use serde_json::{Map, Value, json};

impl Walk<'_> {
    /// Writes `not` of types, and of one required property of objects; refuses any other.
    pub(super) fn negation(
        &mut self,
        node: &Node,
        types: Types,
        all_of: &mut Vec<Value>,
    ) -> Result<(), GrammarError> {
        let negated = match node.map.get("not") {
            None | Some(Value::Bool(false)) => return Ok(()),
            Some(Value::Object(negated)) => only_constraint(negated),
            Some(_) => None,
        };
        let written = match negated {
            Some(("type", value)) => {
                let others = Types::read(value).and_then(Types::others);
                others.map(|others| json!({"type": others.written()}))
            }
            Some(("required", Value::Array(names))) if types == Types::OBJECT => {
                self.has_free_keys = true;
                match names.as_slice() {
                    [Value::String(name)] => {
                        Some(json!({"type": "object", "properties": {name: false}}))
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        match written {
            Some(written) => all_of.push(written),
            None => return node.unsupported("not", ""),
        }
        Ok(())
    }
}

/// The only keyword of a schema, beside what is no constraint.
fn only_constraint(schema: &Map<String, Value>) -> Option<(&str, &Value)> {
    let says = |key: &str| !matches!(key, "title" | "description" | "$comment");
    let mut keywords = schema.iter().filter(|(key, _)| says(key));
    let (key, value) = keywords.next()?;
    keywords.next().is_none().then_some((key.as_str(), value))
}
