//! The prompt cache itself: limits, pins, eviction, figures.

use std::sync::Arc;

use crate::arena::Id;
use crate::timestamp::Timestamp;
use crate::tree::PrefixTree;

/// Bytes of a request id that are kept.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// What the cache may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages that the tree holds at most; what is published beyond is handed back.
    pub pages: usize,
    /// Bytes of memory for ghosts; at 0 an evicted prefix is forgotten at once.
    pub ghost_bytes: usize,
}

/// As many pages as the caller has, and 16 MiB of ghosts: about half a million tokens.
impl Default for Limits {
    fn default() -> Self {
        Self { pages: usize::MAX, ghost_bytes: 16 << 20 }
    }
}

/// Keeps the pages of one [`Hit`](crate::Hit) in the cache until it is given to
/// [`PromptCache::unpin`]. It cannot be copied, so it is taken back once; if it is dropped
/// instead, the pages stay for as long as the cache does.
#[derive(Debug)]
#[must_use = "pages stay pinned until the pin is given back"]
pub struct Pin(pub(crate) Option<Id>);

/// Figures of the cache at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Pages held.
    pub pages: usize,
    /// Token positions in them.
    pub tokens: usize,
    /// Pages that [`PromptCache::evict`] would take first: unpinned, and nothing held after them.
    pub evictable_leaves: usize,
    /// Pages whose token ids are remembered although their K/V are gone.
    pub ghosts: usize,
    /// Bytes that these are charged with.
    pub ghost_bytes: usize,
    /// Namespaces in which something is held or remembered.
    pub namespaces: usize,
    /// Pages evicted since the start.
    pub evicted_pages: u64,
}

/// Token-exact prefixes, each page at most once, shared by all requests of a namespace.
///
/// `P` is the caller's handle of a page. The cache owns the handles it has taken and gives each
/// back exactly once: from [`insert`](Self::insert) when it does not take it or needs it no more,
/// or from [`evict`](Self::evict) or [`clear`](Self::clear). A page in the cache is immutable.
pub struct PromptCache<P> {
    pub(crate) tree: PrefixTree<P>,
    pub(crate) limits: Limits,
    pub(crate) since: Timestamp,
    evicted_pages: u64,
}

impl<P: Copy + Eq> PromptCache<P> {
    /// An empty cache; `started` is what `first_request` reports as `since`.
    pub fn new(limits: Limits, started: Timestamp) -> Self {
        Self { tree: PrefixTree::new(), limits, since: started, evicted_pages: 0 }
    }

    /// Lets the pages of a hit be evicted again. Changes nothing else.
    pub fn unpin(&mut self, pin: Pin) {
        if let Some(id) = pin.0 {
            self.tree.unpin(id);
        }
    }

    /// Gives up to `pages` pages back, to make room for `request`: always the least recently used
    /// page that is not pinned and after which nothing is held. Fewer come back when the rest is
    /// pinned. Their token ids stay behind as ghosts.
    #[must_use = "these pages are the caller's to free"]
    pub fn evict(&mut self, pages: usize, request: &str, now: Timestamp) -> Vec<P> {
        let by = self.tree.begin(shared_id(request), now);
        let ghosts_max = self.limits.ghost_bytes / PrefixTree::<P>::GHOST_BYTES;
        let mut evicted = Vec::new();
        while evicted.len() < pages {
            let Some(page) = self.tree.evict_oldest(&by, |_| true) else { break };
            self.tree.trim_ghosts(ghosts_max);
            evicted.push(page);
        }
        self.evicted_pages += evicted.len() as u64;
        evicted
    }

    /// As [`evict`](Self::evict), but gives one page back, the first of those that `may` go: a
    /// caller who shares pages with the cache gains nothing by those that stay in use. Takes time
    /// for each page that it passes over.
    #[must_use = "this page is the caller's to free"]
    pub fn evict_one(
        &mut self,
        request: &str,
        now: Timestamp,
        may: impl Fn(P) -> bool,
    ) -> Option<P> {
        let by = self.tree.begin(shared_id(request), now);
        let page = self.tree.evict_oldest(&by, may)?;
        self.tree.trim_ghosts(self.limits.ghost_bytes / PrefixTree::<P>::GHOST_BYTES);
        self.evicted_pages += 1;
        Some(page)
    }

    /// Gives back every page that is not pinned, and forgets all ghosts: `since` starts anew.
    #[must_use = "these pages are the caller's to free"]
    pub fn clear(&mut self, now: Timestamp) -> Vec<P> {
        let evicted = self.evict(usize::MAX, "", now);
        self.tree.trim_ghosts(0);
        self.since = now;
        evicted
    }

    /// Figures of the cache at this moment; takes no time.
    pub fn stats(&self) -> Stats {
        Stats {
            pages: self.tree.pages(),
            tokens: self.tree.tokens(),
            evictable_leaves: self.tree.evictable_leaves(),
            ghosts: self.tree.ghosts(),
            ghost_bytes: self.tree.ghosts() * PrefixTree::<P>::GHOST_BYTES,
            namespaces: self.tree.namespaces(),
            evicted_pages: self.evicted_pages,
        }
    }
}

/// One copy of a request id for all pages that it uses, cut to a length that ghosts can afford.
pub(crate) fn shared_id(request: &str) -> Arc<str> {
    Arc::from(&request[..request.floor_char_boundary(REQUEST_ID_BYTES_MAX)])
}
