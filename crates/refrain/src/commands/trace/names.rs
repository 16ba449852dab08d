//! The names that tensors have: those that are there, and what is said of one that is not.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io::{IsTerminal, Result, Write};

use anstyle::Style;
use engine::Site;
use engine::trace::{Subject, TensorName, Trace};
use package::{Architecture, Config};
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::paper::shape_text;
use super::selection::Selection;
use crate::failure::Failure;
use crate::quoted::brief;
use crate::screen::Screen;
use crate::words::edits;

/// Names that are proposed for one that is not there.
const PROPOSED_MAX: usize = 3;

/// The names of all tensors of a trace, in the order in which they were first asked about.
#[derive(Default)]
pub(super) struct Names {
    seen: RefCell<(HashSet<TensorName>, Vec<TensorName>)>,
}

/// A tensor of the list.
#[derive(Serialize)]
pub(super) struct Listed {
    name: String,
    alias: String,
    shape: Vec<usize>,
}

/// The document of the list.
#[derive(Serialize)]
pub(super) struct Document {
    schema: &'static str,
    tensors: Vec<Listed>,
}

impl Names {
    /// There is a tensor of this name.
    pub(super) fn note(&self, name: TensorName) {
        let (known, names) = &mut *self.seen.borrow_mut();
        if known.insert(name) {
            names.push(name);
        }
    }

    /// All of them, with the shapes that `trace` saw. Only the first of several decode steps is
    /// listed: the others have the same names behind their own number.
    pub(super) fn list(&self, trace: &Trace, config: &Config) -> Document {
        let kept = trace.tensors.iter().map(|(_, tensor)| (&tensor.name, &tensor.shape));
        let steps = trace.steps.iter().map(|step| (&step.name, &step.shape));
        let shapes: HashMap<&String, &Vec<usize>> = steps.chain(kept).collect();
        let listed = |name: &TensorName| {
            let text = name.to_string();
            let shape = match (shapes.get(&text), name.subject) {
                (Some(shape), _) => (*shape).clone(),
                // Of a long prompt, the scores and weights of most layers are not looked at.
                (None, Subject::Tap(point))
                    if matches!(point.site, Site::Scores | Site::Pattern) =>
                {
                    let tokens = trace.tokens.len();
                    vec![1, config.heads, tokens, tokens]
                }
                (None, _) => return None,
            };
            Some(Listed { alias: name.alias(config.architecture), name: text, shape })
        };
        let names = &self.seen.borrow().1;
        let first = names.iter().filter(|name| name.decode.is_none_or(|step| step == 0));
        Document { schema: "refrain.names/1", tensors: first.filter_map(listed).collect() }
    }

    /// Whether each selection means one tensor, and one that is there.
    pub(super) fn check(
        &self,
        selections: &[Selection],
        architecture: Architecture,
        model: &str,
    ) -> std::result::Result<(), Failure> {
        let names = &self.seen.borrow().1;
        for selection in selections {
            let meant = names.iter().filter(|name| selection.names(**name, architecture));
            let meant: Vec<String> = meant.map(TensorName::to_string).collect();
            match meant.as_slice() {
                [_] => {}
                [] => {
                    let name = brief(&selection.name);
                    let hint = match layers_of(&selection.name, names, architecture) {
                        Some(layers) => format!("its layers are 0 to {}", layers - 1),
                        None => {
                            let near = nearest(&name, names, architecture);
                            format!("did you mean {}? --list lists all names", near.join(" or "))
                        }
                    };
                    let message = format!("{model} has no tensor \"{name}\"; {hint}");
                    return Err(Failure::Usage(message));
                }
                several => {
                    let message = format!(
                        "\"{}\" stands for {} tensors: name one of {}",
                        brief(&selection.name),
                        several.len(),
                        several.join(", ")
                    );
                    return Err(Failure::Usage(message));
                }
            }
        }
        Ok(())
    }
}

/// How many layers have a tensor called `wrong` but for the layer's number; `None` where no layer
/// has one.
fn layers_of(wrong: &str, names: &[TensorName], architecture: Architecture) -> Option<usize> {
    let numbered = |text: &str| {
        let number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let parts: Vec<&str> = text.split('.').collect();
        // Of a decode step, the first number is the step's.
        let from = if parts.first() == Some(&"decode") { 2 } else { 0 };
        let at = from + parts.iter().skip(from).position(number)?;
        Some([&parts[..at], &["LAYER"], &parts[at + 1..]].concat().join("."))
    };
    let wrong = numbered(wrong)?;
    let mut layers = HashSet::new();
    for name in names {
        let same = |text: String| numbered(&text).is_some_and(|text| text == wrong);
        if same(name.to_string()) || same(name.alias(architecture)) {
            layers.extend(name.layer());
        }
    }
    Some(layers.len()).filter(|&count| count > 0)
}

