//! Models of the Hugging Face hub.
//!
//! Files are downloaded one by one into a staging folder that outlives an interruption, each is
//! compared with its published checksum, and only then all of them become a model.

use super::checksum;
use super::error::SourceError;
use super::progress::Progress;
use super::reference::HubReference;
use super::store::Store;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo};
use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a broken download is taken up again.
const ATTEMPTS: u32 = 4;
/// Pause before the second attempt; the third waits twice as long, and so on.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Most files taken from one repository.
const FILES_MAX: usize = 1024;

/// What a model directory may need, beside its weights.
const SMALL_FILES: [&str; 12] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "README.md",
    "LICENSE",
];

/// Where the hub is, and the token for it.
#[derive(Debug, Clone)]
pub(super) struct Access {
    pub(super) endpoint: String,
    pub(super) token: Option<String>,
}

/// Downloads a repository's model and publishes it under `name`.
pub(super) fn pull(
    store: &Store,
    access: &Access,
    hub: &HubReference,
    name: &str,
    progress: &dyn Progress,
) -> Result<PathBuf, SourceError> {
    let staging = store.resumable(name)?;
    let download = Download { access, hub, staging: &staging, progress };
    let api = download.api()?;
    let repository = api.repo(Repo::model(hub.repository.clone()));
    progress.stage(&format!("listing the files of {} at {}", hub.repository, access.endpoint));
    let listed = download.list(&repository)?;
    let wanted = download.choose(&listed)?;
    let temporary = store.temporary()?;
    let staged = temporary.path().join("model");
    std::fs::create_dir(&staged).map_err(SourceError::io(&staged))?;
    for file in wanted {
        let blob = download.file(&repository, file)?;
        // Only a .gguf file may lie deeper in the repository; its own name is kept.
        let file_name = file.rsplit('/').next().unwrap_or(file);
        let target = staged.join(file_name);
        std::fs::hard_link(&blob, &target)
            .or_else(|_| std::fs::copy(&blob, &target).map(drop))
            .map_err(SourceError::io(&target))?;
    }
    let path = store.publish(&staged, name, progress)?;
    std::fs::remove_dir_all(&staging).map_err(SourceError::io(&staging))?;
    Ok(path)
}

/// One pull.
struct Download<'a> {
    access: &'a Access,
    hub: &'a HubReference,
    staging: &'a Path,
    progress: &'a dyn Progress,
}

impl Download<'_> {
    fn api(&self) -> Result<Api, SourceError> {
        ApiBuilder::new()
            .with_endpoint(self.access.endpoint.clone())
            .with_token(self.access.token.clone())
            .with_cache_dir(self.staging.to_owned())
            .with_progress(false)
            .build()
            .map_err(|error| self.refuse(error.to_string(), hint(&error)))
    }

    /// Names of the repository's files.
    fn list(&self, repository: &ApiRepo) -> Result<Vec<String>, SourceError> {
        let info = self.attempts(|| repository.info())?;
        Ok(info.siblings.into_iter().map(|sibling| sibling.rfilename).collect())
    }

    /// The files that make the model.
    fn choose<'f>(&self, listed: &'f [String]) -> Result<Vec<&'f str>, SourceError> {
        let has = |name: &str| listed.iter().find(|file| *file == name).map(String::as_str);
        let models: Vec<&str> =
            listed.iter().map(String::as_str).filter(|file| file.ends_with(".gguf")).collect();
        if let Some(file) = &self.hub.file {
            return has(file).map(|file| vec![file]).ok_or_else(|| {
                let problem = format!("the repository has no file {file}");
                self.refuse(problem, format!("it has: {}", models.join(", ")))
            });
        }
        if has("config.json").is_none() {
            let hint = format!("name one of its .gguf files: {}", models.join(", "));
            return Err(self.refuse("the repository has no config.json".to_owned(), hint));
        }
        let weights: Vec<&str> = match has("model.safetensors") {
            Some(file) => vec![file],
            None => listed
                .iter()
                .map(String::as_str)
                .filter(|file| is_shard(file) || *file == "model.safetensors.index.json")
                .collect(),
        };
        if weights.is_empty() || weights.len() > FILES_MAX {
            let problem = "the repository has no safetensors weights".to_owned();
            let hint = "other weight formats cannot be read; look for a converted copy".to_owned();
            return Err(self.refuse(problem, hint));
        }
        Ok(SMALL_FILES.iter().filter_map(|file| has(file)).chain(weights).collect())
    }

    /// Downloads one file, or takes it from an earlier attempt, and verifies it.
    fn file(&self, repository: &ApiRepo, file: &str) -> Result<PathBuf, SourceError> {
        self.progress.stage(&format!("downloading {file}"));
        let cached = Cache::new(self.staging.to_owned()).model(self.hub.repository.clone());
        let pointer = match cached.get(file) {
            Some(pointer) => pointer,
            None => {
                let size = Cell::new(0);
                let pointer = self.attempts(|| {
                    let report = Report { progress: self.progress, size: &size, done: 0 };
                    repository.download_with_progress(file, report)
                })?;
                self.check_size(file, &pointer, size.get())?;
                pointer
            }
        };
        let blob = pointer.canonicalize().map_err(SourceError::io(&pointer))?;
        self.verify(file, &pointer, &blob)?;
        Ok(blob)
    }

    fn check_size(&self, file: &str, pointer: &Path, size: u64) -> Result<(), SourceError> {
        let found = std::fs::metadata(pointer).map_err(SourceError::io(pointer))?.len();
        if found == size {
            return Ok(());
        }
        forget(pointer);
        let problem = format!("{file} has {found} bytes instead of {size}");
        Err(self.refuse(problem, "it has been removed, pull again".to_owned()))
    }

    /// The hub names a blob by its checksum: SHA-256 for large files, git's for small ones.
    fn verify(&self, file: &str, pointer: &Path, blob: &Path) -> Result<(), SourceError> {
        let name = blob.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hexadecimal = name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let found = match (hexadecimal, name.len()) {
            (true, 64) => checksum::sha256(blob, self.progress)?,
            (true, 40) => checksum::git_blob(blob, self.progress)?,
            _ => {
                forget(pointer);
                let problem = format!("the hub gives no checksum for {file} (ETag {name:?})");
                let hint = "download the files by hand if you trust the place".to_owned();
                return Err(self.refuse(problem, hint));
            }
        };
        checksum::compare(file, &name, found).inspect_err(|_| forget(pointer))
    }

    /// Calls the hub, and again where the connection broke: downloads go on where they stopped.
    fn attempts<T>(&self, call: impl Fn() -> Result<T, ApiError>) -> Result<T, SourceError> {
        let mut attempt = 1;
        loop {
            // hf-hub panics on some malformed answers.
            let error = match std::panic::catch_unwind(AssertUnwindSafe(&call)) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => error,
                Err(_) => {
                    let problem = "the hub's answer is malformed".to_owned();
                    let hint = format!("is {} a Hugging Face hub?", self.access.endpoint);
                    return Err(self.refuse(problem, hint));
                }
            };
            if is_stuck(&error) {
                remove_parts(self.staging);
            } else if !is_transient(&error) {
                return Err(self.refuse(error.to_string(), hint(&error)));
            }
            if attempt == ATTEMPTS {
                return Err(self.refuse(error.to_string(), hint(&error)));
            }
            std::thread::sleep(RETRY_PAUSE * attempt);
            attempt += 1;
        }
    }

    fn refuse(&self, problem: String, hint: String) -> SourceError {
        let reference = match &self.hub.file {
            Some(file) => format!("hub:{}/{file}", self.hub.repository),
            None => format!("hub:{}", self.hub.repository),
        };
        SourceError::Hub { reference, problem, hint }
    }
}

