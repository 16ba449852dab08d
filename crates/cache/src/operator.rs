//! What an operator sees of the cache, and keeps in it or takes out of it.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

use crate::arena::Id;
use crate::changes::Freed;
use crate::namespace::Namespace;
use crate::node::{NEVER, Node, State};
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
    /// When its end was last used; `None` for what was found on disk and not used since.
    pub last_used: Option<Timestamp>,
    /// Id of the last request that contains all of it, where one is known.
    pub request: Option<String>,
    /// Names of the pins on it or on a part of it.
    pub pins: Vec<String>,
    /// Pages of it that these keep, all in memory: the first ones.
    pub pinned_pages: usize,
    /// Those of them that have a copy on disk.
    pub pinned_disk_pages: usize,
    /// When the life of its end is over; `None` for never.
    pub expires_at: Option<Timestamp>,
}

/// What a pin keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned<P> {
    /// Whose it is.
    pub namespace: Namespace,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Their pages, in order; the last may be partial.
    pub pages: Vec<P>,
    /// When its life will have been over once nothing pins it; `None` for never.
    pub expires_at: Option<Timestamp>,
}

/// What of a prefix could be pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pinnable {
    /// How many of its tokens are in memory or on disk, without a gap.
    pub tokens: usize,
    /// How many are in memory, without a gap.
    pub in_memory: usize,
    /// When the life of the end of it is over; `None` for never.
    pub expires_at: Option<Timestamp>,
}

/// Why a prefix was not pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinRefused {
    /// Nothing that begins like it is held.
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
            Self::NotHeld => formatter.write_str("nothing that begins like this is held"),
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
        self.check_pin(&key, id, pages_max)?;
        self.tree.change(id, |node| node.kept += 1);
        if let Some(before) = self.pinned.insert(key, id) {
            self.tree.change(before, |node| node.kept -= 1);
        }
        Ok(held.tokens())
    }

    /// How much of a prefix could be pinned if all of it that is on disk were in memory too.
    ///
    /// # Errors
    ///
    /// As [`pin_prefix`](Self::pin_prefix) would then say.
    pub fn pinnable(
        &self,
        name: &str,
        namespace: &Namespace,
        tokens: &[u32],
        pages_max: usize,
    ) -> Result<Pinnable, PinRefused> {
        let root = self.tree.root(namespace).ok_or(PinRefused::NotHeld)?;
        let alive = self.tree.descend(root, tokens, ALIVE);
        let end = alive.deepest().ok_or(PinRefused::NotHeld)?;
        self.check_pin(&(namespace.to_bytes(), name.to_owned()), end, pages_max)?;
        Ok(Pinnable {
            tokens: alive.tokens(),
            in_memory: self.tree.descend(root, tokens, HELD).tokens(),
            expires_at: Some(self.tree.node(end).expires_at).filter(|&at| at != NEVER),
        })
    }

    /// Whether a pin of this name may keep a page and all before it.
    fn check_pin(
        &self,
        key: &([u8; 32], String),
        id: Id,
        pages_max: usize,
    ) -> Result<(), PinRefused> {
        if self.pinned.len() >= PINS_MAX && !self.pinned.contains_key(key) {
            return Err(PinRefused::TooMany);
        }
        let others = self.pinned.iter().filter(|(other, _)| *other != key);
        let mut kept: HashSet<Id> = self.tree.path(id).into_iter().collect();
        others.for_each(|(_, &id)| kept.extend(self.tree.path(id)));
        match kept.len() > pages_max {
            true => Err(PinRefused::NoRoom { pages_max }),
            false => Ok(()),
        }
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

    /// What the pins keep, each on its own.
    pub fn pinned(&self) -> impl Iterator<Item = Pinned<P>> {
        self.pinned.iter().map(|((namespace, _), &id)| {
            let path = self.tree.path(id);
            let ids = path.iter().flat_map(|&id| self.tree.node(id).tokens.as_slice());
            Pinned {
                namespace: Namespace::from_bytes(*namespace),
                tokens: ids.copied().collect(),
                pages: path.iter().filter_map(|&id| self.tree.page(id)).collect(),
                expires_at: Some(self.tree.node(id).expires_at).filter(|&at| at != NEVER),
            }
        })
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
        let pinned = nodes().rposition(|node| node.kept > 0).map_or(0, |last| last + 1);
        let is_stored = |node: &&Node<P>| node.disk.is_some();
        Entry {
            tokens: nodes().flat_map(|node| node.tokens.as_slice()).copied().collect(),
            ram_pages: path.iter().filter(|&&id| self.tree.page(id).is_some()).count(),
            disk_pages: nodes().filter(is_stored).count(),
            last_used: end.last_used(),
            request: (!end.request.is_empty()).then(|| end.request.to_string()),
            pins: names.map(|((_, name), _)| name.clone()).collect(),
            pinned_pages: pinned,
            pinned_disk_pages: nodes().take(pinned).filter(is_stored).count(),
            expires_at: Some(end.expires_at).filter(|&at| at != NEVER),
        }
    }

    /// How many tokens of a prefix, in whole pages, are in memory or on disk without a gap.
    pub fn alive_tokens(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        let root = self.tree.root(namespace);
        root.map_or(0, |root| self.tree.descend(root, tokens, ALIVE).path.len() * PAGE_TOKENS)
    }

    /// Gives back every page of a namespace that is not pinned, in memory and on disk, and forgets
    /// its ghosts: nothing of it is explained any more, and `since` starts anew. It makes no room
    /// for anybody, so nothing of it counts as evicted.
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
            freed.pages.extend(self.tree.page(id));
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
            self.tree.evict_up_from(end, &by, &mut freed);
            self.trim_ghosts();
        }
        freed
    }
}
