//! Calls that are written in elements, one for each parameter.

use crate::attempt::{Arguments, Attempt, Started};
use crate::json_call::NAME_BYTES_MAX;
use crate::python_call::as_json;
use crate::scan::{End, space};
use crate::shape::Tags;
use crate::tools::{Kind, Tools};
use serde_json::Value;

/// Reads the name, up to the first parameter or the end.
pub(crate) fn attempt(text: &str, tags: &Tags) -> Attempt {
    match name(text, tags) {
        Ok((name, consumed)) => Attempt::Call(Started {
            name: name.to_owned(),
            consumed,
            in_list: false,
            arguments: Arguments::Tagged,
        }),
        Err(End::More) => Attempt::More,
        Err(_) => Attempt::Bad,
    }
}

fn name<'a>(text: &'a str, tags: &Tags) -> Result<(&'a str, usize), End> {
    let begin = tag(text, space(text, 0), tags.before_name)?;
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    let length = text.as_bytes()[begin..].iter().take_while(|byte| is_part(byte)).count();
    let end = begin + length;
    if length > NAME_BYTES_MAX {
        return Err(End::Bad);
    }
    if end == text.len() {
        return Err(End::More);
    }
    if length == 0 {
        return Err(End::Bad);
    }
    let at = space(text, tag(text, end, tags.after_name)?);
    match tag(text, at, tags.before_key) {
        Err(End::Bad) => tag(text, at, tags.end)?,
        other => other?,
    };
    Ok((&text[begin..end], at))
}

/// Where `wanted` ends that has to stand at `at`.
fn tag(text: &str, at: usize, wanted: &str) -> Result<usize, End> {
    let rest = &text[at..];
    if rest.starts_with(wanted) {
        Ok(at + wanted.len())
    } else if wanted.starts_with(rest) {
        Err(End::More)
    } else {
        Err(End::Bad)
    }
}

/// What comes next in a call.
#[derive(Debug)]
pub(crate) enum Element {
    /// A parameter, as a member of the JSON object, and where it ends.
    Parameter { member: String, end: usize },
    /// The call's end, and where it ends.
    End(usize),
}

/// Reads the next element. `searched` bytes are known not to hold the end of the value, and are
/// told for the next time.
///
/// # Errors
/// [`End::More`], and [`End::Bad`] where no element comes next.
pub(crate) fn element(
    text: &str,
    name: &str,
    tags: &Tags,
    tools: &Tools,
    searched: &mut usize,
) -> Result<Element, End> {
    let at = space(text, 0);
    let begin = match tag(text, at, tags.before_key) {
        Err(End::Bad) => return tag(text, at, tags.end).map(Element::End),
        other => other?,
    };
    let length = text[begin..].find(tags.after_key).ok_or(End::More)?;
    let key = &text[begin..begin + length];
    let after = begin + length + tags.after_key.len();
    let begin = match tags.before_value {
        "" => after,
        opening => tag(text, space(text, after), opening)?,
    };
    let from = text.floor_char_boundary((*searched).clamp(begin, text.len()));
    let Some(length) = text[from..].find(tags.after_value) else {
        *searched = text.len().saturating_sub(tags.after_value.len());
        return Err(End::More);
    };
    *searched = 0;
    let end = from + length;
    let mut value = &text[begin..end];
    if tags.own_lines {
        value = value.strip_prefix('\n').unwrap_or(value);
        value = value.strip_suffix('\n').unwrap_or(value);
    }
    let value = json(value, tools.kind(name, key));
    let member = format!("{}: {value}", Value::from(key));
    Ok(Element::Parameter { member, end: end + tags.after_value.len() })
}

/// A value as JSON: what is JSON is taken for that, unless the parameter takes only text.
fn json(value: &str, kind: Kind) -> String {
    let bare = as_json(value.trim());
    if kind != Kind::Text && serde_json::from_str::<Value>(bare).is_ok() {
        return bare.to_owned();
    }
    Value::from(value).to_string()
}
