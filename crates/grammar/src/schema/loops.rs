//! References that lead back to themselves without a value in between.

use super::reference::definition;
use crate::error::GrammarError;
use serde_json::Value;

/// Refuses `{"$ref": "#"}` and what amounts to it: JSON Schema leaves open what it means.
pub(super) fn check(
    root: &Value,
    definitions: &[Value],
    paths: &[String],
) -> Result<(), GrammarError> {
    let followed = definitions.iter().map(|schema| {
        let mut refers = Vec::new();
        collect(schema, &mut refers);
        refers
    });
    let followed: Vec<Vec<usize>> = followed.collect();
    let mut states = vec![State::New; definitions.len()];
    let mut first = Vec::new();
    collect(root, &mut first);
    for start in first.into_iter().chain(0..definitions.len()) {
        visit(start, &followed, &mut states, paths)?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    New,
    Open,
    Done,
}

/// Goes through what `start` follows, without recursion, since chains may be long.
fn visit(
    start: usize,
    followed: &[Vec<usize>],
    states: &mut [State],
    paths: &[String],
) -> Result<(), GrammarError> {
    let mut stack = vec![(start, 0)];
    if states[start] == State::New {
        states[start] = State::Open;
    } else {
        return Ok(());
    }
    while let Some((index, next)) = stack.pop() {
        let Some(&target) = followed[index].get(next) else {
            states[index] = State::Done;
            continue;
        };
        stack.push((index, next + 1));
        match states[target] {
            State::Open => {
                return Err(GrammarError::invalid(ENDLESS, &paths[target]));
            }
            State::New => {
                states[target] = State::Open;
                stack.push((target, 0));
            }
            State::Done => {}
        }
    }
    Ok(())
}

const ENDLESS: &str = "a `$ref` leads back to itself";

/// The definitions that must hold for the same value as this schema.
fn collect(schema: &Value, refers: &mut Vec<usize>) {
    refers.extend(schema.get("$ref").and_then(definition));
    let lists = ["allOf", "anyOf"].map(|key| schema.get(key)).into_iter().flatten();
    let options = schema.get("oneOf").map(|one_of| &one_of["options"]);
    for list in lists.chain(options).filter_map(Value::as_array) {
        for schema in list {
            collect(schema, refers);
        }
    }
}
