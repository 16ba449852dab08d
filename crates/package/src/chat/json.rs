//! JSON as Python's `json.dumps` writes it, which is what templates expect of `tojson`.

use serde_json::Value;

/// Longest text that is written; a nested value with a deep indent could ask for any amount.
const JSON_BYTES_MAX: usize = 16 << 20;

/// The text would be longer than [`JSON_BYTES_MAX`].
#[derive(Debug, thiserror::Error)]
#[error("the JSON is longer than {JSON_BYTES_MAX} bytes")]
pub(super) struct TooLong;

/// The keyword arguments of the `tojson` that transformers gives to templates.
#[derive(Debug, Clone)]
pub(super) struct Style {
    pub(super) ensure_ascii: bool,
    pub(super) indent: Option<usize>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    pub(super) sort_keys: bool,
    /// As Python's `repr` writes it, instead of JSON.
    pub(super) python: bool,
}

impl Style {
    /// `json.dumps`'s defaults: `", "` (`","` before a line break) and `": "`.
    pub(super) fn new(indent: Option<usize>) -> Style {
        Style {
            ensure_ascii: false,
            indent,
            item_separator: if indent.is_some() { "," } else { ", " }.to_owned(),
            key_separator: ": ".to_owned(),
            sort_keys: false,
            python: false,
        }
    }

    /// Python's `repr`, which is what its `str` makes of lists and maps.
    pub(super) fn python() -> Style {
        Style { python: true, ..Style::new(None) }
    }
}

/// Appends `value`. Depth is bounded by the parser that made the value.
pub(super) fn write(
    value: &Value,
    style: &Style,
    depth: usize,
    out: &mut String,
) -> Result<(), TooLong> {
    match value {
        Value::Null if style.python => out.push_str("None"),
        Value::Bool(value) if style.python => out.push_str(if *value { "True" } else { "False" }),
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => out.push_str(&python_float(float)),
            None => out.push_str(&number.to_string()),
        },
        Value::String(text) => write_string(text, style, out),
        Value::Array(items) => {
            let items = items.iter().map(|item| (None, item)).collect();
            write_items(items, ['[', ']'], style, depth, out)?;
        }
        Value::Object(entries) => {
            let mut items: Vec<(Option<&str>, &Value)> =
                entries.iter().map(|(key, value)| (Some(key.as_str()), value)).collect();
            if style.sort_keys {
                items.sort_by_key(|(key, _)| *key);
            }
            write_items(items, ['{', '}'], style, depth, out)?;
        }
    }
    Ok(())
}

fn write_items(
    items: Vec<(Option<&str>, &Value)>,
    brackets: [char; 2],
    style: &Style,
    depth: usize,
    out: &mut String,
) -> Result<(), TooLong> {
    out.push(brackets[0]);
    let count = items.len();
    let line = style.indent.unwrap_or(0).saturating_mul(depth + 1);
    for (index, (key, value)) in items.into_iter().enumerate() {
        if out.len().saturating_add(2 * line) > JSON_BYTES_MAX {
            return Err(TooLong);
        }
        if index > 0 {
            out.push_str(&style.item_separator);
        }
        break_line(style, depth + 1, out);
        if let Some(key) = key {
            write_string(key, style, out);
            out.push_str(&style.key_separator);
        }
        write(value, style, depth + 1, out)?;
    }
    if count > 0 {
        break_line(style, depth, out);
    }
    out.push(brackets[1]);
    Ok(())
}

fn break_line(style: &Style, depth: usize, out: &mut String) {
    if let Some(indent) = style.indent {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', indent * depth));
    }
}

fn write_string(text: &str, style: &Style, out: &mut String) {
    if style.python {
        return write_python_string(text, out);
    }
    let quoted = Value::from(text).to_string();
    if !style.ensure_ascii {
        out.push_str(&quoted);
        return;
    }
    for character in quoted.chars() {
        if character.is_ascii() {
            out.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
}

/// Python's `repr` of a text: in single quotes, unless only those are in it.
fn write_python_string(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == '\\' || character == quote => out.extend(['\\', character]),
            _ if is_printable(character) => out.push(character),
            _ => match u32::from(character) {
                code @ ..0x100 => out.push_str(&format!("\\x{code:02x}")),
                code @ ..0x1_0000 => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
        }
    }
    out.push(quote);
}

/// Python's `str.isprintable`, less code points that are not assigned.
fn is_printable(character: char) -> bool {
    let is_format = matches!(character,
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}');
    let is_space = character != ' ' && character.is_whitespace();
    !(character.is_control() || is_space || is_format)
}

/// Python's `repr` of a float: the shortest digits that read back the same, with an exponent of
/// at least two digits outside 1e-4 … 1e16.
pub(super) fn python_float(float: f64) -> String {
    if !float.is_finite() {
        let infinity = if float > 0.0 { "Infinity" } else { "-Infinity" };
        return if float.is_nan() { "NaN" } else { infinity }.to_owned();
    }
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return format!("{float:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::{Style, python_float, write};
    use serde_json::json;

    /// Expected texts are what CPython 3.11's `json.dumps` gives.
    #[test]
    fn like_python() {
        let value = json!({"b": [1, 2.0, null], "a": {"x": "<é😀\n>"}, "c": [], "d": {}});
        let text = |style: &Style| {
            let mut out = String::new();
            write(&value, style, 0, &mut out).expect("short");
            out
        };
        assert_eq!(
            text(&Style::new(None)),
            r#"{"b": [1, 2.0, null], "a": {"x": "<é😀\n>"}, "c": [], "d": {}}"#
        );
        let sorted = Style { sort_keys: true, ensure_ascii: true, ..Style::new(None) };
        assert_eq!(
            text(&sorted),
            r#"{"a": {"x": "<\u00e9\ud83d\ude00\n>"}, "b": [1, 2.0, null], "c": [], "d": {}}"#
        );
        let lines = "{\n  \"b\": [\n    1,\n    2.0,\n    null\n  ],\n  \"a\": {\n    \
                     \"x\": \"<é😀\\n>\"\n  },\n  \"c\": [],\n  \"d\": {}\n}";
        assert_eq!(text(&Style::new(Some(2))), lines);
        let texts =
            json!({"it's": ["\"'", "a\\\u{1}\u{a0}é\u{200b}😀", true, false, null, 1e-7, -0.0]});
        let mut out = String::new();
        write(&texts, &Style::python(), 0, &mut out).expect("short");
        let repr =
            "{\"it's\": ['\"\\'', 'a\\\\\\x01\\xa0é\\u200b😀', True, False, None, 1e-07, -0.0]}";
        assert_eq!(out, repr);
        let floats = [1e16, 1e15, 1e-5, 0.0001, -2.5e-10, 1.0, 1.5e300];
        let texts = floats.map(python_float);
        let python =
            ["1e+16", "1000000000000000.0", "1e-05", "0.0001", "-2.5e-10", "1.0", "1.5e+300"];
        assert_eq!(texts, python);
    }
}
