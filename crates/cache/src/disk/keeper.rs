//! The thread that writes, and watches the directory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use crate::disk::catalog::Catalog;
use crate::disk::chain::Chain;
use crate::disk::event::DiskEvent;
use crate::disk::format::{Geometry, RecordHeader};
use crate::disk::message::Message;
use crate::disk::record::{NewPage, Record, SequencePage};
use crate::disk::shared::add_duration;
use crate::disk::writing::Writing;
use crate::disk_page::DiskPage;
use crate::timestamp::Timestamp;
use crate::token_page::PAGE_TOKENS;

/// While pages of one sequence are stored, all of it is noted as used this often.
const TOUCH_MS: u64 = 1_000;

/// Where a page lies that was to be stored.
enum Stored {
    /// It was there before.
    Before(DiskPage),
    /// It was written to the segment of this name.
    Now(String, Box<Record>),
}

/// A sequence whose pages come one by one.
struct Storing {
    namespace: [u8; 32],
    tokens: Arc<[u32]>,
    /// When all of it was last noted as used.
    at: Timestamp,
}

pub(crate) struct Keeper {
    catalog: Catalog,
    chain: Chain,
    /// How new segments are laid out.
    geometry: Geometry,
    writing: Option<Writing>,
    /// The sequence that pages were stored of last, whose pages before them count as used.
    storing: Option<Storing>,
    /// True from a failure until a page is written.
    failing: bool,
}

impl Keeper {
    pub(crate) fn new(catalog: Catalog, geometry: Geometry) -> Self {
        Self {
            catalog,
            chain: Chain::default(),
            geometry,
            writing: None,
            storing: None,
            failing: false,
        }
    }

