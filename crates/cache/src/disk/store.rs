//! The store as its owner sees it.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::disk::catalog::{Catalog, half};
use crate::disk::chain::ChainKey;
use crate::disk::damage::Damage;
use crate::disk::directory::Directory;
use crate::disk::event::DiskEvent;
use crate::disk::format::PAGE_BYTES_MAX;
use crate::disk::keeper::Keeper;
use crate::disk::mailbox::Mailbox;
use crate::disk::message::Message;
use crate::disk::options::DiskOptions;
use crate::disk::reader::DiskReader;
use crate::disk::record::{Doomed, NewPage, SequencePage, StoredRun, Wanted};
use crate::disk::shared::Shared;
use crate::disk::stats::DiskStats;
use crate::timestamp::Timestamp;
use crate::token_page::PAGE_TOKENS;

/// The directory is looked at so often at most.
const REFRESH_MS: u64 = 1_000;
/// Read when the store is opened, to know how fast that is.
const TRIAL_BYTES: usize = 8 << 20;
const TRIAL_PAGES: usize = 32;

/// Why a store was not opened.
#[derive(Debug)]
pub enum OpenError {
    /// The directory cannot be made, made private or read.
    Directory {
        /// Which.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Pages of this size cannot be stored.
    PageBytes(usize),
    /// The system gave no thread.
    Thread(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { path, error } => {
                write!(formatter, "the cache directory {} cannot be used: {error}", path.display())
            }
            Self::PageBytes(bytes) => write!(formatter, "pages of {bytes} bytes cannot be stored"),
            Self::Thread(error) => write!(formatter, "no thread for the disk tier: {error}"),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Directory { error, .. } | Self::Thread(error) => Some(error),
            Self::PageBytes(_) => None,
        }
    }
}

/// A store, and what its directory has to be said about.
pub struct Opened {
    /// The store.
    pub store: DiskStore,
    /// What was found that is not sound.
    pub damage: Vec<Damage>,
}

/// Pages on disk: a directory of segment files that several processes, of several models, share.
///
/// A thread of its own writes and watches the directory; no method waits for the disk, but for
/// [`open`](Self::open), [`flush`](Self::flush) and dropping, which writes what is queued. What
/// happens is told as events by [`poll`](Self::poll).
///
/// Pages are written in the order in which they were given, each before its header, and a header is
/// what makes it a page; so a process killed at any instant loses what was queued, and nothing
/// damaged is taken for a page. Full segments are brought to the disk itself (`fdatasync`); of the
/// one being written, a crash of the whole machine may take what the system has not written yet,
/// half a minute of it with Linux's defaults. Such pages fail their checksum and are not served.
pub struct DiskStore {
    shared: Arc<Shared>,
    mailbox: Mailbox,
    events: Receiver<DiskEvent>,
    thread: Option<JoinHandle<()>>,
    page_bytes: usize,
    queue_bytes: usize,
    refreshed: Timestamp,
}

impl DiskStore {
    /// Opens the directory, makes it private to the user, brings it within its budget, and reads
    /// the tables of its segments, but no page except a few, to learn the read rate. Gives `each`
    /// run of pages of this model, each page after those before it; pages that have lost such a one
    /// are left out, and so are expired ones.
    ///
    /// # Errors
    ///
    /// When there is no directory to work in. Whatever is in it is no error.
    pub fn open(
        options: &DiskOptions,
        now: Timestamp,
        mut each: impl FnMut(StoredRun),
    ) -> Result<Opened, OpenError> {
        let page_bytes = u32::try_from(options.page_bytes)
            .ok()
            .filter(|bytes| (1..=PAGE_BYTES_MAX).contains(bytes))
            .ok_or(OpenError::PageBytes(options.page_bytes))?;
        let failed = |error| OpenError::Directory { path: options.directory.clone(), error };
        let directory = Directory::open(&options.directory).map_err(failed)?;
        let listed = directory.list().map_err(failed)?;
        directory.clear_new(&listed);

        let shared = Arc::new(Shared::default());
        let (tell, events) = channel();
        let mut catalog = Catalog::new(
            directory,
            options.model,
            page_bytes,
            options.budget(),
            Arc::clone(&shared),
            tell,
        );
        catalog.refresh(now, None);
        let damage = events.try_iter().filter_map(|event| match event {
            DiskEvent::Damaged(damage) => Some(damage),
            // Nothing can be dropped yet, nor written.
            _ => None,
        });
        let damage = damage.collect();
        let mut trial = Vec::new();
        catalog.replay(|run| {
            if trial.len() < TRIAL_PAGES {
                let places: Vec<_> = run.pages.iter().map(|&(place, _)| place).collect();
                trial.extend(Wanted::run(&run.namespace, &run.tokens, run.first(), &places));
            }
            each(run);
        });

        let (messages, received) = channel();
        let keeper = Keeper::new(catalog, options.geometry(page_bytes));
        let thread = std::thread::Builder::new()
            .name("disk".into())
            .spawn(move || keeper.run(&received))
            .map_err(OpenError::Thread)?;
        let store = Self {
            mailbox: Mailbox::new(messages, Arc::clone(&shared)),
            shared,
            events,
            thread: Some(thread),
            page_bytes: options.page_bytes,
            queue_bytes: options.queue_bytes,
            refreshed: now,
        };
        store.try_reading(&trial);
        Ok(Opened { store, damage })
    }

