//! A file's bytes, mapped into memory or owned.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Deref;
use std::path::Path;

/// The bytes of one file. Cheap to share behind an `Arc`; everything parsed from it borrows.
#[derive(Debug)]
pub struct FileBytes(Storage);

#[derive(Debug)]
enum Storage {
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

impl FileBytes {
    /// Maps a file read-only.
    ///
    /// # Errors
    /// Whatever the operating system says when the file cannot be opened or mapped.
    pub fn map(path: &Path) -> std::io::Result<FileBytes> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        // SAFETY: the map is private to this process and only ever read. The one thing that a
        // map cannot promise is that nobody truncates or rewrites the file meanwhile; model files
        // are replaced by rename (as `source` does), which leaves the mapped inode alone, and
        // every offset is checked against the length of the map, not of the file.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(FileBytes(Storage::Mapped(map)))
    }

    /// Gives the file's pages back to the operating system. They are read from the file again
    /// when they are touched again.
    pub(crate) fn release_pages(&self) {
        if let Storage::Mapped(map) = &self.0 {
            // SAFETY: the map is backed by the file and never written, so that a page that was
            // given back holds the same bytes when it returns. If the system refuses, it keeps
            // the pages, which costs memory and nothing else.
            let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        }
    }
}

impl From<Vec<u8>> for FileBytes {
    fn from(bytes: Vec<u8>) -> FileBytes {
        FileBytes(Storage::Owned(bytes))
    }
}

impl Deref for FileBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Mapped(map) => map,
            Storage::Owned(bytes) => bytes,
        }
    }
}
