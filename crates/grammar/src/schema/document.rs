//! A schema as it was sent: its draft, and where its references lead.

use crate::error::GrammarError;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Versions of JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Draft {
    Draft4,
    Draft6,
    Draft7,
    Draft2019,
    Draft2020,
}

/// Keywords that hold one schema.
const HOLDS_ONE: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords that hold a list of schemas.
const HOLDS_LIST: [&str; 5] = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];
/// Keywords that hold schemas by name.
const HOLDS_MAP: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// A place in the document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// JSON pointer in a fragment: `#`, `#/properties/a`.
    pub(super) path: String,
    /// Place of the schema resource that it belongs to: the nearest one around it with an `$id`.
    pub(super) resource: String,
}

impl Place {
    fn root() -> Self {
        Place { path: "#".to_owned(), resource: "#".to_owned() }
    }

    /// What is at `key` of what is here.
    pub(super) fn at(&self, key: &str) -> Place {
        let key = key.replace('~', "~0").replace('/', "~1");
        Place { path: format!("{}/{key}", self.path), resource: self.resource.clone() }
    }
}

/// The document, with its identifiers.
pub(super) struct Document<'a> {
    root: &'a Value,
    pub(super) draft: Draft,
    /// URI of each resource by its path.
    uris: HashMap<String, String>,
    /// Path of each resource by its URI.
    resources: HashMap<String, String>,
    /// Places by resource and anchor.
    anchors: HashMap<(String, String), Place>,
}

impl<'a> Document<'a> {
    pub(super) fn new(root: &'a Value) -> Result<Self, GrammarError> {
        let mut document = Document {
            root,
            draft: draft(root, "#")?.unwrap_or(Draft::Draft2020),
            uris: HashMap::new(),
            resources: HashMap::new(),
            anchors: HashMap::new(),
        };
        document.index(root, &Place::root())?;
        Ok(document)
    }

    /// The place of the document itself.
    pub(super) fn root(&self) -> Place {
        Place::root()
    }

    /// The place of a schema, once it is known that it may be a resource of its own.
    pub(super) fn entered(&self, place: &Place) -> Place {
        let is_resource = self.uris.contains_key(&place.path);
        let resource = if is_resource { &place.path } else { &place.resource };
        Place { path: place.path.clone(), resource: resource.clone() }
    }

