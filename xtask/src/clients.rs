//! What the tests with other people's clients need: those clients, and their own tests.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::tools;
use crate::workspace::{Workspace, run};

/// The source distributions whose tests are run, each with its hash.
const SUITES: &str = "tests/e2e/suites-requirements.txt";
/// The clients in Python, in an environment of their own: some hold back what others pin.
const PYTHON_CLIENTS: &str = "tests/clients/requirements.txt";
/// The folder of those in JavaScript, with their lock file.
const JAVASCRIPT_CLIENTS: &str = "tests/clients/js";

/// Their packages, of which no wheel will do: only the sources hold the tests.
const SUITE_PACKAGES: &str = "anthropic,openai";

/// The folder that holds the unpacked source distributions; fetched once, into the target folder.
///
/// # Errors
///
/// Fails where the package index cannot be reached, or has something else under that version.
pub(crate) fn suites(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target().join("suites");
    let wanted = fs::read_to_string(workspace.root().join(SUITES)).context(SUITES)?;
    let stamp = folder.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|fetched| fetched == wanted) {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    run(tools::pip(workspace, &tools::in_environment(workspace, "python"))
        .args(["download", "--quiet", "--no-deps", "--require-hashes", "-r", SUITES])
        .args(["--no-binary", SUITE_PACKAGES, "--dest"])
        .arg(&folder))?;
    for entry in fs::read_dir(&folder)? {
        let archive = entry?.path();
        run(workspace
            .command("tar")
            .args(["--extract", "--file"])
            .arg(&archive)
            .arg("--directory")
            .arg(&folder))?;
        fs::remove_file(&archive)?;
    }
    fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())?;
    Ok(folder)
}

/// Runs the tests of `tests/clients`, which need a built binary and the default model.
///
/// # Errors
///
/// Fails where a test does, where `node` is missing, or where a client cannot be fetched.
pub(crate) fn run_tests(workspace: &Workspace) -> Result<()> {
    let environment = workspace.target().join("clients-environment");
    tools::environment(workspace, &environment, PYTHON_CLIENTS)?;
    fetch_javascript(workspace)?;
    run(workspace
        .command(environment.join("bin/python"))
        .args(["-m", "pytest", "-c", "tests/clients/pytest.ini", "tests/clients"])
        .env("PYTHONPATH", "tests/e2e")
        .env("REFRAIN_BINARY", workspace.binary())
        .env("REFRAIN_GPT2_VOCAB", tools::gpt2_vocabulary(workspace)?))
}

/// Fetches the clients in JavaScript, just as their lock file says, unless they are there.
fn fetch_javascript(workspace: &Workspace) -> Result<()> {
    let folder = workspace.root().join(JAVASCRIPT_CLIENTS);
    let wanted =
        fs::read_to_string(folder.join("package-lock.json")).context(JAVASCRIPT_CLIENTS)?;
    let stamp = folder.join("node_modules/fetched.json");
    if fs::read_to_string(&stamp).is_ok_and(|fetched| fetched == wanted) {
        return Ok(());
    }
    // No script of theirs is run here, and what is optional is for a terminal. `npm ci` would want
    // the lock file to name optional packages that the registry no longer has.
    run(workspace
        .command("npm")
        .args(["install", "--no-save", "--no-audit", "--no-fund", "--silent"])
        .args(["--ignore-scripts", "--omit=optional"])
        .current_dir(&folder))?;
    fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())
}
