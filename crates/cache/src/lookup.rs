//! Finding the longest reusable prefix, and saying why it is no longer.

use std::hash::Hash;

use crate::arena::Id;
use crate::compare::{COMPARED_TOKENS_MAX, difference};
use crate::disk_page::DiskPage;
use crate::namespace::Namespace;
use crate::prompt_cache::{Pin, PromptCache, shared_id};
use crate::timestamp::Timestamp;
use crate::token_page::PAGE_TOKENS;
use crate::tree::{ALIVE, Descent, HELD, NOT_HELD, STORED};
use crate::verdict::{Loss, Reason, Stop, Verdict};

/// What a prompt can reuse.
#[derive(Debug)]
pub struct Hit<P> {
    /// The pages of positions `0..reused_tokens`, in order. When `reused_tokens` is no multiple of
    /// [`PAGE_TOKENS`], the last page is reused in part: the caller copies it and goes on in the
    /// copy, since a page in the cache is immutable.
    pub pages: Vec<P>,
    /// Tokens to reuse from memory, at most all but the last of the prompt.
    pub reused_tokens: usize,
    /// Why it is no more, if nothing is restored: where there is something to restore, mostly
    /// `cheaper_to_compute`.
    pub verdict: Verdict,
    /// Keeps `pages` from being evicted.
    pub pin: Pin,
    /// What lies on disk and would save more tokens than `pages` do.
    pub restorable: Option<Restorable>,
}

/// Pages on disk that make more of a prompt reusable. The caller reads all of them and hands them
/// to [`insert_restored`](PromptCache::insert_restored), or computes their tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restorable {
    /// Where they lie, in order. They follow the full pages of the [`Hit`].
    pub places: Vec<DiskPage>,
    /// The token ids from the start of the sequence to the end of the last of them. In the last
    /// page these are its own, of which the prompt may have only the first.
    pub tokens: Vec<u32>,
    /// The verdict if all of them are restored.
    pub verdict: Verdict,
}

/// How far a prompt is reused: what the verdict on it begins from.
struct Reach<'a> {
    /// Tokens reused from memory, and in all.
    ram: usize,
    at: usize,
    /// Where the full pages that match end.
    end: Id,
    /// Tokens that match in full pages, and inside one more.
    full: usize,
    inside: usize,
    /// The page that the last matching token lies in.
    deepest: Option<Id>,
    /// What is known after the full pages, stored or gone.
    beyond: &'a [Id],
}

/// What a lookup would find at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held<P> {
    /// The full pages, in order.
    pub pages: Vec<P>,
    /// The tokens that a lookup would reuse, those inside a further page included.
    pub tokens: usize,
}

impl<P: Copy + Eq + Hash> PromptCache<P> {
    /// What [`lookup`](Self::lookup) would find, without being one: nothing is pinned, and nothing
    /// counts as used. What has expired since the last operation that took the time is still there.
    pub fn held(&self, namespace: &Namespace, tokens: &[u32]) -> Held<P> {
        let Some(root) = self.tree.root(namespace) else {
            return Held { pages: Vec::new(), tokens: 0 };
        };
        let found = self.tree.descend(root, tokens, HELD);
        let reusable = found.tokens().min(tokens.len().saturating_sub(1));
        let full = found.path.iter().take(reusable / PAGE_TOKENS);
        Held { pages: full.filter_map(|&id| self.tree.page(id)).collect(), tokens: reusable }
    }

    /// What is held or stored after exactly `tokens`, up to `tokens_max` tokens of the most
    /// recently used branch; empty if they are not all held. Nothing counts as used.
    pub fn continuation(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        tokens_max: usize,
    ) -> Vec<u32> {
        let Some(root) = self.tree.root(namespace) else { return Vec::new() };
        let held = self.tree.descend(root, tokens, ALIVE);
        let branch = held.newest.or_else(|| self.tree.newest(held.end, &[], ALIVE));
        match branch.filter(|_| held.tokens() == tokens.len()) {
            Some(branch) => self.tree.continuation(branch, held.inside, tokens_max),
            None => Vec::new(),
        }
    }

