//! The token ids of one page.

/// Token positions in a page. A page at depth `i` covers positions `16 i ..= 16 i + 15`.
pub const PAGE_TOKENS: usize = 16;

/// Up to [`PAGE_TOKENS`] token ids, ordered as slices are: a prefix sorts before what extends it.
#[derive(Clone, Copy)]
pub(crate) struct TokenPage {
    ids: [u32; PAGE_TOKENS],
    len: u8,
}

impl TokenPage {
    /// The first [`PAGE_TOKENS`] of `tokens`, or all when there are fewer.
    pub(crate) fn new(tokens: &[u32]) -> Self {
        let len = tokens.len().min(PAGE_TOKENS);
        let mut ids = [0; PAGE_TOKENS];
        ids[..len].copy_from_slice(&tokens[..len]);
        Self { ids, len: len as u8 }
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.ids[..usize::from(self.len)]
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }
}
