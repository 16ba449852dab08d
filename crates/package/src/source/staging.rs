//! Temporary directories of pulls, and what killed pulls left of theirs.

use super::error::SourceError;
use std::fs::{self, File, TryLockError};
use std::path::Path;

/// Temporary directories are called this and something random.
const PREFIX: &str = "pull-";
/// The file in such a directory that its pull holds locked for as long as it runs; the operating
/// system lets go of it when the process dies, however it dies.
const LOCK: &str = "lock";
/// The file beside `staging` that is locked while directories come and go.
const TURN: &str = "staging.lock";

/// A pull's temporary directory. It is removed when this is dropped, and by the next pull when
/// this process is killed.
pub(super) struct Temporary {
    directory: tempfile::TempDir,
    /// Dropped, and so unlocked, after the directory is gone.
    _lock: File,
}

impl Temporary {
    /// Makes one in `root`'s `staging`, after removing those of dead pulls.
    pub(super) fn new(root: &Path) -> Result<Temporary, SourceError> {
        let staging = root.join("staging");
        fs::create_dir_all(&staging).map_err(SourceError::io(&staging))?;
        // One at a time, so that nobody sees a directory whose lock is not taken yet. On a file
        // system without locks nothing is removed.
        let turn_path = root.join(TURN);
        let turn = File::create(&turn_path).map_err(SourceError::io(&turn_path))?;
        if turn.lock().is_ok() {
            remove_dead(&staging);
        }
        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(&staging)
            .map_err(SourceError::io(&staging))?;
        let lock_path = directory.path().join(LOCK);
        let lock = File::create(&lock_path).map_err(SourceError::io(&lock_path))?;
        // It is this process's own new file: nobody else has it locked.
        let _ = lock.try_lock();
        Ok(Temporary { directory, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes the directories that no living pull has locked. Failing is harmless: the next pull
/// tries again.
fn remove_dead(staging: &Path) {
    let Ok(entries) = fs::read_dir(staging) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // Without a lock file it was killed before it had one.
        let is_dead = match File::open(entry.path().join(LOCK)) {
            Ok(lock) => {
                !matches!(lock.try_lock(), Err(TryLockError::WouldBlock | TryLockError::Error(_)))
            }
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        if is_dead {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
