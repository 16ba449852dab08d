//! One page of the prefix tree, held or remembered.

use std::sync::Arc;

use crate::arena::Id;
use crate::children::Children;
use crate::disk_page::DiskPage;
use crate::namespace::Namespace;
use crate::timestamp::Timestamp;
use crate::token_page::TokenPage;
use crate::verdict::Loss;

/// What a node without an end of its life has for one.
pub(crate) const NEVER: Timestamp = Timestamp(u64::MAX);

/// When a page was used of which that is not known.
pub(crate) const UNKNOWN: Timestamp = Timestamp(u64::MAX);

/// The start of a namespace.
pub(crate) struct Root {
    pub(crate) namespace: Namespace,
    /// Pages held below.
    pub(crate) pages: usize,
}

/// How a page was lost.
pub(crate) struct Lost {
    pub(crate) loss: Loss,
    pub(crate) at: Timestamp,
    /// Evicted: the request that it made room for.
    pub(crate) request: Option<Arc<str>>,
}

/// Whether a node's K/V are there.
pub(crate) enum State<P> {
    /// The start of a namespace: no tokens, no page.
    Root(Box<Root>),
    /// The K/V are held in `page`; `pins` running requests ask that they stay.
    Held { page: P, pins: u32 },
    /// The K/V are on disk only.
    Stored,
    /// The K/V are gone; the token ids are kept to explain a miss.
    Ghost(Lost),
    /// The page expired at this time and serves nobody any more, but stays until `pins` running
    /// requests have unpinned it. To everybody else it is a ghost.
    Lingering { page: P, pins: u32, at: Timestamp },
}

/// Which of a node's sets of children.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Those whose K/V are in memory.
    Held,
    /// Those whose K/V are on disk only.
    Stored,
    /// Those remembered.
    Ghost,
}

/// A page of up to 16 tokens that follows its parent's. Only a full page has children or a place on
/// disk, and only a root or a held page has held ones; stored pages and ghosts follow each other in
/// any order.
pub(crate) struct Node<P> {
    pub(crate) tokens: TokenPage,
    /// `None` for a root.
    pub(crate) parent: Option<Id>,
    /// The root above; `None` for a root.
    pub(crate) root: Option<Id>,
    pub(crate) held: Children,
    pub(crate) stored: Children,
    pub(crate) ghosts: Children,
    pub(crate) state: State<P>,
    /// Where its copy on disk lies.
    pub(crate) disk: Option<DiskPage>,
    /// Named pins of the operator's on this very page.
    pub(crate) kept: u32,
    /// The page was found in use when another was wanted, and waits outside of the order.
    pub(crate) parked: bool,
    /// Number of the operation that last used this page; never less than any held descendant's.
    pub(crate) used: u64,
    /// Number of the operation that last published a sequence which ends with this page, or 0.
    pub(crate) ended: u64,
    /// When it was last used, or [`UNKNOWN`].
    pub(crate) used_at: Timestamp,
    /// The latest end of life that a user gave it; never before any descendant's.
    pub(crate) expires_at: Timestamp,
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
            Kind::Stored => &self.stored,
            Kind::Ghost => &self.ghosts,
        }
    }

    pub(crate) fn children_mut(&mut self, kind: Kind) -> &mut Children {
        match kind {
            Kind::Held => &mut self.held,
            Kind::Stored => &mut self.stored,
            Kind::Ghost => &mut self.ghosts,
        }
    }

    /// The set of its parent's children that this node belongs to.
    pub(crate) fn kind(&self) -> Kind {
        match self.state {
            State::Root(_) | State::Held { .. } => Kind::Held,
            State::Stored => Kind::Stored,
            State::Ghost(_) | State::Lingering { .. } => Kind::Ghost,
        }
    }

    pub(crate) fn has_children(&self) -> bool {
        !(self.held.is_empty() && self.stored.is_empty() && self.ghosts.is_empty())
    }

    /// A held page after which none is, and that nobody has pinned.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.state, State::Held { pins: 0, .. }) && self.held.is_empty() && self.kept == 0
    }

    /// A page, held or stored, directly after which none is: the end of a longest prefix.
    pub(crate) fn is_leaf(&self) -> bool {
        matches!(self.state, State::Held { .. } | State::Stored)
            && self.held.is_empty()
            && self.stored.is_empty()
    }

    /// A ghost that explains nothing beyond itself.
    pub(crate) fn is_ghost_leaf(&self) -> bool {
        matches!(self.state, State::Ghost(_)) && !self.has_children()
    }

    /// When it was last used, where that is known.
    pub(crate) fn last_used(&self) -> Option<Timestamp> {
        Some(self.used_at).filter(|&at| at != UNKNOWN)
    }

    /// How, when and for whom the page was lost.
    pub(crate) fn lost(&self) -> Option<(Loss, Timestamp, Option<&str>)> {
        match &self.state {
            State::Ghost(lost) => Some((lost.loss, lost.at, lost.request.as_deref())),
            State::Lingering { at, .. } => Some((Loss::Expired, *at, None)),
            State::Root(_) | State::Held { .. } | State::Stored => None,
        }
    }
}