    /// Reads some pages, to know how fast that is.
    fn try_reading(&self, trial: &[Wanted]) {
        let reader = self.reader();
        let mut page = Vec::new();
        for wanted in trial.iter().take((TRIAL_BYTES / self.page_bytes).clamp(1, TRIAL_PAGES)) {
            // A page that does not come is told as an event.
            let _ = reader.read(wanted, &mut page);
        }
    }

    /// Queues a page to be stored; an event tells how that ended. A page that is there already
    /// costs no writing, unless it would now expire much later. One whose sequence is not stored up
    /// to it is refused, since nothing could reach it, and so is one that only pages before it
    /// could make room for: of a sequence that is larger than the budget, the beginning is kept.
    ///
    /// # Errors
    ///
    /// The page comes back when the queue is full, when writing rests after a failure, when its
    /// length is not that of the store's pages, and when its tokens end before it does.
    pub fn append(&self, page: NewPage, now: Timestamp) -> Result<(), NewPage> {
        let bytes = page.bytes.len();
        let queued = self.shared.queued_bytes.load(Ordering::Relaxed);
        let is_sound =
            bytes == self.page_bytes && page.page.depth < page.page.tokens.len() / PAGE_TOKENS;
        if !is_sound
            || queued.saturating_add(bytes) > self.queue_bytes
            || self.shared.is_paused(now)
        {
            return Err(page);
        }
        self.shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.mailbox.order(Message::Append(page, now)).map_err(|unsent| {
            self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            match unsent {
                Message::Append(page, _) => page,
                _ => unreachable!("what was sent comes back"),
            }
        })
    }

    /// Lets the pages of a sequence up to this one, also those that are queued, live until it says,
    /// where they are stored and would end much sooner. Other processes that know them learn of it
    /// when they start. `false` if too much waits for that to be done: it is to be asked again.
    pub fn lengthen(&self, page: SequencePage, now: Timestamp) -> bool {
        self.mailbox.note(Message::Lengthen(page, now))
    }

    /// What has happened since the last call, in order. Once a second of `now` at most, asks for
    /// what other processes have written and deleted, which a later call then returns.
    pub fn poll(&mut self, now: Timestamp) -> Vec<DiskEvent> {
        let is_due = now.0.abs_diff(self.refreshed.0) >= REFRESH_MS;
        if is_due && !self.shared.refreshing.swap(true, Ordering::Acquire) {
            self.refreshed = now;
            let _ = self.mailbox.order(Message::Refresh(now));
        }
        self.events.try_iter().collect()
    }

    /// Whether so much waits to be done that nothing more should be deleted now. What is, is done
    /// nevertheless.
    pub fn is_behind(&self) -> bool {
        self.mailbox.is_full()
    }

    /// Deletes the pages of `tokens`, except the `first` ones, also those that are queued. Other
    /// processes that know them find out when they read them.
    pub fn delete_pages(&self, namespace: [u8; 32], tokens: Vec<u32>, first: usize) {
        let doomed = Doomed::Sequence { namespace, tokens, first };
        let _ = self.mailbox.order(Message::Delete(doomed));
    }

    /// Deletes all pages of a namespace, of whatever model, also those that are queued; but not
    /// this model's full pages of the `spared` sequences. [`DiskEvent::Cleared`] tells when it is
    /// done.
    pub fn delete_namespace(&self, namespace: [u8; 32], spared: Vec<Vec<u32>>) {
        let doomed = Doomed::Namespace { namespace, spared };
        let _ = self.mailbox.order(Message::Delete(doomed));
    }

    /// Notes that a page and those before it were used, in memory or from disk: the segment that
    /// was used least recently goes first, and what follows a page is never used later than the
    /// page. Where too much waits to be done, the note is dropped, and counted.
    pub fn note_used(&self, page: SequencePage, now: Timestamp) {
        self.mailbox.note(Message::Used(page, now));
    }

    /// A reader of this store's pages.
    pub fn reader(&self) -> DiskReader {
        DiskReader {
            shared: Arc::clone(&self.shared),
            mailbox: self.mailbox.clone(),
            page_bytes: self.page_bytes,
        }
    }

    /// How many of `tokens`, in whole pages from their start, are held under other models in this
    /// directory, as far as they are remembered: 4 million tokens.
    pub fn held_under_other_model(&self, namespace: &[u8; 32], tokens: &[u32]) -> usize {
        let keys = self.shared.other_models();
        let (pages, _) = tokens.as_chunks::<PAGE_TOKENS>();
        let mut key = ChainKey::root(namespace);
        let held = pages.iter().take_while(|page| {
            key = key.next(page);
            keys.contains(&half(&key.0))
        });
        held.count() * PAGE_TOKENS
    }

    /// Waits until everything that was asked for before has been done.
    pub fn flush(&self) {
        self.flush_within(Duration::MAX);
    }

    /// As [`flush`](Self::flush), but waits no longer than `limit`; whether all was done by then.
    pub fn flush_within(&self, limit: Duration) -> bool {
        let (done, is_done) = sync_channel(1);
        // An error means that the thread is gone, and with it what there was to wait for.
        self.mailbox.order(Message::Flush(done)).is_err()
            || is_done.recv_timeout(limit) != Err(RecvTimeoutError::Timeout)
    }

    /// Figures of the store at this moment.
    pub fn stats(&self) -> DiskStats {
        DiskStats::of(&self.shared)
    }
}

/// Writes what is queued.
impl Drop for DiskStore {
    fn drop(&mut self) {
        let _ = self.mailbox.order(Message::Close);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say that could still be of use.
            let _ = thread.join();
        }
    }
}
