//! The simplest prompt cache there is: a list of pages, each with all token ids up to its end.
//! Every question is answered by looking at all of them.

mod changes;
mod operator;

use cache::{DiskPage, Loss, PAGE_TOKENS, Reason, Stop, Timestamp, compare};

/// One page, held, stored or remembered.
#[derive(Clone, Debug)]
struct Entry {
    namespace: usize,
    /// All tokens from the start of the sequence to the end of this page.
    prefix: Vec<u32>,
    page: Option<usize>,
    /// A page that has expired while it was pinned.
    lingering: Option<usize>,
    place: Option<DiskPage>,
    pins: usize,
    /// Names of the operator's pins on this page.
    names: Vec<String>,
    parked: bool,
    used: u64,
    /// Not known of what was only ever stored.
    used_at: Option<u64>,
    ended: u64,
    expires_at: u64,
    /// Every request that used this page, in part or whole, with its tokens.
    users: Vec<(String, Vec<u32>)>,
    loss: Loss,
    lost_at: u64,
    evicted_for: Option<String>,
}

impl Entry {
    fn number(&self) -> usize {
        (self.prefix.len() - 1) / PAGE_TOKENS
    }

    /// The last user whose tokens contain all of the page's, and all before it.
    fn request(&self) -> Option<String> {
        let contains = |user: &&(String, Vec<u32>)| user.1.starts_with(&self.prefix);
        self.users.iter().rfind(contains).map(|(request, _)| request.clone())
    }

    fn is_below(&self, other: &Entry) -> bool {
        self.namespace == other.namespace
            && other.prefix.len().is_multiple_of(PAGE_TOKENS)
            && self.prefix.len() > other.prefix.len()
            && self.prefix.starts_with(&other.prefix)
    }

    fn is_held(&self) -> bool {
        self.page.is_some()
    }

    fn is_stored(&self) -> bool {
        !self.is_held() && self.place.is_some()
    }

    fn is_alive(&self) -> bool {
        self.is_held() || self.is_stored()
    }

    /// Takes the page away, which leaves its copy on disk or else a ghost.
    fn lose(&mut self, loss: Loss, at: u64, request: Option<&str>) -> Option<usize> {
        self.parked = false;
        if self.place.is_none() {
            (self.loss, self.lost_at) = (loss, at);
            self.evicted_for = request.filter(|request| !request.is_empty()).map(str::to_owned);
        }
        self.page.take()
    }
}

type Which = fn(&Entry) -> bool;

const NOT_HELD: Which = |entry| !entry.is_held();

/// How far a prompt is reused.
struct Reach {
    at: usize,
    /// Tokens that match in what is reused.
    depth: usize,
    /// Of which kind that is.
    which: Which,
}

/// What the list expects of a lookup.
pub(crate) struct Expected {
    pub(crate) pages: Vec<usize>,
    pub(crate) stop: Stop,
    pub(crate) compared_with: Option<String>,
    pub(crate) restorable: Option<Restorable>,
}

/// What the list expects to be restorable.
pub(crate) struct Restorable {
    pub(crate) places: Vec<DiskPage>,
    /// Tokens of the whole path to the last of them.
    pub(crate) tokens: Vec<u32>,
    /// Tokens from memory, and the stop, if all is restored.
    pub(crate) ram: usize,
    pub(crate) stop: Stop,
    pub(crate) compared_with: Option<String>,
}

/// What the list expects an operator to see of a longest prefix.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) namespace: usize,
    pub(crate) tokens: Vec<u32>,
    pub(crate) ram_pages: usize,
    pub(crate) disk_pages: usize,
    pub(crate) last_used: Option<u64>,
    pub(crate) request: Option<String>,
    pub(crate) pins: Vec<String>,
    pub(crate) expires_at: u64,
}

/// What the list may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) pages: usize,
    pub(crate) namespace_pages: Option<usize>,
    pub(crate) ghosts: usize,
}

/// Who does something, when, and until when it is to be kept.
#[derive(Clone, Copy)]
pub(crate) struct By<'a> {
    pub(crate) request: &'a str,
    pub(crate) now: u64,
    pub(crate) expires_at: u64,
}

