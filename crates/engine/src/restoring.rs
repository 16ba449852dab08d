//! A request whose prefix is being read from disk.

use std::ops::Range;
use std::time::Instant;

use cache::disk::{NextPage, ReadRun};
use cache::{PAGE_TOKENS, Restorable, Verdict};
use kernels::PageId;

use crate::kv_memory::{By, KvMemory};
use crate::request::Request;
use crate::running::{Prefix, Waiting};

/// Pages taken in one step, so that others need not wait for all of them.
const PAGES_AT_ONCE: usize = 4;

/// An admitted request that waits for pages from disk.
pub(crate) struct Restoring {
    pub(crate) waiting: Waiting,
    pub(crate) admitted: Instant,
    pub(crate) looked_up: Instant,
    /// What it can reuse from memory, pinned.
    prefix: Prefix,
    /// What is being read.
    restorable: Restorable,
    run: ReadRun,
    /// Pages that have come; it holds them.
    pages: Vec<PageId>,
}

/// What a restoring request has become.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Pages are still being read, and all that have come are taken.
    Waiting,
    /// More may have come than were taken at once.
    Reading,
    /// No more pages come.
    Over,
}

/// What was restored, for the verdict.
pub(crate) struct Restored {
    /// The verdict as it was foreseen; `None` if not all pages came.
    pub(crate) verdict: Option<Verdict>,
    /// The tokens whose pages have come: where they begin and end.
    pub(crate) from_disk: Range<usize>,
    /// Id of the request that the prompt was compared with.
    pub(crate) compared_with: Option<String>,
}

impl Restoring {
    pub(crate) fn new(
        waiting: Waiting,
        admitted: Instant,
        looked_up: Instant,
        prefix: Prefix,
        restorable: Restorable,
        run: ReadRun,
    ) -> Self {
        let pages = Vec::with_capacity(restorable.places.len());
        Restoring { waiting, admitted, looked_up, prefix, restorable, run, pages }
    }

    /// Pages that it still lacks to compute its prompt and the first token of each answer, beside
    /// those that are counted as used.
    pub(crate) fn pages_wanted(&self, memory: &KvMemory) -> usize {
        let Request { prompt, choices, .. } = &self.waiting.request;
        let found = &self.prefix.pages[..self.prefix.reused / PAGE_TOKENS];
        let in_use = found.iter().filter(|&&page| memory.is_in_use(page)).count();
        (prompt.len() / PAGE_TOKENS + choices).saturating_sub(in_use + self.pages.len())
    }

    /// Takes what has been read.
    pub(crate) fn advance(&mut self, memory: &mut KvMemory, by: By<'_>) -> Progress {
        let mut taken = 0;
        while let Some(&place) = self.restorable.places.get(self.pages.len()) {
            if taken == PAGES_AT_ONCE {
                return Progress::Reading;
            }
            let bytes = match self.run.try_next() {
                NextPage::Page(bytes) => bytes,
                NextPage::Waiting => return Progress::Waiting,
                NextPage::Failed(error) => {
                    memory.note_unread(place, error, by.now);
                    return Progress::Over;
                }
                NextPage::End => return Progress::Over,
            };
            // Without memory for it, the rest is computed when there is some.
            let Some(page) = memory.allocate(by) else { return Progress::Over };
            memory.pool_mut().store_mut().page_bytes_mut(page).copy_from_slice(&bytes);
            self.run.give_back(bytes);
            self.pages.push(page);
            taken += 1;
        }
        Progress::Over
    }

    /// Pages that it holds.
    #[cfg(test)]
    pub(crate) fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// Hands what has come to the prompt cache, where the request finds it.
    pub(crate) fn finish(self, memory: &mut KvMemory, by: By<'_>) -> (Waiting, Restored) {
        let Restoring { waiting, prefix, restorable, pages, .. } = self;
        let Restorable { places, tokens, verdict } = restorable;
        let full = prefix.reused / PAGE_TOKENS;
        let end = (full + pages.len()) * PAGE_TOKENS;
        // A page that is restored may take the place of a partial one that the pin would hold.
        prefix.pin.into_iter().for_each(|pin| memory.unpin(pin));
        if !pages.is_empty() {
            let all: Vec<PageId> = prefix.pages[..full].iter().chain(&pages).copied().collect();
            memory.publish_restored(by.namespace, &tokens[..end], &all, pages.len(), by.now);
        }
        memory.release(&pages);
        let compared_with = verdict.compared_with.clone();
        let verdict = (pages.len() == places.len()).then_some(verdict);
        (waiting, Restored { verdict, from_disk: full * PAGE_TOKENS..end, compared_with })
    }

    /// Gives everything back, for a caller who went away or for others who need the pages.
    pub(crate) fn abandon(self, memory: &mut KvMemory) -> Waiting {
        memory.release(&self.pages);
        self.prefix.pin.into_iter().for_each(|pin| memory.unpin(pin));
        self.waiting
    }
}
