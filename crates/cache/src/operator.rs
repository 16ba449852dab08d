//! What an operator sees of the cache, and keeps in it or takes out of it.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

use crate::arena::Id;
use crate::changes::Freed;
use crate::namespace::Namespace;
use crate::node::{NEVER, State};
use crate::prompt_cache::{PromptCache, shared_id};
use crate::timestamp::Timestamp;
use crate::token_page::PAGE_TOKENS;
use crate::tree::{ALIVE, ALL, HELD};

/// Named pins there are at most.
const PINS_MAX: usize = 1_000;
/// Digits of an entry's id.
const ID_DIGITS: usize = 12;

/// A longest prefix: one that no other goes on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Pages of it that are in memory: the first ones.
    pub ram_pages: usize,
    /// Pages of it that have a copy on disk.
    pub disk_pages: usize,
    /// When its end was last used.
    pub last_used: Timestamp,
    /// Id of the last request that contains all of it, where one is known.
    pub request: Option<String>,
    /// Names of the pins on it or on a part of it.
    pub pins: Vec<String>,
    /// When the life of its end is over; `None` for never.
    pub expires_at: Option<Timestamp>,
}

/// Why a prefix was not pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinRefused {
    /// Nothing that begins like it is in memory.
    NotHeld,
    /// There are as many pins as there can be.
    TooMany,
    /// Pins would keep more pages than they may.
    NoRoom {
        /// How many pages they may keep.
        pages_max: usize,
    },
}

impl Entry {
    /// A short name of the prefix within its namespace: 12 hexadecimal digits that follow from its
    /// tokens.
    pub fn id(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        self.tokens.iter().for_each(|token| {
            hasher.update(&token.to_le_bytes());
        });
        hasher.finalize().to_hex()[..ID_DIGITS].to_owned()
    }
}

impl fmt::Display for PinRefused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld => formatter.write_str("nothing that begins like this is in memory"),
            Self::TooMany => write!(formatter, "there are {PINS_MAX} pins, and that is the most"),
            Self::NoRoom { pages_max } => write!(
                formatter,
                "pins may keep {pages_max} pages, half of the memory, and would keep more"
            ),
        }
    }
}

impl std::error::Error for PinRefused {}

impl<P: Copy + Eq + Hash> PromptCache<P> {
    /// Keeps what is in memory of a prefix there, past eviction and the end of its life, until
    /// [`unpin_prefix`](Self::unpin_prefix) is given the name. The namespace's pin of the same name
    /// is taken back. All pins together keep at most `pages_max` pages. Returns how many tokens it
    /// keeps.
    ///
    /// # Errors
    ///
    /// When nothing of it is held, or there are too many pins, or they would keep too much.
    pub fn pin_prefix(
        &mut self,
        name: &str,
        namespace: &Namespace,
        tokens: &[u32],
        pages_max: usize,
    ) -> Result<usize, PinRefused> {
        let root = self.tree.root(namespace).ok_or(PinRefused::NotHeld)?;
        let held = self.tree.descend(root, tokens, HELD);
        let id = held.deepest().ok_or(PinRefused::NotHeld)?;
        let key = (namespace.to_bytes(), name.to_owned());
        if self.pinned.len() >= PINS_MAX && !self.pinned.contains_key(&key) {
            return Err(PinRefused::TooMany);
        }
        let others = self.pinned.iter().filter(|(other, _)| **other != key);
        let mut kept: HashSet<Id> = held.path.iter().copied().collect();
        others.for_each(|(_, &id)| kept.extend(self.tree.path(id)));
        if kept.len() > pages_max {
            return Err(PinRefused::NoRoom { pages_max });
        }
        self.tree.change(id, |node| node.kept += 1);
        if let Some(before) = self.pinned.insert(key, id) {
            self.tree.change(before, |node| node.kept -= 1);
        }
        Ok(held.tokens())
    }

