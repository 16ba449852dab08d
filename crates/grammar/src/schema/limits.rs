//! How large a schema may be.

use crate::error::GrammarError;
use serde_json::Value;

/// Most text in a schema: keys and strings, in bytes.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// Most values in a schema, keys not counted.
const VALUES_MAX: usize = 20_000;
/// How deep its values may be nested.
const DEPTH_MAX: usize = 64;

/// Refuses a schema beyond the limits.
pub(super) fn check(schema: &Value) -> Result<(), GrammarError> {
    let mut size = Size::default();
    measure(schema, 0, &mut size)
}

#[derive(Default)]
struct Size {
    text_bytes: usize,
    values: usize,
}

fn measure(value: &Value, depth: usize, size: &mut Size) -> Result<(), GrammarError> {
    let too_large = |what, limit| Err(GrammarError::TooLarge { what, limit });
    size.values += 1;
    if depth > DEPTH_MAX {
        return too_large("the depth of a schema", DEPTH_MAX);
    }
    if size.values > VALUES_MAX {
        return too_large("the number of a schema's values", VALUES_MAX);
    }
    match value {
        Value::String(text) => size.text_bytes += text.len(),
        Value::Array(list) => {
            for value in list {
                measure(value, depth + 1, size)?;
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                size.text_bytes += key.len();
                measure(value, depth + 1, size)?;
            }
        }
        _ => {}
    }
    if size.text_bytes > TEXT_BYTES_MAX {
        return too_large("the text of a schema", TEXT_BYTES_MAX);
    }
    Ok(())
}
