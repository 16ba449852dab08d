//! Taking typed fields out of a request, so that every error names its field and every field
//! that nothing took can be reported as ignored.

use serde_json::{Map, Value};

use crate::error::ApiError;

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
        let Some(value) = self.value(name) else { return Ok(None) };
        let number = whole(&value).ok_or_else(|| wrong_type(name, "a whole number", &value))?;
        in_range(name, number, low, high).map(Some)
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

    /// Refuses `name` if it is there: it would change the answer and does not work here.
    pub(crate) fn refuse(&self, name: &str, what: &str) -> Result<(), ApiError> {
        if self.has(name) { Err(ApiError::unsupported(name, what)) } else { Ok(()) }
    }

    /// The names that nothing took: accepted, without effect.
    pub(crate) fn ignored(self) -> Vec<String> {
        self.rest.into_iter().map(|(name, _)| name).collect()
    }
}

/// A whole number, also when written like `3.0`.
fn whole(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let float = value.as_f64()?;
        (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64)
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
    Err(ApiError::bad_request(
        name,
        format!("'{name}' must be between {low} and {high}, and is {number}"),
    ))
}

/// The error for a value of the wrong type.
pub(crate) fn wrong_type(name: &str, wanted: &str, found: &Value) -> ApiError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    ApiError::bad_request(name, format!("'{name}' must be {wanted}, and is {found}"))
}

/// The token ids in the array field `name`, each below `vocabulary`.
pub(crate) fn token_ids(
    name: &str,
    values: &[Value],
    vocabulary: usize,
) -> Result<Vec<u32>, ApiError> {
    let one = |value: &Value| match value.as_u64() {
        None => Err(wrong_type(name, "an array of token ids", value)),
        Some(id) if id < vocabulary as u64 => Ok(id as u32),
        Some(id) => {
            let message = format!("'{name}' holds id {id}; the vocabulary has {vocabulary}");
            Err(ApiError::bad_request(name, message))
        }
    };
    values.iter().map(one).collect()
}
