//! `cargo xtask kl`: how far the engine's next-token distributions are from a float forward's.

use anyhow::Result;

use crate::workspace::{Workspace, run as run_command};
use crate::{test, tools};

/// Builds what writes the engine's logits down, and hands `arguments` on to the oracle, in Python.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    tools::prepare(workspace)?;
    test::examples(workspace)?;
    test::binary(workspace)?;
    run_command(
        workspace
            .command(tools::in_environment(workspace, "python"))
            .arg("xtask/python/kl.py")
            .arg("--target")
            .arg(workspace.target().join("release"))
            .arg("--model")
            .arg(tools::model(workspace)?)
            .args(arguments),
    )
}