pub(crate) struct List {
    entries: Vec<Entry>,
    most: Most,
    operations: u64,
    /// Pages and places that have expired, until somebody takes them.
    waiting: (Vec<usize>, Vec<DiskPage>),
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl List {
    pub(crate) fn new(most: Most) -> Self {
        Self { entries: Vec::new(), most, operations: 0, waiting: Default::default() }
    }

    /// Pages that are the cache's, to whomever it still shows them.
    pub(crate) fn owned_pages(&self) -> Vec<usize> {
        let pages = self.entries.iter().filter_map(|entry| entry.page.or(entry.lingering));
        pages.chain(self.waiting.0.iter().copied()).collect()
    }

    pub(crate) fn held_pages(&self) -> usize {
        self.entries.iter().filter(|entry| entry.is_held()).count()
    }

    pub(crate) fn held_tokens(&self) -> usize {
        let held = self.entries.iter().filter(|entry| entry.is_held());
        held.map(|entry| entry.prefix.len() - entry.number() * PAGE_TOKENS).sum()
    }

    pub(crate) fn stored_pages(&self) -> usize {
        self.entries.iter().filter(|entry| entry.place.is_some()).count()
    }

    pub(crate) fn ghosts(&self) -> usize {
        self.entries.iter().filter(|entry| !entry.is_alive()).count()
    }

    pub(crate) fn parked_pages(&self) -> Vec<usize> {
        self.entries.iter().filter(|entry| entry.parked).filter_map(|entry| entry.page).collect()
    }

    pub(crate) fn namespaces(&self) -> usize {
        let mut all: Vec<_> = self.entries.iter().map(|entry| entry.namespace).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }

    pub(crate) fn some_whole_prefix(&self, which: usize) -> Option<(usize, Vec<u32>)> {
        let whole = |entry: &&Entry| entry.prefix.len().is_multiple_of(PAGE_TOKENS);
        let whole: Vec<_> = self.entries.iter().filter(whole).collect();
        let entry = whole.get(which % whole.len().max(1))?;
        Some((entry.namespace, entry.prefix.clone()))
    }

    fn of(&self, namespace: usize, which: Which) -> impl Iterator<Item = (usize, &Entry)> {
        let entries = self.entries.iter().enumerate();
        entries.filter(move |(_, e)| e.namespace == namespace && which(e))
    }

    fn position(&self, namespace: usize, prefix: &[u32]) -> Option<usize> {
        self.entries.iter().position(|e| e.namespace == namespace && e.prefix == prefix)
    }

    fn deepest(&self, namespace: usize, tokens: &[u32], which: Which) -> usize {
        self.of(namespace, which).map(|(_, e)| common(&e.prefix, tokens)).max().unwrap_or(0)
    }

    /// The most recently used page `number` that shares the first `shared` of `tokens`.
    fn newest(
        &self,
        namespace: usize,
        tokens: &[u32],
        shared: usize,
        number: usize,
        which: Which,
    ) -> Option<usize> {
        self.of(namespace, which)
            .filter(|(_, e)| e.number() == number && common(&e.prefix, tokens) >= shared)
            .max_by_key(|(_, e)| e.used)
            .map(|(index, _)| index)
    }

    pub(crate) fn lookup(&mut self, namespace: usize, tokens: &[u32], by: By<'_>) -> Expected {
        self.expire_due(by.now);
        let depth = self.deepest(namespace, tokens, Entry::is_held);
        let at = depth.min(tokens.len() - 1);
        let ram = Reach { at, depth, which: Entry::is_held };
        let (stop, compared_with) = self.explain(namespace, tokens, ram);
        let restorable = self.restorable(namespace, tokens, depth / PAGE_TOKENS, at);
        self.operations += 1;
        let mut pages = Vec::new();
        for number in 0..depth.div_ceil(PAGE_TOKENS) {
            let shared = depth.min((number + 1) * PAGE_TOKENS);
            let index = self.newest(namespace, tokens, shared, number, Entry::is_held).unwrap();
            self.touch(index, tokens, by);
            if number < at.div_ceil(PAGE_TOKENS) {
                let entry = &mut self.entries[index];
                entry.pins += 1;
                pages.push(entry.page.unwrap());
            }
        }
        Expected { pages, stop, compared_with, restorable }
    }

    fn touch(&mut self, index: usize, tokens: &[u32], by: By<'_>) {
        let entry = &mut self.entries[index];
        (entry.used, entry.used_at) = (self.operations, Some(by.now));
        entry.expires_at = entry.expires_at.max(by.expires_at);
        if !by.request.is_empty() {
            entry.users.push((by.request.to_owned(), tokens.to_vec()));
        }
    }

    /// What is stored after the first `first` pages of `tokens`, if that is more than `held`.
    fn restorable(
        &self,
        namespace: usize,
        tokens: &[u32],
        first: usize,
        held: usize,
    ) -> Option<Restorable> {
        let ends = (first + 1..=tokens.len() / PAGE_TOKENS).map(|pages| pages * PAGE_TOKENS);
        let stored = ends.map_while(|end| {
            let index = self.position(namespace, &tokens[..end])?;
            Some(index).filter(|&index| self.entries[index].is_stored())
        });
        let mut path: Vec<usize> = stored.collect();
        let mut depth = (first + path.len()) * PAGE_TOKENS;
        // The page that shares most of what follows, and of several the one last used.
        let next = self.of(namespace, Entry::is_stored);
        let next = next.filter(|(_, e)| e.number() == first + path.len());
        let shared = next.map(|(index, e)| (common(&e.prefix, tokens), e.used, index)).max();
        if let Some((shared, _, index)) = shared.filter(|&(shared, ..)| shared > depth) {
            depth = shared;
            path.push(index);
        }
        let at = depth.min(tokens.len() - 1);
        if at <= held {
            return None;
        }
        path.truncate(at.div_ceil(PAGE_TOKENS) - first);
        let reach = Reach { at, depth, which: Entry::is_stored };
        let (stop, compared_with) = self.explain(namespace, tokens, reach);
        Some(Restorable {
            places: path.iter().filter_map(|&index| self.entries[index].place).collect(),
            tokens: self.entries[*path.last()?].prefix.clone(),
            ram: first * PAGE_TOKENS,
            stop,
            compared_with,
        })
    }

    fn explain(&self, namespace: usize, tokens: &[u32], reach: Reach) -> (Stop, Option<String>) {
        let Reach { at, depth, which } = reach;
        let lost_depth = self.deepest(namespace, tokens, NOT_HELD);
        let by = |index: usize| self.entries[index].request();
        if depth.max(lost_depth) == 0 {
            return (Stop::new(Reason::FirstRequest, 0), None);
        }
        if at == tokens.len() - 1 {
            let (shared, which) = if depth > 0 { (depth, which) } else { (lost_depth, NOT_HELD) };
            let last = self.newest(namespace, tokens, shared, (shared - 1) / PAGE_TOKENS, which);
            return (Stop::new(Reason::EndOfPrompt, at), by(last.unwrap()));
        }
        if lost_depth > depth {
            let number = depth / PAGE_TOKENS;
            let shared = lost_depth.min((number + 1) * PAGE_TOKENS);
            let first = self.newest(namespace, tokens, shared, number, NOT_HELD).unwrap();
            return (self.explain_lost(first, at, lost_depth), by(first));
        }
        let newest = self.newest(namespace, tokens, depth, depth / PAGE_TOKENS, Entry::is_alive);
        let ended = match depth % PAGE_TOKENS {
            0 => self.newest(namespace, tokens, depth, depth / PAGE_TOKENS - 1, Entry::is_alive),
            _ => newest.filter(|&index| self.entries[index].prefix.len() == depth),
        };
        let ended = ended.filter(|&end| match newest {
            Some(index) if depth.is_multiple_of(PAGE_TOKENS) => {
                self.entries[end].ended >= self.entries[index].used
            }
            _ => true,
        });
        if let Some(end) = ended {
            return (Stop::new(Reason::EndOfCached, at), by(end));
        }
        let branch = newest.unwrap();
        (compare(&self.continued(branch), tokens), by(branch))
    }

    fn explain_lost(&self, first: usize, at: usize, held_tokens: usize) -> Stop {
        let entry = &self.entries[first];
        let lost_at = Some(Timestamp(entry.lost_at));
        let mut stop = Stop::new(Reason::CheaperToCompute, at);
        stop.held_tokens = Some(held_tokens);
        stop.last_used = entry.used_at.map(Timestamp);
        if !entry.is_stored() {
            stop.reason = entry.loss.into();
            match entry.loss {
                Loss::Evicted => stop.evicted_at = lost_at,
                Loss::Expired => stop.expired_at = lost_at,
                Loss::Damaged => stop.damaged_at = lost_at,
            }
            stop.evicted_for = entry.evicted_for.clone();
        }
        stop
    }

    /// The tokens of a page and of what was last used after it.
    fn continued(&self, start: usize) -> Vec<u32> {
        let mut end = &self.entries[start];
        while let Some((_, next)) = self
            .of(end.namespace, Entry::is_alive)
            .filter(|(_, e)| e.is_below(end) && e.number() == end.number() + 1)
            .max_by_key(|(_, e)| e.used)
        {
            end = next;
        }
        end.prefix.clone()
    }

    /// Tokens of `tokens` that lie in pages which are alive, with all pages before them.
    fn alive_depth(&self, namespace: usize, tokens: &[u32]) -> usize {
        let whole = |pages: &usize| {
            let at = self.position(namespace, &tokens[..pages * PAGE_TOKENS]);
            at.is_some_and(|index| self.entries[index].is_alive())
        };
        let full = (1..=tokens.len() / PAGE_TOKENS).take_while(whole).count();
        let next = self.of(namespace, Entry::is_alive).filter(|(_, e)| e.number() == full);
        let inside = next.map(|(_, e)| common(&e.prefix, tokens)).max().unwrap_or(0);
        inside.max(full * PAGE_TOKENS)
    }

    /// What was last used of all that is held after exactly these tokens.
    pub(crate) fn continuation(&self, namespace: usize, tokens: &[u32], most: usize) -> Vec<u32> {
        let number = tokens.len() / PAGE_TOKENS;
        let whole = self.alive_depth(namespace, tokens) == tokens.len();
        let newest = self.newest(namespace, tokens, tokens.len(), number, Entry::is_alive);
        let text = newest.filter(|_| whole).map(|start| self.continued(start)).unwrap_or_default();
        text.into_iter().skip(tokens.len()).take(most).collect()
    }
}
