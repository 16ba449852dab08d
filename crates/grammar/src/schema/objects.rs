//! Keywords of objects.

use super::Walk;
use super::document::{Draft, Place};
use super::node::{Node, Types};
use crate::error::GrammarError;
use llguidance::derivre::{RegexAst, RegexBuilder};
use serde_json::{Map, Value, json};

/// Most properties that are named in one object: each may be the next one.
const PROPERTIES_MAX: usize = 1_000;
/// Most dependencies in one object: each doubles what its properties may be.
const DEPENDENCIES_MAX: usize = 4;
/// Most patterns for properties in one object: each is compared with each.
const PATTERNS_MAX: usize = 16;
/// States of an automaton that tells whether two patterns have a key in common.
const STATES_MAX: u64 = 10_000;

impl<'a> Walk<'a> {
    pub(super) fn objects(
        &mut self,
        node: &Node<'a>,
        out: &mut Map<String, Value>,
        all_of: &mut Vec<Value>,
    ) -> Result<(), GrammarError> {
        let properties = self.by_name(node, "properties")?;
        let patterns = self.patterns(node)?;
        let additional = self.additional(node)?;
        let required = required(node)?;
        if properties.len() + required.len() > PROPERTIES_MAX {
            let limit = PROPERTIES_MAX;
            return Err(GrammarError::TooLarge { what: "the number of properties", limit });
        }
        let is_open = additional != Some(Value::Bool(false)) || !patterns.is_empty();
        let is_named = !(properties.is_empty() && required.is_empty() && patterns.is_empty());
        let dependencies = self.dependencies(node, all_of)?;
        self.has_free_keys |= is_open && (is_named || dependencies);
        counts(node, out, &properties, &required, is_open)?;
        for (key, map) in [("properties", properties), ("patternProperties", patterns)] {
            if !map.is_empty() {
                out.insert(key.to_owned(), Value::Object(map));
            }
        }
        if let Some(schema) = additional {
            out.insert("additionalProperties".to_owned(), schema);
        }
        if !required.is_empty() {
            out.insert("required".to_owned(), json!(required));
        }
        Ok(())
    }

    /// A keyword that holds schemas by name.
    fn by_name(&mut self, node: &Node<'a>, key: &str) -> Result<Map<String, Value>, GrammarError> {
        let place = node.place.at(key);
        match node.map.get(key) {
            None => Ok(Map::new()),
            Some(Value::Object(map)) => {
                let written = |(name, schema): (&String, &'a Value)| {
                    Ok((name.clone(), self.node(schema, &place.at(name))?))
                };
                map.iter().map(written).collect()
            }
            Some(_) => node.invalid(key, "is no object"),
        }
    }

    fn patterns(&mut self, node: &Node<'a>) -> Result<Map<String, Value>, GrammarError> {
        let key = "patternProperties";
        let place = node.place.at(key);
        let mut patterns = Map::new();
        for (pattern, schema) in self.by_name(node, key)? {
            let pattern = node.pattern(&pattern, &place.at(&pattern))?;
            if patterns.insert(pattern, schema).is_some() {
                return node.unsupported(key, OVERLAPPING);
            }
        }
        if patterns.len() > PATTERNS_MAX {
            let limit = PATTERNS_MAX;
            return Err(GrammarError::TooLarge {
                what: "the number of `patternProperties`",
                limit,
            });
        }
        for (index, first) in patterns.keys().enumerate() {
            for second in patterns.keys().skip(index + 1) {
                if !are_disjoint(first, second, &place)? {
                    return node.unsupported(key, OVERLAPPING);
                }
            }
        }
        Ok(patterns)
    }

    /// What properties must satisfy that are not named. `unevaluatedProperties` says the same
    /// where nothing beside it could evaluate a property.
    fn additional(&mut self, node: &Node<'a>) -> Result<Option<Value>, GrammarError> {
        if let Some(schema) = node.map.get("additionalProperties") {
            let place = node.place.at("additionalProperties");
            return self.node(schema, &place).map(Some);
        }
        let key = "unevaluatedProperties";
        let Some(schema) = node.map.get(key).filter(|_| self.document.draft >= Draft::Draft2019)
        else {
            return Ok(None);
        };
        let others = ["$ref", "allOf", "anyOf", "dependentSchemas", "else", "if", "oneOf", "then"];
        if *schema != json!(true) && others.iter().any(|key| node.map.contains_key(*key)) {
            return node.unsupported(key, " beside other schemas");
        }
        self.node(schema, &node.place.at(key)).map(Some)
    }

