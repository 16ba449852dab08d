//! One choice's tokens and the pages that hold their K/V.

use kernels::{PAGE_TOKENS, PageId, RowPlace};

use crate::kv_memory::{By, KvMemory};

/// No page is free, and none can be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no page of the KV memory is free")]
pub(crate) struct OutOfPages;

/// Tokens in order, of which the first `computed` have their K/V in `pages`. What is not
/// computed is the rest of the prompt, or the one token drawn last.
///
/// A sequence that is not attached holds no pages and is not computed; it waits for memory.
#[derive(Debug)]
pub(crate) struct Sequence {
    tokens: Vec<u32>,
    pages: Vec<PageId>,
    computed: usize,
    attached: bool,
}

impl Sequence {
    /// Tokens without pages, not attached.
    pub(crate) fn new(tokens: Vec<u32>) -> Self {
        Sequence { tokens, pages: Vec::new(), computed: 0, attached: false }
    }

    /// Goes on from `pages`, which hold the first `reused` tokens: full pages are shared, and of
    /// a partial last page an own copy is made. On an error nothing is held.
    pub(crate) fn attach(
        &mut self,
        pages: &[PageId],
        reused: usize,
        memory: &mut KvMemory,
        by: By<'_>,
    ) -> Result<(), OutOfPages> {
        debug_assert!(!self.attached && self.pages.is_empty(), "attached twice");
        let full = reused / PAGE_TOKENS;
        for &page in &pages[..full] {
            memory.share(page);
            self.pages.push(page);
        }
        if !reused.is_multiple_of(PAGE_TOKENS) {
            let Some(page) = memory.allocate(by) else {
                self.release(memory);
                return Err(OutOfPages);
            };
            memory.pool_mut().copy(pages[full], page);
            self.pages.push(page);
        }
        (self.computed, self.attached) = (reused, true);
        Ok(())
    }

    /// Another sequence with the same tokens, which goes its own way from here. If its own copy
    /// of the last page finds no room, it is not attached.
    pub(crate) fn fork(&self, memory: &mut KvMemory, by: By<'_>) -> Self {
        let mut fork = Sequence::new(self.tokens.clone());
        // Not attached is what an error means.
        let _ = fork.attach(&self.pages, self.computed, memory, by);
        fork
    }

    /// Makes room for the K/V of the next `rows` tokens. What was taken before an error stays.
    pub(crate) fn make_room(
        &mut self,
        rows: usize,
        memory: &mut KvMemory,
        by: By<'_>,
    ) -> Result<(), OutOfPages> {
        let needed = (self.computed + rows).div_ceil(PAGE_TOKENS);
        while self.pages.len() < needed {
            self.pages.push(memory.allocate(by).ok_or(OutOfPages)?);
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

    /// Whether it is being computed.
    pub(crate) fn is_attached(&self) -> bool {
        self.attached
    }

    /// The pages.
    pub(crate) fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// Pages that it still lacks to compute all its tokens and the next.
    pub(crate) fn pages_wanted(&self) -> usize {
        (self.tokens.len() / PAGE_TOKENS + 1).saturating_sub(self.pages.len())
    }

    /// Gives back pages beyond those that hold computed rows.
    pub(crate) fn trim(&mut self, memory: &mut KvMemory) {
        let needed = self.computed.div_ceil(PAGE_TOKENS).min(self.pages.len());
        memory.release(&self.pages[needed..]);
        self.pages.truncate(needed);
    }

    /// Gives all pages back. The tokens stay, to be attached again or not.
    pub(crate) fn release(&mut self, memory: &mut KvMemory) {
        memory.release(&self.pages);
        self.pages.clear();
        (self.computed, self.attached) = (0, false);
    }
}
