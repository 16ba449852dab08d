//! The simplest prompt cache there is: a list of pages, each with all token ids up to its end.
//! Every question is answered by looking at all of them.

mod operator;

use std::cmp::Reverse;

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
    used_at: u64,
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
            self.evicted_for = request.map(str::to_owned);
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
    pub(crate) stored: Vec<DiskPage>,
    /// Tokens from memory, and the stop, if `stored` is restored.
    pub(crate) restored: Option<(usize, Stop, Option<String>)>,
}

/// What the list expects an operator to see of a longest prefix.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) namespace: usize,
    pub(crate) tokens: Vec<u32>,
    pub(crate) ram_pages: usize,
    pub(crate) disk_pages: usize,
    pub(crate) last_used: u64,
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
        let stored = self.stored(namespace, tokens, depth / PAGE_TOKENS);
        let restorable = (depth / PAGE_TOKENS + stored.len()) * PAGE_TOKENS;
        let restored_at = restorable.min(tokens.len() - 1);
        let restores = !stored.is_empty() && restored_at > at;
        let restored = restores.then(|| {
            let which = Entry::is_stored;
            let reach = Reach { at: restored_at, depth: restorable, which };
            let (stop, compared_with) = self.explain(namespace, tokens, reach);
            (depth / PAGE_TOKENS * PAGE_TOKENS, stop, compared_with)
        });
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
        let stored = if restores { stored } else { Vec::new() };
        Expected { pages, stop, compared_with, stored, restored }
    }

    fn touch(&mut self, index: usize, tokens: &[u32], by: By<'_>) {
        let entry = &mut self.entries[index];
        (entry.used, entry.used_at) = (self.operations, by.now);
        entry.expires_at = entry.expires_at.max(by.expires_at);
        entry.users.push((by.request.to_owned(), tokens.to_vec()));
    }

    /// The places of pages `first..` of `tokens` for as long as each is stored.
    fn stored(&self, namespace: usize, tokens: &[u32], first: usize) -> Vec<DiskPage> {
        let ends = (first + 1..=tokens.len() / PAGE_TOKENS).map(|pages| pages * PAGE_TOKENS);
        let stored = ends.map_while(|end| {
            let entry = &self.entries[self.position(namespace, &tokens[..end])?];
            entry.place.filter(|_| entry.is_stored())
        });
        stored.collect()
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
        stop.last_used = Some(Timestamp(entry.used_at));
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

    pub(crate) fn unpin(&mut self, pages: &[usize]) {
        for entry in &mut self.entries {
            if entry.page.or(entry.lingering).is_some_and(|page| pages.contains(&page)) {
                entry.pins -= 1;
                if entry.pins == 0 {
                    self.waiting.0.extend(entry.lingering.take());
                }
            }
        }
        self.trim();
    }

    /// Returns the pages that are the caller's to free.
    pub(crate) fn insert(
        &mut self,
        namespace: usize,
        tokens: &[u32],
        pages: &[usize],
        by: By<'_>,
    ) -> Vec<usize> {
        self.expire_due(by.now);
        self.waiting.0.retain(|page| !pages.contains(page));
        self.operations += 1;
        let mut unused = Vec::new();
        let mut last = None;
        for (number, &page) in pages.iter().enumerate() {
            let prefix = &tokens[..tokens.len().min((number + 1) * PAGE_TOKENS)];
            let Some(index) = self.insert_page(namespace, prefix, page, by, &mut unused) else {
                unused.extend_from_slice(&pages[number..]);
                break;
            };
            self.touch(index, tokens, by);
            last = Some(self.entries[index].prefix.clone());
        }
        // Also where only a part of the sequence found room, what is held of it ends there.
        let last = last.filter(|last| tokens.starts_with(last));
        if let Some(index) = last.and_then(|last| self.position(namespace, &last)) {
            self.entries[index].ended = self.operations;
        }
        self.trim();
        unused
    }

    fn insert_page(
        &mut self,
        namespace: usize,
        prefix: &[u32],
        page: usize,
        by: By<'_>,
        unused: &mut Vec<usize>,
    ) -> Option<usize> {
        let number = (prefix.len() - 1) / PAGE_TOKENS;
        // The page with just these tokens may be pinned beside fuller ones, which are not it.
        let same = self.of(namespace, Entry::is_held).find(|(_, e)| e.prefix == prefix);
        let holding = match same {
            Some((index, _)) => Some(index),
            None => self.newest(namespace, prefix, prefix.len(), number, Entry::is_held),
        };
        if let Some(index) = holding {
            unused.extend(Some(page).filter(|_| self.entries[index].page != Some(page)));
            return Some(index);
        }
        let is_replaced = |e: &Entry| {
            e.namespace == namespace
                && e.number() == number
                && e.prefix.len() < prefix.len()
                && prefix.starts_with(&e.prefix)
        };
        let held = |e: &Entry| e.is_held() && e.pins == 0 && e.names.is_empty() && is_replaced(e);
        let replaced = self.entries.iter().filter(|e| held(e)).filter_map(|e| e.page);
        unused.extend(replaced.filter(|&replaced| replaced != page));
        self.entries.retain(|e| !held(e));
        let lingers = |e: &Entry| e.namespace == namespace && e.prefix == prefix;
        let lingers = self.entries.iter().any(|e| e.lingering.is_some() && lingers(e));
        if !lingers {
            self.make_room(namespace, by, unused)?;
        }
        self.entries.retain(|e| e.is_held() || e.lingering.is_some() || !is_replaced(e));
        let index = self.position(namespace, prefix);
        let index = index.unwrap_or_else(|| self.add(namespace, prefix, by));
        let entry = &mut self.entries[index];
        match entry.lingering.take() {
            Some(lingering) => {
                entry.page = Some(lingering);
                unused.extend(Some(page).filter(|&page| page != lingering));
            }
            None => entry.page = Some(page),
        }
        Some(index)
    }

    fn make_room(&mut self, namespace: usize, by: By<'_>, unused: &mut Vec<usize>) -> Option<()> {
        if self.held_pages() >= self.most.pages {
            return None;
        }
        while self.has_used_up_its_share(namespace) {
            let oldest = self.oldest_held(Some(namespace));
            let oldest = oldest.filter(|&index| self.entries[index].used < self.operations)?;
            let lost = self.entries[oldest].lose(Loss::Evicted, by.now, Some(by.request));
            unused.extend(lost);
        }
        Some(())
    }

    /// A ghost that nothing is known of.
    fn add(&mut self, namespace: usize, prefix: &[u32], by: By<'_>) -> usize {
        self.entries.push(Entry {
            namespace,
            prefix: prefix.to_vec(),
            page: None,
            lingering: None,
            place: None,
            pins: 0,
            names: Vec::new(),
            parked: false,
            used: self.operations,
            used_at: by.now,
            ended: 0,
            expires_at: by.expires_at,
            users: Vec::new(),
            loss: Loss::Evicted,
            lost_at: by.now,
            evicted_for: None,
        });
        self.entries.len() - 1
    }

    fn has_used_up_its_share(&self, namespace: usize) -> bool {
        let held = self.of(namespace, Entry::is_held).count();
        self.most.namespace_pages.is_some_and(|share| held >= share)
    }

    pub(crate) fn evict(&mut self, pages: usize, by: By<'_>) -> Vec<usize> {
        self.operations += 1;
        self.entries.iter_mut().for_each(|entry| entry.parked = false);
        let mut evicted = Vec::new();
        while evicted.len() < pages {
            let Some(index) = self.oldest_held(None) else { break };
            evicted.extend(self.entries[index].lose(Loss::Evicted, by.now, Some(by.request)));
        }
        self.trim();
        evicted
    }

    pub(crate) fn evict_one(
        &mut self,
        namespace: usize,
        by: By<'_>,
        may: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        self.operations += 1;
        let own = Some(namespace).filter(|&namespace| self.has_used_up_its_share(namespace));
        for of in own.map(Some).into_iter().chain([None]) {
            while let Some(index) = self.oldest_held(of) {
                let entry = &mut self.entries[index];
                if may(entry.page.unwrap()) {
                    let request = Some(by.request).filter(|_| entry.namespace == namespace);
                    let page = entry.lose(Loss::Evicted, by.now, request);
                    self.trim();
                    return page;
                }
                entry.parked = true;
            }
        }
        None
    }

    pub(crate) fn release(&mut self, page: usize) {
        let entry = self.entries.iter_mut().find(|entry| entry.page == Some(page));
        entry.into_iter().for_each(|entry| entry.parked = false);
    }

    /// Everything that has expired by `now`, in no order.
    pub(crate) fn expire(&mut self, now: u64) -> (Vec<usize>, Vec<DiskPage>) {
        self.expire_due(now);
        std::mem::take(&mut self.waiting)
    }

    fn expire_due(&mut self, now: u64) {
        if !self.entries.iter().any(|entry| entry.is_alive() && entry.expires_at <= now) {
            return;
        }
        let all = self.entries.clone();
        let is_kept = |entry: &Entry| {
            let is_it = |o: &Entry| (o.namespace, &o.prefix) == (entry.namespace, &entry.prefix);
            all.iter().any(|o| !o.names.is_empty() && (is_it(o) || o.is_below(entry)))
        };
        for entry in &mut self.entries {
            if entry.is_alive() && entry.expires_at <= now && !is_kept(entry) {
                self.waiting.1.extend(entry.place.take());
                let page = entry.lose(Loss::Expired, entry.expires_at, None);
                match entry.pins {
                    0 => self.waiting.0.extend(page),
                    _ => entry.lingering = page,
                }
            }
        }
        self.trim();
    }

    pub(crate) fn note_stored(
        &mut self,
        namespace: usize,
        tokens: &[u32],
        place: DiskPage,
        by: By<'_>,
    ) -> bool {
        self.expire_due(by.now);
        let whole = !tokens.is_empty() && tokens.len().is_multiple_of(PAGE_TOKENS);
        if !whole || by.expires_at <= by.now {
            return false;
        }
        self.drop_place(place, Loss::Evicted, by.now);
        self.operations += 1;
        for end in (PAGE_TOKENS..=tokens.len()).step_by(PAGE_TOKENS) {
            let prefix = &tokens[..end];
            let index = self.position(namespace, prefix);
            let index = index.unwrap_or_else(|| self.add(namespace, prefix, by));
            let entry = &mut self.entries[index];
            entry.expires_at = entry.expires_at.max(by.expires_at);
        }
        let index = self.position(namespace, tokens).unwrap();
        let taken = self.entries[index].lingering.is_none();
        if taken {
            self.entries[index].place = Some(place);
        }
        self.trim();
        taken
    }

    pub(crate) fn note_dropped(&mut self, place: DiskPage, loss: Loss, now: u64) {
        self.drop_place(place, loss, now);
        self.trim();
    }

    fn drop_place(&mut self, place: DiskPage, loss: Loss, now: u64) {
        for entry in self.entries.iter_mut().filter(|entry| entry.place == Some(place)) {
            entry.place = None;
            if !entry.is_held() {
                entry.lose(loss, now, None);
            }
        }
    }

    fn trim(&mut self) {
        while self.ghosts() > self.most.ghosts {
            let last = |e: &Entry| !self.entries.iter().any(|other| other.is_below(e));
            let ghosts = self.entries.iter().enumerate().filter(|(_, e)| !e.is_alive());
            let ghosts = ghosts.filter(|(_, e)| e.lingering.is_none() && last(e));
            let oldest = ghosts.min_by_key(|(_, e)| (e.used, Reverse(e.prefix.len())));
            let Some((oldest, _)) = oldest else { return };
            self.entries.remove(oldest);
        }
    }

    /// The least recently used page that is neither pinned nor parked, and after which none is
    /// held.
    fn oldest_held(&self, namespace: Option<usize>) -> Option<usize> {
        let is_leaf =
            |e: &Entry| !self.entries.iter().any(|other| other.is_held() && other.is_below(e));
        let entries = self.entries.iter().enumerate();
        entries
            .filter(|(_, e)| namespace.is_none_or(|namespace| e.namespace == namespace))
            .filter(|(_, e)| e.is_held() && e.pins == 0 && e.names.is_empty() && !e.parked)
            .filter(|(_, e)| is_leaf(e))
            .min_by_key(|(_, e)| (e.used, Reverse(e.prefix.len())))
            .map(|(index, _)| index)
    }
}