/// `model-00001-of-00002.safetensors`
fn is_shard(file: &str) -> bool {
    file.starts_with("model-") && file.ends_with(".safetensors") && !file.contains('/')
}

/// The HTTP status that the hub refused with.
fn status(error: &ApiError) -> Option<u16> {
    match error {
        ApiError::RequestError(error) => match **error {
            ureq::Error::StatusCode(status) => Some(status),
            _ => None,
        },
        _ => None,
    }
}

/// Worth another attempt: the connection broke, or the hub is overloaded.
fn is_transient(error: &ApiError) -> bool {
    match error {
        ApiError::IoError(_) => true,
        ApiError::RequestError(_) => {
            status(error).is_none_or(|status| status == 429 || status >= 500)
        }
        _ => false,
    }
}

/// A partial file that cannot be gone on with: it is as long as the file, or longer.
fn is_stuck(error: &ApiError) -> bool {
    matches!(error, ApiError::InvalidResume) || status(error) == Some(416)
}

fn hint(error: &ApiError) -> String {
    match (status(error), error) {
        (Some(401 | 403), _) => {
            "if it is private or gated, accept its terms on the hub and set HF_TOKEN".to_owned()
        }
        (Some(404), _) => "check the name; it is hub:org/name[/file.gguf]".to_owned(),
        (_, ApiError::LockAcquisition(_)) => "another pull of it is running".to_owned(),
        _ => "check the network (HF_ENDPOINT names another hub) and pull again: it goes on \
              where it stopped"
            .to_owned(),
    }
}

/// Removes a file that must not be used, and the blob behind it.
fn forget(pointer: &Path) {
    if let Ok(blob) = pointer.canonicalize() {
        let _ = std::fs::remove_file(blob);
    }
    let _ = std::fs::remove_file(pointer);
}

/// Removes partial files below the staging folder.
fn remove_parts(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => remove_parts(&path),
            Ok(kind) if kind.is_file() && path.extension().is_some_and(|e| e == "part") => {
                let _ = std::fs::remove_file(path);
            }
            _ => {}
        }
    }
}

/// Passes hf-hub's progress on, and remembers the size that the hub announced.
struct Report<'a> {
    progress: &'a dyn Progress,
    size: &'a Cell<u64>,
    done: u64,
}

impl hf_hub::api::Progress for Report<'_> {
    fn init(&mut self, size: usize, _filename: &str) {
        self.size.set(size as u64);
        self.done = 0;
    }

    fn update(&mut self, bytes: usize) {
        self.done += bytes as u64;
        let size = self.size.get();
        // More than that comes only from a hub that ignores ranges, which `check_size` refuses.
        self.progress.bytes(self.done.min(size), Some(size));
    }

    fn finish(&mut self) {}
}
