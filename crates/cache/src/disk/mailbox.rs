//! The way to the thread that keeps the directory, on which only so much may wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use crate::disk::message::Message;
use crate::disk::shared::Shared;

/// Bytes of messages that may wait, beside the pages in them.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Of these, what notes may take, so that orders have room beside them.
const NOTES_BYTES_MAX: usize = WAITING_BYTES_MAX / 2;

#[derive(Clone)]
pub(crate) struct Mailbox {
    messages: Sender<Message>,
    shared: Arc<Shared>,
}

impl Mailbox {
    pub(crate) fn new(messages: Sender<Message>, shared: Arc<Shared>) -> Self {
        Self { messages, shared }
    }

    /// Sends what must not be lost; its sender sees to it that there is no end of it. It comes back
    /// when the thread is gone.
    pub(crate) fn order(&self, message: Message) -> Result<(), Message> {
        let bytes = message.bytes();
        self.shared.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.messages.send(message).map_err(|unsent| {
            self.shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            unsent.0
        })
    }

    /// Sends what can be said again later; `false` if too much waits, and it is dropped.
    pub(crate) fn note(&self, message: Message) -> bool {
        let waiting = self.shared.waiting_bytes.load(Ordering::Relaxed);
        let has_room = waiting.saturating_add(message.bytes()) <= NOTES_BYTES_MAX;
        if !has_room {
            self.shared.counters.dropped_notes.fetch_add(1, Ordering::Relaxed);
        }
        has_room && self.order(message).is_ok()
    }

    /// Whether so much waits that no more should be ordered.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.waiting_bytes.load(Ordering::Relaxed) >= WAITING_BYTES_MAX
    }
}
