//! What a pulled model's files were when they were published: sizes and checksums, kept beside
//! them, so that a damaged copy is found out.

use super::checksum;
use super::error::SourceError;
use super::progress::Progress;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// Name of the record in a model's directory.
const RECORD: &str = "checksums.json";

/// How closely a model is looked at.
#[derive(Clone, Copy)]
pub(super) enum Check<'a> {
    /// Sizes only: takes no time.
    Size,
    /// Every byte.
    Checksum(&'a dyn Progress),
}

/// Writes the record of all files in `directory`.
pub(super) fn write(directory: &Path, progress: &dyn Progress) -> Result<(), SourceError> {
    let mut files = Map::new();
    for entry in fs::read_dir(directory).map_err(SourceError::io(directory))? {
        let path = entry.map_err(SourceError::io(directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let (true, Some(name)) = (path.is_file(), name) {
            let bytes = fs::metadata(&path).map_err(SourceError::io(&path))?.len();
            let sha256 = checksum::sha256(&path, progress)?;
            files.insert(name.to_owned(), json!({"bytes": bytes, "sha256": sha256}));
        }
    }
    let path = directory.join(RECORD);
    let text = format!("{:#}\n", json!({"files": files}));
    fs::write(&path, text).map_err(SourceError::io(&path))
}

/// Whether the files in `directory` are those that the record in `recorded` lists; `None` where
/// there is no record.
pub(super) fn is_whole(
    directory: &Path,
    recorded: &Path,
    check: Check<'_>,
) -> Result<Option<bool>, SourceError> {
    let path = recorded.join(RECORD);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(SourceError::Io { path, error }),
    };
    let record: Value = serde_json::from_slice(&text).unwrap_or_default();
    // A record that cannot be read is as damaged as a file would be.
    let Some(files) = record["files"].as_object() else { return Ok(Some(false)) };
    for (name, expected) in files {
        let path = directory.join(name);
        let size = fs::metadata(&path).ok().map(|metadata| metadata.len());
        if size.is_none() || size != expected["bytes"].as_u64() {
            return Ok(Some(false));
        }
    }
    if let Check::Checksum(progress) = check {
        for (name, expected) in files {
            progress.stage(&format!("verifying {name}"));
            let found = checksum::sha256(&directory.join(name), progress)?;
            if expected["sha256"].as_str() != Some(&found) {
                return Ok(Some(false));
            }
        }
    }
    Ok(Some(!files.is_empty()))
}
