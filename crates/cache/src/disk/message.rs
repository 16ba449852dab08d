//! What the thread that keeps the directory is asked to do.

use std::sync::mpsc::SyncSender;

use crate::disk::record::{Doomed, NewPage, SequencePage, Wanted};
use crate::timestamp::Timestamp;

pub(crate) enum Message {
    /// Store a page.
    Append(NewPage, Timestamp),
    /// Let a page and those before it live as long as it says.
    Lengthen(SequencePage, Timestamp),
    /// Note that a page and those before it were used.
    Used(SequencePage, Timestamp),
    /// See what other processes have written and deleted.
    Refresh(Timestamp),
    /// Let a page go that was read and is damaged.
    Damaged(Wanted),
    /// Let a page go that another process has deleted.
    Gone(Wanted),
    /// Delete pages.
    Delete(Doomed),
    /// Say when everything before this is done.
    Flush(SyncSender<()>),
    /// Finish.
    Close,
}
