//! What a module defines and which paths it names, read from its tokens.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::TokenTree;

use super::modules::ModulePath;
use super::source::{braces, ident, inside, path_separator, punct};

/// The contents of one module, as far as imports go.
#[derive(Default)]
pub(super) struct Module {
    /// Names of the items that the module defines.
    pub(super) defines: BTreeSet<String>,
    /// The paths that it names.
    pub(super) references: Vec<Reference>,
}

/// A path that a module names.
#[derive(Clone)]
pub(super) struct Reference {
    /// Its segments, as written; an import's braces are multiplied out.
    pub(super) path: Vec<String>,
    /// The name that an import brings into the module.
    pub(super) name: Option<String>,
    /// True for `use path::*`.
    pub(super) glob: bool,
    /// True for a `use` with a visibility.
    pub(super) reexport: bool,
    /// Where it stands.
    pub(super) line: usize,
}

const ITEMS: [&str; 9] =
    ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"];

/// Reads the module at `path`, and the inline modules in it, into `modules`.
pub(super) fn read(
    tokens: &[TokenTree],
    path: &ModulePath,
    modules: &mut BTreeMap<ModulePath, Module>,
) {
    modules.entry(path.clone()).or_default();
    let mut index = 0;
    while index < tokens.len() {
        index = match (&tokens[index], ident(tokens, index).as_deref()) {
            (_, Some("mod")) if braces(tokens, index + 2).is_some() => {
                let name = ident(tokens, index + 1).unwrap_or_default();
                let child = [path.as_slice(), &[name]].concat();
                let body = braces(tokens, index + 2).map(inside).unwrap_or_default();
                read(&body, &child, modules);
                index + 3
            }
            (_, Some("use")) => {
                let found = import(tokens, index);
                let end = found.end;
                modules.entry(path.clone()).or_default().references.extend(found.references);
                end
            }
            (TokenTree::Group(group), _) => {
                read(&inside(group), path, modules);
                index + 1
            }
            (_, Some(word)) => {
                let module = modules.entry(path.clone()).or_default();
                if ITEMS.contains(&word) {
                    let at = if punct(tokens, index + 1, '!') { index + 2 } else { index + 1 };
                    module.defines.extend(ident(tokens, at));
                }
                named_path(tokens, index, module)
            }
            _ => index + 1,
        };
    }
}

/// Records the path `a::b::…` that begins at `index`, if one does; returns where to go on.
fn named_path(tokens: &[TokenTree], index: usize, module: &mut Module) -> usize {
    let continues = index > 0
        && (punct(tokens, index - 1, '.') || index > 1 && path_separator(tokens, index - 2));
    if continues || !path_separator(tokens, index + 1) {
        return index + 1;
    }
    let mut path = Vec::new();
    let mut at = index;
    while let Some(segment) = ident(tokens, at) {
        path.push(segment);
        if !path_separator(tokens, at + 1) {
            at += 1;
            break;
        }
        at += 3;
    }
    let line = tokens[index].span().start().line;
    module.references.push(Reference { path, name: None, glob: false, reexport: false, line });
    at
}

/// The references of one `use`, and the index behind it.
struct Import {
    references: Vec<Reference>,
    end: usize,
}

fn import(tokens: &[TokenTree], start: usize) -> Import {
    let end = (start..tokens.len()).find(|&at| punct(tokens, at, ';')).unwrap_or(tokens.len());
    let before = start.checked_sub(1);
    let reexport = before.is_some_and(|at| {
        ident(tokens, at).as_deref() == Some("pub")
            || matches!(&tokens[at], TokenTree::Group(_))
                && at.checked_sub(1).and_then(|at| ident(tokens, at)).as_deref() == Some("pub")
    });
    let mut references = Vec::new();
    let line = tokens[start].span().start().line;
    use_tree(&tokens[start + 1..end], &[], &mut |path, name, glob| {
        references.push(Reference { path, name, glob, reexport, line });
    });
    Import { references, end: end + 1 }
}

/// Multiplies out `a::{b, c::d as e, self, f::*}`.
fn use_tree(
    tokens: &[TokenTree],
    prefix: &[String],
    found: &mut dyn FnMut(Vec<String>, Option<String>, bool),
) {
    let mut path = prefix.to_vec();
    let mut at = 0;
    while at < tokens.len() {
        if let Some(group) = braces(tokens, at) {
            for branch in inside(group).split(is_comma) {
                use_tree(branch, &path, found);
            }
            return;
        }
        if punct(tokens, at, '*') {
            return found(path, None, true);
        }
        match ident(tokens, at).as_deref() {
            Some("as") => {
                let name = ident(tokens, at + 1);
                return found(path, name, false);
            }
            Some("self") if !path.is_empty() => {}
            Some(segment) => path.push(segment.to_string()),
            None => {}
        }
        at += 1;
    }
    if path.len() > prefix.len() || !tokens.is_empty() {
        let name = path.last().cloned();
        found(path, name, false);
    }
}

fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',')
}
