//! The disk tier of the prompt cache, as the engine uses it: what is written, when, and what is
//! told to the prefix tree.
//!
//! Pages are written while there is nothing to compute, and now and then beside computing. A page
//! that waits may still be evicted; it is then not written.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cache::disk::{
    DiskEvent, DiskOptions, DiskStats, DiskStore, DropReason, NewPage, ReadRun, SequencePage,
    StoredRun, Wanted, lasts_long_enough,
};
use cache::{Loss, Namespace, PAGE_TOKENS, Pinned, PromptCache, Restorable, Timestamp};
use kernels::{KvStore, PageId};

/// Bytes of pages that wait in memory to be written.
const QUEUE_BYTES: usize = 16 << 20;
/// While something is computed, one page is written in this time: writing takes a core from
/// computing for about a fiftieth of it.
const WRITE_EVERY: Duration = Duration::from_millis(25);
/// Is called from another thread when something may have come from disk.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// When a page that the disk did not take is offered again.
const WRITE_AGAIN: Duration = Duration::from_millis(5);
/// How often an idle engine looks for what other processes have written.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pages that are read ahead of being taken.
const READ_AHEAD: usize = 8;

/// Where the prompt cache is kept on disk.
#[derive(Clone)]
pub struct DiskTierOptions {
    /// The directory; made if it is missing, and private to the user.
    pub directory: PathBuf,
    /// Bytes that all files in it may take, of whatever model and process.
    pub budget_bytes: u64,
    /// Is told what an operator should know, a line at a time: what was damaged, that the disk is
    /// full.
    pub report: fn(&str),
}

impl fmt::Debug for DiskTierOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, budget_bytes, .. } = self;
        f.debug_struct("DiskTierOptions")
            .field("directory", directory)
            .field("budget_bytes", budget_bytes)
            .finish_non_exhaustive()
    }
}

/// A sequence with pages to be written, in order.
struct Backlog {
    namespace: [u8; 32],
    tokens: Arc<[u32]>,
    pages: VecDeque<Unwritten>,
}

/// A page to be written.
struct Unwritten {
    depth: usize,
    page: PageId,
    /// How often the page had left the prompt cache when it was noted: it is the same one as long
    /// as that is so.
    left: u32,
}

/// What is known of a copy on disk of a page of the pool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copied {
    /// Nobody has asked for one.
    Unasked,
    /// It is there, or waits to be written.
    Noted,
    /// It was to be there, and is not: the page is written with its next use.
    Lost,
}

/// The store, and what waits for it.
pub(crate) struct DiskTier {
    store: DiskStore,
    backlog: VecDeque<Backlog>,
    /// Of each page of the pool.
    copies: Vec<Copied>,
    /// Pages of the pool that the disk has refused since they came into the prompt cache.
    refused: Vec<bool>,
    /// How many it ever refused.
    refused_pages: u64,
    /// When the lives of these end on disk, as far as that is known here: else it is long ago.
    last_until: Vec<Option<Timestamp>>,
    /// How often each page of the pool has left the prompt cache.
    left: Vec<u32>,
    /// Namespaces that are being deleted, and for each time that is asked for the sequences that
    /// stay: what is told of other pages is older than that, and deleted.
    clearing: HashMap<[u8; 32], VecDeque<Vec<Vec<u32>>>>,
    budget_bytes: u64,
    written_at: Instant,
    report: fn(&str),
}

impl DiskTier {
    /// Opens the directory for a model, and tells the tree what is there. A directory that cannot
    /// be used is reported, and there is then no tier.
    pub(crate) fn open(
        options: &DiskTierOptions,
        model: [u8; 32],
        page_bytes: usize,
        pages: usize,
        cache: &mut PromptCache<PageId>,
        now: Timestamp,
    ) -> Option<Self> {
        let report = options.report;
        let disk = DiskOptions {
            directory: options.directory.clone(),
            budget_bytes: options.budget_bytes,
            model,
            page_bytes,
            queue_bytes: QUEUE_BYTES.max(page_bytes),
        };
        let opened = DiskStore::open(&disk, now, |run| note_run(&run, cache, now, |_| true));
        match opened {
            Ok(opened) => {
                opened.damage.iter().for_each(|damage| report(&damage.to_string()));
                Some(DiskTier {
                    store: opened.store,
                    backlog: VecDeque::new(),
                    copies: vec![Copied::Unasked; pages],
                    refused: vec![false; pages],
                    refused_pages: 0,
                    last_until: vec![None; pages],
                    left: vec![0; pages],
                    clearing: HashMap::new(),
                    budget_bytes: options.budget_bytes,
                    written_at: Instant::now(),
                    report,
                })
            }
            Err(error) => {
                report(&format!("the prompt cache is in memory only: {error}"));
                None
            }
        }
    }