    fn index(&mut self, schema: &Value, place: &Place) -> Result<(), GrammarError> {
        let Value::Object(map) = schema else { return Ok(()) };
        // Elsewhere than in a resource of its own, the keyword says nothing.
        let is_resource = map.contains_key("$id") || map.contains_key("id");
        if is_resource && draft(schema, &place.path)?.is_some_and(|draft| draft != self.draft) {
            return Err(GrammarError::unsupported("a change of `$schema`", &place.path));
        }
        let place = self.identify(map, place);
        for (key, value) in map {
            let key = key.as_str();
            match value {
                Value::Array(list) if HOLDS_LIST.contains(&key) => {
                    let list = list.iter().enumerate();
                    for (index, schema) in list {
                        self.index(schema, &place.at(key).at(&index.to_string()))?;
                    }
                }
                Value::Object(schemas) if HOLDS_MAP.contains(&key) => {
                    for (name, schema) in schemas {
                        self.index(schema, &place.at(key).at(name))?;
                    }
                }
                schema if HOLDS_ONE.contains(&key) => self.index(schema, &place.at(key))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes note of a schema's identifiers, and gives its place.
    fn identify(&mut self, map: &Map<String, Value>, place: &Place) -> Place {
        let key = if self.draft == Draft::Draft4 { "id" } else { "$id" };
        let hides = self.draft <= Draft::Draft7 && map.contains_key("$ref");
        let id = map.get(key).and_then(Value::as_str).filter(|_| !hides).unwrap_or_default();
        let (uri, fragment) = id.split_once('#').unwrap_or((id, ""));
        let mut place = place.clone();
        if !uri.is_empty() {
            let base = self.uris.get(&place.resource).map_or("", String::as_str);
            let uri = resolved(base, uri);
            place.resource.clone_from(&place.path);
            self.uris.insert(place.path.clone(), uri.clone());
            self.resources.entry(uri).or_insert_with(|| place.path.clone());
        }
        let anchors = ["$anchor", "$dynamicAnchor"].map(|key| map.get(key).and_then(Value::as_str));
        for anchor in anchors.into_iter().flatten().chain([fragment]) {
            if !anchor.is_empty() {
                let key = (place.resource.clone(), anchor.to_owned());
                self.anchors.entry(key).or_insert_with(|| place.clone());
            }
        }
        place
    }

    /// What a reference at `place` refers to.
    pub(super) fn refers(
        &self,
        reference: &str,
        place: &Place,
    ) -> Result<(&'a Value, Place), GrammarError> {
        let outside = || GrammarError::unsupported(OUTSIDE, &place.at("$ref").path);
        let dangling = || GrammarError::invalid(DANGLING, &place.at("$ref").path);
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let resource = if uri.is_empty() {
            place.resource.clone()
        } else {
            let base = self.uris.get(&place.resource).map_or("", String::as_str);
            self.resources.get(&resolved(base, uri)).ok_or_else(outside)?.clone()
        };
        let fragment = percent_decoded(fragment).ok_or_else(dangling)?;
        let target = if fragment.is_empty() || fragment.starts_with('/') {
            self.follow(&resource, &fragment)
        } else {
            let anchor = self.anchors.get(&(resource, fragment)).cloned();
            anchor.and_then(|place| self.follow("#", place.path.strip_prefix('#')?))
        };
        target.ok_or_else(dangling)
    }

    /// Follows a JSON pointer from the resource at `start`.
    fn follow(&self, start: &str, pointer: &str) -> Option<(&'a Value, Place)> {
        let mut value = self.root;
        let mut place = self.entered(&Place::root());
        let whole = format!("{}{pointer}", start.strip_prefix('#')?);
        for key in whole.split('/').skip(1) {
            let key = key.replace("~1", "/").replace("~0", "~");
            value = match value {
                Value::Object(map) => map.get(&key)?,
                Value::Array(list) => list.get(key.parse::<usize>().ok()?)?,
                _ => return None,
            };
            place = self.entered(&place.at(&key));
        }
        Some((value, place))
    }
}

const OUTSIDE: &str = "a `$ref` to another document";
const DANGLING: &str = "a `$ref` refers to nothing";

/// The draft that a schema says it is written in.
fn draft(schema: &Value, path: &str) -> Result<Option<Draft>, GrammarError> {
    let Some(uri) = schema.get("$schema") else { return Ok(None) };
    let Some(uri) = uri.as_str() else {
        return Err(GrammarError::invalid("`$schema` is no string", path));
    };
    let name = uri.trim_end_matches('#').split_once("://").map_or("", |(_, name)| name);
    let draft = match name {
        "json-schema.org/draft-04/schema" => Draft::Draft4,
        "json-schema.org/draft-06/schema" => Draft::Draft6,
        "json-schema.org/draft-07/schema" => Draft::Draft7,
        "json-schema.org/draft/2019-09/schema" => Draft::Draft2019,
        "json-schema.org/draft/2020-12/schema" | "json-schema.org/schema" => Draft::Draft2020,
        _ => return Err(GrammarError::unsupported("this `$schema`", path)),
    };
    Ok(Some(draft))
}

/// A reference without a fragment against a base, both as written: RFC 3986, section 5.2, without
/// the removal of dot segments, so that one with dots is found only as it was written.
fn resolved(base: &str, reference: &str) -> String {
    let has_scheme = reference.split_once(':').is_some_and(|(scheme, _)| !scheme.contains('/'));
    let Some(authority) = base.find("://").map(|scheme| scheme + 3).filter(|_| !has_scheme) else {
        return reference.to_owned();
    };
    let path = base[authority..].find('/').map_or(base.len(), |slash| authority + slash);
    if reference.starts_with('/') {
        return format!("{}{reference}", &base[..path]);
    }
    let folder = base[path..].rfind('/').map_or(path, |slash| path + slash);
    format!("{}/{reference}", &base[..folder])
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        let digits = std::str::from_utf8(&digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}
