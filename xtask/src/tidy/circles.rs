//! No circle of imports between the files of a crate.
//!
//! A file imports another if it names something that is defined there, by `use` or by a path.
//! A public `use` is a façade, not an import: a name found through it leads to the file behind it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::finding::Finding;
use super::modules::{Crate, ModulePath};
use super::paths::{Module, Reference, read};
use super::source::Project;

/// How many re-exports a name may be followed through.
const HOPS: usize = 16;

pub(super) fn check(project: &Project, crates: &[Crate]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for one in crates {
        let graph = Graph::read(project, one)?;
        findings.extend(graph.circles().into_iter().map(|circle| {
            let mut shown = circle.clone();
            shown.push(circle[0].clone());
            let message = format!("circle of imports: {}", shown.join(" -> "));
            Finding::new(&circle[0], graph.line(&circle), message)
        }));
    }
    Ok(findings)
}

/// The files of one crate and who imports whom.
struct Graph {
    modules: BTreeMap<ModulePath, Module>,
    files: BTreeMap<ModulePath, String>,
    /// Importing file to imported file, with the line of one such import.
    edges: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Graph {
    fn read(project: &Project, one: &Crate) -> Result<Self> {
        let mut modules = BTreeMap::new();
        for (path, file) in &one.modules {
            // An inline module is read with the file that holds it.
            let holder = &path[..path.len().saturating_sub(1)];
            if !path.is_empty() && one.modules.get(holder) == Some(file) {
                continue;
            }
            if let Some(source) = project.file(file) {
                read(&source.tokens()?, path, &mut modules);
            }
        }
        let mut graph = Self { modules, files: one.modules.clone(), edges: BTreeMap::new() };
        for (path, module) in &graph.modules {
            for reference in module.references.iter().filter(|reference| !reference.reexport) {
                let Some(target) = graph.resolve(path, &reference.path, 0) else { continue };
                let (from, to) = (&graph.files[path], &graph.files[&target]);
                if from != to {
                    let lines = graph.edges.entry(from.clone()).or_default();
                    lines.entry(to.clone()).or_insert(reference.line);
                }
            }
        }
        Ok(graph)
    }

    /// The module that defines what `name` means inside the module at `from`.
    fn resolve(&self, from: &ModulePath, name: &[String], hops: usize) -> Option<ModulePath> {
        let (mut at, mut rest) = self.start(from, name)?;
        while let Some((first, others)) = rest.split_first() {
            let child = [at.as_slice(), std::slice::from_ref(first)].concat();
            if self.modules.contains_key(&child) {
                (at, rest) = (child, others);
                continue;
            }
            let module = self.modules.get(&at)?;
            if module.defines.contains(first) || hops == HOPS {
                return Some(at);
            }
            return self.through_imports(&at, module, first, others, hops).or(Some(at));
        }
        Some(at)
    }

    /// Where a path begins: `crate`, `self`, `super`, or a module declared in `from`.
    fn start<'a>(
        &self,
        from: &ModulePath,
        name: &'a [String],
    ) -> Option<(ModulePath, &'a [String])> {
        let mut at = from.clone();
        let mut rest = name;
        match rest.first()?.as_str() {
            "crate" => Some((Vec::new(), &rest[1..])),
            "self" => Some((at, &rest[1..])),
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    at.pop();
                    rest = &rest[1..];
                }
                Some((at, rest))
            }
            first => {
                let child = [at.as_slice(), &[first.to_string()]].concat();
                self.modules.contains_key(&child).then_some((child, &rest[1..]))
            }
        }
    }

    /// Follows the import in the module at `at` that brings `first` into it.
    fn through_imports(
        &self,
        at: &ModulePath,
        module: &Module,
        first: &String,
        others: &[String],
        hops: usize,
    ) -> Option<ModulePath> {
        let is_import = |reference: &&Reference| reference.name.as_ref() == Some(first);
        if let Some(import) = module.references.iter().find(is_import) {
            let full = [import.path.as_slice(), others].concat();
            return self.resolve(at, &full, hops + 1);
        }
        module.references.iter().filter(|reference| reference.glob).find_map(|import| {
            let inner = self.resolve(at, &import.path, hops + 1)?;
            let defines = self.modules.get(&inner)?.defines.contains(first);
            defines.then_some(inner)
        })
    }

    /// One circle through each group of files that import each other, smallest name first.
    fn circles(&self) -> Vec<Vec<String>> {
        let mut reported = BTreeSet::new();
        let mut circles = Vec::new();
        for start in self.edges.keys() {
            if reported.contains(start) {
                continue;
            }
            if let Some(circle) = self.shortest_circle(start) {
                reported.extend(circle.iter().cloned());
                circles.push(circle);
            }
        }
        circles
    }

    /// The shortest way from `start` back to itself, breadth first.
    fn shortest_circle(&self, start: &String) -> Option<Vec<String>> {
        let mut ways = std::collections::VecDeque::from([vec![start.clone()]]);
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop_front() {
            for next in self.edges.get(way.last()?).into_iter().flat_map(BTreeMap::keys) {
                if next == start {
                    return Some(way);
                }
                if seen.insert(next.clone()) {
                    ways.push_back([way.as_slice(), std::slice::from_ref(next)].concat());
                }
            }
        }
        None
    }

    fn line(&self, circle: &[String]) -> usize {
        let next = circle.get(1).unwrap_or(&circle[0]);
        self.edges.get(&circle[0]).and_then(|lines| lines.get(next)).copied().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::modules;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let manifest = ("c/Cargo.toml", "");
        let project = Project::of(&[&[manifest], files].concat());
        let crates = modules::crates(&project).unwrap();
        let findings = check(&project, &crates).unwrap();
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_circle_of_two_files_is_found_by_use_and_by_path() {
        let found = circles(&[
            ("c/src/lib.rs", "mod a; mod b;"),
            ("c/src/a.rs", "use crate::b::{self, other::{B, C}};"),
            ("c/src/b.rs", "m! { fn f() { super::a::g() } }"),
        ]);
        assert_eq!(found, ["circle of imports: c/src/a.rs -> c/src/b.rs -> c/src/a.rs"]);
    }

    #[test]
    fn a_circle_through_a_facade_is_found() {
        let found = circles(&[
            ("c/src/lib.rs", "mod a; mod b; pub use a::A; pub use b::*;"),
            ("c/src/a.rs", "use crate::B; pub struct A;"),
            ("c/src/b.rs", "use crate::A; pub struct B;"),
        ]);
        assert_eq!(found, ["circle of imports: c/src/a.rs -> c/src/b.rs -> c/src/a.rs"]);
    }

    #[test]
    fn a_child_that_uses_its_parent_which_uses_it_is_a_circle() {
        let found = circles(&[
            ("c/src/lib.rs", "mod a; fn f() { a::g() } struct Root;"),
            ("c/src/a.rs", "use super::Root;"),
        ]);
        assert_eq!(found, ["circle of imports: c/src/a.rs -> c/src/lib.rs -> c/src/a.rs"]);
    }

    #[test]
    fn a_facade_a_test_module_and_names_of_other_crates_are_no_circle() {
        let found = circles(&[
            ("c/src/lib.rs", "mod a; mod b; pub use a::A; pub const SIZE: usize = 1;"),
            ("c/src/a.rs", "use b::C; use crate::{b::B, SIZE}; #[cfg(test)] mod tests;"),
            ("c/src/a/tests.rs", "use super::*; use crate::A;"),
            ("c/src/b.rs", "use crate::SIZE; #[cfg(test)] mod tests { use super::*; }"),
        ]);
        assert_eq!(found, [""; 0]);
    }
}
