//! `cargo xtask kl`: how far the engine's next-token distributions are from a float forward's.

use anyhow::Result;

use crate::tools;
use crate::workspace::{Workspace, run as run_command};

/// Builds what dumps the engine's logits and hands `arguments` on to the oracle, which is Python.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    tools::prepare(workspace)?;
    let mut build = workspace.cargo();
    build.args(["build", "--release", "--package", "engine", "--example", "dump_logits"]);
    run_command(&mut build)?;
    run_command(workspace.cargo().args(["build", "--release"]))?;
    let python = tools::in_environment(workspace, "python");
    let target = workspace.target().join("release");
    run_command(
        workspace
            .command(python)
            .args(["xtask/python/kl.py", "--target"])
            .arg(target)
            .args(arguments),
    )
}
