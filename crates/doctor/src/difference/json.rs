//! JSON in texts: whether only an order changed, and which tool a place lies in.

use cache::DifferenceKind;
use serde_json::{Deserializer, Value};

use super::span::Side;

/// Objects and lists around a place that are looked at, from the inside.
const AROUND_MAX: usize = 12;
/// Values of a list that are compared with all others.
const LIST_MAX: usize = 128;

/// What is known of a place in JSON.
#[derive(Default)]
pub(crate) struct Place {
    /// Set if nothing changed but an order.
    pub(crate) reordered: Option<DifferenceKind>,
    /// The name of the tool that the place is in.
    pub(crate) tool: Option<String>,
    /// Where in the tool's definition or call.
    pub(crate) path: Option<String>,
}

/// What is known of the place where two texts differ.
pub(crate) fn place(cached: &Side<'_>, request: &Side<'_>) -> Place {
    let mut place = Place::default();
    let at = request.core.start;
    for start in openings(request.text, at) {
        let Some((asked, end)) = value(&request.text[start..]) else { continue };
        if start + end <= at {
            continue;
        }
        if let Some((tool, path)) = tool(&asked, &request.text[start..], at - start) {
            (place.tool, place.path) = (Some(tool), path);
        }
        if place.reordered.is_some() {
            continue;
        }
        let Some((held, _)) = cached.text.get(start..).and_then(value) else { continue };
        place.reordered = if held == asked {
            // Objects are equal in any order of their keys.
            Some(DifferenceKind::ReorderedKeys)
        } else {
            let lists = match (&held, &asked) {
                (Value::Array(held), Value::Array(asked)) => [held.clone(), asked.clone()],
                _ => [cached.text, request.text].map(|text| sequence(&text[start..])),
            };
            is_reordered(&lists).then_some(DifferenceKind::ReorderedTools)
        };
    }
    place
}

/// Where the objects and lists around a place may begin, from the inside. Whether the place is in
/// a string is not known, so it is taken for both; quotation marks before all JSON may mislead it,
/// but only to where no JSON begins.
fn openings(text: &str, at: usize) -> Vec<usize> {
    let before = &text.as_bytes()[..at];
    let mut all = [false, true].map(|in_string| openings_if(before, in_string)).concat();
    all.sort_unstable_by(|one, other| other.cmp(one));
    all.dedup();
    all
}

fn openings_if(before: &[u8], mut in_string: bool) -> Vec<usize> {
    let mut openings = Vec::new();
    let mut closed = 0_usize;
    for (index, byte) in before.iter().enumerate().rev() {
        let escapes = || before[..index].iter().rev().take_while(|byte| **byte == b'\\').count();
        match byte {
            b'"' if escapes() % 2 == 0 => in_string = !in_string,
            _ if in_string => {}
            b'}' | b']' => closed += 1,
            b'{' | b'[' if closed > 0 => closed -= 1,
            b'{' | b'[' => openings.push(index),
            _ => {}
        }
        if openings.len() == AROUND_MAX {
            break;
        }
    }
    openings
}

/// The value that a text begins with, and how long it is.
fn value(text: &str) -> Option<(Value, usize)> {
    let mut values = Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    Some((value, values.byte_offset()))
}

/// The objects that a text begins with, whatever white space or commas stand between them.
fn sequence(text: &str) -> Vec<Value> {
    let mut rest = text;
    let mut all = Vec::new();
    while let Some((one, end)) = value(rest).filter(|(one, _)| one.is_object()) {
        all.push(one);
        rest = rest[end..].trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        if all.len() > LIST_MAX {
            break;
        }
    }
    all
}

/// Whether two lists hold the same tools in another order.
fn is_reordered([held, asked]: &[Vec<Value>; 2]) -> bool {
    if held.len() != asked.len() || held.len() < 2 || held.len() > LIST_MAX {
        return false;
    }
    let mut left: Vec<&Value> = held.iter().collect();
    asked.iter().all(|one| {
        let found = left.iter().position(|other| *other == one);
        found.map(|index| left.swap_remove(index)).is_some() && name(one).is_some()
    })
}

/// The name of a tool, in any of the forms in which one is declared or called.
fn name(tool: &Value) -> Option<&str> {
    tool["function"]["name"].as_str().or_else(|| {
        let parts = ["parameters", "description", "input_schema", "arguments", "input"];
        let is_tool = parts.iter().any(|part| !tool[*part].is_null());
        tool["name"].as_str().filter(|_| is_tool)
    })
}

/// A step into a value.
#[derive(Clone, PartialEq)]
enum Step {
    Key(String),
    Index(usize),
}

/// The outermost tool in `value`, which `text` begins with, that the byte at `at` lies in, and
/// where in it.
fn tool(value: &Value, text: &str, at: usize) -> Option<(String, Option<String>)> {
    let steps = steps(text, at);
    let mut here = value;
    for depth in 0..=steps.len() {
        if let Some(name) = name(here) {
            return Some((name.to_owned(), path(&steps[depth..])));
        }
        here = match steps.get(depth)? {
            Step::Key(key) => here.get(key)?,
            Step::Index(index) => here.get(index)?,
        };
    }
    None
}

/// A path as people write it; what wraps a function says nothing.
fn path(steps: &[Step]) -> Option<String> {
    let wrapped = steps.first() == Some(&Step::Key("function".to_owned()));
    let mut path = String::new();
    for step in &steps[usize::from(wrapped)..] {
        match step {
            Step::Key(key) if path.is_empty() => path.push_str(key),
            Step::Key(key) => path.extend([".", key]),
            Step::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    (!path.is_empty()).then_some(path)
}

/// The steps from the value that `text` begins with to the byte at `at`; a place in a key counts
/// as that key's.
fn steps(text: &str, at: usize) -> Vec<Step> {
    let bytes = text.as_bytes();
    // For each value that is open, the step into it that was taken last.
    let mut open: Vec<Option<Step>> = Vec::new();
    let mut wants_key = false;
    let mut index = 0;
    while index <= at && index < bytes.len() {
        match bytes[index] {
            b'{' => {
                open.push(None);
                wants_key = true;
            }
            b'[' => {
                open.push(Some(Step::Index(0)));
                wants_key = false;
            }
            b'}' | b']' => {
                open.pop();
                wants_key = false;
            }
            b',' => match open.last_mut() {
                Some(Some(Step::Index(index))) => *index += 1,
                Some(key) => {
                    *key = None;
                    wants_key = true;
                }
                None => {}
            },
            b'"' => {
                let end = index + string_length(&bytes[index..]);
                if wants_key && let Some(last) = open.last_mut() {
                    let key = serde_json::from_str(&text[index..end]).unwrap_or_default();
                    *last = Some(Step::Key(key));
                    wants_key = false;
                }
                index = end - 1;
            }
            _ => {}
        }
        index += 1;
    }
    open.into_iter().map_while(|step| step).collect()
}

/// Bytes of the JSON string that `text` begins with, its quotation marks included.
fn string_length(text: &[u8]) -> usize {
    let mut escaped = false;
    for (index, byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    text.len()
}