    /// Takes note of the full pages of a sequence, to be written later; those that have been are
    /// to live as long. `is_cached` tells which pages the prompt cache has.
    pub(crate) fn note(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        pages: &[PageId],
        expires_at: Option<Timestamp>,
        now: Timestamp,
        is_cached: impl Fn(PageId) -> bool,
    ) {
        let full = tokens.len() / PAGE_TOKENS;
        let (mut unwritten, mut longer) = (VecDeque::new(), Vec::new());
        for (depth, &page) in pages[..full].iter().enumerate().filter(|(_, page)| is_cached(**page))
        {
            let copied = std::mem::replace(&mut self.copies[page as usize], Copied::Noted);
            if copied != Copied::Noted {
                self.last_until[page as usize] = expires_at;
                unwritten.push_back(Unwritten { depth, page, left: self.left[page as usize] });
            } else if !lasts_long_enough(self.last_until[page as usize], expires_at, now) {
                longer.push((depth, page));
            }
        }
        let Some(last) = full.checked_sub(1) else { return };
        let namespace = namespace.to_bytes();
        let tokens: Arc<[u32]> = Arc::from(&tokens[..full * PAGE_TOKENS]);
        let up_to =
            |depth| SequencePage { namespace, tokens: Arc::clone(&tokens), depth, expires_at };
        // Where the disk is too far behind, the next use asks again.
        if let Some(&(depth, _)) = longer.last()
            && self.store.lengthen(up_to(depth), now)
        {
            longer.iter().for_each(|&(_, page)| self.last_until[page as usize] = expires_at);
        }
        // Who reuses pages in memory keeps their copies from being the least recently used.
        self.store.note_used(up_to(last), now);
        if !unwritten.is_empty() {
            self.backlog.push_back(Backlog { namespace, tokens, pages: unwritten });
        }
    }

    /// Takes note that pages of the pool hold what was read from disk.
    pub(crate) fn note_restored(&mut self, pages: &[PageId]) {
        for &page in pages {
            self.copies[page as usize] = Copied::Noted;
            self.last_until[page as usize] = Some(Timestamp(0));
        }
    }

    /// Takes note that a page has left the prompt cache.
    pub(crate) fn note_left(&mut self, page: PageId) {
        self.copies[page as usize] = Copied::Unasked;
        self.refused[page as usize] = false;
        self.left[page as usize] = self.left[page as usize].wrapping_add(1);
    }

    /// Hands one page to be written, beside computing only if it is time. `false` if there is none
    /// or the disk takes none.
    pub(crate) fn write_one(&mut self, kv: &KvStore, beside: bool, now: Timestamp) -> bool {
        if self.backlog.is_empty() || beside && self.written_at.elapsed() < WRITE_EVERY {
            return false;
        }
        while let Some(front) = self.backlog.front_mut() {
            let Some(next) = front.pages.front() else {
                self.backlog.pop_front();
                continue;
            };
            if self.left[next.page as usize] != next.left {
                front.pages.pop_front();
                continue;
            }
            let page = SequencePage {
                namespace: front.namespace,
                tokens: Arc::clone(&front.tokens),
                depth: next.depth,
                expires_at: self.last_until[next.page as usize],
            };
            let bytes = kv.page_bytes(next.page).to_vec();
            let taken = self.store.append(NewPage { page, bytes }, now).is_ok();
            if taken {
                front.pages.pop_front();
                self.written_at = Instant::now();
            }
            return taken;
        }
        false
    }

    /// Writes all that waits, for an engine that ends, and returns how many pages were not written
    /// because that would have taken longer than `limit`. Where writing has failed, nothing waits.
    pub(crate) fn write_out(&mut self, kv: &KvStore, limit: Duration, now: Timestamp) -> usize {
        let until = Instant::now() + limit;
        let left = || until.saturating_duration_since(Instant::now());
        while !left().is_zero() {
            let is_queue_empty = self.store.stats().queued_bytes == 0;
            if self.write_one(kv, false, now) {
                continue;
            }
            if self.backlog.is_empty() || is_queue_empty {
                break;
            }
            std::thread::sleep(WRITE_AGAIN.min(left()));
        }
        if self.store.flush_within(left()) && !left().is_zero() {
            return 0;
        }
        let waits = |it: &&Unwritten| self.left[it.page as usize] == it.left;
        let waiting = self.backlog.iter().flat_map(|it| &it.pages).filter(waits).count();
        waiting + self.store.stats().queued_bytes / kv.page_bytes(0).len()
    }

