//! The simplest prompt cache there is: a list of pages, each with all token ids up to its end.
//! Every question is answered by looking at all of them.

use std::cmp::Reverse;

use cache::{PAGE_TOKENS, Reason, Stop, compare};

/// One page, held or (without `page`) remembered.
#[derive(Clone, Debug)]
struct Entry {
    namespace: usize,
    /// All tokens from the start of the sequence to the end of this page.
    prefix: Vec<u32>,
    page: Option<usize>,
    pins: usize,
    used: u64,
    ended: u64,
    /// Every request that used this page, in part or whole, with its tokens.
    users: Vec<(String, Vec<u32>)>,
    evicted_for: String,
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
}

/// What the list expects of a lookup.
pub(crate) struct Expected {
    pub(crate) pages: Vec<usize>,
    pub(crate) stop: Stop,
    pub(crate) compared_with: Option<String>,
}

pub(crate) struct List {
    entries: Vec<Entry>,
    pages_max: usize,
    ghosts_max: usize,
    operations: u64,
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl List {
    pub(crate) fn new(pages_max: usize, ghosts_max: usize) -> Self {
        Self { entries: Vec::new(), pages_max, ghosts_max, operations: 0 }
    }

    pub(crate) fn held_pages(&self) -> Vec<usize> {
        self.entries.iter().filter_map(|entry| entry.page).collect()
    }

    pub(crate) fn held_tokens(&self) -> usize {
        let held = self.entries.iter().filter(|entry| entry.page.is_some());
        held.map(|entry| entry.prefix.len() - entry.number() * PAGE_TOKENS).sum()
    }

    pub(crate) fn ghosts(&self) -> usize {
        self.entries.iter().filter(|entry| entry.page.is_none()).count()
    }

    pub(crate) fn namespaces(&self) -> usize {
        let mut all: Vec<_> = self.entries.iter().map(|entry| entry.namespace).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }

    fn of(&self, namespace: usize, held: bool) -> impl Iterator<Item = (usize, &Entry)> {
        let entries = self.entries.iter().enumerate();
        entries.filter(move |(_, e)| e.namespace == namespace && e.page.is_some() == held)
    }

    fn deepest(&self, namespace: usize, tokens: &[u32], held: bool) -> usize {
        self.of(namespace, held).map(|(_, e)| common(&e.prefix, tokens)).max().unwrap_or(0)
    }

    /// The most recently used page `number` that shares the first `shared` of `tokens`.
    fn newest(
        &self,
        namespace: usize,
        tokens: &[u32],
        shared: usize,
        number: usize,
        held: bool,
    ) -> Option<usize> {
        self.of(namespace, held)
            .filter(|(_, e)| e.number() == number && common(&e.prefix, tokens) >= shared)
            .max_by_key(|(_, e)| e.used)
            .map(|(index, _)| index)
    }

    pub(crate) fn lookup(&mut self, namespace: usize, tokens: &[u32], request: &str) -> Expected {
        let depth = self.deepest(namespace, tokens, true);
        let at = depth.min(tokens.len() - 1);
        let (stop, compared_with) = self.explain(namespace, tokens, depth, at);
        self.operations += 1;
        let mut pages = Vec::new();
        for number in 0..depth.div_ceil(PAGE_TOKENS) {
            let shared = depth.min((number + 1) * PAGE_TOKENS);
            let index = self.newest(namespace, tokens, shared, number, true).unwrap();
            let entry = &mut self.entries[index];
            entry.used = self.operations;
            entry.users.push((request.to_owned(), tokens.to_vec()));
            if number < at.div_ceil(PAGE_TOKENS) {
                entry.pins += 1;
                pages.push(entry.page.unwrap());
            }
        }
        Expected { pages, stop, compared_with }
    }

    fn explain(
        &self,
        namespace: usize,
        tokens: &[u32],
        depth: usize,
        at: usize,
    ) -> (Stop, Option<String>) {
        let ghost_depth = self.deepest(namespace, tokens, false);
        let by = |index: usize| self.entries[index].request();
        if depth.max(ghost_depth) == 0 {
            return (Stop::new(Reason::FirstRequest, 0), None);
        }
        if at == tokens.len() - 1 {
            let (shared, held) = if depth > 0 { (depth, true) } else { (ghost_depth, false) };
            let last = self.newest(namespace, tokens, shared, (shared - 1) / PAGE_TOKENS, held);
            return (Stop::new(Reason::EndOfPrompt, at), by(last.unwrap()));
        }
        if ghost_depth > depth {
            let number = depth / PAGE_TOKENS;
            let shared = ghost_depth.min((number + 1) * PAGE_TOKENS);
            let first = self.newest(namespace, tokens, shared, number, false).unwrap();
            let mut stop = Stop::new(Reason::Evicted, at);
            stop.held_tokens = Some(ghost_depth);
            stop.evicted_for = Some(self.entries[first].evicted_for.clone());
            return (stop, by(first));
        }
        let newest = self.newest(namespace, tokens, depth, depth / PAGE_TOKENS, true);
        let ended = match depth % PAGE_TOKENS {
            0 => self.newest(namespace, tokens, depth, depth / PAGE_TOKENS - 1, true),
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

    /// The tokens of a page and of what was last used after it.
    fn continued(&self, start: usize) -> Vec<u32> {
        let mut end = &self.entries[start];
        while let Some((_, next)) = self
            .of(end.namespace, true)
            .filter(|(_, e)| e.is_below(end) && e.number() == end.number() + 1)
            .max_by_key(|(_, e)| e.used)
        {
            end = next;
        }
        end.prefix.clone()
    }

    /// What was last used of all that is held after exactly these tokens.
    pub(crate) fn continuation(&self, namespace: usize, tokens: &[u32], most: usize) -> Vec<u32> {
        let number = tokens.len() / PAGE_TOKENS;
        let whole = self.deepest(namespace, tokens, true) == tokens.len();
        let newest = self.newest(namespace, tokens, tokens.len(), number, true);
        let text = newest.filter(|_| whole).map(|start| self.continued(start)).unwrap_or_default();
        text.into_iter().skip(tokens.len()).take(most).collect()
    }

    pub(crate) fn unpin(&mut self, pages: &[usize]) {
        for entry in &mut self.entries {
            if entry.page.is_some_and(|page| pages.contains(&page)) {
                entry.pins -= 1;
            }
        }
    }

    /// Returns the pages that are the caller's to free.
    pub(crate) fn insert(
        &mut self,
        namespace: usize,
        tokens: &[u32],
        pages: &[usize],
        request: &str,
    ) -> Vec<usize> {
        self.operations += 1;
        let mut unused = Vec::new();
        let mut last = None;
        for (number, &page) in pages.iter().enumerate() {
            let prefix = &tokens[..tokens.len().min((number + 1) * PAGE_TOKENS)];
            let Some(index) = self.insert_page(namespace, prefix, page, &mut unused) else {
                unused.extend_from_slice(&pages[number..]);
                break;
            };
            let entry = &mut self.entries[index];
            entry.used = self.operations;
            entry.users.push((request.to_owned(), tokens.to_vec()));
            last = Some((entry.prefix.clone(), entry.page));
        }
        // Also where only a part of the sequence found room, what is held of it ends there.
        for entry in &mut self.entries {
            let is_last = Some((&entry.prefix, entry.page)) == last.as_ref().map(|(a, b)| (a, *b));
            if is_last && tokens.starts_with(&entry.prefix) {
                entry.ended = self.operations;
            }
        }
        unused
    }

    fn insert_page(
        &mut self,
        namespace: usize,
        prefix: &[u32],
        page: usize,
        unused: &mut Vec<usize>,
    ) -> Option<usize> {
        let number = (prefix.len() - 1) / PAGE_TOKENS;
        // The page with just these tokens may be pinned beside fuller ones, which are not it.
        let same = self.of(namespace, true).find(|(_, e)| e.prefix == prefix);
        let holding = match same {
            Some((index, _)) => Some(index),
            None => self.newest(namespace, prefix, prefix.len(), number, true),
        };
        if let Some(index) = holding {
            if self.entries[index].page != Some(page) {
                unused.push(page);
            }
            return Some(index);
        }
        let is_replaced = |e: &Entry| {
            e.namespace == namespace
                && e.number() == number
                && e.prefix.len() < prefix.len()
                && prefix.starts_with(&e.prefix)
        };
        let held = |e: &Entry| e.page.is_some() && e.pins == 0 && is_replaced(e);
        unused.extend(self.entries.iter().filter(|e| held(e)).filter_map(|e| e.page));
        self.entries.retain(|e| !held(e));
        if self.held_pages().len() >= self.pages_max {
            return None;
        }
        self.entries.retain(|e| e.page.is_some() || !is_replaced(e));
        self.entries.retain(|e| !(e.namespace == namespace && e.prefix == prefix));
        self.entries.push(Entry {
            namespace,
            prefix: prefix.to_vec(),
            page: Some(page),
            pins: 0,
            used: self.operations,
            ended: 0,
            users: Vec::new(),
            evicted_for: String::new(),
        });
        Some(self.entries.len() - 1)
    }

    pub(crate) fn evict(&mut self, pages: usize, request: &str) -> Vec<usize> {
        self.operations += 1;
        let mut evicted = Vec::new();
        while evicted.len() < pages {
            let Some(index) = self.oldest_leaf(true) else { break };
            let entry = &mut self.entries[index];
            evicted.extend(entry.page.take());
            entry.evicted_for = request.to_owned();
            while self.ghosts() > self.ghosts_max {
                let ghost = self.oldest_leaf(false).unwrap();
                self.entries.remove(ghost);
            }
        }
        evicted
    }

    pub(crate) fn clear(&mut self) -> Vec<usize> {
        let evicted = self.evict(usize::MAX, "");
        self.entries.retain(|entry| entry.page.is_some());
        evicted
    }

    /// The least recently used page, held or ghost, that is not pinned and has none of its kind
    /// after it.
    fn oldest_leaf(&self, held: bool) -> Option<usize> {
        let same = |e: &Entry| e.page.is_some() == held;
        let is_leaf = |e: &Entry| !self.entries.iter().any(|o| same(o) && o.is_below(e));
        let entries = self.entries.iter().enumerate();
        entries
            .filter(|(_, e)| same(e) && e.pins == 0 && is_leaf(e))
            .min_by_key(|(_, e)| (e.used, Reverse(e.prefix.len())))
            .map(|(index, _)| index)
    }
}
