//! Calls that are an object with a name and arguments, alone or in a list.

use crate::attempt::{Arguments, Attempt, Started};
use crate::scan::{End, space, string, value_end};
use crate::tools::Tools;
use serde_json::Value;

/// What models call the tool's name.
const NAMES: [&str; 2] = ["name", "tool_name"];
/// What they call its arguments.
const ARGUMENTS: [&str; 2] = ["arguments", "parameters"];
/// What else may stand in a call, which nobody needs.
const OTHERS: [&str; 3] = ["id", "type", "tool_call_id"];
/// Longest name.
pub(crate) const NAME_BYTES_MAX: usize = 256;

/// Reads a call up to its arguments, or through them where they come before the name.
///
/// `in_list` says that a list is open already; otherwise one may open here. With
/// `declared_only`, other names and other keys than those of calls make it no call.
pub(crate) fn attempt(text: &str, in_list: bool, tools: &Tools, declared_only: bool) -> Attempt {
    let mut at = space(text, 0);
    let opens = !in_list && text[at..].starts_with('[');
    if opens {
        at = space(text, at + 1);
    }
    match text.as_bytes().get(at) {
        None => return Attempt::More,
        Some(b'{') => {}
        Some(_) => return Attempt::Bad,
    }
    let mut head = Head { tools, declared_only, name: None, arguments: None };
    match head.members(text, at + 1) {
        Ok((consumed, arguments)) => {
            let name = head.name.unwrap_or_default();
            Attempt::Call(Started { name, consumed, in_list: in_list || opens, arguments })
        }
        Err(End::More) => Attempt::More,
        Err(_) => Attempt::Bad,
    }
}

/// What is known of the call so far.
struct Head<'a> {
    tools: &'a Tools,
    declared_only: bool,
    name: Option<String>,
    arguments: Option<String>,
}

impl Head<'_> {
    /// Reads members from `at` on until name and arguments are known, or where they begin.
    fn members(&mut self, text: &str, mut at: usize) -> Result<(usize, Arguments), End> {
        loop {
            at = space(text, at);
            if text[at..].starts_with('}') {
                // Tools without parameters are also called without arguments.
                self.name.as_ref().ok_or(End::Bad)?;
                let json = self.arguments.take().unwrap_or_else(|| "{}".to_owned());
                return Ok((at + 1, Arguments::Whole { json, inside: false }));
            }
            let (key, value) = key(text, at)?;
            if ARGUMENTS.contains(&key.as_str()) {
                if self.name.is_some() && text[value..].starts_with('{') {
                    return Ok((value, Arguments::Verbatim));
                }
                at = self.take_arguments(text, value)?;
            } else if NAMES.contains(&key.as_str()) {
                at = self.take_name(text, value)?;
            } else if self.declared_only && !OTHERS.contains(&key.as_str()) {
                return Err(End::Bad);
            } else {
                at = end_of(text, value)?;
            }
            if self.name.is_some()
                && let Some(json) = self.arguments.take()
            {
                return Ok((at, Arguments::Whole { json, inside: true }));
            }
            at = space(text, at);
            match text.as_bytes().get(at) {
                None => return Err(End::More),
                Some(b',') => at += 1,
                Some(b'}') => {}
                Some(_) => return Err(End::Bad),
            }
        }
    }

    fn take_name(&mut self, text: &str, at: usize) -> Result<usize, End> {
        let (name, end) = string(text, at)?;
        let is_long = name.len() > NAME_BYTES_MAX;
        if name.is_empty() || is_long || self.declared_only && !self.tools.knows(&name) {
            return Err(End::Bad);
        }
        self.name = Some(name);
        Ok(end)
    }

    /// Arguments before the name, as JSON in a text, or none.
    fn take_arguments(&mut self, text: &str, at: usize) -> Result<usize, End> {
        let end = end_of(text, at)?;
        let json = &text[at..end];
        self.arguments = Some(match text.as_bytes()[at] {
            b'{' => json.to_owned(),
            b'"' => {
                let (inner, _) = string(text, at)?;
                let is_object = serde_json::from_str::<Value>(&inner).is_ok_and(|v| v.is_object());
                if is_object { inner } else { return Err(End::Bad) }
            }
            _ if json == "null" => "{}".to_owned(),
            _ => return Err(End::Bad),
        });
        Ok(end)
    }
}

/// A member's key, and where its value begins.
fn key(text: &str, at: usize) -> Result<(String, usize), End> {
    let (key, end) = string(text, at)?;
    let colon = space(text, end);
    match text.as_bytes().get(colon) {
        None => Err(End::More),
        Some(b':') => Ok((key, space(text, colon + 1))),
        Some(_) => Err(End::Bad),
    }
}

fn end_of(text: &str, at: usize) -> Result<usize, End> {
    match value_end(text, at) {
        End::At(end) => Ok(end),
        other => Err(other),
    }
}

/// Where the object ends whose next member or closing brace comes next: what stands behind the
/// arguments of a call.
///
/// # Errors
/// [`End::More`], and [`End::Bad`] where no object goes on like this.
pub(crate) fn rest_of_object(text: &str) -> Result<usize, End> {
    let mut at = space(text, 0);
    loop {
        match text.as_bytes().get(at) {
            None => return Err(End::More),
            Some(b'}') => return Ok(at + 1),
            Some(b',') => {
                let (_, value) = key(text, space(text, at + 1))?;
                at = space(text, end_of(text, value)?);
            }
            Some(_) => return Err(End::Bad),
        }
    }
}