    /// Writes what a property asks of the others: either it is absent, or they are as they should.
    /// Gives whether there is any.
    fn dependencies(
        &mut self,
        node: &Node<'a>,
        all_of: &mut Vec<Value>,
    ) -> Result<bool, GrammarError> {
        let mut count = 0;
        for key in ["dependencies", "dependentRequired", "dependentSchemas"] {
            let Some(value) = node.map.get(key) else { continue };
            let Some(map) = value.as_object() else { return node.invalid(key, "is no object") };
            if !map.is_empty() && node.types()? != Some(Types::OBJECT) {
                return node.unsupported(key, " without the type `object`");
            }
            for (name, asked) in map {
                let absent = json!({"type": "object", "properties": {name: false}});
                let mut present = json!({"type": "object", "required": [name]});
                if let Some(names) = asked.as_array() {
                    let names = names.iter().filter(|other| *other != name);
                    present["required"].as_array_mut().into_iter().for_each(|required| {
                        required.extend(names.clone().cloned());
                    });
                } else {
                    present["allOf"] = json!([self.node(asked, &node.place.at(key).at(name))?]);
                }
                all_of.push(json!({"anyOf": [absent, present]}));
                count += 1;
            }
        }
        if count > DEPENDENCIES_MAX {
            let limit = DEPENDENCIES_MAX;
            return Err(GrammarError::TooLarge { what: "the number of dependencies", limit });
        }
        Ok(count > 0)
    }
}

const OVERLAPPING: &str = " of which two may hold for the same property";

/// Whether no text matches both patterns.
fn are_disjoint(first: &str, second: &str, place: &Place) -> Result<bool, GrammarError> {
    let mut builder = RegexBuilder::new();
    let both = [first, second].map(|pattern| RegexAst::SearchRegex(pattern.to_owned()));
    let both = builder.mk(&RegexAst::And(both.into()));
    match both.and_then(|both| builder.to_regex_limited(both, STATES_MAX)) {
        Ok(mut both) => Ok(both.always_empty()),
        Err(_) => Err(GrammarError::unsupported("a pattern that is so complex", &place.path)),
    }
}

fn required(node: &Node) -> Result<Vec<String>, GrammarError> {
    let Some(value) = node.map.get("required") else { return Ok(Vec::new()) };
    let names = value.as_array().and_then(|names| {
        names.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
    });
    let Some(names) = names else { return node.invalid("required", "is no list of names") };
    let mut once = Vec::with_capacity(names.len());
    for name in names {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    Ok(once)
}

/// Writes how many properties there may be, where that can be held: keys of its own choice may
/// come twice in an answer, so that counting them up to more than one is not safe.
fn counts(
    node: &Node,
    out: &mut Map<String, Value>,
    properties: &Map<String, Value>,
    required: &[String],
    is_open: bool,
) -> Result<(), GrammarError> {
    let least = node.count("minProperties")?.filter(|least| *least > required.len() as u64);
    let most = node.count("maxProperties")?;
    let is_optional = |name: &&String| !required.contains(*name);
    let optional = properties.keys().filter(is_optional).count();
    let named = (required.len() + optional) as u64;
    let most = most.filter(|most| is_open || *most < named);
    let spare_least = least.map_or(0, |least| least - required.len() as u64);
    if is_open && spare_least > 1 {
        return node.unsupported("minProperties", " of properties that are not named");
    }
    if optional > 0 && (least.is_some() || most.is_some()) {
        let one = most.is_none_or(|most| most == required.len() as u64 + 1) && spare_least <= 1;
        if is_open || !one {
            let key = if least.is_some() { "minProperties" } else { "maxProperties" };
            return node.unsupported(key, " beside optional properties");
        }
    }
    for (key, count) in [("minProperties", least), ("maxProperties", most)] {
        if let Some(count) = count {
            out.insert(key.to_owned(), json!(count));
        }
    }
    Ok(())
}
