//! The directory where pulled models are kept.
//!
//! `models/NAME/` is one model. It appears by a single rename of a directory from `staging/`,
//! whose files were verified and flushed before, so whatever is in `models` is whole.

use super::error::SourceError;
use super::progress::Progress;
use super::record::{self, Check};
use super::staging::Temporary;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredModel {
    /// The alias, or `hub:…` / `pip:…` with `--` for `/` and `==`.
    pub name: String,
    /// What to open.
    pub path: PathBuf,
    /// Size on disk.
    pub bytes: u64,
}

/// The cache directory's models.
#[derive(Debug, Clone)]
pub(super) struct Store {
    root: PathBuf,
}

impl Store {
    pub(super) fn new(root: PathBuf) -> Store {
        Store { root }
    }

    fn models(&self) -> PathBuf {
        self.root.join("models")
    }

    /// A directory whose contents outlive an interruption, to resume from.
    #[cfg(feature = "hub")]
    pub(super) fn resumable(&self, name: &str) -> Result<PathBuf, SourceError> {
        let path = self.root.join("staging").join(name);
        fs::create_dir_all(&path).map_err(SourceError::io(&path))?;
        Ok(path)
    }

    /// A directory that is removed when it is dropped.
    pub(super) fn temporary(&self) -> Result<Temporary, SourceError> {
        Temporary::new(&self.root)
    }

    /// Whether the model of that name is as it was published; `None` where nobody wrote down how
    /// that was.
    pub(super) fn is_whole(
        &self,
        name: &str,
        check: Check<'_>,
    ) -> Result<Option<bool>, SourceError> {
        let directory = self.models().join(name);
        record::is_whole(&directory, &directory, check)
    }

    /// The path to open of the model of that name, when it is there.
    pub(super) fn find(&self, name: &str) -> Result<Option<PathBuf>, SourceError> {
        let directory = self.models().join(name);
        if !directory.is_dir() {
            return Ok(None);
        }
        model_in(&directory)?.map(Some).ok_or(SourceError::NotAModel(directory))
    }

    /// Makes a directory full of verified files the model of that name, in the place of another
    /// one's files.
    pub(super) fn publish(
        &self,
        staged: &Path,
        name: &str,
        progress: &dyn Progress,
    ) -> Result<PathBuf, SourceError> {
        if model_in(staged)?.is_none() {
            return Err(SourceError::NotAModel(staged.to_owned()));
        }
        record::write(staged, progress)?;
        flush(staged)?;
        let models = self.models();
        fs::create_dir_all(&models).map_err(SourceError::io(&models))?;
        let target = models.join(name);
        if target.is_dir() {
            // Somebody else may have published the same model meanwhile; else it is a damaged one,
            // which goes away with the temporary directory. Who has its files open keeps them.
            if record::is_whole(&target, staged, Check::Checksum(progress))? != Some(true) {
                let aside = self.temporary()?;
                let old = aside.path().join("model");
                fs::rename(&target, &old).map_err(SourceError::io(&target))?;
                fs::rename(staged, &target).map_err(SourceError::io(&target))?;
            }
        } else if let Err(error) = fs::rename(staged, &target)
            && !target.is_dir()
        {
            return Err(SourceError::Io { path: target, error });
        }
        sync_directory(&models)?;
        self.find(name)?.ok_or(SourceError::NotAModel(target))
    }

    /// Everything in `models`, sorted by name. Directories that hold no model are left out.
    pub(super) fn list(&self) -> Result<Vec<StoredModel>, SourceError> {
        let models = self.models();
        if !models.is_dir() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(&models).map_err(SourceError::io(&models))? {
            let directory = entry.map_err(SourceError::io(&models))?.path();
            let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
            if let (true, Some(name)) = (directory.is_dir(), name)
                && let Some(path) = model_in(&directory)?
            {
                found.push(StoredModel { name, path, bytes: bytes_in(&directory) });
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }
}

/// What to open in a model's directory: itself where it has a config.json, else its GGUF file.
fn model_in(directory: &Path) -> Result<Option<PathBuf>, SourceError> {
    if directory.join("config.json").is_file() {
        return Ok(Some(directory.to_owned()));
    }
    for entry in fs::read_dir(directory).map_err(SourceError::io(directory))? {
        let path = entry.map_err(SourceError::io(directory))?.path();
        if path.extension().is_some_and(|extension| extension == "gguf") {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Bytes of all files below a directory; what cannot be read counts as nothing.
pub(super) fn bytes_in(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => bytes_in(&entry.path()),
            Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |metadata| metadata.len()),
            _ => 0,
        })
        .sum()
}

/// Writes a directory's files to the disk, so that the rename cannot come before them.
fn flush(directory: &Path) -> Result<(), SourceError> {
    for entry in fs::read_dir(directory).map_err(SourceError::io(directory))? {
        let path = entry.map_err(SourceError::io(directory))?.path();
        if path.is_file() {
            let file = File::open(&path).map_err(SourceError::io(&path))?;
            file.sync_all().map_err(SourceError::io(&path))?;
        }
    }
    sync_directory(directory)
}

fn sync_directory(directory: &Path) -> Result<(), SourceError> {
    File::open(directory).and_then(|file| file.sync_all()).map_err(SourceError::io(directory))
}
