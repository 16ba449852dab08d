//! Checksums of downloaded files.

use super::error::SourceError;
use super::progress::Progress;
#[cfg(feature = "hub")]
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 1 << 18;

/// SHA-256 of a file, in lower-case hexadecimal.
pub(super) fn sha256(path: &Path, progress: &dyn Progress) -> Result<String, SourceError> {
    let mut hash = Sha256::new();
    read_all(path, progress, |bytes| hash.update(bytes))?;
    Ok(hexadecimal(&hash.finalize()))
}

/// The id that git gives a file: SHA-1 of `blob LENGTH\0` and the contents.
#[cfg(feature = "hub")]
pub(super) fn git_blob(path: &Path, progress: &dyn Progress) -> Result<String, SourceError> {
    let length = std::fs::metadata(path).map_err(SourceError::io(path))?.len();
    let mut hash = Sha1::new();
    hash.update(format!("blob {length}\0").as_bytes());
    read_all(path, progress, |bytes| hash.update(bytes))?;
    Ok(hexadecimal(&hash.finalize()))
}

/// `Ok` when `found` is `expected`, else an error that names both.
pub(super) fn compare(file: &str, expected: &str, found: String) -> Result<(), SourceError> {
    if found.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(SourceError::Checksum { file: file.to_owned(), expected: expected.to_owned(), found })
}

fn read_all(
    path: &Path,
    progress: &dyn Progress,
    mut take: impl FnMut(&[u8]),
) -> Result<(), SourceError> {
    let mut file = File::open(path).map_err(SourceError::io(path))?;
    let total = file.metadata().map_err(SourceError::io(path))?.len();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut done = 0;
    loop {
        let count = file.read(&mut buffer).map_err(SourceError::io(path))?;
        if count == 0 {
            return Ok(());
        }
        take(&buffer[..count]);
        done += count as u64;
        progress.bytes(done, Some(total));
    }
}

/// Bytes as lower-case hexadecimal.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