/// The names and aliases most like `wrong`: those that hold all its parts, else those that take the
/// fewest edits.
fn nearest(wrong: &str, names: &[TensorName], architecture: Architecture) -> Vec<String> {
    let wrong = wrong.to_lowercase();
    let parts: Vec<&str> = wrong.split(['.', '_', '/']).filter(|part| !part.is_empty()).collect();
    let texts = names.iter().flat_map(|name| [name.to_string(), name.alias(architecture)]);
    let mut known = HashSet::new();
    let mut ranked: Vec<(usize, usize, String)> = texts
        .filter(|text| known.insert(text.clone()))
        .enumerate()
        .map(|(place, text)| {
            let missing = parts.iter().filter(|part| !text.to_lowercase().contains(**part)).count();
            let distance = edits(&wrong, &text.to_lowercase());
            // A part that is there is worth more than the length of what is around it.
            let score = if missing == 0 { distance / 4 } else { distance };
            (score, place, text)
        })
        .collect();
    ranked.sort();
    ranked.truncate(PROPOSED_MAX);
    ranked.into_iter().map(|(_, _, text)| text).collect()
}

/// A name of a decode step needs as many steps.
pub(super) fn check_steps(
    selections: &[Selection],
    decode: usize,
) -> std::result::Result<(), Failure> {
    for Selection { name, .. } in selections {
        let step =
            name.strip_prefix("decode.").and_then(|rest| rest.split('.').next()?.parse().ok());
        if let Some(step) = step.filter(|step: &usize| *step >= decode) {
            let steps = step.saturating_add(1);
            return Err(Failure::Usage(format!(
                "{} is of decode step {step}: add --decode {steps}",
                brief(name)
            )));
        }
    }
    Ok(())
}

/// Writes the list: a line for each tensor, or two where a terminal is too narrow for one.
pub(super) fn draw(screen: Screen, document: &Document, decode: usize) -> Result<()> {
    let mut out = anstream::stdout().lock();
    let rows = document.tensors.iter();
    let rows: Vec<(&str, String, &str)> =
        rows.map(|one| (one.name.as_str(), shape_text(&one.shape), one.alias.as_str())).collect();
    let name_width = rows.iter().map(|row| row.0.width()).max().unwrap_or(0);
    let shape_width = rows.iter().map(|row| row.1.width()).max().unwrap_or(0);
    let alias_width = rows.iter().map(|row| row.2.width()).max().unwrap_or(0);
    let all = name_width + shape_width + alias_width + 4;
    let (bold, dim) = (Style::new().bold(), Style::new().dimmed());
    let whole = all <= screen.width || !std::io::stdout().is_terminal();
    for (name, shape, alias) in rows {
        if whole {
            writeln!(
                out,
                "{bold}{name:<name_width$}{bold:#}  {shape:<shape_width$}  {dim}{alias}{dim:#}"
            )?;
        } else {
            writeln!(out, "{bold}{name}{bold:#}  {shape}\n    {dim}{alias}{dim:#}")?;
        }
    }
    if decode > 1 {
        let last = decode - 1;
        let steps = if last == 1 { String::new() } else { format!(" to decode.{last}.") };
        let text = format!("decode.1.{steps}: the same names");
        writeln!(out, "{}", screen.fit(&text, screen.width))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use engine::trace::CachePart;

    use super::*;

    fn names() -> Names {
        let names = Names::default();
        for layer in 0..2 {
            for part in [CachePart::Keys, CachePart::Values] {
                names.note(TensorName { decode: None, subject: Subject::Cached { layer, part } });
            }
        }
        names
    }

    fn said(name: &str) -> String {
        let selections = [Selection::parse(name).unwrap()];
        match names().check(&selections, Architecture::Llama, "m") {
            Ok(()) => String::new(),
            Err(Failure::Failed(message) | Failure::Usage(message)) => message,
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_told_which_are_near() {
        assert_eq!(said("kv_cache.0.keys"), "");
        assert_eq!(said("past_key_values.layers.1.values[0]"), "");
        assert!(said("kv_cache.1.key").contains("did you mean kv_cache.1.keys"));
        assert!(said("cache.0.values").contains("did you mean kv_cache.0.values"));
        assert!(said("kv_cache.2.keys").ends_with("\"kv_cache.2.keys\"; its layers are 0 to 1"));
        assert!(said("past_key_values.layers.99.values").ends_with("its layers are 0 to 1"));
        assert!(said("kv_cache.99.key").contains("did you mean kv_cache."));
        assert!(said("KV_CACHE.0.KEYS").contains("did you mean kv_cache.0.keys"));
    }

    #[test]
    fn a_decode_step_needs_its_flag() {
        let selections = [Selection::parse("decode.2.logits").unwrap()];
        let said = |decode| match check_steps(&selections, decode) {
            Err(Failure::Usage(message)) => message,
            other => format!("{other:?}"),
        };
        assert!(said(0).ends_with("add --decode 3"));
        assert!(said(2).ends_with("add --decode 3"));
        assert_eq!(said(3), "Ok(())");
    }
}
