//! The prefix tree: one node per page, held, stored or remembered, and how tokens follow it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::arena::{Arena, Id};
use crate::children::Children;
use crate::disk_page::DiskPage;
use crate::namespace::Namespace;
use crate::node::{Kind, NEVER, Node, Root, State};
use crate::orders::Orders;
use crate::timestamp::Timestamp;
use crate::token_page::{PAGE_TOKENS, TokenPage};

/// Who uses pages, when, and until when: one operation of the cache.
pub(crate) struct Use {
    /// The operation's number.
    pub(crate) number: u64,
    pub(crate) request: Arc<str>,
    /// The request's, where pages of others must not tell of it.
    pub(crate) namespace: Option<Namespace>,
    pub(crate) now: Timestamp,
    /// What is used lives at least until then.
    pub(crate) expires_at: Timestamp,
}

impl Use {
    /// The request's id, if it has one.
    pub(crate) fn named(&self) -> Option<Arc<str>> {
        Some(&self.request).filter(|request| !request.is_empty()).map(Arc::clone)
    }
}

/// How far a sequence of tokens follows the tree.
pub(crate) struct Descent {
    /// Full pages that match, in order.
    pub(crate) path: Vec<Id>,
    /// The last of these, or where the descent began.
    pub(crate) end: Id,
    /// Tokens that match inside a further page, fewer than it or the sequence has.
    pub(crate) inside: usize,
    /// The most recently used child of `end` among those that share these `inside` tokens, if
    /// there are any.
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

/// Whose K/V are in memory.
pub(crate) const HELD: &[Kind] = &[Kind::Held];
/// Whose K/V are only on disk.
pub(crate) const STORED: &[Kind] = &[Kind::Stored];
/// Whose K/V are somewhere.
pub(crate) const ALIVE: &[Kind] = &[Kind::Held, Kind::Stored];
/// What goes on after the held pages.
pub(crate) const NOT_HELD: &[Kind] = &[Kind::Stored, Kind::Ghost];
/// Whose K/V are gone.
pub(crate) const GHOSTS: &[Kind] = &[Kind::Ghost];
/// Whatever is known.
pub(crate) const ALL: &[Kind] = &[Kind::Held, Kind::Stored, Kind::Ghost];

/// All namespaces' pages.
pub(crate) struct PrefixTree<P> {
    pub(crate) nodes: Arena<Node<P>>,
    pub(crate) orders: Orders,
    /// What is stored at each place of the disk tier.
    pub(crate) places: HashMap<DiskPage, Id>,
    /// Pages that were found in use, until they are released.
    pub(crate) parked: HashMap<P, Id>,
    roots: HashMap<Namespace, Id>,
    operations: u64,
    pages: usize,
    tokens: usize,
    ghosts: usize,
}

impl<P: Copy + Eq + Hash> PrefixTree<P> {
    /// Bytes a ghost is charged with: its node, its places among its parent's children and in the
    /// order, and two request ids of usual length.
    pub(crate) const GHOST_BYTES: usize =
        Arena::<Node<P>>::SLOT_BYTES + Children::CHILD_BYTES + Orders::PLACE_BYTES + 2 * 64;

