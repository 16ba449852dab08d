//! The directory: private, listed, cleared of what a crash left.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::timestamp::Timestamp;

const SEGMENT_ENDING: &str = ".segment";
/// A file that is being made and gets its name when it is whole.
const NEW_ENDING: &str = ".new";
/// A text that is kept beside the pages.
pub(crate) const TEXT_ENDING: &str = ".text";
/// The namespaces' secret.
pub(crate) const SECRET: &str = "secret";
/// Files that are looked at: far more than there are, unless somebody keeps other things there.
const FILES_MAX: usize = 1 << 14;
/// Held by who makes the secret or deletes segments.
const LOCK: &str = "lock";

/// A directory that only its owner can look into.
#[derive(Clone)]
pub(crate) struct Directory {
    path: PathBuf,
}

/// One file of a listing.
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) kind: FileKind,
    pub(crate) bytes: u64,
    /// The file's time of change.
    pub(crate) modified: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Segment,
    /// Left by a crash, or being made at this moment.
    New,
    Text,
    Secret,
    Lock,
    Foreign,
}

impl Directory {
    /// Makes the directory, and those above it, where they are missing; takes everybody else's
    /// access away where it is there, unless somebody keeps other things in it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let directory = Self { path: path.to_path_buf() };
        directory.ensure()?;
        let mode = fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            if directory.list()?.iter().any(|one| one.kind == FileKind::Foreign) {
                let why = "others may look into it, and it holds files that are not the cache's";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        }
        Ok(directory)
    }

    /// Makes the directory again if somebody deleted it.
    pub(crate) fn ensure(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn segment_name(id: &[u8; 16]) -> String {
        hex(id) + SEGMENT_ENDING
    }

    /// All files. Those that vanish meanwhile are left out.
    pub(crate) fn list(&self) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for entry in fs::read_dir(&self.path)?.take(FILES_MAX) {
            let entry = entry?;
            // Does not follow links: a link is a foreign file.
            let Ok(metadata) = entry.metadata() else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = if metadata.is_file() { kind(&name) } else { FileKind::Foreign };
            let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
            let milliseconds = u64::try_from(metadata.mtime_nsec()).unwrap_or(0) / 1_000_000;
            let modified = Timestamp(seconds.saturating_mul(1000).saturating_add(milliseconds));
            listed.push(Listed { name, kind, bytes: metadata.len(), modified });
        }
        Ok(listed)
    }

    /// Makes a file of a random name under which nobody looks for it, locked.
    pub(crate) fn create_new(&self) -> io::Result<(String, File)> {
        let name = hex(&random::<16>()?) + NEW_ENDING;
        let file = private().create_new(true).open(self.file(&name))?;
        file.try_lock().map_err(io::Error::from)?;
        Ok((name, file))
    }

    /// Deletes what [`Self::create_new`] made and a crash left unnamed; leaves it to a later time
    /// while somebody makes the secret.
    pub(crate) fn clear_new(&self, listed: &[Listed]) {
        let Ok(lock) = self.lock_file() else { return };
        if lock.try_lock().is_err() {
            return;
        }
        for one in listed.iter().filter(|one| one.kind == FileKind::New) {
            self.remove_unlocked(&one.name);
        }
    }

    /// Deletes a file unless somebody holds its lock; true if it is gone.
    pub(crate) fn remove_unlocked(&self, name: &str) -> bool {
        let path = self.file(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) => return error.kind() == io::ErrorKind::NotFound,
        };
        // The lock is kept until the file is gone, so that nobody begins to write to it.
        file.try_lock().is_ok()
            && fs::remove_file(&path)
                .map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |()| true)
    }

    /// Opens a file to change what stands in it.
    pub(crate) fn open_file(&self, name: &str) -> io::Result<File> {
        private().open(self.file(name))
    }

    /// Opens a file to write on, if nobody else does and it is still there once it is locked.
    pub(crate) fn open_locked(&self, name: &str) -> Option<File> {
        let path = self.file(name);
        let file = private().open(&path).ok()?;
        file.try_lock().ok()?;
        let (ours, named) = (file.metadata().ok()?, fs::symlink_metadata(&path).ok()?);
        ((ours.dev(), ours.ino()) == (named.dev(), named.ino())).then_some(file)
    }

    /// The file whose lock orders those who make the secret, delete, or change
    /// what stands in a table.
    pub(crate) fn lock_file(&self) -> io::Result<File> {
        private().create(true).open(self.file(LOCK))
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

fn kind(name: &str) -> FileKind {
    let named = |ending| {
        name.strip_suffix(ending).is_some_and(|id| {
            id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    match name {
        SECRET => FileKind::Secret,
        LOCK => FileKind::Lock,
        _ if named(SEGMENT_ENDING) => FileKind::Segment,
        _ if named(NEW_ENDING) => FileKind::New,
        _ if named(TEXT_ENDING) => FileKind::Text,
        _ => FileKind::Foreign,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of the system's randomness.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}
