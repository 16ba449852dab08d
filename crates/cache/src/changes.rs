//! How pages come into the tree, move between its tiers, and leave it.

use std::hash::Hash;

use crate::arena::Id;
use crate::disk_page::DiskPage;
use crate::node::{Kind, Lost, State, UNKNOWN};
use crate::timestamp::Timestamp;
use crate::token_page::PAGE_TOKENS;
use crate::tree::{ALL, GHOSTS, NOT_HELD, PrefixTree, Use};
use crate::verdict::Loss;

/// What the cache needs no more, in either tier: the caller's to free.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "these pages are the caller's to free"]
pub struct Freed<P> {
    /// Pages in memory.
    pub pages: Vec<P>,
    /// Places in the disk tier.
    pub stored: Vec<DiskPage>,
}

impl<P> Default for Freed<P> {
    fn default() -> Self {
        Self { pages: Vec::new(), stored: Vec::new() }
    }
}

impl<P: Copy + Eq + Hash> PrefixTree<P> {
    /// Holds `page` for `tokens` below `parent`, in the place of what is stored or remembered of
    /// them; `None` when the arena is full. A page that lingers is held again, and not `page`.
    pub(crate) fn hold(&mut self, parent: Id, tokens: &[u32], page: P, by: &Use) -> Option<Id> {
        let Some(id) = self.find(parent, tokens, NOT_HELD) else {
            return self.add(parent, tokens, State::Held { page, pins: 0 }, by);
        };
        if let State::Lingering { page, pins, .. } = self.nodes[id].state {
            self.set_state(id, State::Held { page, pins });
            self.change_pins(parent, |pins| pins.saturating_sub(1));
        } else {
            self.set_state(id, State::Held { page, pins: 0 });
        }
        self.touch(id, tokens.len(), by);
        Some(id)
    }

    /// Whether the page of these tokens has expired in use.
    pub(crate) fn lingers(&self, parent: Id, tokens: &[u32]) -> bool {
        let ghost = self.find(parent, tokens, GHOSTS);
        ghost.is_some_and(|id| matches!(self.nodes[id].state, State::Lingering { .. }))
    }

    /// Forgets an unpinned page without anything after it, such as any partial page, and returns
    /// it.
    pub(crate) fn drop_held(&mut self, id: Id) -> Option<P> {
        let page = self.page(id)?;
        let node = &self.nodes[id];
        if !node.is_free() || node.has_children() {
            return None;
        }
        self.forget(id);
        Some(page)
    }

    /// Forgets a ghost with nothing below.
    pub(crate) fn drop_ghost(&mut self, id: Id) {
        if self.nodes[id].is_ghost_leaf() {
            self.forget(id);
        }
    }

    /// What a node is without its page: its copy on disk, or else a ghost.
    fn without_page(&self, id: Id, by: &Use) -> State<P> {
        match self.nodes[id].disk {
            Some(_) => State::Stored,
            None => {
                let may_tell = by.namespace.is_none_or(|by| by == self.namespace(id));
                let request = by.named().filter(|_| may_tell);
                State::Ghost(Lost { loss: Loss::Evicted, at: by.now, request })
            }
        }
    }

    /// Takes the least recently used page that may be evicted, of those below `root` or of all, and
    /// returns it. Pages that may not go leave the order until they are released. What operation
    /// `by` itself has used stays.
    pub(crate) fn evict_oldest(
        &mut self,
        root: Option<Id>,
        by: &Use,
        may: impl Fn(P) -> bool,
    ) -> Option<P> {
        loop {
            let id = self.orders.oldest(root).filter(|&id| self.nodes[id].used < by.number)?;
            let page = self.page(id)?;
            if may(page) {
                self.set_state(id, self.without_page(id, by));
                return Some(page);
            }
            self.change(id, |node| node.parked = true);
            self.parked.insert(page, id);
        }
    }

    /// Puts a page back into the order if it was found in use.
    pub(crate) fn release(&mut self, page: P) {
        if let Some(id) = self.parked.remove(&page) {
            self.change(id, |node| node.parked = false);
        }
    }

    pub(crate) fn release_all(&mut self) {
        for (_, id) in std::mem::take(&mut self.parked) {
            self.change(id, |node| node.parked = false);
        }
    }

    /// Forgets the longest unused ghosts until at most `ghosts_max` are left. Ghosts that stand
    /// before a page on disk or a page in use stay.
    pub(crate) fn trim_ghosts(&mut self, ghosts_max: usize) {
        while self.ghosts() > ghosts_max {
            let Some(id) = self.orders.oldest_ghost() else { break };
            let parent = self.nodes[id].parent;
            self.forget(id);
            parent.into_iter().for_each(|parent| self.prune_root(parent));
        }
    }

