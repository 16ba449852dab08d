//! `cargo xtask soak`: long runs that look whether anything leaks.

use anyhow::Result;

use crate::workspace::{Workspace, run as run_command};
use crate::{test, tools};

/// Runs of the scheduler's property test, of up to 200 operations each.
const SCHEDULER_CASES: &str = "2000";

/// `scheduler` is the engine's own property test, longer than in the tests; the others are the
/// server's, in Python: under many clients, and killed while it writes to disk.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    if arguments == ["scheduler"] {
        let mut command = workspace.cargo();
        command.args(["test", "--release", "--package", "engine", "--lib", "scheduler::tests"]);
        return run_command(command.env("PROPTEST_CASES", SCHEDULER_CASES));
    }
    tools::prepare(workspace)?;
    test::binary(workspace)?;
    tools::model(workspace)?;
    let mut python = workspace.command(tools::in_environment(workspace, "python"));
    python.env("PYTHONPATH", "tests/e2e").env("REFRAIN_BINARY", workspace.binary());
    let script = match arguments.first().map(String::as_str) {
        Some("crash") => "xtask/python/soak_crash.py",
        _ => "xtask/python/soak.py",
    };
    run_command(python.arg(script).args(arguments))
}
