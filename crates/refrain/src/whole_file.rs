//! Files that are there whole or not at all.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufWriter, Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Longest part of a file's name in that of its temporary file, since a name has 255 bytes at most.
const NAME_BYTES_MAX: usize = 200;

/// The temporary file that is being written.
static PARTIAL: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Writes the file at `path` by `content`. What was there stays until all of it is on the disk: the
/// bytes go to `.NAME.PID.partial` in the same folder, which then takes the name. A new file gets
/// the permissions that the umask leaves, an old one keeps its own. What is no regular file, as a
/// pipe, is written as it is.
///
/// # Errors
/// Whatever writing says; nothing half-written stays then.
pub(crate) fn write(
    path: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> Result<()>,
) -> Result<()> {
    // Through a link, so that it stays one. A link to nothing is replaced.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let permissions = match OpenOptions::new().write(true).open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
        Ok(old) => {
            let found = old.metadata()?;
            if !found.is_file() {
                let mut out = BufWriter::new(old);
                content(&mut out)?;
                return out.flush();
            }
            Some(found.permissions())
        }
    };
    let partial = partial_path(&path)?;
    *held() = Some(partial.clone());
    let written = replace(&path, &partial, permissions, content);
    remove_partial();
    written
}

fn replace(
    path: &Path,
    partial: &Path,
    permissions: Option<Permissions>,
    content: impl FnOnce(&mut BufWriter<File>) -> Result<()>,
) -> Result<()> {
    // Of a process that was killed and had the same number.
    match std::fs::remove_file(partial) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut out = BufWriter::new(File::create_new(partial)?);
    content(&mut out)?;
    let file = out.into_inner()?;
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    // Some file systems say only now that they are full.
    file.sync_all()?;
    std::fs::rename(partial, path)
}

fn partial_path(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| Error::from(ErrorKind::InvalidFilename))?;
    let mut hidden = OsString::from(".");
    hidden.push(match name.to_str() {
        Some(text) => &text[..text.floor_char_boundary(NAME_BYTES_MAX)],
        None => "file",
    });
    hidden.push(format!(".{}.partial", std::process::id()));
    Ok(path.with_file_name(hidden))
}

/// Removes the file that is half-written, if there is one; also when the process is interrupted.
pub(crate) fn remove_partial() {
    if let Some(partial) = held().take() {
        // Gone already where it took its name.
        let _ = std::fs::remove_file(partial);
    }
}

fn held() -> std::sync::MutexGuard<'static, Option<PathBuf>> {
    PARTIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn names(folder: &Path) -> Vec<OsString> {
        let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    }

    /// In one test, since there is one partial file at a time.
    #[test]
    fn a_file_is_there_whole_or_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write(&path, |out| out.write_all(b"old")).unwrap();
        let plain = folder.path().join("plain");
        std::fs::write(&plain, b"").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&plain), "the umask's");

        let failed = write(&path, |out| {
            out.write_all(&[0; 100_000])?;
            Err(Error::from(ErrorKind::StorageFull))
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["a.json", "plain"]);

        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link.json");
        symlink(&path, &link).unwrap();
        write(&link, |out| out.write_all(b"new")).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(mode(&path) & 0o777, 0o640);

        let long = folder.path().join(format!("{}.json", "ü".repeat(120)));
        write(&long, |out| out.write_all(b"long")).unwrap();
        assert_eq!(std::fs::read(&long).unwrap(), b"long");

        let full = folder.path().join("full.json");
        symlink("/dev/full", &full).unwrap();
        assert!(write(&full, |out| out.write_all(b"x")).is_err());
        assert!(full.is_symlink());
        assert!(write(&folder.path().join("no/a.json"), |_| Ok(())).is_err());
    }
}
