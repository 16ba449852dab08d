//! What the store tells its owner.

use std::io;

use crate::disk::damage::Damage;
use crate::disk::record::{SequencePage, StoredRun};
use crate::disk_page::DiskPage;

/// Something that happened on disk.
#[derive(Debug)]
pub enum DiskEvent {
    /// A page that was given to the store lies at this place, perhaps since long.
    Stored(SequencePage, DiskPage),
    /// A page that was given to the store was not stored; it may be offered again later.
    Refused {
        /// Which.
        page: SequencePage,
        /// How many pages before it are here and live, without a gap: the next ones have to be
        /// offered before it.
        held: usize,
    },
    /// Pages lie here that can be reached from the start of their sequence: another process wrote
    /// them, or a page before them came back. They may have been told before: then these places
    /// take the place of the old ones.
    Found(StoredRun),
    /// The page at this place is here no more. What stands below it on disk stays; it is told anew
    /// when the page comes back.
    Dropped {
        /// Where it was.
        place: DiskPage,
        /// Why it is gone.
        reason: DropReason,
    },
    /// All that was to be deleted of this namespace is: what is told of it from here on is younger.
    Cleared([u8; 32]),
    /// Something in the directory is not as it should be: one line for the log.
    Damaged(Damage),
    /// Writing failed and rests for a while: one line for the log.
    Paused {
        /// The system's error: [`io::ErrorKind::StorageFull`] on a full disk.
        kind: io::ErrorKind,
        /// Its text.
        message: String,
    },
    /// Writing works again.
    Resumed,
}

/// Why a page is not on disk any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Its segment was the least recently used, and made room.
    Evicted,
    /// Its segment is gone: another process made room, or somebody deleted the file.
    Vanished,
    /// It was to be deleted, here or by another process.
    Deleted,
    /// It was read, and was damaged.
    Damaged,
}
