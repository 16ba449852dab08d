//! Which page goes next: sets of nodes, each in the order in which they are given up.

use std::collections::BTreeSet;

use crate::arena::Id;
use crate::ends::Ends;
use crate::node::{NEVER, Node};
use crate::timestamp::Timestamp;

/// The orders of all nodes that stand in one. A node's places follow from its own fields and the
/// kinds of its children, so whoever changes these takes it out before and puts it back after.
///
/// All pages that one operation uses lie on one path, so no two held leaves, and no two last
/// ghosts, share the number of their last use: the order of eviction is total.
pub(crate) struct Orders {
    /// Held pages that may be evicted, the longest unused first.
    evictable: Ends<(u64, Id)>,
    /// The same by the root above; `None` where namespaces have no share.
    evictable_of: Option<BTreeSet<(Id, u64, Id)>>,
    /// Ends of longest prefixes, the longest unused first.
    leaves: Ends<(u64, Id)>,
    /// Those of them whose life ends, the first to end first.
    expiring: BTreeSet<(Timestamp, Id)>,
    /// Ghosts with nothing below, the longest unused first.
    ghosts: Ends<(u64, Id)>,
}

impl Orders {
    /// Bytes of one place (a B-tree is at least half full).
    pub(crate) const PLACE_BYTES: usize = 2 * size_of::<(u64, Id)>();

    pub(crate) fn new(shares: bool) -> Self {
        Self {
            evictable: Ends::new(),
            evictable_of: shares.then(BTreeSet::new),
            leaves: Ends::new(),
            expiring: BTreeSet::new(),
            ghosts: Ends::new(),
        }
    }

    pub(crate) fn add<P>(&mut self, id: Id, node: &Node<P>) {
        if node.is_free() && !node.parked {
            self.evictable.insert((node.used, id));
            if let (Some(order), Some(root)) = (&mut self.evictable_of, node.root) {
                order.insert((root, node.used, id));
            }
        }
        if node.is_leaf() {
            self.leaves.insert((node.used, id));
            if node.kept == 0 && node.expires_at != NEVER {
                self.expiring.insert((node.expires_at, id));
            }
        } else if node.is_ghost_leaf() {
            self.ghosts.insert((node.used, id));
        }
    }

    pub(crate) fn remove<P>(&mut self, id: Id, node: &Node<P>) {
        if node.is_free() && !node.parked {
            self.evictable.remove(&(node.used, id));
            if let (Some(order), Some(root)) = (&mut self.evictable_of, node.root) {
                order.remove(&(root, node.used, id));
            }
        }
        if node.is_leaf() {
            self.leaves.remove(&(node.used, id));
            if node.kept == 0 && node.expires_at != NEVER {
                self.expiring.remove(&(node.expires_at, id));
            }
        } else if node.is_ghost_leaf() {
            self.ghosts.remove(&(node.used, id));
        }
    }

    /// The least recently used page that may be evicted: of those below `root`, or of all.
    pub(crate) fn oldest(&self, root: Option<Id>) -> Option<Id> {
        let Some(root) = root else { return Some(self.evictable.first()?.1) };
        let after = self.evictable_of.as_ref()?.range((root, 0, root)..).next()?;
        (after.0 == root).then_some(after.2)
    }

    /// An end of a longest prefix whose life is over.
    pub(crate) fn due(&self, now: Timestamp) -> Option<Id> {
        self.expiring.first().filter(|&&(expires_at, _)| expires_at <= now).map(|&(_, id)| id)
    }

    /// When the first life of these is over.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        Some(self.expiring.first()?.0)
    }

    pub(crate) fn oldest_ghost(&self) -> Option<Id> {
        Some(self.ghosts.first()?.1)
    }

    /// Ends of longest prefixes, the most recently used first.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = Id> {
        self.leaves.descending().map(|(_, id)| id)
    }

    pub(crate) fn evictable(&self) -> usize {
        self.evictable.len()
    }
}
