//! Publishing the pages of a sequence.

use std::collections::HashSet;
use std::hash::Hash;

use crate::arena::Id;
use crate::namespace::Namespace;
use crate::node::Kind;
use crate::prompt_cache::{PromptCache, shared_id};
use crate::timestamp::Timestamp;
use crate::token_page::PAGE_TOKENS;
use crate::tree::{GHOSTS, HELD, Use};

impl<P: Copy + Eq + Hash> PromptCache<P> {
    /// Publishes the pages of a sequence whose K/V rows `0..tokens.len()` are computed, prompt and
    /// answer, and makes it the most recently used. `pages` are `tokens.len() / 16` of them,
    /// rounded up; the last may be partial. Handles that came from [`lookup`](Self::lookup) and
    /// are still in the cache are recognized.
    ///
    /// Returns the pages that are now the caller's to free: those whose tokens the cache holds
    /// already in another page, those beyond its limit or beyond `tokens`, and partial pages of its
    /// own that a fuller one of `pages` replaces. A pinned partial page is not replaced, so give a
    /// request's pin back just before its pages are published.
    ///
    /// All of it lives at least until `expires_at`, or for ever without one. A namespace that has
    /// used up its share gives up its own least recently used pages for it.
    #[must_use = "these pages are the caller's to free"]
    pub fn insert(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        pages: &[P],
        request: &str,
        now: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> Vec<P> {
        self.expire_due(now);
        self.take_back(pages);
        let by = self.tree.begin(shared_id(request), now, expires_at);
        self.insert_path(namespace, tokens, pages, &by, true)
    }

    /// Holds pages that were read from disk, with those before them that are held: `tokens` and
    /// `pages` are those of the whole path, as [`Restorable`](crate::Restorable) has it. Returns
    /// the pages that are the caller's to free, as [`insert`](Self::insert) does.
    ///
    /// It is the most recently used then, by nobody in particular: no sequence ends there, and each
    /// page keeps the request that is named for it and the life that it has. The lookup that
    /// follows says who uses which of it, and for how long it is wanted.
    #[must_use = "these pages are the caller's to free"]
    pub fn insert_restored(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        pages: &[P],
        now: Timestamp,
    ) -> Vec<P> {
        self.expire_due(now);
        self.take_back(pages);
        let by = self.tree.begin(shared_id(""), now, Some(now));
        self.insert_path(namespace, tokens, pages, &by, false)
    }

    /// Publishes a path of pages, with which a sequence may end.
    fn insert_path(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        pages: &[P],
        by: &Use,
        ends: bool,
    ) -> Vec<P> {
        let mut unused = Vec::new();
        let Some(root) = self.tree.root_or_new(namespace, by) else { return pages.to_vec() };
        let mut end = root;
        let mut taken = 0;
        for (page_tokens, &page) in tokens.chunks(PAGE_TOKENS).zip(pages) {
            let Some(id) = self.insert_page(end, page_tokens, page, by, &mut unused) else {
                break;
            };
            end = id;
            taken += 1;
        }
        unused.extend_from_slice(&pages[taken..]);
        // A sequence that ends inside a fuller page does not end with it.
        let after = tokens.len().saturating_sub((taken.max(1) - 1) * PAGE_TOKENS);
        if ends && after >= self.tree.node(end).tokens.len() {
            self.tree.end_here(end, by);
        }
        self.trim_ghosts();
        self.tree.prune_root(root);
        unused
    }

    /// Pages that have expired and wait to be given back are the caller's own when it publishes
    /// them again.
    fn take_back(&mut self, pages: &[P]) {
        if !self.waiting.pages.is_empty() {
            let pages: HashSet<P> = pages.iter().copied().collect();
            self.waiting.pages.retain(|page| !pages.contains(page));
        }
    }

    /// Publishes one page below `parent` and returns the node that now stands for its tokens: the
    /// one with just these, or else the most recently used fuller one that begins with them.
    /// `None` when the cache is full.
    fn insert_page(
        &mut self,
        parent: Id,
        tokens: &[u32],
        page: P,
        by: &Use,
        unused: &mut Vec<P>,
    ) -> Option<Id> {
        // A page that begins with all of a partial one's tokens serves whatever that would. Both
        // are held when the partial one was pinned as the fuller one came. The partial one goes
        // first: it may be the very page that is published, and it ends where this sequence does,
        // which a verdict is to say.
        let same = self.tree.find(parent, tokens, HELD);
        let holding = same.or_else(|| match tokens.len() {
            PAGE_TOKENS => None,
            _ => self.tree.newest(parent, tokens, HELD),
        });
        if let Some(id) = holding {
            if self.tree.page(id) != Some(page) {
                unused.push(page);
            }
            self.tree.touch(id, tokens.len(), by);
            return Some(id);
        }
        for id in self.partial_prefixes(parent, tokens, HELD) {
            unused.extend(self.tree.drop_held(id).filter(|&replaced| replaced != page));
        }
        // A page that expired in use is there, with all before it, and needs no room.
        if !self.tree.lingers(parent, tokens) {
            if self.tree.pages() >= self.limits.pages {
                return None;
            }
            self.make_room_in_share(parent, by, unused)?;
        }
        for id in self.partial_prefixes(parent, tokens, GHOSTS) {
            self.tree.drop_ghost(id);
        }
        let id = self.tree.hold(parent, tokens, page, by)?;
        if self.tree.page(id) != Some(page) {
            unused.push(page);
        }
        Some(id)
    }

    /// Gives up pages of the namespace's own until one more is within its share; `None` when it has
    /// none that it can give.
    fn make_room_in_share(&mut self, parent: Id, by: &Use, unused: &mut Vec<P>) -> Option<()> {
        let root = self.tree.node(parent).root.unwrap_or(parent);
        while self.has_used_up_its_share(root) {
            unused.push(self.tree.evict_oldest(Some(root), by, |_| true)?);
            self.evicted_pages += 1;
        }
        Some(())
    }

    /// Children with fewer tokens, all of which `tokens` begins with. None is longer than what any
    /// child shares with `tokens`, so most pages are done with one comparison.
    fn partial_prefixes(&self, parent: Id, tokens: &[u32], kinds: &[Kind]) -> Vec<Id> {
        let shared = self.tree.longest(parent, tokens, kinds);
        (1..=shared.min(tokens.len() - 1))
            .filter_map(|len| self.tree.find(parent, &tokens[..len], kinds))
            .collect()
    }
}
