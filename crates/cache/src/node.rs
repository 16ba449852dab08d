//! One page of the prefix tree, held or remembered.

use std::sync::Arc;

use crate::arena::Id;
use crate::children::Children;
use crate::namespace::Namespace;
use crate::timestamp::Timestamp;
use crate::token_page::TokenPage;

/// Whether a node's K/V are there.
pub(crate) enum State<P> {
    /// The start of a namespace: no tokens, no page.
    Root(Namespace),
    /// The K/V are held in `page`; `pins` running requests ask that they stay.
    Held { page: P, pins: u32 },
    /// The K/V are gone; the token ids are kept to explain a miss.
    Ghost { evicted_at: Timestamp, evicted_for: Arc<str> },
}

/// Which of a node's two sets of children: those whose K/V are held, or those remembered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Held,
    Ghost,
}

/// A page of up to 16 tokens that follows its parent's. Only a full page has children, and only a
/// root or a held page has held ones.
pub(crate) struct Node<P> {
    pub(crate) tokens: TokenPage,
    /// `None` for a root.
    pub(crate) parent: Option<Id>,
    pub(crate) held: Children,
    pub(crate) ghosts: Children,
    pub(crate) state: State<P>,
    /// Number of the operation that last used this page; never less than any held descendant's.
    pub(crate) used: u64,
    /// Number of the operation that last published a sequence which ends with this page, or 0.
    pub(crate) ended: u64,
    /// When it was last used.
    pub(crate) used_at: Timestamp,
    /// Id of the last request that used it and whose tokens contain all of this page's: one that
    /// used a part of it goes on otherwise, and must not be named for what it does not contain.
    pub(crate) request: Arc<str>,
}

impl<P> AsRef<[u32]> for Node<P> {
    fn as_ref(&self) -> &[u32] {
        self.tokens.as_slice()
    }
}

impl<P> Node<P> {
    pub(crate) fn children(&self, kind: Kind) -> &Children {
        match kind {
            Kind::Held => &self.held,
            Kind::Ghost => &self.ghosts,
        }
    }

    pub(crate) fn children_mut(&mut self, kind: Kind) -> &mut Children {
        match kind {
            Kind::Held => &mut self.held,
            Kind::Ghost => &mut self.ghosts,
        }
    }

    /// The set of its parent's children that this node belongs to.
    pub(crate) fn kind(&self) -> Kind {
        match self.state {
            State::Root(_) | State::Held { .. } => Kind::Held,
            State::Ghost { .. } => Kind::Ghost,
        }
    }

    /// A held leaf that no request has pinned.
    pub(crate) fn is_evictable(&self) -> bool {
        matches!(self.state, State::Held { pins: 0, .. }) && self.held.is_empty()
    }

    /// A ghost that explains nothing beyond itself.
    pub(crate) fn is_ghost_leaf(&self) -> bool {
        matches!(self.state, State::Ghost { .. }) && self.ghosts.is_empty()
    }
}
