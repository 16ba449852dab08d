//! The prompt cache itself: limits, pins, eviction, expiry, figures.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use crate::arena::Id;
use crate::changes::Freed;
use crate::namespace::Namespace;
use crate::node::Kind;
use crate::timestamp::Timestamp;
use crate::tree::{PrefixTree, Use};
use crate::verdict::Loss;

/// Bytes of a request id that are kept.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Namespaces whose clearing is remembered. Beyond, all are taken for cleared with the last one.
const CLEARED_MAX: usize = 10_000;

/// What the cache may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages that the tree holds at most; what is published beyond is handed back.
    pub pages: usize,
    /// Pages that one namespace holds at most. One that would hold more gives its own least
    /// recently used pages up first.
    pub namespace_pages: Option<usize>,
    /// Bytes of memory for ghosts; at 0 an evicted prefix is forgotten at once.
    pub ghost_bytes: usize,
}

/// As many pages as the caller has for anybody, and 16 MiB of ghosts: some hundred thousand tokens.
impl Default for Limits {
    fn default() -> Self {
        Self { pages: usize::MAX, namespace_pages: None, ghost_bytes: 16 << 20 }
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
    /// Pages held in memory.
    pub pages: usize,
    /// Token positions in them.
    pub tokens: usize,
    /// Pages that [`PromptCache::evict`] would take first: unpinned, not known to be in use, and
    /// nothing held after them.
    pub evictable_leaves: usize,
    /// Pages that have a copy on disk, whether or not they are in memory too.
    pub stored_pages: usize,
    /// Pages whose token ids are remembered although their K/V are gone.
    pub ghosts: usize,
    /// Bytes that these are charged with.
    pub ghost_bytes: usize,
    /// Namespaces in which something is held or remembered.
    pub namespaces: usize,
    /// Pages evicted from memory to make room, since the start.
    pub evicted_pages: u64,
    /// Pages expired, in memory or on disk, since the start.
    pub expired_pages: u64,
}

/// Token-exact prefixes, each page at most once, shared by all requests of a namespace.
///
/// `P` is the caller's handle of a page. The cache owns the handles it has taken and gives each
/// back exactly once: from [`insert`](Self::insert) when it does not take it or needs it no more,
/// or from [`evict`](Self::evict), [`expire`](Self::expire) or [`clear`](Self::clear). A page in
/// the cache is immutable.
///
/// A full page may also have a copy on disk, which somebody else writes and reads: the cache is
/// told where ([`note_stored`](Self::note_stored)) and says where, and a page that leaves memory
/// stays reusable from there.
pub struct PromptCache<P> {
    pub(crate) tree: PrefixTree<P>,
    pub(crate) limits: Limits,
    pub(crate) since: Timestamp,
    /// What expired while the caller asked for something else.
    pub(crate) waiting: Freed<P>,
    /// When namespaces were last cleared.
    cleared: HashMap<Namespace, Timestamp>,
    /// The operator's pins, by namespace and name.
    pub(crate) pinned: BTreeMap<([u8; 32], String), Id>,
    /// The id of the last request that wanted room.
    evicting_for: Arc<str>,
    pub(crate) evicted_pages: u64,
    expired_pages: u64,
}

impl<P: Copy + Eq + Hash> PromptCache<P> {
    /// An empty cache; `started` is what `first_request` reports as `since`.
    pub fn new(limits: Limits, started: Timestamp) -> Self {
        Self {
            tree: PrefixTree::new(limits.namespace_pages.is_some()),
            limits,
            since: started,
            waiting: Freed::default(),
            cleared: HashMap::new(),
            pinned: BTreeMap::new(),
            evicting_for: Arc::from(""),
            evicted_pages: 0,
            expired_pages: 0,
        }
    }

    /// Lets the pages of a hit be evicted again. Changes nothing else, but that those of them whose
    /// life has ended meanwhile come back from the next [`expire`](Self::expire).
    pub fn unpin(&mut self, pin: Pin) {
        if let Some(id) = pin.0 {
            let freed = self.tree.unpin(id);
            self.waiting.pages.extend(freed);
            self.trim_ghosts();
        }
    }

    /// Gives up to `pages` pages back, to make room for `request` (empty: for none that may be
    /// named to whoever had the pages): what has expired, and then
    /// always the least recently used page that is not pinned and after which nothing is held.
    /// Fewer come back when the rest is pinned. What has no copy on disk stays behind as a ghost.
    #[must_use = "these pages are the caller's to free"]
    pub fn evict(&mut self, pages: usize, request: &str, now: Timestamp) -> Vec<P> {
        let by = self.begin_eviction(request, now);
        self.tree.release_all();
        let waiting = &mut self.waiting.pages;
        let mut freed = waiting.split_off(waiting.len().saturating_sub(pages));
        while freed.len() < pages {
            let Some(page) = self.evict_oldest(None, &by, |_| true) else { break };
            freed.push(page);
        }
        self.trim_ghosts();
        freed
    }

