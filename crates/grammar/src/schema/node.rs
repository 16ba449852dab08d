//! Keywords that hold no schemas.

use super::document::Place;
use super::format::{Format, look_up};
use crate::error::GrammarError;
use crate::pattern::{self, PatternError};
use serde_json::{Map, Value, json};

/// Integers up to here are exact in double precision, which JSON's numbers are read in.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
/// No answer is as long as this, so that a bound beyond says nothing.
const LENGTH_MAX: u64 = 1 << 24;

/// A set of JSON's types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const NULL: Types = Types(1);
    pub(super) const BOOLEAN: Types = Types(2);
    pub(super) const INTEGER: Types = Types(4);
    /// All numbers.
    pub(super) const NUMBER: Types = Types(4 + 8);
    pub(super) const STRING: Types = Types(16);
    pub(super) const ARRAY: Types = Types(32);
    pub(super) const OBJECT: Types = Types(64);
    pub(super) const ALL: Types = Types(127);

    const NAMES: [(&str, Types); 7] = [
        ("null", Types::NULL),
        ("boolean", Types::BOOLEAN),
        ("number", Types::NUMBER),
        ("integer", Types::INTEGER),
        ("string", Types::STRING),
        ("array", Types::ARRAY),
        ("object", Types::OBJECT),
    ];

    fn named(name: &str) -> Option<Types> {
        Types::NAMES.iter().find(|(other, _)| *other == name).map(|(_, types)| *types)
    }

    /// The types of `type`, if it is well formed.
    pub(super) fn read(value: &Value) -> Option<Types> {
        match value {
            Value::String(name) => Types::named(name),
            Value::Array(names) if !names.is_empty() => {
                let add =
                    |types: Types, name: &Value| Some(types.or(Types::named(name.as_str()?)?));
                names.iter().try_fold(Types(0), add)
            }
            _ => None,
        }
    }

    /// The type of a value.
    pub(super) fn of(value: &Value) -> Types {
        match value {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Number(number) if number.as_f64().is_some_and(|it| it.fract() == 0.0) => {
                Types::INTEGER
            }
            Value::Number(_) => Types::NUMBER,
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        }
    }

    pub(super) fn or(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }

    pub(super) fn and(self, other: Types) -> Types {
        Types(self.0 & other.0)
    }

    /// The types that are not these; `None` where that is no set of types, since some numbers
    /// are integers.
    pub(super) fn others(self) -> Option<Types> {
        let others = Types(Types::ALL.0 & !self.0);
        let is_whole = matches!(self.0 & Types::NUMBER.0, 0 | 12);
        (is_whole && others.0 != 0).then_some(others)
    }

    /// Whether some value is of both.
    pub(super) fn has(self, other: Types) -> bool {
        self.0 & other.0 != 0
    }

    /// As the value of `type`.
    pub(super) fn written(self) -> Value {
        let is_whole = |types: Types| self.0 & types.0 == types.0;
        let names = Types::NAMES.iter().filter(|(name, types)| {
            is_whole(*types) && (*name != "integer" || !is_whole(Types::NUMBER))
        });
        match names.map(|(name, _)| *name).collect::<Vec<_>>().as_slice() {
            [name] => json!(name),
            names => json!(names),
        }
    }
}

/// A schema and its place.
pub(super) struct Node<'a> {
    pub(super) map: &'a Map<String, Value>,
    pub(super) place: Place,
}

