//! How definitions are named in what is written.

use serde_json::Value;

/// The name of a definition.
pub(super) fn name(index: usize) -> String {
    format!("r{index}")
}

/// The definition that a `$ref` in what was written leads to.
pub(super) fn definition(reference: &Value) -> Option<usize> {
    reference.as_str()?.strip_prefix("#/$defs/r")?.parse().ok()
}
