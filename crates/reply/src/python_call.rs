//! Calls that are written as in Python: `name(parameter=value)`, alone or in a list.

use crate::attempt::{Arguments, Attempt, Started};
use crate::scan::{End, space};
use crate::tools::Tools;
use serde_json::Value;

/// Deepest nesting of lists and maps.
const DEPTH_MAX: usize = 64;

/// Reads a whole call. `in_list` says that a list is open already; otherwise one may open here.
/// With `declared_only`, other names make it no call.
pub(crate) fn attempt(text: &str, in_list: bool, tools: &Tools, declared_only: bool) -> Attempt {
    let mut at = space(text, 0);
    let opens = !in_list && text[at..].starts_with('[');
    if opens {
        at = space(text, at + 1);
    }
    let end = at + name_length(&text[at..]);
    let name = &text[at..end];
    if end == text.len() {
        let may_become = !declared_only || tools.may_become(name);
        return if may_become { Attempt::More } else { Attempt::Bad };
    }
    if name.is_empty() || !text[end..].starts_with('(') || declared_only && !tools.knows(name) {
        return Attempt::Bad;
    }
    match arguments(text, end + 1, &mut tools.parameters(name)) {
        Ok((json, consumed)) => Attempt::Call(Started {
            name: name.to_owned(),
            consumed,
            in_list: in_list || opens,
            arguments: Arguments::Whole { json, inside: false },
        }),
        Err(End::More) => Attempt::More,
        Err(_) => Attempt::Bad,
    }
}

/// Length of the name that the text begins with; tools may also have dashes and dots.
fn name_length(text: &str) -> usize {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    text.as_bytes().iter().take_while(|byte| is_part(byte)).count()
}

/// The arguments from behind the opening parenthesis on, as JSON, and where they end. Those
/// without a name belong to `parameters` in their order.
fn arguments(
    text: &str,
    mut at: usize,
    parameters: &mut dyn Iterator<Item = &str>,
) -> Result<(String, usize), End> {
    let mut json = String::from("{");
    loop {
        at = space(text, at);
        if text[at..].starts_with(')') {
            json.push('}');
            return Ok((json, at + 1));
        }
        if json.len() > 1 {
            json.push_str(", ");
        }
        let end = at + name_length(&text[at..]);
        let equals = space(text, end);
        if equals == text.len() {
            return Err(End::More);
        }
        let name = if end > at && text[equals..].starts_with('=') {
            let name = &text[at..end];
            at = space(text, equals + 1);
            name
        } else {
            parameters.next().ok_or(End::Bad)?
        };
        json.push_str(&Value::from(name).to_string());
        json.push_str(": ");
        at = literal(text, at, 0, &mut json)?;
        at = after_item(text, at, b')')?;
    }
}

/// Steps over a comma; `closing` is left to be read.
fn after_item(text: &str, at: usize, closing: u8) -> Result<usize, End> {
    let at = space(text, at);
    match text.as_bytes().get(at) {
        None => Err(End::More),
        Some(b',') => Ok(at + 1),
        Some(&byte) if byte == closing => Ok(at),
        Some(_) => Err(End::Bad),
    }
}

/// Appends the value at `at` as JSON, and returns where it ends. JSON's own words are values too.
fn literal(text: &str, at: usize, depth: usize, json: &mut String) -> Result<usize, End> {
    if depth > DEPTH_MAX {
        return Err(End::Bad);
    }
    match text.as_bytes().get(at) {
        None => Err(End::More),
        Some(b'"' | b'\'') => {
            let (value, end) = string(text, at)?;
            json.push_str(&Value::from(value).to_string());
            Ok(end)
        }
        Some(b'[') => sequence(text, at + 1, b']', depth, json),
        Some(b'(') => sequence(text, at + 1, b')', depth, json),
        Some(b'{') => map(text, at + 1, depth, json),
        Some(_) => word(text, at, json),
    }
}

fn sequence(
    text: &str,
    mut at: usize,
    closing: u8,
    depth: usize,
    json: &mut String,
) -> Result<usize, End> {
    json.push('[');
    let begin = json.len();
    loop {
        at = space(text, at);
        if text.as_bytes().get(at) == Some(&closing) {
            json.push(']');
            return Ok(at + 1);
        }
        if json.len() > begin {
            json.push_str(", ");
        }
        at = literal(text, at, depth + 1, json)?;
        at = after_item(text, at, closing)?;
    }
}

fn map(text: &str, mut at: usize, depth: usize, json: &mut String) -> Result<usize, End> {
    json.push('{');
    let begin = json.len();
    loop {
        at = space(text, at);
        if text[at..].starts_with('}') {
            json.push('}');
            return Ok(at + 1);
        }
        if json.len() > begin {
            json.push_str(", ");
        }
        match text.as_bytes().get(at) {
            None => return Err(End::More),
            Some(b'"' | b'\'') => {}
            Some(_) => return Err(End::Bad),
        }
        at = space(text, literal(text, at, depth + 1, json)?);
        match text.as_bytes().get(at) {
            None => return Err(End::More),
            Some(b':') => json.push_str(": "),
            Some(_) => return Err(End::Bad),
        }
        at = literal(text, space(text, at + 1), depth + 1, json)?;
        at = after_item(text, at, b'}')?;
    }
}

/// A number, or a word for true, false and none.
fn word(text: &str, at: usize, json: &mut String) -> Result<usize, End> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let length = text.as_bytes()[at..].iter().take_while(|byte| is_part(byte)).count();
    let end = at + length;
    if end == text.len() {
        return Err(End::More);
    }
    let word = &text[at..end];
    let value = as_json(word);
    if serde_json::from_str::<Value>(value).is_err() {
        return Err(End::Bad);
    }
    json.push_str(value);
    Ok(end)
}

/// Python's names of the values that JSON names otherwise.
pub(crate) fn as_json(word: &str) -> &str {
    match word {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        other => other,
    }
}

/// The text that the string at `at` stands for, and where it ends. A backslash before a
/// character that needs none stays, as in Python.
fn string(text: &str, at: usize) -> Result<(String, usize), End> {
    let quote = char::from(text.as_bytes()[at]);
    let mut out = String::new();
    let mut characters = text[at + 1..].char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            _ if character == quote => return Ok((out, at + 1 + index + 1)),
            '\\' => match characters.next().ok_or(End::More)?.1 {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'r' => out.push('\r'),
                '\n' => {}
                'x' => out.push(code(&mut characters, 2)?),
                'u' => out.push(code(&mut characters, 4)?),
                'U' => out.push(code(&mut characters, 8)?),
                other if "\\'\"".contains(other) => out.push(other),
                other => out.extend(['\\', other]),
            },
            _ => out.push(character),
        }
    }
    Err(End::More)
}

fn code(characters: &mut std::str::CharIndices<'_>, digits: usize) -> Result<char, End> {
    let mut code = 0;
    for _ in 0..digits {
        let digit = characters.next().ok_or(End::More)?.1.to_digit(16).ok_or(End::Bad)?;
        code = code * 16 + digit;
    }
    char::from_u32(code).ok_or(End::Bad)
}
