//! `cargo xtask test`: everything that must hold before a change lands.

use anyhow::{Context, Result};

use crate::clients;
use crate::performance;
use crate::stages::{self, Stage};
use crate::tidy;
use crate::tools;
use crate::workspace::{Workspace, run as run_command, succeeds};

/// The likeliest and cheapest failures come first.
const STAGES: &[Stage] = &[
    Stage { name: "format", run: format },
    Stage { name: "tidy", run: tidy },
    Stage { name: "tools", run: tools::prepare },
    Stage { name: "spelling", run: spelling },
    Stage { name: "python", run: python },
    Stage { name: "dependencies", run: dependencies },
    Stage { name: "lints", run: lints },
    Stage { name: "binary", run: binary },
    Stage { name: "model", run: |workspace| tools::model(workspace).map(drop) },
    Stage { name: "tests", run: tests },
    Stage { name: "loom", run: loom },
    Stage { name: "doctests", run: doctests },
    Stage { name: "e2e", run: |workspace| pytest(workspace, &[]) },
    Stage { name: "clients", run: clients::run_tests },
];

/// Runs all stages, or those called `names`.
pub(crate) fn run(workspace: &Workspace, names: &[String]) -> Result<()> {
    let chosen = match names {
        [] => STAGES.iter().collect::<Vec<_>>(),
        names => names.iter().map(|name| stage(name)).collect::<Result<_>>()?,
    };
    stages::run(workspace, &chosen)
}

/// Runs the end-to-end tests with `arguments` for pytest.
pub(crate) fn end_to_end(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    tools::prepare(workspace)?;
    pytest(workspace, arguments)
}

/// Writes what the commands in the documents print, with the binary of now, into the documents.
pub(crate) fn write_documents(workspace: &Workspace) -> Result<()> {
    tools::prepare(workspace)?;
    binary(workspace)?;
    tools::model(workspace)?;
    let python = tools::in_environment(workspace, "python");
    let mut command = workspace.command(python);
    command.arg("tests/e2e/documents.py").env("REFRAIN_BINARY", workspace.binary());
    run_command(&mut command)
}

fn stage(name: &str) -> Result<&'static Stage> {
    STAGES.iter().find(|stage| stage.name == name).with_context(|| {
        let known = STAGES.iter().map(|stage| stage.name).collect::<Vec<_>>().join(", ");
        format!("no stage is called {name:?}; there are {known}")
    })
}

/// The rules, and that the table of rates is what its runs say.
fn tidy(workspace: &Workspace) -> Result<()> {
    tidy::run(workspace)?;
    performance::run(workspace, &["--check".to_owned()])
}

fn format(workspace: &Workspace) -> Result<()> {
    run_command(workspace.cargo().args(["fmt", "--all", "--check"]))
}

fn spelling(workspace: &Workspace) -> Result<()> {
    run_command(workspace.command(tools::in_environment(workspace, "typos")).arg("."))
}

/// The Python is formatted and linted as the Rust is.
fn python(workspace: &Workspace) -> Result<()> {
    let ruff = tools::in_environment(workspace, "ruff");
    run_command(workspace.command(&ruff).args(["format", "--quiet", "--check", "--diff"]))?;
    run_command(workspace.command(&ruff).args(["check", "--quiet"]))
}

/// Licences, bans and sources always; advisories where their database has been fetched.
fn dependencies(workspace: &Workspace) -> Result<()> {
    let deny = tools::in_environment(workspace, "cargo-deny");
    let deny = |arguments: &[&str]| run_command(workspace.command(&deny).args(arguments));
    deny(&["check", "bans", "licenses", "sources"])?;
    if tools::advisory_database_exists() {
        return deny(&["--offline", "check", "advisories"]);
    }
    eprintln!(
        "advisories: NOT checked, as there is no copy of the advisory database here; \
         `.venv/bin/cargo-deny fetch db` brings one from where its host can be reached"
    );
    Ok(())
}

fn lints(workspace: &Workspace) -> Result<()> {
    run_command(workspace.cargo().args([
        "clippy",
        "--release",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}

/// Every test of every crate, by nextest where it is installed.
fn tests(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.cargo();
    if succeeds(workspace.cargo().args(["nextest", "--version"])) {
        command.args(["nextest", "run", "--release", "--workspace", "--no-fail-fast"]);
    } else {
        command.args(["test", "--release", "--workspace", "--all-targets", "--no-fail-fast"]);
    }
    command.env("REFRAIN_GPT2_VOCAB", tools::gpt2_vocabulary(workspace)?);
    command.env("REFRAIN_SMOLLM2", tools::model(workspace)?);
    run_command(&mut command)
}

/// The barrier of the team, by loom: of everything compiled with its flag in a folder of its own.
/// The kernels beside it are not run, so they are not worth the time of an optimization.
fn loom(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(["test", "--release", "--package", "kernels", "--lib"]);
    command.args(["--config", "profile.release.package.kernels.opt-level=0"]);
    command.args(["--", "team::loom_tests"]);
    command.env("RUSTFLAGS", "--cfg loom");
    command.env("CARGO_TARGET_DIR", workspace.target().join("loom"));
    run_command(&mut command)
}

fn doctests(workspace: &Workspace) -> Result<()> {
    run_command(workspace.cargo().args(["test", "--release", "--workspace", "--doc", "--quiet"]))
}

/// What `cargo run --release` builds.
pub(crate) fn binary(workspace: &Workspace) -> Result<()> {
    run_command(workspace.cargo().args(["build", "--release"]))
}

/// The example programs, with the features that the tests are compiled with, so that what the
/// tests have built serves.
pub(crate) fn examples(workspace: &Workspace) -> Result<()> {
    run_command(workspace.cargo().args(["build", "--release", "--workspace", "--examples"]))
}

/// The end-to-end tests, on the binary as `cargo run --release` builds it.
fn pytest(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    examples(workspace)?;
    binary(workspace)?;
    run_command(
        workspace
            .command(tools::in_environment(workspace, "python"))
            .args(["-m", "pytest", "tests/e2e"])
            .args(arguments)
            .env("REFRAIN_BINARY", workspace.binary())
            .env("REFRAIN_GPT2_VOCAB", tools::gpt2_vocabulary(workspace)?)
            .env("REFRAIN_SMOLLM2", tools::model(workspace)?)
            .env("REFRAIN_SUITES", clients::suites(workspace)?),
    )
}
