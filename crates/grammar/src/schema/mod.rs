//! A JSON schema, as one that `llguidance` holds exactly.
//!
//! `llguidance` reads most of JSON Schema, but takes some of it for more or less than it says. So
//! a schema is read here first, by the rules of its draft, and written anew in few keywords:
//! references resolved, formats as patterns, `oneOf` as `anyOf` where no value can match two of
//! its options, and what is no constraint left out. What cannot be held exactly is refused, with
//! the keyword and its place.

mod document;
mod exclusive;
mod format;
mod keywords;
mod limits;
mod loops;
mod negation;
mod node;
mod objects;
mod reference;

use crate::error::GrammarError;
use document::{Document, Place};
use reference::name;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, VecDeque};

/// Between two tokens of JSON: one space, or a line break and an indent. Unbounded white space is
/// a form that models get lost in.
const WHITE_SPACE: &str = r" |\r?\n[ \t]{0,64}";
/// Escapes in strings, where all control characters may be written.
const ESCAPES: &str = r#"nrbtf\"u"#;
/// Where each string is to be written in one way, so that an object's key is never another
/// writing of a name that is taken.
const ESCAPES_OF_ONE_WRITING: &str = r#"nrbtf\""#;

/// The schema for `llguidance`, with its settings.
pub(crate) fn prepare(schema: &Value) -> Result<Value, GrammarError> {
    limits::check(schema)?;
    let mut walk = Walk::new(schema)?;
    let place = walk.document.root();
    let root = walk.node(schema, &place)?;
    let mut definitions = Vec::new();
    while let Some((schema, place)) = walk.queue.pop_front() {
        definitions.push(walk.node(schema, &place)?);
    }
    node::check_multiples(&walk.multiples)?;
    loops::check(&root, &definitions, &walk.paths)?;
    let mut all = definitions.clone();
    for schema in &mut all {
        exclusive::resolve(schema, &definitions)?;
    }
    let mut root = match root {
        Value::Object(map) => Value::Object(map),
        Value::Bool(true) => Value::Object(Map::new()),
        _ => return Err(GrammarError::invalid(UNSATISFIABLE, "#")),
    };
    exclusive::resolve(&mut root, &definitions)?;
    let escapes = if walk.has_free_keys { ESCAPES_OF_ONE_WRITING } else { ESCAPES };
    root["x-guidance"] =
        json!({"whitespace_pattern": WHITE_SPACE, "json_allowed_escapes": escapes});
    if !all.is_empty() {
        let named = all.into_iter().enumerate().map(|(index, schema)| (name(index), schema));
        root["$defs"] = Value::Object(named.collect());
    }
    Ok(root)
}

/// What is said of a schema that nothing satisfies.
pub(crate) const UNSATISFIABLE: &str = "no answer can satisfy this";

/// The way through a schema.
struct Walk<'a> {
    document: Document<'a>,
    /// Definition by the path of what it was.
    names: HashMap<String, usize>,
    /// The path of each definition.
    paths: Vec<String>,
    /// Definitions that are still to be written.
    queue: VecDeque<(&'a Value, Place)>,
    /// All `multipleOf`, with their paths.
    multiples: Vec<(f64, String)>,
    /// Whether some object may have keys of its own choice beside ones that are named.
    has_free_keys: bool,
}

impl<'a> Walk<'a> {
    fn new(schema: &'a Value) -> Result<Self, GrammarError> {
        Ok(Walk {
            document: Document::new(schema)?,
            names: HashMap::new(),
            paths: Vec::new(),
            queue: VecDeque::new(),
            multiples: Vec::new(),
            has_free_keys: false,
        })
    }

    /// What is written for a reference: a schema that refers, or `true` or `false` where it leads
    /// to one of these. What it leads to is written later, once.
    fn reference(&mut self, reference: &Value, place: &Place) -> Result<Value, GrammarError> {
        let Some(text) = reference.as_str() else {
            return Err(GrammarError::invalid("`$ref` is no string", &place.at("$ref").path));
        };
        let (schema, target) = self.document.refers(text, place)?;
        if let Value::Bool(all) = schema {
            return Ok(Value::Bool(*all));
        }
        let index = *self.names.entry(target.path.clone()).or_insert_with(|| {
            self.paths.push(target.path.clone());
            self.queue.push_back((schema, target));
            self.paths.len() - 1
        });
        Ok(json!({"$ref": format!("#/$defs/{}", name(index))}))
    }
}