    /// Finds the longest held prefix of `tokens` in the caller's namespace, at most
    /// `tokens.len() - 1` tokens, and pins its pages until [`unpin`](Self::unpin); and says what
    /// goes on from there on disk. What matched in memory becomes the most recently used, by
    /// `request`, and lives at least until `expires_at`, or for ever without one; of a page that
    /// matched only in part, the request named for it stays the last one that contains it.
    pub fn lookup(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        request: &str,
        now: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> Hit<P> {
        self.expire_due(now);
        let Some(root) = self.tree.root(namespace) else {
            let verdict = Verdict::new(tokens.len(), 0, self.first_request(namespace), None);
            let pages = Vec::new();
            return Hit { pages, reused_tokens: 0, verdict, pin: Pin(None), restorable: None };
        };
        let held = self.tree.descend(root, tokens, HELD);
        let rest = &tokens[held.path.len() * PAGE_TOKENS..];
        let beyond = self.tree.descend(held.end, rest, NOT_HELD);
        // Explained before anything is touched: the request is not to be compared with itself.
        let verdict = self.explain(tokens, &held_reach(tokens, &held, &beyond), &beyond);
        let restorable = self.restorable(tokens, &held, &beyond, verdict.reused_tokens);
        let mut matching = held.path;
        let by = self.tree.begin(shared_id(request), now, expires_at);
        for &id in &matching {
            self.tree.touch(id, PAGE_TOKENS, &by);
        }
        if let Some(partly) = held.newest.filter(|_| held.inside > 0) {
            self.tree.touch(partly, held.inside, &by);
            matching.push(partly);
        }
        matching.truncate(verdict.reused_tokens.div_ceil(PAGE_TOKENS));
        // Whatever has a held page below it is never evicted: one pin holds the whole path.
        let pinned = matching.last().copied();
        if let Some(id) = pinned {
            self.tree.pin(id);
        }
        let pages = matching.iter().filter_map(|&id| self.tree.page(id)).collect();
        let reused_tokens = verdict.reused_tokens;
        Hit { pages, reused_tokens, verdict, pin: Pin(pinned), restorable }
    }

    /// What to restore so that more than `reused` tokens are reused. As in memory, a page that
    /// matches only in part is reused in part.
    fn restorable(
        &self,
        tokens: &[u32],
        held: &Descent,
        beyond: &Descent,
        reused: usize,
    ) -> Option<Restorable> {
        let ram = held.path.len() * PAGE_TOKENS;
        let stored = self.tree.descend(held.end, &tokens[ram..], STORED);
        let at = (ram + stored.tokens()).min(tokens.len().saturating_sub(1));
        if at <= reused {
            return None;
        }
        let partly = stored.newest.filter(|_| stored.inside > 0);
        // A page of which only the prompt's last token would be used is not read.
        let pages = at.div_ceil(PAGE_TOKENS) - held.path.len();
        let mut path = tokens[..ram].to_vec();
        let mut places = Vec::with_capacity(pages);
        for &id in stored.path.iter().chain(&partly).take(pages) {
            let node = self.tree.node(id);
            places.push(node.disk?);
            path.extend_from_slice(node.tokens.as_slice());
        }
        let reach = Reach {
            ram,
            at,
            end: stored.end,
            full: ram + stored.path.len() * PAGE_TOKENS,
            inside: stored.inside,
            deepest: stored.deepest(),
            beyond: &beyond.path[stored.path.len()..],
        };
        let verdict = self.explain(tokens, &reach, beyond);
        Some(Restorable { places, tokens: path, verdict })
    }

    fn first_request(&self, namespace: &Namespace) -> Stop {
        let since = Some(self.since(namespace));
        Stop { since, ..Stop::new(Reason::FirstRequest, 0) }
    }

    /// Where reuse stops and why, and the id of the last request that contains the page which
    /// decides it: the deepest match over pages and ghosts, and among branches the most recently
    /// used.
    fn explain(&self, tokens: &[u32], reach: &Reach<'_>, beyond: &Descent) -> Verdict {
        let beyond_tokens = reach.beyond.len() * PAGE_TOKENS + beyond.inside;
        let (stop, compared_with) = if reach.full + reach.inside + beyond_tokens == 0 {
            (self.first_request(&self.tree.namespace(reach.end)), None)
        } else if reach.at + 1 >= tokens.len() {
            let deepest = reach.deepest.or(beyond.deepest());
            let stop = Stop::new(Reason::EndOfPrompt, reach.at);
            (stop, deepest.and_then(|id| self.last_user(id)))
        } else if beyond_tokens > reach.inside {
            let first = reach.beyond.first().copied().or(beyond.newest);
            self.explain_beyond(reach, reach.full + beyond_tokens, first)
        } else {
            self.explain_branch(tokens, reach)
        };
        Verdict::new(tokens.len(), reach.ram, stop, compared_with)
    }

    /// The first page that is not there says when and for what; the deepest, how far it was.
    fn explain_beyond(
        &self,
        reach: &Reach<'_>,
        held_tokens: usize,
        first: Option<Id>,
    ) -> (Stop, Option<String>) {
        let mut stop = Stop::new(Reason::CheaperToCompute, reach.at);
        stop.held_tokens = Some(held_tokens);
        let Some(first) = first else { return (stop, None) };
        let node = self.tree.node(first);
        stop.last_used = node.last_used();
        if let Some((loss, at, request)) = node.lost() {
            stop.reason = loss.into();
            match loss {
                Loss::Evicted => stop.evicted_at = Some(at),
                Loss::Expired => stop.expired_at = Some(at),
                Loss::Damaged => stop.damaged_at = Some(at),
            }
            stop.evicted_for = request.map(str::to_owned);
        }
        (stop, self.last_user(first))
    }

    /// What is held or stored either goes on with another token, or ends.
    fn explain_branch(&self, tokens: &[u32], reach: &Reach<'_>) -> (Stop, Option<String>) {
        let end = self.tree.node(reach.end);
        let shared = &tokens[reach.full..reach.full + reach.inside];
        let branch = self.tree.newest(reach.end, shared, ALIVE).filter(|&child| {
            let child = self.tree.node(child);
            // Inside a page: whether the branch has more tokens in it. Between pages: whether it
            // is more recent than a sequence that ended there.
            if reach.inside > 0 {
                child.tokens.len() > reach.inside
            } else {
                child.used > end.ended
            }
        });
        let Some(branch) = branch else {
            let ended = reach.deepest.and_then(|id| self.last_user(id));
            return (Stop::new(Reason::EndOfCached, reach.at), ended);
        };
        let cached = self.tree.continuation(branch, reach.inside, COMPARED_TOKENS_MAX);
        (difference(reach.at, &cached, &tokens[reach.at..]), self.last_user(branch))
    }

    /// The last request that contains the whole page.
    fn last_user(&self, id: Id) -> Option<String> {
        let request = &self.tree.node(id).request;
        (!request.is_empty()).then(|| request.to_string())
    }
}

/// What is reused from memory alone.
fn held_reach<'a>(tokens: &[u32], held: &Descent, beyond: &'a Descent) -> Reach<'a> {
    let at = held.tokens().min(tokens.len().saturating_sub(1));
    Reach {
        ram: at,
        at,
        end: held.end,
        full: held.path.len() * PAGE_TOKENS,
        inside: held.inside,
        deepest: held.deepest(),
        beyond: &beyond.path,
    }
}
