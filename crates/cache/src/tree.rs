//! The prefix tree: one node per page, held or ghost, and what may be given up next.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::arena::{Arena, Id};
use crate::children::Children;
use crate::namespace::Namespace;
use crate::node::{Kind, Node, State};
use crate::timestamp::Timestamp;
use crate::token_page::{PAGE_TOKENS, TokenPage};

/// Who uses pages, and when: one operation of the cache.
pub(crate) struct Use {
    /// The operation's number. All pages of one operation lie on one path, so no two leaves ever
    /// share a number and the order of eviction is total.
    pub(crate) number: u64,
    pub(crate) request: Arc<str>,
    pub(crate) now: Timestamp,
}

/// How far a sequence of tokens follows the tree.
pub(crate) struct Descent {
    /// Full pages that match, in order.
    pub(crate) path: Vec<Id>,
    /// The last of these, or where the descent began.
    pub(crate) end: Id,
    /// Tokens that match inside a further page, fewer than it or the sequence has.
    pub(crate) inside: usize,
    /// The most recently used child of `end` among those that share these `inside` tokens.
    pub(crate) newest: Option<Id>,
}

impl Descent {
    /// Matching tokens from where the descent began.
    pub(crate) fn tokens(&self) -> usize {
        self.path.len() * PAGE_TOKENS + self.inside
    }

    /// The page that the last matching token lies in.
    pub(crate) fn deepest(&self) -> Option<Id> {
        if self.inside > 0 { self.newest } else { self.path.last().copied() }
    }
}

/// All namespaces' pages.
pub(crate) struct PrefixTree<P> {
    nodes: Arena<Node<P>>,
    roots: HashMap<Namespace, Id>,
    /// Held leaves without pins, the longest unused first.
    evictable: BTreeSet<(u64, Id)>,
    /// Ghosts without ghosts below, the longest unused first.
    ghost_leaves: BTreeSet<(u64, Id)>,
    operations: u64,
    pages: usize,
    tokens: usize,
    ghosts: usize,
}

impl<P: Copy + Eq> PrefixTree<P> {
    /// Bytes a ghost is charged with: its node, its entry among its parent's children, its place in
    /// the order (a B-tree is at least half full), and two request ids of usual length.
    pub(crate) const GHOST_BYTES: usize = Arena::<Node<P>>::SLOT_BYTES
        + Children::ONLY_CHILD_BYTES
        + 2 * size_of::<(u64, Id)>()
        + 2 * 64;