    /// Tells an operator of what was not written.
    pub(crate) fn report(&self, line: &str) {
        (self.report)(line);
    }

    /// How long the tier can be left alone while nothing is computed: soon the disk takes more of
    /// what waits, and now and then another process has written something.
    pub(crate) fn look_again_in(&self) -> Duration {
        if self.backlog.is_empty() { LOOK_EVERY } else { WRITE_AGAIN }
    }

    /// Tells the tree what has happened on disk; whether pages in memory have lost their copies
    /// there.
    pub(crate) fn poll(&mut self, cache: &mut PromptCache<PageId>, now: Timestamp) -> bool {
        let mut lost = Vec::new();
        for event in self.store.poll(now) {
            match event {
                DiskEvent::Stored(page, place) => {
                    let namespace = Namespace::from_bytes(page.namespace);
                    if self.is_news(&page.namespace, page.path()) {
                        cache.note_stored(&namespace, page.path(), place, page.expires_at, now);
                    } else {
                        // It is deleted with all else, also where a running request has kept it in
                        // memory.
                        lost.extend(cache.pages(&namespace, page.path()).get(page.depth));
                    }
                }
                DiskEvent::Found(run) => {
                    note_run(&run, cache, now, |path| self.is_news(&run.namespace, path));
                }
                DiskEvent::Dropped { place, reason } => {
                    let loss = match reason {
                        DropReason::Evicted | DropReason::Vanished | DropReason::Deleted => {
                            Loss::Evicted
                        }
                        DropReason::Damaged => Loss::Damaged,
                    };
                    lost.extend(cache.note_dropped(place, loss, now));
                }
                DiskEvent::Cleared(namespace) => {
                    if let Some(asked) = self.clearing.get_mut(&namespace) {
                        asked.pop_front();
                        if asked.is_empty() {
                            self.clearing.remove(&namespace);
                        }
                    }
                }
                DiskEvent::Refused { page, held } => {
                    lost.extend(self.note_refused(&page, held, cache));
                }
                DiskEvent::Damaged(damage) => (self.report)(&damage.to_string()),
                DiskEvent::Paused { message, .. } => (self.report)(&format!(
                    "the prompt cache cannot be written to disk and stays in memory: {message}"
                )),
                DiskEvent::Resumed => (self.report)("the prompt cache is written to disk again"),
            }
        }
        lost.iter().for_each(|&page| self.note_unstored(page));
        !lost.is_empty()
    }

    /// Whether what is told of a page is to be believed: not if it is just being deleted.
    fn is_news(&self, namespace: &[u8; 32], path: &[u32]) -> bool {
        let stays = |spared: &Vec<Vec<u32>>| spared.iter().any(|tokens| tokens.starts_with(path));
        self.clearing.get(namespace).is_none_or(|asked| asked.iter().all(stays))
    }

    /// Takes note that a page in memory has no copy on disk any more: when it is used again, it is
    /// written again.
    pub(crate) fn note_unstored(&mut self, page: PageId) {
        self.copies[page as usize] = Copied::Lost;
    }

    /// Takes note that the disk has refused a page. What waits and goes on from it could not be
    /// reached without it. Returns pages before it that were to be on disk and are not, since only
    /// the first `held` ones are: nothing that follows would ever be taken.
    fn note_refused(
        &mut self,
        refused: &SequencePage,
        held: usize,
        cache: &PromptCache<PageId>,
    ) -> Vec<PageId> {
        let namespace = Namespace::from_bytes(refused.namespace);
        let mut before = cache.pages(&namespace, refused.path());
        let mut pages = before.split_off(before.len().min(refused.depth));
        let mut missing = before.split_off(before.len().min(held));
        missing.retain(|&page| self.copies[page as usize] == Copied::Noted);
        for waiting in &mut self.backlog {
            if waiting.namespace == refused.namespace && waiting.tokens.starts_with(refused.path())
            {
                // They wait in order.
                let first = waiting.pages.partition_point(|it| it.depth <= refused.depth);
                let after = waiting.pages.split_off(first).into_iter();
                let after = after.filter(|it| self.left[it.page as usize] == it.left);
                pages.extend(after.map(|it| it.page));
            }
        }
        for page in pages {
            self.copies[page as usize] = Copied::Lost;
            let again = std::mem::replace(&mut self.refused[page as usize], true);
            self.refused_pages += u64::from(!again);
        }
        missing
    }

