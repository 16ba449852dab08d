//! What was found in the directory that is not a sound page.

use std::fmt;
use std::io;

/// One finding, for one line in a log. Nothing of what it names is ever served.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Damage {
    /// The file's name in the directory.
    pub file: String,
    /// What is wrong with it.
    pub kind: DamageKind,
}

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DamageKind {
    /// Not one of the cache's files; it is left alone.
    Foreign,
    /// Its first bytes are not those of a segment.
    NotASegment,
    /// A segment of another version of the format; it is left until it is the least recently used.
    Version(u32),
    /// The file ends before pages that its table names.
    Truncated {
        /// How many.
        pages: u32,
    },
    /// Record headers whose checksum does not fit.
    Headers {
        /// How many.
        records: u32,
    },
    /// A page whose bytes do not fit their checksum, found when it was read.
    Page {
        /// Its slot.
        index: u32,
    },
    /// The system would not let it be read.
    Unreadable(io::ErrorKind),
    /// Pages of it could not be deleted, and may come back.
    NotDeleted(io::ErrorKind),
}

impl fmt::Display for Damage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.file)?;
        match self.kind {
            DamageKind::Foreign => write!(formatter, "not a file of the cache; left alone"),
            DamageKind::NotASegment => write!(formatter, "damaged segment header; not used"),
            DamageKind::Version(version) => {
                write!(formatter, "segment of format version {version}; not used")
            }
            DamageKind::Truncated { pages } => {
                write!(formatter, "truncated: {pages} pages are lost")
            }
            DamageKind::Headers { records } => {
                write!(formatter, "{records} damaged record headers; those pages are lost")
            }
            DamageKind::Page { index } => write!(formatter, "page {index} is damaged; not used"),
            DamageKind::Unreadable(kind) => write!(formatter, "cannot be read: {kind}"),
            DamageKind::NotDeleted(kind) => {
                write!(formatter, "pages could not be deleted, and may come back: {kind}")
            }
        }
    }
}
