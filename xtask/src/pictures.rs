//! `cargo xtask pictures`: the documentation's pictures of terminals, drawn anew.

use anyhow::Result;

use crate::workspace::{Workspace, run as run_command};
use crate::{test, tools};

/// Builds the binary, and draws what it prints; with `--check`, says where that has changed.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    tools::prepare(workspace)?;
    test::binary(workspace)?;
    tools::model(workspace)?;
    run_command(
        workspace
            .command(tools::in_environment(workspace, "python"))
            .arg("xtask/python/pictures.py")
            .args(arguments)
            .env("REFRAIN_BINARY", workspace.binary()),
    )
}