    /// Notes to be written again what a pin keeps and has no copy on disk any more.
    pub(crate) fn note_lost(&mut self, pinned: &Pinned<PageId>, now: Timestamp) {
        let Pinned { namespace, tokens, pages, expires_at } = pinned;
        // On disk, whose life is over is not there; who uses it next gives it another one.
        if expires_at.is_some_and(|at| at <= now) {
            return;
        }
        let is_lost = |page: &PageId| self.copies[*page as usize] == Copied::Lost;
        let lost: HashSet<PageId> = pages.iter().copied().filter(is_lost).collect();
        if !lost.is_empty() {
            self.note(namespace, tokens, pages, *expires_at, now, |page| lost.contains(&page));
        }
    }

    /// Whether so many pages fit half of the budget. More of them are not written again and again
    /// as they take each other's room.
    pub(crate) fn has_room_for_pins(&self, pages: usize, page_bytes: usize) -> bool {
        (pages as u64).saturating_mul(page_bytes as u64) <= self.budget_bytes / 2
    }

    /// How long it should take to read so many pages, in seconds; `None` before anything was read.
    pub(crate) fn read_s(&self, pages: usize, page_bytes: usize) -> Option<f64> {
        Some((pages * page_bytes) as f64 / self.store.reader().read_rate()?)
    }

    /// Begins to read what can be restored; `wake` is called as pages come.
    pub(crate) fn read(
        &self,
        namespace: &Namespace,
        restorable: &Restorable,
        now: Timestamp,
        wake: &Wake,
    ) -> Option<ReadRun> {
        let Restorable { places, tokens, .. } = restorable;
        let (pages, namespace) = (tokens.len() / PAGE_TOKENS, namespace.to_bytes());
        let first = pages - places.len();
        if let Some(depth) = pages.checked_sub(1) {
            let tokens = Arc::from(&tokens[..]);
            let used = SequencePage { namespace, tokens, depth, expires_at: None };
            self.store.note_used(used, now);
        }
        let wanted = Wanted::run(&namespace, tokens, first, places);
        let wake = Arc::clone(wake);
        self.store.reader().read_run(wanted, READ_AHEAD, move || wake()).ok()
    }

    /// How many of the tokens are held on disk for another model, or for this one computed in
    /// another way.
    pub(crate) fn held_otherwise(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        let namespace = namespace.to_bytes();
        if self.clearing.contains_key(&namespace) {
            return 0;
        }
        self.store.held_under_other_model(&namespace, tokens)
    }

    /// Whether the disk is so far behind that it should not be asked to delete anything.
    pub(crate) fn is_behind(&self) -> bool {
        self.store.is_behind()
    }

    /// Deletes the pages of `tokens` but the `first` ones.
    pub(crate) fn delete_pages(&self, namespace: &Namespace, tokens: &[u32], first: usize) {
        self.store.delete_pages(namespace.to_bytes(), tokens.to_vec(), first);
    }

    /// Deletes all pages of a namespace but those of the `spared` sequences.
    pub(crate) fn delete_namespace(&mut self, namespace: &Namespace, spared: Vec<Vec<u32>>) {
        let namespace = namespace.to_bytes();
        self.clearing.entry(namespace).or_default().push_back(spared.clone());
        self.store.delete_namespace(namespace, spared);
    }

    pub(crate) fn stats(&self) -> DiskStats {
        DiskStats { refused_pages: self.refused_pages, ..self.store.stats() }
    }
}

fn note_run(
    run: &StoredRun,
    cache: &mut PromptCache<PageId>,
    now: Timestamp,
    is_news: impl Fn(&[u32]) -> bool,
) {
    let namespace = Namespace::from_bytes(run.namespace);
    for (path, place, expires_at) in run.paths().filter(|(path, ..)| is_news(path)) {
        cache.note_stored(&namespace, path, place, expires_at, now);
    }
}
