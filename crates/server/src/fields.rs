//! Taking typed fields out of a request, so that every error names its field and every field
//! that nothing took can be reported as ignored.

use doctor::{PromptError, shown};
use serde_json::{Map, Value};

use crate::error::ApiError;

const STOP_STRINGS_MAX: usize = 16;
const STOP_STRING_BYTES_MAX: usize = 4096;
const IGNORED_MAX: usize = 32;
const IGNORED_CHARS_MAX: usize = 64;

/// The fields of a request that have not been taken yet. A field that is `null` counts as absent,
/// as OpenAI's clients send it.
pub(crate) struct Fields {
    rest: Map<String, Value>,
}

impl Fields {
    pub(crate) fn new(mut object: Map<String, Value>) -> Self {
        object.retain(|_, value| !value.is_null());
        Self { rest: object }
    }

    /// The raw value of `name`.
    pub(crate) fn value(&mut self, name: &str) -> Option<Value> {
        self.rest.remove(name)
    }

    /// A look at `name`, which stays untaken.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.rest.get(name)
    }

    /// Whether `name` is there and untaken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.rest.contains_key(name)
    }

    pub(crate) fn boolean(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(wrong_type(name, "true or false", &other)),
        }
    }

    pub(crate) fn string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(other) => Err(wrong_type(name, "a string", &other)),
        }
    }

    /// A whole number within `low..=high`.
    pub(crate) fn integer(
        &mut self,
        name: &str,
        low: i64,
        high: i64,
    ) -> Result<Option<i64>, ApiError> {
        let number = self.any_integer(name, low.into(), high.into())?;
        Ok(number.map(|number| number as i64))
    }

    fn any_integer(&mut self, name: &str, low: i128, high: i128) -> Result<Option<i128>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let number = whole(&value).ok_or_else(|| wrong_type(name, "a whole number", &value))?;
        in_range(name, number, low, high).map(Some)
    }

    /// The number that draws follow from: any of 64 bits, with or without a sign.
    pub(crate) fn seed(&mut self) -> Result<Option<u64>, ApiError> {
        let seed = self.any_integer("seed", i64::MIN.into(), u64::MAX.into())?;
        Ok(seed.map(|seed| seed as u64))
    }

    /// A count within `low..=high`.
    pub(crate) fn count(
        &mut self,
        name: &str,
        low: usize,
        high: usize,
    ) -> Result<Option<usize>, ApiError> {
        let number = self.integer(name, low as i64, i64::try_from(high).unwrap_or(i64::MAX))?;
        Ok(number.map(|number| number as usize))
    }

    /// A finite number within `low..=high`.
    pub(crate) fn number(
        &mut self,
        name: &str,
        low: f64,
        high: f64,
    ) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let number = value.as_f64().ok_or_else(|| wrong_type(name, "a number", &value))?;
        in_range(name, number, low, high).map(|number| Some(number as f32))
    }

    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, ApiError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Object(value)) => Ok(Some(value)),
            Some(other) => Err(wrong_type(name, "an object", &other)),
        }
    }

    pub(crate) fn array(&mut self, name: &str) -> Result<Option<Vec<Value>>, ApiError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Array(value)) => Ok(Some(value)),
            Some(other) => Err(wrong_type(name, "an array", &other)),
        }
    }

    /// The texts that end an answer: one, or an array of some.
    pub(crate) fn stop_strings(&mut self, name: &str) -> Result<Vec<String>, ApiError> {
        let values = match self.value(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(values)) => values,
            Some(value) => vec![value],
        };
        if values.len() > STOP_STRINGS_MAX {
            let message = format!("'{name}' may hold at most {STOP_STRINGS_MAX} strings");
            return Err(ApiError::bad_request(name, message));
        }
        let string = |value: Value| match value {
            Value::String(text) if text.is_empty() || text.len() > STOP_STRING_BYTES_MAX => {
                let message = format!(
                    "a '{name}' string must have between 1 and {STOP_STRING_BYTES_MAX} bytes"
                );
                Err(ApiError::bad_request(name, message))
            }
            Value::String(text) => Ok(text),
            other => Err(wrong_type(name, "a string or an array of strings", &other)),
        };
        values.into_iter().map(string).collect()
    }

    /// Refuses `name` if it is there: it would change the answer and does not work here.
    pub(crate) fn refuse(&self, name: &str, what: &str) -> Result<(), ApiError> {
        if self.has(name) { Err(ApiError::unsupported(name, what)) } else { Ok(()) }
    }

    /// Refuses whatever is there besides `names`.
    pub(crate) fn refuse_others(&self, names: &[&str]) -> Result<(), ApiError> {
        match self.rest.keys().find(|name| !names.contains(&name.as_str())) {
            Some(name) => {
                let shown = shown(name);
                let message = format!("there is no field {shown} here");
                Err(ApiError::bad_request(name.as_str(), message))
            }
            None => Ok(()),
        }
    }

    /// Takes `name` if it has the value that asks for nothing, and refuses any other.
    pub(crate) fn refuse_unless(
        &mut self,
        name: &str,
        neutral: &Value,
        what: &str,
    ) -> Result<(), ApiError> {
        let same = |value: &Value| match (value.as_f64(), neutral.as_f64()) {
            (Some(value), Some(neutral)) => value == neutral,
            _ => value == neutral,
        };
        match self.value(name) {
            Some(value) if !same(&value) => Err(ApiError::unsupported(name, what)),
            _ => Ok(()),
        }
    }

    /// Puts what nothing took of the object `name` back, each as `name.field`.
    pub(crate) fn put_back(&mut self, name: &str, object: Fields) {
        let rest = object.rest.into_iter();
        self.rest.extend(rest.map(|(field, value)| (format!("{name}.{field}"), value)));
    }

    /// The names that nothing took: accepted, without effect. Of very many, the first; of long
    /// ones, the beginning.
    pub(crate) fn ignored(self) -> Vec<String> {
        let names = self.rest.into_iter().take(IGNORED_MAX);
        names.map(|(name, _)| name.chars().take(IGNORED_CHARS_MAX).collect()).collect()
    }
}

/// A whole number, also when written like `3.0`, and also one that is too large for any field.
fn whole(value: &Value) -> Option<i128> {
    let integer = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
    integer.or_else(|| {
        let float = value.as_f64()?;
        (float.fract() == 0.0).then_some(float as i128)
    })
}

fn in_range<T: PartialOrd + std::fmt::Display>(
    name: &str,
    number: T,
    low: T,
    high: T,
) -> Result<T, ApiError> {
    if number >= low && number <= high {
        return Ok(number);
    }
    let wanted = match high.to_string().len() > 12 {
        true if number > high => format!("at most {high}"),
        true => format!("at least {low}"),
        false => format!("between {low} and {high}"),
    };
    let number = shown(&number);
    Err(ApiError::bad_request(name, format!("'{name}' must be {wanted}, and is {number}")))
}

/// The error for a value of the wrong type.
pub(crate) fn wrong_type(name: &str, wanted: &str, found: &Value) -> ApiError {
    PromptError::wrong_type(name, wanted, found).into()
}
