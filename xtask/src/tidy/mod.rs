//! The rules of the house that rustfmt and clippy do not know.
//!
//! Rust is read as tokens, not as syntax, so that the bodies of macros are held to the same rules.

mod arrows;
mod circles;
mod dead;
mod finding;
mod lengths;
mod modules;
mod paths;
mod source;
mod unsafety;
mod words;

use anyhow::{Context, Result, bail};

use crate::workspace::{Workspace, capture};
use finding::Finding;
use source::{Project, SourceFile};

/// Checks every file that git tracks or would track.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let project = read(workspace)?;
    let findings = check(&project)?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => {
            eprintln!("tidy: {} files, no findings", project.files.len());
            Ok(())
        }
        count => bail!("tidy: {count} findings"),
    }
}

fn check(project: &Project) -> Result<Vec<Finding>> {
    let crates = modules::crates(project)?;
    let mut findings = lengths::check(project)?;
    findings.extend(unsafety::check(project)?);
    findings.extend(dead::check(project, &crates));
    findings.extend(circles::check(project, &crates)?);
    findings.extend(arrows::check(project));
    findings.extend(words::check(project));
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Reads the checkout; a file that is not text keeps its name and loses its content.
fn read(workspace: &Workspace) -> Result<Project> {
    let mut git = workspace.command("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]);
    let mut files = Vec::new();
    for path in capture(&mut git)?.split_terminator('\0') {
        let full = workspace.root().join(path);
        if !full.is_file() {
            continue;
        }
        let bytes = std::fs::read(&full).with_context(|| full.display().to_string())?;
        files.push(SourceFile {
            path: path.to_string(),
            text: String::from_utf8(bytes).unwrap_or_default(),
        });
    }
    Ok(Project { files })
}
