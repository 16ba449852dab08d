//! Reading pages, from any thread.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::Instant;

use crate::disk::mailbox::Mailbox;
use crate::disk::message::Message;
use crate::disk::record::Wanted;
use crate::disk::segment::ReadFault;
use crate::disk::shared::Shared;

/// Why a page did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// It is there no more.
    Gone,
    /// It is there, and its bytes are not those that were written, or cannot be read.
    Damaged,
}

impl fmt::Display for ReadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Gone => "the page is not on disk any more",
            Self::Damaged => "the page on disk is damaged",
        })
    }
}

impl Error for ReadError {}

/// Reads a store's pages. Copies share everything, and outlive the store.
#[derive(Clone)]
pub struct DiskReader {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailbox: Mailbox,
    pub(crate) page_bytes: usize,
}

impl DiskReader {
    /// Reads one page into `page`, whose length becomes that of the store's pages. Header and page
    /// are checked against their checksums, key and token ids against what is wanted.
    ///
    /// # Errors
    ///
    /// `page` then holds anything. A damaged page is dropped, which the store tells as an event.
    pub fn read(&self, wanted: &Wanted, page: &mut Vec<u8>) -> Result<(), ReadError> {
        let start = Instant::now();
        page.resize(self.page_bytes, 0);
        let Some(segment) = self.shared.segment(wanted.place.segment) else {
            return Err(ReadError::Gone);
        };
        let fault = match segment.read(wanted, page) {
            Ok(()) => {
                self.shared.note_read(page.len(), start.elapsed());
                return Ok(());
            }
            Err(fault) => fault,
        };
        self.shared.counters.read_faults.fetch_add(1, Ordering::Relaxed);
        match fault {
            ReadFault::Other => Err(ReadError::Gone),
            ReadFault::Deleted => {
                self.mailbox.note(Message::Gone(*wanted));
                Err(ReadError::Gone)
            }
            ReadFault::Damaged | ReadFault::Io(_) => {
                self.mailbox.note(Message::Damaged(*wanted));
                Err(ReadError::Damaged)
            }
        }
    }

    /// Bytes per second of the last reads, checks included, the latest counting most; `None` until
    /// something was read. A store that finds pages when it is opened reads some to know.
    pub fn read_rate(&self) -> Option<f64> {
        self.shared.read_rate()
    }

    /// Reads pages in order on a thread of their own, at most `ahead` (at least 1) before they are
    /// taken. It ends at the first page that does not come. Calls `arrived` on that thread after
    /// each that has come, and at the end.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn read_run(
        &self,
        run: Vec<Wanted>,
        ahead: usize,
        arrived: impl Fn() + Send + 'static,
    ) -> io::Result<ReadRun> {
        let (pages, taken) = sync_channel(ahead.max(1));
        let (spare, spares) = channel();
        let reader = self.clone();
        let work = move || {
            reader.read_all(&run, &pages, &spares, &arrived);
            drop(pages);
            arrived();
        };
        std::thread::Builder::new().name("disk-read".into()).spawn(work)?;
        Ok(ReadRun { taken, spare })
    }

    fn read_all(
        &self,
        run: &[Wanted],
        pages: &SyncSender<Result<Vec<u8>, ReadError>>,
        spares: &Receiver<Vec<u8>>,
        arrived: &dyn Fn(),
    ) {
        for wanted in run {
            let mut page = spares.try_recv().unwrap_or_default();
            let result = self.read(wanted, &mut page).map(|()| page);
            let is_last = result.is_err();
            // Nobody waits for the rest when the run was dropped.
            if pages.send(result).is_err() || is_last {
                return;
            }
            arrived();
        }
    }
}

/// Pages on their way. Dropping it ends the reading.
pub struct ReadRun {
    taken: Receiver<Result<Vec<u8>, ReadError>>,
    spare: Sender<Vec<u8>>,
}

/// What a [`ReadRun`] has at this moment.
#[derive(Debug, PartialEq, Eq)]
pub enum NextPage {
    /// The next page in order.
    Page(Vec<u8>),
    /// It is still being read.
    Waiting,
    /// It does not come, nor does any after it.
    Failed(ReadError),
    /// All pages were taken.
    End,
}

impl ReadRun {
    /// The next page if it has been read; does not wait.
    pub fn try_next(&mut self) -> NextPage {
        match self.taken.try_recv() {
            Ok(Ok(page)) => NextPage::Page(page),
            Ok(Err(error)) => NextPage::Failed(error),
            Err(TryRecvError::Empty) => NextPage::Waiting,
            Err(TryRecvError::Disconnected) => NextPage::End,
        }
    }

    /// Waits for the next page; `None` after the last, and after an error.
    pub fn wait_next(&mut self) -> Option<Result<Vec<u8>, ReadError>> {
        self.taken.recv().ok()
    }

    /// Hands a page's memory back, to be read into again.
    pub fn give_back(&mut self, page: Vec<u8>) {
        // Nobody needs it when all was read.
        let _ = self.spare.send(page);
    }
}
