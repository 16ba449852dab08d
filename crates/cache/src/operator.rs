//! What an operator sees of the cache, and keeps in it or takes out of it.

use std::fmt;
use std::hash::Hash;

use crate::arena::Id;
use crate::changes::Freed;
use crate::namespace::Namespace;
use crate::node::NEVER;
use crate::prompt_cache::{PromptCache, shared_id};
use crate::timestamp::Timestamp;
use crate::tree::{ALL, HELD};

/// Named pins there are at most.
const PINS_MAX: usize = 1_000;

/// A longest prefix: one that no other goes on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whose it is.
    pub namespace: Namespace,
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
}

impl fmt::Display for PinRefused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld => formatter.write_str("nothing that begins like this is in memory"),
            Self::TooMany => write!(formatter, "there are {PINS_MAX} pins, and that is the most"),
        }
    }
}

impl std::error::Error for PinRefused {}

impl<P: Copy + Eq + Hash> PromptCache<P> {
    /// Keeps what is in memory of a prefix there, past eviction and the end of its life, until
    /// [`unpin_prefix`](Self::unpin_prefix) is given the name. A pin of the same name is taken
    /// back. Returns how many tokens it keeps.
    ///
    /// # Errors
    ///
    /// When nothing of it is held, or there are too many pins.
    pub fn pin_prefix(
        &mut self,
        name: &str,
        namespace: &Namespace,
        tokens: &[u32],
    ) -> Result<usize, PinRefused> {
        let root = self.tree.root(namespace).ok_or(PinRefused::NotHeld)?;
        let held = self.tree.descend(root, tokens, HELD);
        let id = held.deepest().ok_or(PinRefused::NotHeld)?;
        if self.pinned.len() >= PINS_MAX && !self.pinned.contains_key(name) {
            return Err(PinRefused::TooMany);
        }
        self.tree.change(id, |node| node.kept += 1);
        if let Some(before) = self.pinned.insert(name.to_owned(), id) {
            self.tree.change(before, |node| node.kept -= 1);
        }
        Ok(held.tokens())
    }

    /// Takes a named pin back; whether there was one.
    pub fn unpin_prefix(&mut self, name: &str) -> bool {
        let Some(id) = self.pinned.remove(name) else { return false };
        self.tree.change(id, |node| node.kept -= 1);
        true
    }

    /// Up to `entries_max` longest prefixes, the most recently used first.
    pub fn entries(&self, entries_max: usize) -> Vec<Entry> {
        self.tree.orders.leaves().take(entries_max).map(|id| self.entry(id)).collect()
    }

    fn entry(&self, id: Id) -> Entry {
        let path = self.tree.path(id);
        let nodes = || path.iter().map(|&id| self.tree.node(id));
        let end = self.tree.node(id);
        let names = self.pinned.iter().filter(|(_, pinned)| path.contains(pinned));
        Entry {
            namespace: self.tree.namespace(id),
            tokens: nodes().flat_map(|node| node.tokens.as_slice()).copied().collect(),
            ram_pages: path.iter().filter(|&&id| self.tree.page(id).is_some()).count(),
            disk_pages: nodes().filter(|node| node.disk.is_some()).count(),
            last_used: end.used_at,
            request: (!end.request.is_empty()).then(|| end.request.to_string()),
            pins: names.map(|(name, _)| name.clone()).collect(),
            expires_at: Some(end.expires_at).filter(|&at| at != NEVER),
        }
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