impl Node<'_> {
    pub(super) fn invalid<T>(&self, key: &str, message: &str) -> Result<T, GrammarError> {
        Err(GrammarError::invalid(format!("`{key}` {message}"), &self.place.at(key).path))
    }

    pub(super) fn unsupported<T>(&self, key: &str, what: &str) -> Result<T, GrammarError> {
        Err(GrammarError::unsupported(format!("`{key}`{what}"), &self.place.at(key).path))
    }

    pub(super) fn types(&self) -> Result<Option<Types>, GrammarError> {
        match self.map.get("type") {
            None => Ok(None),
            Some(value) => match Types::read(value) {
                Some(types) => Ok(Some(types)),
                None => self.invalid("type", "names no types of JSON"),
            },
        }
    }

    /// A keyword whose value is a count.
    pub(super) fn count(&self, key: &str) -> Result<Option<u64>, GrammarError> {
        let Some(value) = self.map.get(key) else { return Ok(None) };
        let whole = value.as_f64().filter(|it| it.fract() == 0.0 && (0.0..EXACT_MAX).contains(it));
        match value.as_u64().or(whole.map(|count| count as u64)) {
            Some(count) => Ok(Some(count)),
            None => self.invalid(key, "is no count"),
        }
    }

    /// A keyword whose value is a number.
    fn number(&self, key: &str) -> Result<Option<f64>, GrammarError> {
        match self.map.get(key).map(Value::as_f64) {
            None => Ok(None),
            Some(Some(number)) if number.abs() <= EXACT_MAX => Ok(Some(number)),
            Some(Some(_)) => self.unsupported(key, " beyond 2^53"),
            Some(None) => self.invalid(key, "is no number"),
        }
    }

    pub(super) fn numbers(
        &self,
        out: &mut Map<String, Value>,
        multiples: &mut Vec<(f64, String)>,
    ) -> Result<(), GrammarError> {
        let sides = [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")];
        for (inclusive, exclusive) in sides {
            // In draft 4, a boolean says whether the other keyword's bound is meant so.
            let is_exclusive = self.map.get(exclusive).and_then(Value::as_bool);
            let bound = self.number(inclusive)?;
            if let Some(bound) = bound {
                let key = if is_exclusive == Some(true) { exclusive } else { inclusive };
                out.insert(key.to_owned(), number(bound));
            }
            if is_exclusive.is_none()
                && let Some(bound) = self.number(exclusive)?
            {
                out.insert(exclusive.to_owned(), number(bound));
            }
        }
        if let Some(multiple) = self.number("multipleOf")? {
            if multiple <= 0.0 {
                return self.invalid("multipleOf", "is not positive");
            }
            if decimal(multiple).is_none() {
                return self.unsupported("multipleOf", " of so many digits");
            }
            multiples.push((multiple, self.place.at("multipleOf").path));
            out.insert("multipleOf".to_owned(), number(multiple));
        }
        Ok(())
    }

    pub(super) fn strings(
        &self,
        out: &mut Map<String, Value>,
        all_of: &mut Vec<Value>,
    ) -> Result<(), GrammarError> {
        if let Some(least) = self.count("minLength")?.filter(|least| *least > 0) {
            if least > LENGTH_MAX {
                let limit = LENGTH_MAX as usize;
                return Err(GrammarError::TooLarge { what: "`minLength`", limit });
            }
            out.insert("minLength".to_owned(), json!(least));
        }
        if let Some(most) = self.count("maxLength")?.filter(|most| *most <= LENGTH_MAX) {
            out.insert("maxLength".to_owned(), json!(most));
        }
        let pattern = match self.map.get("pattern") {
            None => None,
            Some(Value::String(pattern)) => Some(self.pattern(pattern, &self.place.at("pattern"))?),
            Some(_) => return self.invalid("pattern", "is no string"),
        };
        let mut patterns: Vec<String> = pattern.into_iter().collect();
        match self.map.get("format").map(Value::as_str) {
            None => {}
            Some(None) => return self.invalid("format", "is no string"),
            Some(Some(name)) => match look_up(name) {
                Format::Patterns(formats) => {
                    for format in formats {
                        patterns.push(self.pattern(&format, &self.place.at("format"))?);
                    }
                }
                Format::Refused => return self.unsupported("format", &format!(" {name}")),
                Format::Annotation => {}
            },
        }
        let mut patterns = patterns.into_iter();
        if let Some(pattern) = patterns.next() {
            out.insert("pattern".to_owned(), json!(pattern));
        }
        all_of.extend(patterns.map(|pattern| json!({"pattern": pattern})));
        Ok(())
    }

    /// A pattern for `llguidance`.
    pub(super) fn pattern(&self, pattern: &str, place: &Place) -> Result<String, GrammarError> {
        pattern::translate(pattern).map_err(|error| match error {
            PatternError::Unsupported(what) => GrammarError::unsupported(what, &place.path),
            PatternError::Invalid(message) => GrammarError::invalid(message, &place.path),
            PatternError::TooLarge(what, limit) => GrammarError::TooLarge { what, limit },
        })
    }

    pub(super) fn values(&self, out: &mut Map<String, Value>) -> Result<(), GrammarError> {
        if let Some(value) = self.map.get("const") {
            self.exact("const", value)?;
            out.insert("const".to_owned(), value.clone());
        }
        match self.map.get("enum") {
            None => {}
            Some(Value::Array(values)) if !values.is_empty() => {
                for value in values {
                    self.exact("enum", value)?;
                }
                out.insert("enum".to_owned(), Value::Array(values.clone()));
            }
            Some(_) => return self.invalid("enum", "is no list of values"),
        }
        Ok(())
    }

    /// Refuses values with numbers that are rounded when they are read.
    fn exact(&self, key: &str, value: &Value) -> Result<(), GrammarError> {
        match value {
            Value::Number(number) if number.as_f64().is_none_or(|it| it.abs() > EXACT_MAX) => {
                self.unsupported(key, " with numbers beyond 2^53")
            }
            Value::Array(values) => values.iter().try_for_each(|value| self.exact(key, value)),
            Value::Object(map) => map.values().try_for_each(|value| self.exact(key, value)),
            _ => Ok(()),
        }
    }
}

/// A number as JSON, whole ones without a point.
fn number(number: f64) -> Value {
    if number.fract() == 0.0 { json!(number as i64) } else { json!(number) }
}

/// A number as `coefficient / 10^digits`, as `llguidance` computes it; `None` where it refuses.
fn decimal(number: f64) -> Option<(u32, u32)> {
    let mut number = number;
    let mut digits = 0;
    while number.fract() != 0.0 {
        number *= 10.0;
        digits += 1;
    }
    (number <= f64::from(u32::MAX) && digits <= 9).then_some((number as u32, digits))
}

/// Refuses schemas where two `multipleOf` may have to hold at once, and their least common
/// multiple may not be found in 32 bits.
pub(super) fn check_multiples(multiples: &[(f64, String)]) -> Result<(), GrammarError> {
    let decimals = multiples.iter().filter_map(|(multiple, _)| decimal(*multiple));
    let digits = decimals.clone().map(|(_, digits)| digits).max().unwrap_or_default();
    let scaled = |(number, own): (u32, u32)| u64::from(number) * 10_u64.pow(digits - own);
    let most = decimals.map(scaled).max().unwrap_or_default();
    match multiples {
        [(first, _), rest @ ..]
            if most > u64::from(u16::MAX) && rest.iter().any(|(other, _)| other != first) =>
        {
            let (_, path) = &rest[rest.len() - 1];
            Err(GrammarError::unsupported("`multipleOf` of several large numbers", path))
        }
        _ => Ok(()),
    }
}
