//! How pages come into the list and leave it.

use std::cmp::Reverse;

use cache::{DiskPage, Loss, PAGE_TOKENS};

use super::{By, Entry, List};

impl List {
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

    /// Returns the pages that are the caller's to free. What was restored, by no request, ends no
    /// sequence.
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
        let last = last.filter(|last| tokens.starts_with(last) && !by.request.is_empty());
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
            used_at: None,
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

    pub(super) fn expire_due(&mut self, now: u64) {
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

    pub(super) fn trim(&mut self) {
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