    pub(crate) fn run(mut self, messages: &Receiver<Message>) {
        let shared = self.catalog.shared.clone();
        while let Ok(message) = messages.recv() {
            let bytes = message.bytes();
            match message {
                Message::Append(page, now) => self.append(page, now),
                Message::Lengthen(page, now) => self.lengthen(&page, now),
                Message::Used(page, now) => self.note_used(&page, now),
                Message::Refresh(now) => self.refresh(now),
                Message::Damaged(wanted) => self.catalog.drop_damaged(&wanted),
                Message::Gone(wanted) => self.catalog.drop_deleted(&wanted),
                Message::Delete(doomed) => {
                    // A segment that is being written stays, even when nothing is left of it.
                    self.writing = None;
                    self.catalog.delete(&doomed);
                }
                Message::Flush(done) => {
                    let _ = done.send(());
                }
                Message::Close => break,
            }
            shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn refresh(&mut self, now: Timestamp) {
        self.catalog.refresh(now, self.writing.as_ref().map(Writing::name));
        // Somebody deleted it under us.
        if self.writing.as_ref().is_some_and(|writing| !self.catalog.is_known(writing.name())) {
            self.writing = None;
        }
        self.catalog.shared.refreshing.store(false, Ordering::Release);
    }

    fn lengthen(&mut self, page: &SequencePage, now: Timestamp) {
        let SequencePage { namespace, tokens, depth, expires_at } = page;
        if let Some([_, path @ ..]) = self.chain.keys(namespace, tokens, *depth) {
            self.catalog.lengthen(path, *expires_at, now);
        }
    }

    fn note_used(&mut self, page: &SequencePage, now: Timestamp) {
        if let Some([_, path @ ..]) = self.chain.keys(&page.namespace, &page.tokens, page.depth) {
            self.catalog.touch_path(path, now);
        }
    }

    /// Notes that all of the sequence of a stored page was used, but not for each page anew:
    /// that would take a time that grows with the square of its length. Returns when it was noted,
    /// which is when the page counts as used too, since it must not be later than those before it.
    fn touch(&mut self, page: &SequencePage, now: Timestamp) -> Timestamp {
        if let Some(Storing { namespace, tokens, at }) = &self.storing
            && *namespace == page.namespace
            && Arc::ptr_eq(tokens, &page.tokens)
            && now.0.abs_diff(at.0) < TOUCH_MS
        {
            return *at;
        }
        let last = (page.tokens.len() / PAGE_TOKENS).saturating_sub(1);
        if let Some([_, path @ ..]) = self.chain.keys(&page.namespace, &page.tokens, last) {
            self.catalog.touch_path(path, now);
        }
        let SequencePage { namespace, tokens, .. } = page;
        let storing = Storing { namespace: *namespace, tokens: Arc::clone(tokens), at: now };
        self.storing.insert(storing).at
    }

    fn append(&mut self, new: NewPage, now: Timestamp) {
        let shared = self.catalog.shared.clone();
        let NewPage { page, bytes } = new;
        let stored = if shared.is_paused(now) { Err(None) } else { self.store(&page, &bytes, now) };
        shared.queued_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
        let place = match stored {
            Ok(place) => place,
            Err(error) => {
                if let Some(error) = error {
                    self.pause(&error, now);
                }
                shared.counters.refused_pages.fetch_add(1, Ordering::Relaxed);
                let held = self.held(&page, now);
                return self.catalog.tell(DiskEvent::Refused { page, held });
            }
        };
        match place {
            Stored::Before(place) => self.catalog.tell(DiskEvent::Stored(page, place)),
            Stored::Now(name, record) => {
                if std::mem::take(&mut self.failing) {
                    self.catalog.tell(DiskEvent::Resumed);
                }
                self.catalog.wrote(&name, *record, page);
                self.finish_if_full(now);
            }
        }
    }

    /// How many pages before this one are here and live, without a gap.
    fn held(&mut self, page: &SequencePage, now: Timestamp) -> usize {
        match self.chain.keys(&page.namespace, &page.tokens, page.depth) {
            Some([_, before @ .., _]) => self.catalog.index.held(before, now),
            _ => 0,
        }
    }

    /// Writes a page unless it is there already. Without an error it is refused: for lack of room
    /// in the index, since its life is over, or since it could not be reached, because a page
    /// before it is not there, or would have to make room for it.
    fn store(
        &mut self,
        page: &SequencePage,
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<Stored, Option<io::Error>> {
        let used = self.touch(page, now);
        let keys = self.chain.keys(&page.namespace, &page.tokens, page.depth);
        let Some([_, path @ ..]) = keys else { return Err(None) };
        let Some([.., parent, key]) = keys else { return Err(None) };
        let depth = u32::try_from(page.depth).map_err(|_| None)?;
        if let Some(place) = self.catalog.place(key, page.expires_at, now) {
            return Ok(Stored::Before(place));
        }
        let follows = depth == 0 || self.catalog.index.is_reachable(parent, now);
        let is_over = page.expires_at.is_some_and(|at| at <= now);
        if self.catalog.index.is_full() || !follows || is_over {
            return Err(None);
        }
        let start = Instant::now();
        let mut tokens = [0; PAGE_TOKENS];
        tokens.copy_from_slice(&page.path()[page.depth * PAGE_TOKENS..]);
        let header = RecordHeader {
            namespace: page.namespace,
            depth,
            tokens,
            parent: *parent,
            key: *key,
            expires_at: page.expires_at,
            checksum: [0; 32],
        };
        let mut writing = match self.writing.take() {
            Some(writing) => writing,
            None => {
                // Of several segments the next page sorts anew which was used later.
                self.storing = None;
                Writing::begin(&mut self.catalog, self.geometry, path, now)?.ok_or_else(|| {
                    (depth == 0).then(|| no_room(self.catalog.fits(self.geometry)))
                })?
            }
        };
        // A segment that another process began may have had the page.
        if let Some(place) = self.catalog.place(key, page.expires_at, now) {
            self.writing = Some(writing);
            return Ok(Stored::Before(place));
        }
        let written = writing.append(header, bytes, used);
        let name = writing.name().to_string();
        match &written {
            // A disk that has room again takes the page where it was to go.
            Err(error) if !is_full(error) => self.catalog.give_up(&name),
            _ => self.writing = Some(writing),
        }
        let record = written?;
        let counters = &self.catalog.shared.counters;
        counters.written_pages.fetch_add(1, Ordering::Relaxed);
        add_duration(&counters.write_ns, start.elapsed());
        Ok(Stored::Now(name, Box::new(record)))
    }

    fn finish_if_full(&mut self, now: Timestamp) {
        if let Some(full) = self.writing.take_if(|writing| writing.is_full())
            && let Err(error) = full.finish()
        {
            // The page itself was written.
            self.pause(&error, now);
        }
    }

    fn pause(&mut self, error: &io::Error, now: Timestamp) {
        self.catalog.shared.pause(now);
        if !std::mem::replace(&mut self.failing, true) {
            self.catalog.tell(DiskEvent::Paused { kind: error.kind(), message: error.to_string() });
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn no_room(fits: bool) -> io::Error {
    let why = match fits {
        true => "the budget is taken by segments that other processes write",
        false => "the budget is less than a file of one page takes",
    };
    io::Error::new(io::ErrorKind::StorageFull, why)
}
