//! The tools that a request declares.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Declared tools: their names, and what their parameters are.
///
/// Where a model writes arguments as JSON, only the names matter. Where it writes them as bare
/// texts or in the order of the parameters, the schemas tell what they are.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    properties: BTreeMap<String, Map<String, Value>>,
}

/// What a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only text.
    Text,
    /// Also, or only, something else.
    Other,
    /// The schema does not say.
    Unknown,
}

impl<'a> FromIterator<(&'a str, &'a Value)> for Tools {
    /// From pairs of a name and the JSON Schema of the parameters, which may be null.
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a Value)>>(declared: T) -> Tools {
        let properties = |schema: &Value| schema["properties"].as_object().cloned();
        let declared = declared.into_iter();
        let properties = declared
            .map(|(name, schema)| (name.to_owned(), properties(schema).unwrap_or_default()))
            .collect();
        Tools { properties }
    }
}

impl Tools {
    /// Whether there is none, so that nothing can be a call.
    pub fn is_empty(&self) -> bool {
        self.properties.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.properties.keys().map(String::as_str)
    }

    pub(crate) fn knows(&self, name: &str) -> bool {
        self.properties.contains_key(name)
    }

    /// Whether a name begins like this.
    pub(crate) fn may_become(&self, beginning: &str) -> bool {
        self.properties.keys().any(|name| name.starts_with(beginning))
    }

    /// The parameters of a tool, in the order in which its schema has them.
    pub(crate) fn parameters(&self, name: &str) -> impl Iterator<Item = &str> {
        self.properties.get(name).into_iter().flatten().map(|(name, _)| name.as_str())
    }

    pub(crate) fn kind(&self, name: &str, parameter: &str) -> Kind {
        let schema = self.properties.get(name).and_then(|parameters| parameters.get(parameter));
        schema.map_or(Kind::Unknown, kind_of)
    }
}

fn kind_of(schema: &Value) -> Kind {
    let all = |kinds: &mut dyn Iterator<Item = Kind>| {
        kinds.reduce(|a, b| if a == b { a } else { Kind::Other }).unwrap_or(Kind::Unknown)
    };
    let of_type = |name: &Value| match name.as_str() {
        Some("string") => Kind::Text,
        _ => Kind::Other,
    };
    match &schema["type"] {
        Value::Array(names) => all(&mut names.iter().map(of_type)),
        Value::Null => match schema["enum"].as_array() {
            Some(values) => all(&mut values.iter().map(|value| match value {
                Value::String(_) => Kind::Text,
                _ => Kind::Other,
            })),
            None => match schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
                // One level; what is nested deeper is not known.
                Some(schemas) => all(&mut schemas.iter().map(|one| of_type(&one["type"]))),
                None => Kind::Unknown,
            },
        },
        name => of_type(name),
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, kind_of};
    use serde_json::json;

    #[test]
    fn a_schema_says_whether_only_text_is_taken() {
        let text = [
            json!({"type": "string"}),
            json!({"type": ["string"]}),
            json!({"enum": ["a", "b"]}),
            json!({"anyOf": [{"type": "string"}]}),
        ];
        assert!(text.iter().all(|schema| kind_of(schema) == Kind::Text));
        let other = [
            json!({"type": "integer"}),
            json!({"type": ["string", "null"]}),
            json!({"enum": ["a", 1]}),
            json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        ];
        assert!(other.iter().all(|schema| kind_of(schema) == Kind::Other));
        assert!([json!({}), json!(true)].iter().all(|schema| kind_of(schema) == Kind::Unknown));
    }
}