    /// An empty tree; `shares` says whether namespaces are to give up pages of their own.
    pub(crate) fn new(shares: bool) -> Self {
        Self {
            nodes: Arena::new(),
            orders: Orders::new(shares),
            places: HashMap::new(),
            parked: HashMap::new(),
            roots: HashMap::new(),
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

    pub(crate) fn node(&self, id: Id) -> &Node<P> {
        &self.nodes[id]
    }

    /// The page of a held node.
    pub(crate) fn page(&self, id: Id) -> Option<P> {
        match self.nodes.get(id)?.state {
            State::Held { page, .. } => Some(page),
            _ => None,
        }
    }

    /// Pages held below a root.
    pub(crate) fn pages_of(&self, root: Id) -> usize {
        match &self.nodes[root].state {
            State::Root(root) => root.pages,
            _ => 0,
        }
    }

    /// The namespace that a node belongs to.
    pub(crate) fn namespace(&self, id: Id) -> Namespace {
        match &self.nodes[self.nodes[id].root.unwrap_or(id)].state {
            State::Root(root) => root.namespace,
            _ => Namespace::default(),
        }
    }

    pub(crate) fn begin(
        &mut self,
        request: Arc<str>,
        now: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> Use {
        self.operations += 1;
        let expires_at = expires_at.unwrap_or(NEVER);
        Use { number: self.operations, request, namespace: None, now, expires_at }
    }

    pub(crate) fn root(&self, namespace: &Namespace) -> Option<Id> {
        self.roots.get(namespace).copied()
    }

    /// The namespace's root, made when it is not there; `None` when the arena is full.
    pub(crate) fn root_or_new(&mut self, namespace: &Namespace, by: &Use) -> Option<Id> {
        if let Some(root) = self.root(namespace) {
            return Some(root);
        }
        let state = State::Root(Box::new(Root { namespace: *namespace, pages: 0 }));
        let root = self.nodes.insert(new_node(&[], None, None, state, by))?;
        self.roots.insert(*namespace, root);
        Some(root)
    }

    /// The child with exactly these tokens; the first of `kinds` that has one.
    pub(crate) fn find(&self, parent: Id, tokens: &[u32], kinds: &[Kind]) -> Option<Id> {
        let parent = &self.nodes[parent];
        kinds.iter().find_map(|&kind| parent.children(kind).find(&self.nodes, tokens))
    }

    /// The most recently used child that begins with `prefix`.
    pub(crate) fn newest(&self, parent: Id, prefix: &[u32], kinds: &[Kind]) -> Option<Id> {
        let parent = &self.nodes[parent];
        let newest = kinds.iter().filter_map(|&k| parent.children(k).newest(&self.nodes, prefix));
        newest.max_by_key(|&id| self.nodes[id].used)
    }

    /// How many of `tokens` some child begins with.
    pub(crate) fn longest(&self, parent: Id, tokens: &[u32], kinds: &[Kind]) -> usize {
        let parent = &self.nodes[parent];
        let longest = kinds.iter().map(|&kind| parent.children(kind).longest(&self.nodes, tokens));
        longest.max().unwrap_or(0)
    }

    /// Follows `tokens` from `start` through children of these kinds.
    pub(crate) fn descend(&self, start: Id, tokens: &[u32], kinds: &[Kind]) -> Descent {
        let mut path = Vec::new();
        let mut end = start;
        let mut rest = tokens;
        while let Some((page, after)) = rest.split_at_checked(PAGE_TOKENS) {
            let Some(child) = self.find(end, page, kinds) else { break };
            path.push(child);
            end = child;
            rest = after;
        }
        let next = &rest[..rest.len().min(PAGE_TOKENS)];
        let inside = self.longest(end, next, kinds);
        let newest = (inside > 0).then(|| self.newest(end, &next[..inside], kinds)).flatten();
        Descent { path, end, inside, newest }
    }

    /// The node whose page ends exactly where `tokens` do.
    pub(crate) fn locate(&self, root: Id, tokens: &[u32], kinds: &[Kind]) -> Option<Id> {
        let mut pages = tokens.chunks(PAGE_TOKENS);
        pages.try_fold(root, |end, page| self.find(end, page, kinds)).filter(|&id| id != root)
    }

    /// Tokens of `node` from its token `skip` on and, page by page, of the most recently used
    /// branch below, at most `tokens_max`.
    pub(crate) fn continuation(&self, node: Id, skip: usize, tokens_max: usize) -> Vec<u32> {
        let mut tokens = self.nodes[node].tokens.as_slice()[skip..].to_vec();
        let mut end = node;
        while tokens.len() < tokens_max {
            let Some(child) = self.newest(end, &[], ALIVE) else { break };
            tokens.extend_from_slice(self.nodes[child].tokens.as_slice());
            end = child;
        }
        tokens.truncate(tokens_max);
        tokens
    }

    /// The nodes from the first page down to this one.
    pub(crate) fn path(&self, id: Id) -> Vec<Id> {
        let above = std::iter::successors(Some(id), |&id| self.nodes[id].parent);
        let mut path: Vec<_> = above.filter(|&id| self.nodes[id].parent.is_some()).collect();
        path.reverse();
        path
    }

    /// All nodes below `root`, each before the one that it follows.
    pub(crate) fn below(&self, root: Id) -> Vec<Id> {
        let mut found = Vec::new();
        let mut waiting = vec![root];
        while let Some(id) = waiting.pop() {
            let node = &self.nodes[id];
            let first = waiting.len();
            for &kind in ALL {
                waiting.extend(node.children(kind).iter());
            }
            found.extend_from_slice(&waiting[first..]);
        }
        found.reverse();
        found
    }

    pub(crate) fn unlist(&mut self, id: Id) {
        self.orders.remove(id, &self.nodes[id]);
    }

    pub(crate) fn list(&mut self, id: Id) {
        self.orders.add(id, &self.nodes[id]);
    }

    /// Adds `child` to the set of its parent's children that its state says; the caller lists
    /// the parent anew.
    fn join_parent(&mut self, child: Id) {
        let node = &self.nodes[child];
        let (Some(parent), kind, used) = (node.parent, node.kind(), node.used) else { return };
        let mut children = std::mem::take(self.nodes[parent].children_mut(kind));
        let only_used = children.only().map_or(0, |only| self.nodes[only].used);
        children.insert(&self.nodes, (child, used), only_used);
        *self.nodes[parent].children_mut(kind) = children;
    }

    fn leave_parent(&mut self, child: Id) {
        let node = &self.nodes[child];
        let (Some(parent), kind) = (node.parent, node.kind()) else { return };
        let mut children = std::mem::take(self.nodes[parent].children_mut(kind));
        children.remove(&self.nodes, child);
        *self.nodes[parent].children_mut(kind) = children;
    }

    /// Adds what a node holds to the figures.
    fn count(&mut self, id: Id) {
        let node = &self.nodes[id];
        match (&node.state, node.root) {
            (State::Held { .. }, Some(root)) => {
                self.pages += 1;
                self.tokens += node.tokens.len();
                if let State::Root(root) = &mut self.nodes[root].state {
                    root.pages += 1;
                }
            }
            (State::Ghost(_) | State::Lingering { .. }, _) => self.ghosts += 1,
            _ => {}
        }
    }

    fn uncount(&mut self, id: Id) {
        let node = &self.nodes[id];
        match (&node.state, node.root) {
            (State::Held { .. }, Some(root)) => {
                self.pages -= 1;
                self.tokens -= node.tokens.len();
                if let State::Root(root) = &mut self.nodes[root].state {
                    root.pages -= 1;
                }
            }
            (State::Ghost(_) | State::Lingering { .. }, _) => self.ghosts -= 1,
            _ => {}
        }
    }

    /// Changes a node within the orders: whatever they depend on is changed by `change`.
    pub(crate) fn change(&mut self, id: Id, change: impl FnOnce(&mut Node<P>)) {
        self.unlist(id);
        change(&mut self.nodes[id]);
        self.list(id);
    }

    /// Moves a node to another state.
    pub(crate) fn set_state(&mut self, id: Id, state: State<P>) {
        let parent = self.nodes[id].parent;
        self.unlist(id);
        parent.into_iter().for_each(|parent| self.unlist(parent));
        self.set_state_unlisted(id, state);
        parent.into_iter().for_each(|parent| self.list(parent));
        self.list(id);
    }

    /// As [`set_state`](Self::set_state), for a node that stands in no order, nor does its parent.
    pub(crate) fn set_state_unlisted(&mut self, id: Id, state: State<P>) {
        self.leave_parent(id);
        self.uncount(id);
        self.forget_parked(id);
        self.nodes[id].state = state;
        self.count(id);
        self.join_parent(id);
    }

    /// A page that is no longer held is no longer parked.
    fn forget_parked(&mut self, id: Id) {
        if std::mem::replace(&mut self.nodes[id].parked, false)
            && let Some(page) = self.page(id)
        {
            self.parked.remove(&page);
        }
    }

    /// A new node for `tokens` below `parent`; `None` when the arena is full.
    pub(crate) fn add(
        &mut self,
        parent: Id,
        tokens: &[u32],
        state: State<P>,
        by: &Use,
    ) -> Option<Id> {
        let root = self.nodes[parent].root.unwrap_or(parent);
        let id = self.nodes.insert(new_node(tokens, Some(parent), Some(root), state, by))?;
        self.count(id);
        self.unlist(parent);
        self.join_parent(id);
        self.list(parent);
        self.list(id);
        Some(id)
    }

    /// Removes a node that has no children.
    pub(crate) fn forget(&mut self, id: Id) {
        let parent = self.nodes[id].parent;
        self.unlist(id);
        parent.into_iter().for_each(|parent| self.unlist(parent));
        self.forget_unlisted(id);
        parent.into_iter().for_each(|parent| self.list(parent));
    }

    /// As [`forget`](Self::forget), for a node that stands in no order, nor does its parent in one
    /// that depends on it.
    pub(crate) fn forget_unlisted(&mut self, id: Id) {
        self.leave_parent(id);
        self.uncount(id);
        self.forget_parked(id);
        if let Some(place) = self.nodes[id].disk {
            self.places.remove(&place);
        }
        self.nodes.remove(id);
    }

    /// Makes `id` the most recently used; `shared` of its tokens are `by`'s own, and only who has
    /// all of them, and an id, is named for the page. Whoever touches a node touches its ancestors
    /// too.
    pub(crate) fn touch(&mut self, id: Id, shared: usize, by: &Use) {
        self.change(id, |node| {
            node.used = by.number;
            node.used_at = by.now;
            node.expires_at = node.expires_at.max(by.expires_at);
            if shared >= node.tokens.len() && !by.request.is_empty() {
                node.request = Arc::clone(&by.request);
            }
        });
        let (parent, kind) = (self.nodes[id].parent, self.nodes[id].kind());
        let Some(parent) = parent else { return };
        if self.nodes[parent].children(kind).only().is_none() {
            let mut children = std::mem::take(self.nodes[parent].children_mut(kind));
            children.touch(&self.nodes, id, by.number);
            *self.nodes[parent].children_mut(kind) = children;
        }
    }

    /// Notes that a published sequence ends with this page.
    pub(crate) fn end_here(&mut self, id: Id, by: &Use) {
        self.nodes[id].ended = by.number;
    }

    /// Removes a root below which nothing is left. Dropping a page does not, since another may be
    /// about to take its place.
    pub(crate) fn prune_root(&mut self, id: Id) {
        let Some(node) = self.nodes.get(id) else { return };
        let State::Root(root) = &node.state else { return };
        if !node.has_children() {
            self.roots.remove(&root.namespace);
            self.nodes.remove(id);
        }
    }
}

fn new_node<P>(
    tokens: &[u32],
    parent: Option<Id>,
    root: Option<Id>,
    state: State<P>,
    by: &Use,
) -> Node<P> {
    Node {
        tokens: TokenPage::new(tokens),
        parent,
        root,
        held: Default::default(),
        stored: Default::default(),
        ghosts: Default::default(),
        state,
        disk: None,
        kept: 0,
        parked: false,
        used: by.number,
        ended: 0,
        used_at: by.now,
        expires_at: by.expires_at,
        request: Arc::clone(&by.request),
    }
}
