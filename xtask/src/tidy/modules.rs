//! Which file is which module: the `mod` declarations, followed from each crate root.

use std::collections::BTreeMap;

use anyhow::Result;
use proc_macro2::{TokenTree, TokenTree::Group};

use super::source::{Project, SourceFile, braces, ident, inside, punct};

/// A module's path below its crate root; the root's own is empty.
pub(super) type ModulePath = Vec<String>;

/// One compiled target: its root file and all modules below it.
pub(super) struct Crate {
    /// The file of each module, inline modules included.
    pub(super) modules: BTreeMap<ModulePath, String>,
}

/// Every target that cargo compiles, with its modules.
pub(super) fn crates(project: &Project) -> Result<Vec<Crate>> {
    let mut crates = Vec::new();
    for file in project.rust().filter(|file| is_root(project, &file.path)) {
        let mut modules = BTreeMap::new();
        let folder = parent(&file.path).to_string();
        add_file(project, file, Vec::new(), &folder, &mut modules)?;
        crates.push(Crate { modules });
    }
    Ok(crates)
}

/// The folder that holds `path`.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// True for the files that cargo compiles by their place alone.
fn is_root(project: &Project, path: &str) -> bool {
    project.files.iter().any(|manifest| {
        let Some(package) = manifest.path.strip_suffix("Cargo.toml") else { return false };
        let Some(inner) = path.strip_prefix(package) else { return false };
        if ["src/lib.rs", "src/main.rs", "build.rs"].contains(&inner) {
            return true;
        }
        ["src/bin/", "tests/", "examples/", "benches/", "fuzz_targets/"].iter().any(|folder| {
            inner.strip_prefix(folder).is_some_and(|rest| {
                !rest.contains('/') || rest.ends_with("/main.rs") && rest.matches('/').count() == 1
            })
        })
    })
}

/// Adds the module in `file` and everything that it declares; children lie in `folder`.
fn add_file(
    project: &Project,
    file: &SourceFile,
    path: ModulePath,
    folder: &str,
    modules: &mut BTreeMap<ModulePath, String>,
) -> Result<()> {
    modules.insert(path.clone(), file.path.clone());
    let mut declared = Vec::new();
    declarations(&file.tokens()?, &path, folder, &file.path, modules, &mut declared);
    for child in declared {
        let Some(child_file) = child.places.iter().find_map(|place| project.file(place)) else {
            continue;
        };
        let name = child.path.last().cloned().unwrap_or_default();
        let in_mod_file = child_file.path.ends_with("/mod.rs");
        let inner = if in_mod_file || child.has_own_path {
            parent(&child_file.path).to_string()
        } else {
            join(&child.folder, &name)
        };
        add_file(project, child_file, child.path, &inner, modules)?;
    }
    Ok(())
}

/// A `mod name;`: its path, the folder it is looked for in, and the files it may be.
struct Declaration {
    path: ModulePath,
    folder: String,
    places: Vec<String>,
    has_own_path: bool,
}

fn declarations(
    tokens: &[TokenTree],
    path: &ModulePath,
    folder: &str,
    file: &str,
    modules: &mut BTreeMap<ModulePath, String>,
    declared: &mut Vec<Declaration>,
) {
    let mut index = 0;
    while index < tokens.len() {
        let is_module = ident(tokens, index).as_deref() == Some("mod");
        let name = ident(tokens, index + 1).filter(|_| is_module);
        match (name, &tokens[index]) {
            (Some(name), _) if punct(tokens, index + 2, ';') => {
                let child = [path.as_slice(), std::slice::from_ref(&name)].concat();
                let own_path = path_attribute(tokens, index);
                let places = match &own_path {
                    Some(own) => vec![join(parent(file), own)],
                    None => vec![
                        join(folder, &format!("{name}.rs")),
                        join(folder, &format!("{name}/mod.rs")),
                    ],
                };
                declared.push(Declaration {
                    path: child,
                    folder: folder.to_string(),
                    places,
                    has_own_path: own_path.is_some(),
                });
                index += 3;
            }
            (Some(name), _) if braces(tokens, index + 2).is_some() => {
                let child = [path.as_slice(), std::slice::from_ref(&name)].concat();
                modules.insert(child.clone(), file.to_string());
                let body = braces(tokens, index + 2).map(inside).unwrap_or_default();
                declarations(&body, &child, &join(folder, &name), file, modules, declared);
                index += 3;
            }
            (_, Group(group)) => {
                declarations(&inside(group), path, folder, file, modules, declared);
                index += 1;
            }
            _ => index += 1,
        }
    }
}

/// The file named by a `#[path = "…"]` right before the `mod` at `index`.
fn path_attribute(tokens: &[TokenTree], index: usize) -> Option<String> {
    let start = index.saturating_sub(6);
    tokens[start..index].iter().rev().find_map(|token| {
        let Group(group) = token else { return None };
        let inner = inside(group);
        let is_path = ident(&inner, 0).as_deref() == Some("path") && punct(&inner, 1, '=');
        is_path.then(|| inner.get(2).map(|text| text.to_string().trim_matches('"').to_string()))?
    })
}

/// `folder/name`, with `..` taken back.
fn join(folder: &str, name: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_followed_through_files_folders_and_inline_modules() {
        let project = Project::of(&[
            ("c/Cargo.toml", ""),
            ("c/src/lib.rs", "mod a;\n#[cfg(test)]\nmod tests { mod deep; }\nm! { pub mod b; }"),
            ("c/src/a.rs", "mod inner;"),
            ("c/src/a/inner.rs", ""),
            ("c/src/b/mod.rs", "#[path = \"../odd.rs\"]\nmod odd;"),
            ("c/src/odd.rs", ""),
            ("c/src/tests/deep.rs", ""),
            ("c/src/dead.rs", ""),
        ]);
        let crates = crates(&project).unwrap();
        let shown: Vec<_> =
            crates[0].modules.iter().map(|(path, file)| (path.join("::"), &file[..])).collect();
        let expected = [
            ("", "c/src/lib.rs"),
            ("a", "c/src/a.rs"),
            ("a::inner", "c/src/a/inner.rs"),
            ("b", "c/src/b/mod.rs"),
            ("b::odd", "c/src/odd.rs"),
            ("tests", "c/src/lib.rs"),
            ("tests::deep", "c/src/tests/deep.rs"),
        ];
        assert_eq!(shown, expected.map(|(path, file)| (path.to_string(), file)));
    }
}