    pub(crate) fn new() -> Self {
        Self {
            nodes: Arena::new(),
            roots: HashMap::new(),
            evictable: BTreeSet::new(),
            ghost_leaves: BTreeSet::new(),
            operations: 0,
            pages: 0,
            tokens: 0,
            ghosts: 0,
        }
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    pub(crate) fn ghosts(&self) -> usize {
        self.ghosts
    }

    pub(crate) fn namespaces(&self) -> usize {
        self.roots.len()
    }

    pub(crate) fn evictable_leaves(&self) -> usize {
        self.evictable.len()
    }

    pub(crate) fn node(&self, id: Id) -> &Node<P> {
        &self.nodes[id]
    }

    /// The page of a held node.
    pub(crate) fn page(&self, id: Id) -> Option<P> {
        match self.nodes.get(id)?.state {
            State::Held { page, .. } => Some(page),
            State::Root(_) | State::Ghost { .. } => None,
        }
    }

    pub(crate) fn begin(&mut self, request: Arc<str>, now: Timestamp) -> Use {
        self.operations += 1;
        Use { number: self.operations, request, now }
    }

    pub(crate) fn root(&self, namespace: &Namespace) -> Option<Id> {
        self.roots.get(namespace).copied()
    }

    /// The namespace's root, made when it is not there; `None` when the arena is full.
    pub(crate) fn root_or_new(&mut self, namespace: &Namespace, by: &Use) -> Option<Id> {
        if let Some(root) = self.root(namespace) {
            return Some(root);
        }
        let root = self.nodes.insert(new_node(&[], None, State::Root(*namespace), by))?;
        self.roots.insert(*namespace, root);
        Some(root)
    }

    pub(crate) fn find(&self, parent: Id, tokens: &[u32], kind: Kind) -> Option<Id> {
        self.nodes[parent].children(kind).find(&self.nodes, tokens)
    }

    /// The most recently used child that begins with `prefix`.
    pub(crate) fn newest(&self, parent: Id, prefix: &[u32], kind: Kind) -> Option<Id> {
        self.nodes[parent].children(kind).newest(&self.nodes, prefix)
    }

    /// How many of `tokens` some child begins with.
    pub(crate) fn longest(&self, parent: Id, tokens: &[u32], kind: Kind) -> usize {
        self.nodes[parent].children(kind).longest(&self.nodes, tokens)
    }

    /// Follows `tokens` from `start` through children of one kind.
    pub(crate) fn descend(&self, start: Id, tokens: &[u32], kind: Kind) -> Descent {
        let mut path = Vec::new();
        let mut end = start;
        let mut rest = tokens;
        while let Some((page, after)) = rest.split_at_checked(PAGE_TOKENS) {
            let Some(child) = self.find(end, page, kind) else { break };
            path.push(child);
            end = child;
            rest = after;
        }
        let next = &rest[..rest.len().min(PAGE_TOKENS)];
        let inside = self.longest(end, next, kind);
        let newest = self.newest(end, &next[..inside], kind);
        Descent { path, end, inside, newest }
    }

    /// Held tokens of `node` from its token `skip` on and, page by page, of the most recently used
    /// branch below, at most `tokens_max`.
    pub(crate) fn continuation(&self, node: Id, skip: usize, tokens_max: usize) -> Vec<u32> {
        let mut tokens = self.nodes[node].tokens.as_slice()[skip..].to_vec();
        let mut end = node;
        while tokens.len() < tokens_max {
            let Some(child) = self.newest(end, &[], Kind::Held) else { break };
            tokens.extend_from_slice(self.nodes[child].tokens.as_slice());
            end = child;
        }
        tokens.truncate(tokens_max);
        tokens
    }

    /// Takes the node out of the orders; every change of what they depend on stands between this
    /// and [`PrefixTree::list`].
    fn unlist(&mut self, id: Id) {
        let node = &self.nodes[id];
        if node.is_evictable() {
            self.evictable.remove(&(node.used, id));
        } else if node.is_ghost_leaf() {
            self.ghost_leaves.remove(&(node.used, id));
        }
    }

    fn list(&mut self, id: Id) {
        let node = &self.nodes[id];
        if node.is_evictable() {
            self.evictable.insert((node.used, id));
        } else if node.is_ghost_leaf() {
            self.ghost_leaves.insert((node.used, id));
        }
    }

    /// Adds `child` to the set of its parent's children that its state says.
    fn join_parent(&mut self, child: Id) {
        let node = &self.nodes[child];
        let (Some(parent), kind, used) = (node.parent, node.kind(), node.used) else { return };
        self.unlist(parent);
        let children = self.nodes[parent].children(kind);
        let place = children.place(&self.nodes, node_tokens(&self.nodes, child));
        self.nodes[parent].children_mut(kind).insert(place, child, used);
        self.list(parent);
    }

    fn leave_parent(&mut self, child: Id) {
        let node = &self.nodes[child];
        let (Some(parent), kind) = (node.parent, node.kind()) else { return };
        self.unlist(parent);
        let children = self.nodes[parent].children(kind);
        let place = children.place(&self.nodes, node_tokens(&self.nodes, child));
        self.nodes[parent].children_mut(kind).remove(place);
        self.list(parent);
    }

    /// Makes `id` the most recently used; `shared` of its tokens are `by`'s own, and only who has
    /// all of them is named for the page. Whoever touches a node touches its ancestors too.
    pub(crate) fn touch(&mut self, id: Id, shared: usize, by: &Use) {
        self.unlist(id);
        let node = &mut self.nodes[id];
        node.used = by.number;
        node.used_at = by.now;
        if shared >= node.tokens.len() {
            node.request = Arc::clone(&by.request);
        }
        let (parent, kind) = (node.parent, node.kind());
        if let Some(parent) = parent {
            let children = self.nodes[parent].children(kind);
            let place = children.place(&self.nodes, node_tokens(&self.nodes, id));
            self.nodes[parent].children_mut(kind).touch(place, by.number);
        }
        self.list(id);
    }

    /// Notes that a published sequence ends with this page.
    pub(crate) fn end_here(&mut self, id: Id, by: &Use) {
        self.nodes[id].ended = by.number;
    }

    /// Holds `page` for `tokens` below `parent`, in the place of their ghost if there is one;
    /// `None` when the arena is full.
    pub(crate) fn hold(&mut self, parent: Id, tokens: &[u32], page: P, by: &Use) -> Option<Id> {
        let state = State::Held { page, pins: 0 };
        let id = if let Some(ghost) = self.find(parent, tokens, Kind::Ghost) {
            self.unlist(ghost);
            self.leave_parent(ghost);
            self.ghosts -= 1;
            let node = &mut self.nodes[ghost];
            node.state = state;
            node.used = by.number;
            node.used_at = by.now;
            node.request = Arc::clone(&by.request);
            ghost
        } else {
            self.nodes.insert(new_node(tokens, Some(parent), state, by))?
        };
        self.pages += 1;
        self.tokens += tokens.len();
        self.join_parent(id);
        self.list(id);
        Some(id)
    }

    /// Forgets an evictable leaf without ghosts below, such as any partial page, and returns its
    /// page.
    pub(crate) fn drop_held(&mut self, id: Id) -> Option<P> {
        let page = self.page(id)?;
        if !self.nodes[id].is_evictable() || !self.nodes[id].ghosts.is_empty() {
            return None;
        }
        self.pages -= 1;
        self.tokens -= self.nodes[id].tokens.len();
        self.forget(id);
        Some(page)
    }

    /// Forgets a ghost without ghosts below.
    pub(crate) fn drop_ghost(&mut self, id: Id) {
        if self.nodes[id].is_ghost_leaf() {
            self.ghosts -= 1;
            self.forget(id);
        }
    }

    /// Removes a node that has no children.
    fn forget(&mut self, id: Id) {
        self.unlist(id);
        self.leave_parent(id);
        self.nodes.remove(id);
    }

    /// Removes a root below which nothing is left. Dropping a page does not, since another may be
    /// about to take its place.
    pub(crate) fn prune_root(&mut self, id: Id) {
        let node = &self.nodes[id];
        let State::Root(namespace) = node.state else { return };
        if node.held.is_empty() && node.ghosts.is_empty() {
            self.roots.remove(&namespace);
            self.nodes.remove(id);
        }
    }

    /// Turns the least recently used evictable leaf whose page `may` go into a ghost, and returns
    /// that page.
    pub(crate) fn evict_oldest(&mut self, by: &Use, may: impl Fn(P) -> bool) -> Option<P> {
        let mut leaves = self.evictable.iter().filter_map(|&(_, id)| Some((id, self.page(id)?)));
        let (id, page) = leaves.find(|&(_, page)| may(page))?;
        self.unlist(id);
        self.leave_parent(id);
        let node = &mut self.nodes[id];
        node.state = State::Ghost { evicted_at: by.now, evicted_for: Arc::clone(&by.request) };
        self.pages -= 1;
        self.tokens -= node.tokens.len();
        self.ghosts += 1;
        self.join_parent(id);
        self.list(id);
        Some(page)
    }

    /// Forgets the longest unused ghosts until at most `ghosts_max` are left.
    pub(crate) fn trim_ghosts(&mut self, ghosts_max: usize) {
        while self.ghosts > ghosts_max {
            let Some((_, id)) = self.ghost_leaves.first().copied() else { return };
            let parent = self.nodes[id].parent;
            self.drop_ghost(id);
            if let Some(parent) = parent {
                self.prune_root(parent);
            }
        }
    }

    pub(crate) fn pin(&mut self, id: Id) {
        self.change_pins(id, |pins| pins.saturating_add(1));
    }

    /// Takes one pin back; an id whose node is gone or not pinned is let be.
    pub(crate) fn unpin(&mut self, id: Id) {
        self.change_pins(id, |pins| pins.saturating_sub(1));
    }

    fn change_pins(&mut self, id: Id, change: impl Fn(u32) -> u32) {
        if self.page(id).is_none() {
            return;
        }
        self.unlist(id);
        if let State::Held { pins, .. } = &mut self.nodes[id].state {
            *pins = change(*pins);
        }
        self.list(id);
    }
}

fn node_tokens<P>(nodes: &Arena<Node<P>>, id: Id) -> &[u32] {
    nodes[id].tokens.as_slice()
}

fn new_node<P>(tokens: &[u32], parent: Option<Id>, state: State<P>, by: &Use) -> Node<P> {
    Node {
        tokens: TokenPage::new(tokens),
        parent,
        held: Children::default(),
        ghosts: Children::default(),
        state,
        used: by.number,
        ended: 0,
        used_at: by.now,
        request: Arc::clone(&by.request),
    }
}