    /// As [`evict`](Self::evict), but gives one page back, the first of those that `may` go: a
    /// caller who shares pages with the cache gains nothing by those that stay in use. A page that
    /// may not is passed over from then on, until the caller [`release`](Self::release)s it.
    ///
    /// It is for a request in `namespace`, and one that has used up its share gives up its own
    /// pages first. Pages of other namespaces do not remember the request that they went for.
    #[must_use = "this page is the caller's to free"]
    pub fn evict_one(
        &mut self,
        namespace: &Namespace,
        request: &str,
        now: Timestamp,
        may: impl Fn(P) -> bool,
    ) -> Option<P> {
        let by = Use { namespace: Some(*namespace), ..self.begin_eviction(request, now) };
        if let Some(index) = self.waiting.pages.iter().position(|&page| may(page)) {
            return Some(self.waiting.pages.swap_remove(index));
        }
        // Without shares there is nothing to look for.
        let root = self.limits.namespace_pages.and_then(|_| self.tree.root(namespace));
        let own = root.filter(|&root| self.has_used_up_its_share(root));
        let evicted = own.and_then(|root| self.evict_oldest(Some(root), &by, &may));
        evicted.or_else(|| self.evict_oldest(None, &by, &may))
    }

    /// Says that nobody outside of the cache uses a page any more, so that
    /// [`evict_one`](Self::evict_one) may have it. Does nothing for one that it did not pass over.
    pub fn release(&mut self, page: P) {
        self.tree.release(page);
    }

    /// Ends the lives that end by `now`: what nobody has pinned is given back, and remembered as
    /// `expired`. Also returns what expired since the last time.
    pub fn expire(&mut self, now: Timestamp) -> Freed<P> {
        self.expire_due(now);
        std::mem::take(&mut self.waiting)
    }

    /// When [`expire`](Self::expire) has something to do next; `None` where nothing known ends.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.tree.orders.next_expiry()
    }

    /// Gives back every page that is not pinned, and all places on disk but those of pinned pages;
    /// and forgets all ghosts: `since` starts anew.
    pub fn clear(&mut self, now: Timestamp) -> Freed<P> {
        let pages = self.evict(usize::MAX, "", now);
        let mut stored = std::mem::take(&mut self.waiting.stored);
        let is_stored = |&id: &Id| self.tree.node(id).kind() == Kind::Stored;
        let places = self.tree.places.iter().filter(|(_, id)| is_stored(id));
        let places: Vec<_> = places.map(|(&place, _)| place).collect();
        for &place in &places {
            self.tree.drop_place(place, Loss::Evicted, now);
        }
        stored.extend(places);
        self.tree.trim_ghosts(0);
        self.since = now;
        self.cleared.clear();
        Freed { pages, stored }
    }

    /// Since when everything that was seen in a namespace is known or has been lost for a reason.
    pub(crate) fn since(&self, namespace: &Namespace) -> Timestamp {
        self.cleared.get(namespace).copied().unwrap_or(self.since)
    }

    pub(crate) fn note_cleared(&mut self, namespace: &Namespace, now: Timestamp) {
        if self.cleared.len() >= CLEARED_MAX {
            self.cleared.clear();
            self.since = now;
        }
        self.cleared.insert(*namespace, now);
    }

    /// Figures of the cache at this moment; takes no time.
    pub fn stats(&self) -> Stats {
        Stats {
            pages: self.tree.pages(),
            tokens: self.tree.tokens(),
            evictable_leaves: self.tree.orders.evictable(),
            stored_pages: self.tree.places.len(),
            ghosts: self.tree.ghosts(),
            ghost_bytes: self.tree.ghosts() * PrefixTree::<P>::GHOST_BYTES,
            namespaces: self.tree.namespaces(),
            evicted_pages: self.evicted_pages,
            expired_pages: self.expired_pages,
        }
    }

    fn begin_eviction(&mut self, request: &str, now: Timestamp) -> Use {
        self.expire_due(now);
        // Page by page, it is mostly the same one.
        if *self.evicting_for != *cut(request) {
            self.evicting_for = shared_id(request);
        }
        self.tree.begin(Arc::clone(&self.evicting_for), now, None)
    }

    fn evict_oldest(&mut self, root: Option<Id>, by: &Use, may: impl Fn(P) -> bool) -> Option<P> {
        let page = self.tree.evict_oldest(root, by, may)?;
        self.evicted_pages += 1;
        self.trim_ghosts();
        Some(page)
    }

    pub(crate) fn has_used_up_its_share(&self, root: Id) -> bool {
        self.limits.namespace_pages.is_some_and(|share| self.tree.pages_of(root) >= share)
    }

    pub(crate) fn expire_due(&mut self, now: Timestamp) {
        let expired = self.tree.expire(now, &mut self.waiting);
        self.expired_pages += expired;
        if expired > 0 {
            self.trim_ghosts();
        }
    }

    pub(crate) fn trim_ghosts(&mut self) {
        self.tree.trim_ghosts(self.limits.ghost_bytes / PrefixTree::<P>::GHOST_BYTES);
    }
}

/// One copy of a request id for all pages that it uses, cut to a length that ghosts can afford.
pub(crate) fn shared_id(request: &str) -> Arc<str> {
    Arc::from(cut(request))
}

fn cut(request: &str) -> &str {
    &request[..request.floor_char_boundary(REQUEST_ID_BYTES_MAX)]
}
