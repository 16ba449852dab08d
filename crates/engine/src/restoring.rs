//! A request whose prefix is being read from disk.

use std::time::Instant;

use cache::disk::{NextPage, ReadRun};
use cache::{PAGE_TOKENS, Verdict};
use kernels::PageId;

use crate::kv_memory::{By, KvMemory};
use crate::running::{Prefix, Waiting};

/// Pages taken in one step beside others that are computed.
const PAGES_BESIDE: usize = 4;

/// An admitted request that waits for pages from disk.
pub(crate) struct Restoring {
    pub(crate) waiting: Waiting,
    pub(crate) admitted: Instant,
    pub(crate) looked_up: Instant,
    /// What it can reuse from memory, pinned.
    prefix: Prefix,
    /// The verdict if all pages come.
    verdict: Verdict,
    run: ReadRun,
    /// Pages that have come; it holds them.
    pages: Vec<PageId>,
    expected: usize,
}

/// What a restoring request has become.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Pages are still being read.
    Reading,
    /// No more pages come.
    Over,
}

/// What was restored, for the verdict.
pub(crate) struct Restored {
    /// The verdict as it was foreseen; `None` if not all pages came.
    pub(crate) verdict: Option<Verdict>,
    /// Tokens that were in memory before.
    pub(crate) ram: usize,
    /// Id of the request that the prompt was compared with.
    pub(crate) compared_with: Option<String>,
}

impl Restoring {
    pub(crate) fn new(
        waiting: Waiting,
        admitted: Instant,
        looked_up: Instant,
        prefix: Prefix,
        verdict: Verdict,
        run: ReadRun,
        expected: usize,
    ) -> Self {
        let pages = Vec::with_capacity(expected);
        Restoring { waiting, admitted, looked_up, prefix, verdict, run, pages, expected }
    }

    /// Takes what has been read; where nothing else is to be computed, waits for one page.
    pub(crate) fn advance(&mut self, memory: &mut KvMemory, by: By<'_>, alone: bool) -> Progress {
        let mut taken = 0;
        while self.pages.len() < self.expected && (alone || taken < PAGES_BESIDE) {
            let next = match self.run.try_next() {
                NextPage::Waiting if alone && taken == 0 => match self.run.wait_next() {
                    Some(Ok(page)) => NextPage::Page(page),
                    _ => NextPage::End,
                },
                next => next,
            };
            let bytes = match next {
                NextPage::Page(bytes) => bytes,
                NextPage::Waiting => return Progress::Reading,
                NextPage::Failed(_) | NextPage::End => return Progress::Over,
            };
            // Without memory for it, the rest is computed when there is some.
            let Some(page) = memory.allocate(by) else { return Progress::Over };
            memory.pool_mut().store_mut().page_bytes_mut(page).copy_from_slice(&bytes);
            self.run.give_back(bytes);
            self.pages.push(page);
            taken += 1;
        }
        match self.pages.len() == self.expected {
            true => Progress::Over,
            false => Progress::Reading,
        }
    }

    /// Hands what has come to the prompt cache, where the request finds it.
    pub(crate) fn finish(self, memory: &mut KvMemory, by: By<'_>) -> (Waiting, Restored) {
        let Restoring { waiting, prefix, verdict, pages, expected, .. } = self;
        let full = prefix.reused / PAGE_TOKENS;
        let tokens = (full + pages.len()) * PAGE_TOKENS;
        let all: Vec<PageId> = prefix.pages[..full].iter().chain(&pages).copied().collect();
        memory.publish(&waiting.request.prompt[..tokens], &all, by);
        memory.note_restored(&pages);
        memory.release(&pages);
        prefix.pin.into_iter().for_each(|pin| memory.unpin(pin));
        let compared_with = verdict.compared_with.clone();
        let verdict = (pages.len() == expected).then_some(verdict);
        (waiting, Restored { verdict, ram: full * PAGE_TOKENS, compared_with })
    }

    /// Gives everything back, for a caller who went away.
    pub(crate) fn abandon(self, memory: &mut KvMemory) -> Waiting {
        memory.release(&self.pages);
        self.prefix.pin.into_iter().for_each(|pin| memory.unpin(pin));
        self.waiting
    }
}
