//! Finding the longest reusable prefix, and saying why it is no longer.

use crate::arena::Id;
use crate::compare::{COMPARED_TOKENS_MAX, difference};
use crate::namespace::Namespace;
use crate::node::{Kind, State};
use crate::prompt_cache::{Pin, PromptCache, shared_id};
use crate::timestamp::Timestamp;
use crate::token_page::PAGE_TOKENS;
use crate::tree::Descent;
use crate::verdict::{Reason, Stop, Verdict};

/// What a prompt can reuse.
#[derive(Debug)]
pub struct Hit<P> {
    /// The pages of positions `0..reused_tokens`, in order. When `reused_tokens` is no multiple of
    /// [`PAGE_TOKENS`], the last page is reused in part: the caller copies it and goes on in the
    /// copy, since a page in the cache is immutable.
    pub pages: Vec<P>,
    /// Tokens to reuse, at most all but the last.
    pub reused_tokens: usize,
    /// Why it is no more.
    pub verdict: Verdict,
    /// Keeps `pages` from being evicted.
    pub pin: Pin,
}

/// What a lookup would find at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held<P> {
    /// The full pages, in order.
    pub pages: Vec<P>,
    /// The tokens that a lookup would reuse, those inside a further page included.
    pub tokens: usize,
}

impl<P: Copy + Eq> PromptCache<P> {
    /// What [`lookup`](Self::lookup) would find, without being one: nothing is pinned, and nothing
    /// counts as used.
    pub fn held(&self, namespace: &Namespace, tokens: &[u32]) -> Held<P> {
        let Some(root) = self.tree.root(namespace) else {
            return Held { pages: Vec::new(), tokens: 0 };
        };
        let found = self.tree.descend(root, tokens, Kind::Held);
        let reusable = found.tokens().min(tokens.len().saturating_sub(1));
        let full = found.path.iter().take(reusable / PAGE_TOKENS);
        Held { pages: full.filter_map(|&id| self.tree.page(id)).collect(), tokens: reusable }
    }

    /// What is held after exactly `tokens`, up to `tokens_max` tokens of the most recently used
    /// branch; empty if they are not all held. Nothing counts as used.
    pub fn continuation(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        tokens_max: usize,
    ) -> Vec<u32> {
        let Some(root) = self.tree.root(namespace) else { return Vec::new() };
        let held = self.tree.descend(root, tokens, Kind::Held);
        match held.newest.filter(|_| held.tokens() == tokens.len()) {
            Some(branch) => self.tree.continuation(branch, held.inside, tokens_max),
            None => Vec::new(),
        }
    }

    /// Finds the longest held prefix of `tokens` in the caller's namespace, at most
    /// `tokens.len() - 1` tokens, and pins its pages until [`unpin`](Self::unpin). What matched
    /// becomes the most recently used, by `request`; of a page that matched only in part, the
    /// request named for it stays the last one that contains it.
    pub fn lookup(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        request: &str,
        now: Timestamp,
    ) -> Hit<P> {
        let Some(root) = self.tree.root(namespace) else {
            let verdict = Verdict::from_ram(tokens.len(), self.first_request(), None);
            return Hit { pages: Vec::new(), reused_tokens: 0, verdict, pin: Pin(None) };
        };
        let held = self.tree.descend(root, tokens, Kind::Held);
        // Explained before anything is touched: the request is not to be compared with itself.
        let (stop, compared_with) = self.explain(tokens, &held);
        let reused_tokens = stop.at;
        let verdict = Verdict::from_ram(tokens.len(), stop, compared_with);
        let mut matching = held.path;
        let by = self.tree.begin(shared_id(request), now);
        for &id in &matching {
            self.tree.touch(id, PAGE_TOKENS, &by);
        }
        if let Some(partly) = held.newest.filter(|_| held.inside > 0) {
            self.tree.touch(partly, held.inside, &by);
            matching.push(partly);
        }
        matching.truncate(reused_tokens.div_ceil(PAGE_TOKENS));
        // Whatever has a held page below it is never evicted: one pin holds the whole path.
        let pinned = matching.last().copied();
        if let Some(id) = pinned {
            self.tree.pin(id);
        }
        let pages = matching.iter().filter_map(|&id| self.tree.page(id)).collect();
        Hit { pages, reused_tokens, verdict, pin: Pin(pinned) }
    }

    fn first_request(&self) -> Stop {
        Stop { since: Some(self.since), ..Stop::new(Reason::FirstRequest, 0) }
    }

    /// Where reuse stops and why, and the id of the last request that contains the page which
    /// decides it: the deepest match over held pages and ghosts, and among branches the most
    /// recently used.
    fn explain(&self, tokens: &[u32], held: &Descent) -> (Stop, Option<String>) {
        let at = held.tokens().min(tokens.len().saturating_sub(1));
        let rest = &tokens[held.path.len() * PAGE_TOKENS..];
        let ghost = self.tree.descend(held.end, rest, Kind::Ghost);
        if held.tokens() == 0 && ghost.tokens() == 0 {
            return (self.first_request(), None);
        }
        if at + 1 >= tokens.len() {
            let deepest = held.deepest().or(ghost.deepest());
            return (Stop::new(Reason::EndOfPrompt, at), deepest.and_then(|id| self.last_user(id)));
        }
        if ghost.tokens() > held.inside {
            return self.explain_ghost(at, held, &ghost);
        }
        self.explain_branch(at, tokens, held)
    }

    /// The first page that is gone says when and for what; the deepest, how far it was held.
    fn explain_ghost(&self, at: usize, held: &Descent, ghost: &Descent) -> (Stop, Option<String>) {
        let mut stop = Stop::new(Reason::Evicted, at);
        stop.held_tokens = Some(held.path.len() * PAGE_TOKENS + ghost.tokens());
        let Some(first) = ghost.path.first().copied().or(ghost.deepest()) else {
            return (stop, None);
        };
        let node = self.tree.node(first);
        stop.last_used = Some(node.used_at);
        if let State::Ghost { evicted_at, evicted_for } = &node.state {
            stop.evicted_at = Some(*evicted_at);
            stop.evicted_for = Some(evicted_for.to_string());
        }
        (stop, self.last_user(first))
    }

    /// What is held either goes on with another token, or ends.
    fn explain_branch(&self, at: usize, tokens: &[u32], held: &Descent) -> (Stop, Option<String>) {
        let end = self.tree.node(held.end);
        let branch = held.newest.filter(|&child| {
            let child = self.tree.node(child);
            // Inside a page: whether the branch has more tokens in it. Between pages: whether it
            // is more recent than a sequence that ended there.
            if held.inside > 0 { child.tokens.len() > held.inside } else { child.used > end.ended }
        });
        let Some(branch) = branch else {
            let ended = held.deepest().and_then(|id| self.last_user(id));
            return (Stop::new(Reason::EndOfCached, at), ended);
        };
        let cached = self.tree.continuation(branch, held.inside, COMPARED_TOKENS_MAX);
        (difference(at, &cached, &tokens[at..]), self.last_user(branch))
    }

    /// The last request that contains the whole page.
    fn last_user(&self, id: Id) -> Option<String> {
        let request = &self.tree.node(id).request;
        (!request.is_empty()).then(|| request.to_string())
    }
}
