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

impl Message {
    /// Bytes it takes while it waits, token ids included. A page's own bytes are counted apart,
    /// and so are its token ids, which it shares with others.
    pub(crate) fn bytes(&self) -> usize {
        let tokens = match self {
            Self::Lengthen(page, _) | Self::Used(page, _) => page.tokens.len(),
            Self::Delete(Doomed::Sequence { tokens, .. }) => tokens.len(),
            Self::Delete(Doomed::Namespace { spared, .. }) => spared.iter().map(Vec::len).sum(),
            _ => 0,
        };
        size_of::<Self>() + tokens * size_of::<u32>()
    }
}
