//! The KV pool and the prompt cache that lives in it, as one thing with one budget.
//!
//! The prompt cache holds one reference to each page in its tree. When the pool is empty,
//! the cache gives up pages that no running sequence uses.

use cache::{Hit, Namespace, PromptCache, Timestamp};
use kernels::{PAGE_TOKENS, PageId};

use crate::kv_pool::KvPool;

const _: () = assert!(cache::PAGE_TOKENS == PAGE_TOKENS);

/// Pages for running sequences, and what is kept of finished ones.
pub(crate) struct KvMemory {
    pool: KvPool,
    cache: PromptCache<PageId>,
    /// Pages that the prompt cache has a reference to.
    in_cache: Vec<bool>,
}

impl KvMemory {
    /// Joins an empty pool and an empty cache.
    pub(crate) fn new(pool: KvPool, cache: PromptCache<PageId>) -> Self {
        let in_cache = vec![false; pool.pages()];
        KvMemory { pool, cache, in_cache }
    }

    /// A zeroed page for `request`, evicting from the prompt cache if none is free; `None` if
    /// the running sequences hold all pages.
    pub(crate) fn allocate(&mut self, request: &str, now: Timestamp) -> Option<PageId> {
        loop {
            if let Some(page) = self.pool.allocate() {
                return Some(page);
            }
            // A page that a running sequence shares is not free yet: then the next one goes.
            let evicted = self.cache.evict(1, request, now);
            if evicted.is_empty() {
                return None;
            }
            self.give_back(evicted);
        }
    }

    /// The longest reusable prefix, pinned until [`unpin`](Self::unpin).
    pub(crate) fn lookup(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        request: &str,
        now: Timestamp,
    ) -> Hit<PageId> {
        self.cache.lookup(namespace, tokens, request, now)
    }

    /// Lets the prompt cache evict a hit's pages again.
    pub(crate) fn unpin(&mut self, pin: cache::Pin) {
        self.cache.unpin(pin);
    }

    /// Offers computed rows to the prompt cache. The caller keeps its references.
    pub(crate) fn publish(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        pages: &[PageId],
        request: &str,
        now: Timestamp,
    ) {
        let pages = &pages[..tokens.len().div_ceil(PAGE_TOKENS)];
        if pages.is_empty() {
            return;
        }
        // A page that the cache holds already keeps its one reference.
        for &page in pages {
            if !std::mem::replace(&mut self.in_cache[page as usize], true) {
                self.pool.retain(page);
            }
        }
        let unused = self.cache.insert(namespace, tokens, pages, request, now);
        self.give_back(unused);
    }

    /// Takes pages back from the prompt cache.
    fn give_back(&mut self, pages: Vec<PageId>) {
        for page in pages {
            debug_assert!(self.in_cache[page as usize], "page {page} is not the cache's");
            self.in_cache[page as usize] = false;
            self.pool.release(page);
        }
    }

    /// Whether the prompt cache holds the page.
    #[cfg(test)]
    pub(crate) fn is_cached(&self, page: PageId) -> bool {
        self.in_cache[page as usize]
    }

    /// Empties the prompt cache, except what is pinned.
    #[cfg(test)]
    pub(crate) fn clear_cache(&mut self, now: Timestamp) {
        let pages = self.cache.clear(now);
        self.give_back(pages);
    }

    /// Gives up the caller's references.
    pub(crate) fn release(&mut self, pages: &[PageId]) {
        for &page in pages {
            self.pool.release(page);
        }
    }

    /// The pool, to share, copy and compute.
    pub(crate) fn pool_mut(&mut self) -> &mut KvPool {
        &mut self.pool
    }

    /// The pool, to look at.
    pub(crate) fn pool(&self) -> &KvPool {
        &self.pool
    }

    /// The prompt cache, to look at.
    pub(crate) fn cache(&self) -> &PromptCache<PageId> {
        &self.cache
    }
}