    /// Turns all whose life is over at `now` into ghosts, ends of prefixes first.
    pub(crate) fn expire(&mut self, now: Timestamp, freed: &mut Freed<P>) -> u64 {
        let mut expired = 0;
        while let Some(id) = self.orders.due(now) {
            expired += 1;
            freed.stored.extend(self.take_place(id));
            let (node, at) = (&self.nodes[id], self.nodes[id].expires_at);
            let lost = Lost { loss: Loss::Expired, at, request: None };
            match (&node.state, node.parent) {
                (&State::Held { page, pins: 0 }, _) => {
                    freed.pages.push(page);
                    self.set_state(id, State::Ghost(lost));
                }
                (&State::Held { page, pins }, Some(parent)) => {
                    self.change_pins(parent, |pins| pins.saturating_add(1));
                    self.set_state(id, State::Lingering { page, pins, at });
                }
                _ => self.set_state(id, State::Ghost(lost)),
            }
        }
        expired
    }

    fn take_place(&mut self, id: Id) -> Option<DiskPage> {
        let place = self.nodes[id].disk.take()?;
        self.places.remove(&place);
        Some(place)
    }

    pub(crate) fn pin(&mut self, id: Id) {
        self.change_pins(id, |pins| pins.saturating_add(1));
    }

    /// Takes one pin back and returns what lingered for it. An id whose node is gone or not pinned
    /// is let be.
    pub(crate) fn unpin(&mut self, id: Id) -> Vec<P> {
        let mut freed = Vec::new();
        let mut next = Some(id);
        while let Some(id) = next.take() {
            self.change_pins(id, |pins| pins.saturating_sub(1));
            if let Some(node) = self.nodes.get(id)
                && let State::Lingering { page, pins: 0, at } = node.state
            {
                next = node.parent;
                freed.push(page);
                let lost = Lost { loss: Loss::Expired, at, request: None };
                self.set_state(id, State::Ghost(lost));
            }
        }
        freed
    }

    fn change_pins(&mut self, id: Id, change: impl Fn(u32) -> u32) {
        if self.nodes.get(id).is_some() {
            self.change(id, |node| {
                if let State::Held { pins, .. } | State::Lingering { pins, .. } = &mut node.state {
                    *pins = change(*pins);
                }
            });
        }
    }

    /// Notes that the page which ends with `tokens` is stored at `place`, and makes what is missing
    /// of the path to it; `false` when the arena is full.
    pub(crate) fn store(&mut self, root: Id, tokens: &[u32], place: DiskPage, by: &Use) -> bool {
        let mut end = root;
        for page in tokens.chunks(PAGE_TOKENS) {
            let child = self.find(end, page, ALL).or_else(|| {
                let lost = Lost { loss: Loss::Evicted, at: by.now, request: None };
                let child = self.add(end, page, State::Ghost(lost), by)?;
                // Who wrote it knows when it was used.
                self.nodes[child].used_at = UNKNOWN;
                Some(child)
            });
            let Some(child) = child else { return false };
            self.change(child, |node| node.expires_at = node.expires_at.max(by.expires_at));
            end = child;
        }
        if let State::Lingering { .. } = self.nodes[end].state {
            return false;
        }
        self.take_place(end);
        self.nodes[end].disk = Some(place);
        self.places.insert(place, end);
        if let State::Ghost(_) = self.nodes[end].state {
            self.set_state(end, State::Stored);
        }
        true
    }

    /// Notes that nothing is stored at `place` any more. Returns the page in memory that it was the
    /// copy of.
    pub(crate) fn drop_place(&mut self, place: DiskPage, loss: Loss, now: Timestamp) -> Option<P> {
        let id = self.places.remove(&place)?;
        self.nodes[id].disk = None;
        if self.nodes[id].kind() == Kind::Stored {
            self.set_state(id, State::Ghost(Lost { loss, at: now, request: None }));
        }
        self.page(id)
    }

    /// Gives up a page in both tiers and then those before it, up to one that something else
    /// follows or that is pinned.
    pub(crate) fn evict_up_from(&mut self, id: Id, by: &Use, freed: &mut Freed<P>) {
        let mut next = Some(id);
        while let Some(id) = next.take() {
            let node = &self.nodes[id];
            let (page, parent) = (self.page(id), node.parent);
            if !node.is_leaf() || (page.is_some() && !node.is_free()) {
                return;
            }
            freed.pages.extend(page);
            freed.stored.extend(self.take_place(id));
            let lost = Lost { loss: Loss::Evicted, at: by.now, request: by.named() };
            self.set_state(id, State::Ghost(lost));
            next = parent;
        }
    }
}
