//! No file that nothing reaches: Rust files by `mod`, others by being named somewhere.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::modules::{Crate, parent};
use super::source::Project;

/// Files that a tool or a person finds by their name.
const KNOWN: [&str; 14] = [
    "README.md",
    "README.zh-CN.md",
    "ARCHITECTURE.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "Cargo.toml",
    "Cargo.lock",
    "rustfmt.toml",
    "clippy.toml",
    "deny.toml",
    "typos.toml",
    "ruff.toml",
    "pytest.ini",
    "conftest.py",
];

/// Folders and endings that a tool finds by itself.
const KNOWN_PLACES: [&str; 4] = [".ci/", ".cargo/", ".config/", ".gitignore"];

pub(super) fn check(project: &Project, crates: &[Crate]) -> Vec<Finding> {
    let reached: BTreeSet<&str> =
        crates.iter().flat_map(|one| one.modules.values().map(String::as_str)).collect();
    let mut findings = Vec::new();
    for file in &project.files {
        let path = file.path.as_str();
        let alive = match path.ends_with(".rs") {
            true => reached.contains(path),
            false => is_known(path) || is_named(project, path),
        };
        if !alive {
            findings.push(Finding::new(path, 1, "nothing in the repository reaches this file"));
        }
    }
    findings
}

fn is_known(path: &str) -> bool {
    let name = file_name(path);
    KNOWN.contains(&name)
        || KNOWN_PLACES.iter().any(|place| path.contains(place))
        || path.contains("proptest-regressions/")
        || (name.starts_with("test_") && name.ends_with(".py"))
}

/// True if another file says the file's name, its stem as a Python module, or its folder's path.
fn is_named(project: &Project, path: &str) -> bool {
    let name = file_name(path);
    let module = name.strip_suffix(".py").map(|stem| format!("import {stem}"));
    let from_module = name.strip_suffix(".py").map(|stem| format!("from {stem} import"));
    let folder = parent(path);
    let folder_name = Some(file_name(folder)).filter(|name| {
        !name.is_empty() && !["src", "tests", "data", "python", "e2e"].contains(name)
    });
    project.files.iter().filter(|other| other.path != path).any(|other| {
        let says = |text: &str| other.text.contains(text);
        let in_same_folder = parent(&other.path) == folder;
        says(name)
            || module.as_deref().is_some_and(says)
            || from_module.as_deref().is_some_and(says)
            || (!in_same_folder && folder_name.is_some_and(|folder| says(&format!("{folder}\""))))
            || (!in_same_folder && folder_name.is_some_and(|folder| says(&format!("{folder}/\""))))
    })
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::modules;

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        let project = Project::of(files);
        let crates = modules::crates(&project).unwrap();
        check(&project, &crates).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn a_rust_file_that_no_module_declares_is_found() {
        let files = [
            ("c/Cargo.toml", ""),
            ("c/src/lib.rs", "mod live;"),
            ("c/src/live.rs", ""),
            ("c/src/gone.rs", ""),
            ("c/tests/alone.rs", ""),
        ];
        assert_eq!(dead(&files), ["c/src/gone.rs"]);
    }

    #[test]
    fn a_data_file_that_nothing_names_is_found() {
        let files = [
            ("README.md", "see docs/figure.svg"),
            ("docs/figure.svg", ""),
            ("docs/old.svg", ""),
            ("tests/e2e/test_a.py", "from server import Server\nopen(\"tests/tiny/\")"),
            ("tests/e2e/server.py", ""),
            ("tests/e2e/unused.py", ""),
            ("tests/tiny/model.gguf", ""),
        ];
        assert_eq!(dead(&files), ["docs/old.svg", "tests/e2e/unused.py"]);
    }
}
