//! One choice's tokens and the pages that hold their K/V.

use cache::Timestamp;
use kernels::{PAGE_TOKENS, PageId, RowPlace};

use crate::kv_memory::KvMemory;

/// The running sequences hold all pages. Admission reserves what a request needs, so that
/// this is a bug when it happens, and fails one request only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no page of the KV memory is free")]
pub(crate) struct OutOfPages;

/// The request for whose sake pages are taken, which may evict others.
#[derive(Clone, Copy)]
pub(crate) struct By<'a> {
    pub(crate) request: &'a str,
    pub(crate) now: Timestamp,
}

/// Tokens in order, of which the first `computed` have their K/V in `pages`. What is not
/// computed is the rest of the prompt, or the one token drawn last.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    tokens: Vec<u32>,
    pages: Vec<PageId>,
    computed: usize,
}

impl Sequence {
    /// A prompt that goes on from `hit_pages`, which hold its first `reused` tokens: full
    /// pages are shared, and of a partial last page an own copy is made.
    pub(crate) fn resume(
        prompt: &[u32],
        hit_pages: &[PageId],
        reused: usize,
        memory: &mut KvMemory,
        by: By<'_>,
    ) -> Result<Self, OutOfPages> {
        let mut sequence = Sequence { tokens: prompt.to_vec(), pages: vec![], computed: reused };
        match sequence.share(hit_pages, memory, by) {
            Ok(()) => Ok(sequence),
            Err(error) => {
                sequence.release(memory);
                Err(error)
            }
        }
    }

    /// Another sequence with the same tokens, which goes its own way from here.
    pub(crate) fn fork(&self, memory: &mut KvMemory, by: By<'_>) -> Result<Self, OutOfPages> {
        Sequence::resume(&self.tokens, &self.pages, self.computed, memory, by)
    }

    fn share(
        &mut self,
        pages: &[PageId],
        memory: &mut KvMemory,
        by: By<'_>,
    ) -> Result<(), OutOfPages> {
        let full = self.computed / PAGE_TOKENS;
        for &page in &pages[..full] {
            memory.pool_mut().retain(page);
            self.pages.push(page);
        }
        if !self.computed.is_multiple_of(PAGE_TOKENS) {
            let page = memory.allocate(by.request, by.now).ok_or(OutOfPages)?;
            memory.pool_mut().copy(pages[full], page);
            self.pages.push(page);
        }
        Ok(())
    }

    /// Makes room for the K/V of the next `rows` tokens.
    pub(crate) fn make_room(
        &mut self,
        rows: usize,
        memory: &mut KvMemory,
        by: By<'_>,
    ) -> Result<(), OutOfPages> {
        let needed = (self.computed + rows).div_ceil(PAGE_TOKENS);
        while self.pages.len() < needed {
            self.pages.push(memory.allocate(by.request, by.now).ok_or(OutOfPages)?);
        }
        debug_assert!(
            self.pages[self.computed / PAGE_TOKENS..needed]
                .iter()
                .all(|&page| memory.pool().references(page) == 1),
            "a shared page would be written"
        );
        Ok(())
    }

    /// Where the row of a token stands.
    pub(crate) fn place(&self, position: usize) -> RowPlace<'_> {
        RowPlace { pages: &self.pages, position }
    }

    /// Takes note that the next `rows` tokens have their K/V.
    pub(crate) fn advance(&mut self, rows: usize) {
        self.computed += rows;
        debug_assert!(self.computed <= self.tokens.len());
    }

    /// Appends a drawn token.
    pub(crate) fn push(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// All tokens.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens whose K/V is in the pages.
    pub(crate) fn computed(&self) -> usize {
        self.computed
    }

    /// Tokens that wait to be computed.
    pub(crate) fn pending(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// The pages.
    pub(crate) fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// Gives all pages back; the sequence is over.
    pub(crate) fn release(&mut self, memory: &mut KvMemory) {
        memory.release(&self.pages);
        self.pages.clear();
        self.computed = 0;
    }
}
