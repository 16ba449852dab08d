//! Calls that are a name, a marker, and arguments as JSON.

use crate::attempt::{Arguments, Attempt, Started};
use crate::json_call::NAME_BYTES_MAX;
use crate::scan::space;

/// Reads the name, an id behind `id` if there is one, and `between`, up to the arguments.
pub(crate) fn attempt(text: &str, id: &str, between: &str) -> Attempt {
    let (name, mut rest) = text.split_at(name_length(text));
    let mut length = name.len();
    if !id.is_empty()
        && let Some(after) = rest.strip_prefix(id)
    {
        length += id.len() + name_length(after);
        rest = &text[length..];
    }
    if length > NAME_BYTES_MAX {
        return Attempt::Bad;
    }
    if rest.is_empty() || is_beginning(rest, between) || is_beginning(rest, id) {
        return Attempt::More;
    }
    let name = bare(name);
    if name.is_empty() || !rest.starts_with(between) {
        return Attempt::Bad;
    }
    let at = space(text, length + between.len());
    match text.as_bytes().get(at) {
        None => Attempt::More,
        Some(b'{') => Attempt::Call(Started {
            name: name.to_owned(),
            consumed: at,
            in_list: false,
            arguments: Arguments::Verbatim,
        }),
        Some(_) => Attempt::Bad,
    }
}

fn name_length(text: &str) -> usize {
    let is_part = |character: char| character.is_alphanumeric() || "_-.:".contains(character);
    text.find(|character| !is_part(character)).unwrap_or(text.len())
}

fn is_beginning(text: &str, marker: &str) -> bool {
    text.len() < marker.len() && marker.starts_with(text)
}

/// The name of Kimi K2's `functions.name:0`.
fn bare(written: &str) -> &str {
    let Some((name, _)) = written.strip_prefix("functions.").and_then(|rest| rest.rsplit_once(':'))
    else {
        return written;
    };
    name
}
