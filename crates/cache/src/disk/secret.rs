//! The secret that namespaces are derived with: made once, and then the same for ever.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::disk::directory::{Directory, SECRET, random};

/// Bytes of the secret.
const SECRET_BYTES: usize = 32;

/// The 32 random bytes that this directory keeps in its file `secret`. Makes the directory and the
/// file where they are missing, the file anew where it is not 32 bytes long: what was stored under
/// the old secret is then not found any more. Several processes may call this at the same time, and
/// get the same bytes.
///
/// # Errors
///
/// When the directory cannot be made or made private, or the file not be read or written.
pub fn secret(directory: &Path) -> io::Result<[u8; SECRET_BYTES]> {
    let directory = Directory::open(directory)?;
    if let Some(secret) = read(&directory)? {
        return Ok(secret);
    }
    // Held until the file is there; whoever waited for the lock finds it.
    let lock = directory.lock_file()?;
    lock.lock()?;
    if let Some(secret) = read(&directory)? {
        return Ok(secret);
    }
    let secret = random()?;
    let (name, mut file) = directory.create_new()?;
    file.write_all(&secret)?;
    // Whole before it has its name, also if the machine goes down.
    file.sync_all()?;
    fs::rename(directory.file(&name), directory.file(SECRET))?;
    Ok(secret)
}

/// The secret, if there is a sound one.
fn read(directory: &Directory) -> io::Result<Option<[u8; SECRET_BYTES]>> {
    match fs::read(directory.file(SECRET)) {
        Ok(bytes) => Ok(bytes.try_into().ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
