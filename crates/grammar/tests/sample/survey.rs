//! What becomes of the sample's schemas and instances.

use crate::order::Order;
use crate::sample::{self, Case};
use grammar::{Constraint, Failure, GrammarError, Vocabulary};
use package::Tokenizer;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Counts over the sample.
#[derive(Default)]
pub(crate) struct Survey {
    pub(crate) schemas: usize,
    pub(crate) supported: usize,
    /// Schemas that are refused, by what is not supported.
    pub(crate) refused: BTreeMap<String, usize>,
    /// For each keyword, the schemas that have it, and those of them that are supported.
    pub(crate) keywords: BTreeMap<String, (usize, usize)>,
    /// Valid instances that are accepted as they are.
    pub(crate) valid_as_given: usize,
    /// Those that are accepted with their keys in another order.
    pub(crate) valid_in_order: usize,
    pub(crate) valid_refused: Vec<String>,
    pub(crate) invalid_refused: usize,
    pub(crate) invalid_accepted: Vec<String>,
    pub(crate) failed: Vec<String>,
}

impl Survey {
    pub(crate) fn of(cases: &[Case], tokenizer: &Tokenizer) -> Self {
        let vocabulary = sample::vocabulary(tokenizer);
        let mut survey = Survey::default();
        for case in cases {
            survey.add(case, tokenizer, &vocabulary);
        }
        survey
    }

    fn add(&mut self, case: &Case, tokenizer: &Tokenizer, vocabulary: &Vocabulary) {
        let constraint = sample::compile(&case.schema, vocabulary);
        let mut keywords = BTreeSet::new();
        collect(&case.schema, &mut keywords);
        for keyword in keywords {
            let (all, supported) = self.keywords.entry(keyword.to_owned()).or_default();
            *all += 1;
            *supported += usize::from(constraint.is_ok());
        }
        self.schemas += 1;
        let constraint = match constraint {
            Ok(constraint) => constraint,
            Err(error) => {
                *self.refused.entry(reason(&error)).or_default() += 1;
                return;
            }
        };
        self.supported += 1;
        let encode = |text: &str| tokenizer.encode_plain(text, false).expect("encodes").ids;
        let mut order = Order::new(&case.schema, &encode);
        for (instance, is_valid) in &case.instances {
            let given = instance.to_string();
            let mut outcome = accepts(constraint.clone(), tokenizer, &given);
            let as_given = outcome == Ok(true);
            if outcome == Ok(false)
                && let Some(text) = order.written(&constraint, instance)
            {
                outcome = accepts(constraint.clone(), tokenizer, &text);
            }
            match (outcome, is_valid) {
                (Ok(true), true) if as_given => self.valid_as_given += 1,
                (Ok(true), true) => self.valid_in_order += 1,
                (Ok(false), true) => self.valid_refused.push(given),
                (Ok(true), false) => self.invalid_accepted.push(given),
                (Ok(false), false) => self.invalid_refused += 1,
                (Err(failure), _) => self.failed.push(failure.to_string()),
            }
        }
    }
}

/// Whether the constraint lets the text be an answer, token by token.
fn accepts(mut constraint: Constraint, tokenizer: &Tokenizer, text: &str) -> Result<bool, Failure> {
    let mut ids = tokenizer.encode_plain(text, false).expect("encodes").ids;
    ids.push(tokenizer.end_ids()[0]);
    for id in ids {
        if !constraint.allowed()?.has(id) {
            return Ok(false);
        }
        constraint.advance(id)?;
    }
    Ok(constraint.is_finished())
}

fn reason(error: &GrammarError) -> String {
    match error {
        GrammarError::Unsupported { feature, .. } => feature.clone(),
        GrammarError::Invalid { message, .. } => format!("not well formed: {message}"),
        error @ GrammarError::TooLarge { .. } => error.to_string(),
    }
}

/// What JSON Schema has in the way of constraints.
const KEYWORDS: [&str; 43] = [
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "if",
    "items",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "then",
    "type",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

/// The keywords of a schema and of those in it.
fn collect<'a>(schema: &'a Value, keywords: &mut BTreeSet<&'a str>) {
    let Value::Object(map) = schema else { return };
    for (key, value) in map {
        if KEYWORDS.contains(&key.as_str()) {
            keywords.insert(key);
        }
        match (key.as_str(), value) {
            ("enum" | "const" | "default" | "examples", _) => {}
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependencies"
                | "dependentSchemas",
                Value::Object(schemas),
            ) => schemas.values().for_each(|schema| collect(schema, keywords)),
            (_, Value::Array(schemas)) => {
                schemas.iter().for_each(|schema| collect(schema, keywords));
            }
            (_, schema) => collect(schema, keywords),
        }
    }
}