    /// Takes a named pin of the namespace back; whether there was one.
    pub fn unpin_prefix(&mut self, namespace: &Namespace, name: &str) -> bool {
        let key = (namespace.to_bytes(), name.to_owned());
        let Some(id) = self.pinned.remove(&key) else { return false };
        self.tree.change(id, |node| node.kept -= 1);
        true
    }

    /// Takes all pins back; whether there were any.
    pub fn unpin_all(&mut self) -> bool {
        let pinned = std::mem::take(&mut self.pinned);
        pinned.values().for_each(|&id| self.tree.change(id, |node| node.kept -= 1));
        !pinned.is_empty()
    }

    /// Up to `entries_max` longest prefixes of a namespace, the most recently used first.
    pub fn entries(&self, namespace: &Namespace, entries_max: usize) -> Vec<Entry> {
        let Some(root) = self.tree.root(namespace) else { return Vec::new() };
        let ends = self.tree.orders.leaves().filter(|&id| self.tree.node(id).root == Some(root));
        ends.take(entries_max).map(|id| self.entry(id)).collect()
    }

    fn entry(&self, id: Id) -> Entry {
        let path = self.tree.path(id);
        let nodes = || path.iter().map(|&id| self.tree.node(id));
        let end = self.tree.node(id);
        let names = self.pinned.iter().filter(|(_, pinned)| path.contains(pinned));
        Entry {
            tokens: nodes().flat_map(|node| node.tokens.as_slice()).copied().collect(),
            ram_pages: path.iter().filter(|&&id| self.tree.page(id).is_some()).count(),
            disk_pages: nodes().filter(|node| node.disk.is_some()).count(),
            last_used: end.used_at,
            request: (!end.request.is_empty()).then(|| end.request.to_string()),
            pins: names.map(|((_, name), _)| name.clone()).collect(),
            expires_at: Some(end.expires_at).filter(|&at| at != NEVER),
        }
    }

    /// How many tokens of a prefix, in whole pages, are in memory or on disk without a gap.
    pub fn alive_tokens(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        let root = self.tree.root(namespace);
        root.map_or(0, |root| self.tree.descend(root, tokens, ALIVE).path.len() * PAGE_TOKENS)
    }

    /// Gives back every page of a namespace that is not pinned, in memory and on disk, and forgets
    /// its ghosts: nothing of it is explained any more, and `since` starts anew.
    pub fn clear_namespace(&mut self, namespace: &Namespace, now: Timestamp) -> Freed<P> {
        let mut freed = self.expire(now);
        let Some(root) = self.tree.root(namespace) else { return freed };
        for id in self.tree.below(root) {
            let node = self.tree.node(id);
            let stays = match node.state {
                State::Held { .. } => !node.is_free(),
                State::Lingering { .. } => true,
                State::Root(_) | State::Stored | State::Ghost(_) => false,
            };
            if stays || node.has_children() {
                continue;
            }
            freed.stored.extend(node.disk);
            let page = self.tree.page(id);
            self.evicted_pages += u64::from(page.is_some());
            freed.pages.extend(page);
            self.tree.forget(id);
        }
        self.tree.prune_root(root);
        self.note_cleared(namespace, now);
        freed
    }

    /// Gives up one prefix, as [`entries`](Self::entries) shows it, for `request`: its last page,
    /// and those before it up to one that another prefix shares or that is pinned; in memory and
    /// on disk.
    pub fn evict_prefix(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        request: &str,
        now: Timestamp,
    ) -> Freed<P> {
        let mut freed = self.expire(now);
        let end = self.tree.root(namespace).and_then(|root| self.tree.locate(root, tokens, ALL));
        if let Some(end) = end {
            let by = self.tree.begin(shared_id(request), now, None);
            let held_before = self.tree.pages();
            self.tree.evict_up_from(end, &by, &mut freed);
            self.evicted_pages += (held_before - self.tree.pages()) as u64;
            self.trim_ghosts();
        }
        freed
    }
}
