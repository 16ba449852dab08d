//! One schema after the other, keyword by keyword.

use super::Walk;
use super::document::{Draft, Place};
use super::node::{Node, Types};
use crate::error::GrammarError;
use serde_json::{Map, Value, json};

impl<'a> Walk<'a> {
    /// Writes a schema anew.
    pub(super) fn node(&mut self, schema: &'a Value, place: &Place) -> Result<Value, GrammarError> {
        let place = self.document.entered(place);
        let map = match schema {
            Value::Bool(all) => return Ok(Value::Bool(*all)),
            Value::Object(map) => map,
            _ => return Err(GrammarError::invalid(NO_SCHEMA, &place.path)),
        };
        if let Some(reference) = map.get("$ref")
            && self.document.draft <= Draft::Draft7
        {
            return self.reference(reference, &place);
        }
        let mut out = Map::new();
        let node = Node { map, place };
        let types = node.types()?;
        if let Some(types) = &types {
            out.insert("type".to_owned(), types.written());
        }
        let types = types.unwrap_or(Types::ALL);
        self.refuse(&node, types)?;
        let mut all_of = Vec::new();
        self.negation(&node, types, &mut all_of)?;
        node.numbers(&mut out, &mut self.multiples)?;
        node.strings(&mut out, &mut all_of)?;
        if types.has(Types::ARRAY) {
            self.arrays(&node, &mut out)?;
        }
        if types.has(Types::OBJECT) {
            self.objects(&node, &mut out, &mut all_of)?;
        }
        node.values(&mut out)?;
        self.combinations(&node, &mut out, all_of)?;
        Ok(Value::Object(out))
    }

    /// Writes the schemas of a list.
    pub(super) fn list(
        &mut self,
        list: &'a Value,
        place: &Place,
    ) -> Result<Vec<Value>, GrammarError> {
        match list.as_array() {
            Some(list) if !list.is_empty() => {
                let list = list.iter().enumerate();
                list.map(|(index, schema)| self.node(schema, &place.at(&index.to_string())))
                    .collect()
            }
            _ => Err(GrammarError::invalid("this is no list of schemas", &place.path)),
        }
    }

    fn combinations(
        &mut self,
        node: &Node<'a>,
        out: &mut Map<String, Value>,
        mut all_of: Vec<Value>,
    ) -> Result<(), GrammarError> {
        if let Some(reference) = node.map.get("$ref") {
            match self.reference(reference, &node.place)? {
                Value::Object(schema) => out.extend(schema),
                all => all_of.push(all),
            }
        }
        if let Some(list) = node.map.get("allOf") {
            all_of.extend(self.list(list, &node.place.at("allOf"))?);
        }
        if !all_of.is_empty() {
            out.insert("allOf".to_owned(), Value::Array(all_of));
        }
        if let Some(list) = node.map.get("anyOf") {
            let options = self.list(list, &node.place.at("anyOf"))?;
            out.insert("anyOf".to_owned(), Value::Array(options));
        }
        if let Some(list) = node.map.get("oneOf") {
            let place = node.place.at("oneOf");
            let options = self.list(list, &place)?;
            out.insert("oneOf".to_owned(), json!({"path": place.path, "options": options}));
        }
        Ok(())
    }

    fn arrays(
        &mut self,
        node: &Node<'a>,
        out: &mut Map<String, Value>,
    ) -> Result<(), GrammarError> {
        let items = node.map.get("items");
        let (first, rest) = if items.is_some_and(Value::is_array) {
            (Some("items"), "additionalItems")
        } else if self.document.draft == Draft::Draft2020 {
            (Some("prefixItems"), "items")
        } else {
            (None, "items")
        };
        if let Some((key, list)) = first.and_then(|key| node.map.get_key_value(key)) {
            let place = node.place.at(key);
            let is_empty = list.as_array().is_some_and(Vec::is_empty);
            let written = if is_empty { Vec::new() } else { self.list(list, &place)? };
            out.insert("prefixItems".to_owned(), Value::Array(written));
        }
        if let Some(schema) = node.map.get(rest) {
            out.insert("items".to_owned(), self.node(schema, &node.place.at(rest))?);
        }
        for key in ["minItems", "maxItems"] {
            if let Some(count) = node.count(key)? {
                out.insert(key.to_owned(), json!(count));
            }
        }
        Ok(())
    }

    /// Refuses what is not held, unless it asks nothing here.
    fn refuse(&self, node: &Node, types: Types) -> Result<(), GrammarError> {
        let asks = |key: &str| {
            node.map.get(key).is_some_and(|schema| match schema {
                Value::Bool(all) => !all,
                Value::Object(map) => !map.is_empty(),
                _ => true,
            })
        };
        let condition = node.map.contains_key("if") && (asks("then") || asks("else"));
        let one_item = node.count("maxItems")?.is_some_and(|most| most <= 1);
        let unique = node.map.get("uniqueItems").is_some_and(|unique| *unique != json!(false));
        let draft = self.document.draft;
        let refused = [
            ("if", condition),
            ("$dynamicRef", node.map.contains_key("$dynamicRef")),
            ("$recursiveRef", node.map.contains_key("$recursiveRef")),
            ("uniqueItems", types.has(Types::ARRAY) && unique && !one_item),
            ("contains", types.has(Types::ARRAY) && node.map.contains_key("contains")),
            ("unevaluatedItems", types.has(Types::ARRAY) && asks("unevaluatedItems")),
            ("propertyNames", types.has(Types::OBJECT) && asks("propertyNames")),
        ];
        // The keyword, and whether it is one of another draft only: then some would ignore it.
        let foreign = [
            ("const", draft < Draft::Draft6),
            ("prefixItems", draft < Draft::Draft2020 && types.has(Types::ARRAY)),
            ("dependentRequired", draft < Draft::Draft2019 && types.has(Types::OBJECT)),
            ("dependentSchemas", draft < Draft::Draft2019 && types.has(Types::OBJECT)),
            ("dependencies", draft >= Draft::Draft2019 && types.has(Types::OBJECT)),
        ];
        for (key, refused) in refused {
            if refused {
                return Err(GrammarError::unsupported(
                    format!("`{key}`"),
                    &node.place.at(key).path,
                ));
            }
        }
        for (key, foreign) in foreign {
            if foreign && node.map.contains_key(key) {
                let feature = format!("`{key}` in this draft");
                return Err(GrammarError::unsupported(feature, &node.place.at(key).path));
            }
        }
        Ok(())
    }
}

const NO_SCHEMA: &str = "a schema is an object or a boolean";
