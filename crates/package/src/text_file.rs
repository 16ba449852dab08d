//! Reading small files whole, within a limit.

use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// A UTF-8 file of at most `limit` bytes; `None` when it is not there.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Option<String>> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(limit + 1).read_to_string(&mut text)?;
    if text.len() as u64 > limit {
        let problem = format!("larger than the limit of {limit} bytes");
        return Err(Error::new(ErrorKind::FileTooLarge, problem));
    }
    Ok(Some(text))
}
