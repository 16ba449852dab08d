//! Which crate may use which: arrows run one way, and never in a circle.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::source::Project;

/// What each crate may depend on, in tests too; a crate that is not named may use any.
const ALLOWED: [(&str, &[&str]); 10] = [
    ("package", &[]),
    ("kernels", &[]),
    ("cache", &[]),
    // Only its tests, which read what templates render.
    ("reply", &["package"]),
    ("doctor", &["cache", "package", "reply"]),
    ("grammar", &["package"]),
    ("random_model", &[]),
    ("engine", &["cache", "doctor", "grammar", "kernels", "package", "random_model"]),
    ("server", &["cache", "doctor", "engine", "grammar", "package", "reply"]),
    ("article", &["cache", "doctor", "engine", "kernels", "package", "random_model", "server"]),
];

/// A crate's manifest and the crates of this workspace that it names, with the lines.
struct Manifest<'a> {
    path: &'a str,
    needs: Vec<(String, usize)>,
}

pub(super) fn check(project: &Project) -> Vec<Finding> {
    let manifests = read(project);
    let mut findings = Vec::new();
    for (name, manifest) in &manifests {
        for (needed, line) in &manifest.needs {
            let allowed = ALLOWED.iter().find(|(one, _)| one == name).map(|(_, allowed)| allowed);
            if allowed.is_some_and(|allowed| !allowed.contains(&needed.as_str())) {
                let message = format!("crate {name} must not depend on {needed}");
                findings.push(Finding::new(manifest.path, *line, message));
            }
            if reaches(&manifests, needed, name) {
                let message = format!("circle of crates: {name} -> {needed} -> ... -> {name}");
                findings.push(Finding::new(manifest.path, *line, message));
            }
        }
    }
    findings
}

fn read(project: &Project) -> BTreeMap<String, Manifest<'_>> {
    let names: BTreeMap<&str, String> = project
        .files
        .iter()
        .filter(|file| file.path.ends_with("Cargo.toml"))
        .filter_map(|file| Some((file.path.as_str(), package_name(&file.text)?)))
        .collect();
    names
        .iter()
        .map(|(&path, name)| {
            let text = project.file(path).map(|file| file.text.as_str()).unwrap_or_default();
            let is_ours = |needed: &String| names.values().any(|name| name == needed);
            let needs = dependencies(text).filter(|(needed, _)| is_ours(needed)).collect();
            (name.clone(), Manifest { path, needs })
        })
        .collect()
}

fn package_name(manifest: &str) -> Option<String> {
    let line = manifest.lines().skip_while(|line| line.trim() != "[package]").find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "name").then_some(value)
    })?;
    Some(line.trim().trim_matches('"').to_string())
}

/// The keys of all dependency tables, with their lines.
fn dependencies(manifest: &str) -> impl Iterator<Item = (String, usize)> {
    let mut in_table = false;
    manifest.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim();
        if line.starts_with('[') {
            in_table = line.ends_with("dependencies]") && !line.contains("workspace");
            return None;
        }
        let key = line.split(['.', '=']).next()?.trim();
        (in_table && !key.is_empty() && !key.starts_with('#')).then(|| (key.to_string(), index + 1))
    })
}

fn reaches(manifests: &BTreeMap<String, Manifest<'_>>, from: &str, to: &str) -> bool {
    let mut waiting = vec![from.to_string()];
    let mut seen = Vec::new();
    while let Some(name) = waiting.pop() {
        if name == to {
            return true;
        }
        if !seen.contains(&name) {
            let needs = manifests.get(&name).map(|manifest| manifest.needs.as_slice());
            waiting.extend(needs.unwrap_or_default().iter().map(|(needed, _)| needed.clone()));
            seen.push(name);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, body: &str) -> (String, String) {
        let text = format!("[package]\nname = \"{name}\"\n\n{body}\n");
        (format!("crates/{name}/Cargo.toml"), text)
    }

    fn messages(manifests: &[(String, String)]) -> Vec<String> {
        let files: Vec<_> = manifests.iter().map(|(path, text)| (&path[..], &text[..])).collect();
        check(&Project::of(&files)).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_circle_through_dev_dependencies_is_found() {
        let found = messages(&[
            manifest("one", "[dependencies]\ntwo.workspace = true"),
            manifest("two", "[dev-dependencies]\none = { path = \"../one\" }"),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn an_arrow_against_the_design_is_found() {
        let server = manifest("server", "[dependencies]\nkernels.workspace = true");
        let kernels = manifest("kernels", "");
        assert_eq!(messages(&[server, kernels]), ["crate server must not depend on kernels"]);
    }

    #[test]
    fn the_arrows_of_the_design_pass() {
        let engine = manifest("engine", "[dependencies]\ncache.workspace = true\nserde = \"1\"");
        let cache = manifest("cache", "[dependencies]\nserde = \"1\"");
        assert_eq!(messages(&[engine, cache]), [""; 0]);
    }
}
