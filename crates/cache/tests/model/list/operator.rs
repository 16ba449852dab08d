//! What an operator sees of the list, keeps in it, or takes out of it.

use std::cmp::Reverse;

use cache::{DiskPage, Loss, PAGE_TOKENS};

use super::{By, Entry, List, Seen};

impl List {
    pub(crate) fn pin(&mut self, name: &str, namespace: usize, tokens: &[u32]) -> Option<usize> {
        let depth = self.deepest(namespace, tokens, Entry::is_held);
        let number = depth.checked_sub(1)? / PAGE_TOKENS;
        let index = self.newest(namespace, tokens, depth, number, Entry::is_held)?;
        self.unpin_name(name);
        self.entries[index].names.push(name.to_owned());
        Some(depth)
    }

    pub(crate) fn unpin_name(&mut self, name: &str) -> bool {
        let before: usize = self.entries.iter().map(|entry| entry.names.len()).sum();
        self.entries.iter_mut().for_each(|entry| entry.names.retain(|other| other != name));
        before > self.entries.iter().map(|entry| entry.names.len()).sum()
    }

    /// The longest prefixes that are held or stored, the most recently used first.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let mut ends: Vec<_> =
            self.entries.iter().filter(|e| e.is_alive() && !self.goes_on(e)).collect();
        ends.sort_by_key(|entry| (Reverse(entry.used_at), Reverse(entry.prefix.len())));
        let seen = ends.into_iter().map(|end| {
            let path = || {
                let path = self.entries.iter().filter(|e| end.is_below(e));
                path.chain([end])
            };
            let mut pins: Vec<_> = path().flat_map(|e| &e.names).cloned().collect();
            pins.sort();
            Seen {
                namespace: end.namespace,
                tokens: end.prefix.clone(),
                ram_pages: path().filter(|e| e.is_held()).count(),
                disk_pages: path().filter(|e| e.place.is_some()).count(),
                last_used: end.used_at,
                request: end.request(),
                pins,
                expires_at: end.expires_at,
            }
        });
        seen.collect()
    }

    /// Whether a page that is held or stored follows directly.
    pub(super) fn goes_on(&self, entry: &Entry) -> bool {
        let follows = |e: &Entry| e.is_below(entry) && e.number() == entry.number() + 1;
        self.entries.iter().any(|e| e.is_alive() && follows(e))
    }

    pub(crate) fn evict_prefix(
        &mut self,
        namespace: usize,
        tokens: &[u32],
        by: By<'_>,
    ) -> (Vec<usize>, Vec<DiskPage>) {
        let (mut pages, mut places) = self.expire(by.now);
        let mut prefix = tokens;
        while let Some(index) = self.position(namespace, prefix) {
            let entry = &self.entries[index];
            let pinned = entry.pins > 0 || !entry.names.is_empty();
            if !entry.is_alive() || pinned || self.goes_on(entry) {
                break;
            }
            let entry = &mut self.entries[index];
            places.extend(entry.place.take());
            pages.extend(entry.lose(Loss::Evicted, by.now, Some(by.request)));
            prefix = &prefix[..(prefix.len() - 1) / PAGE_TOKENS * PAGE_TOKENS];
        }
        self.trim();
        (pages, places)
    }

    pub(crate) fn clear(&mut self, by: By<'_>) -> (Vec<usize>, Vec<DiskPage>) {
        let pages = self.evict(usize::MAX, by);
        let mut places = std::mem::take(&mut self.waiting.1);
        for entry in self.entries.iter_mut().filter(|entry| entry.is_stored()) {
            places.extend(entry.place.take());
        }
        let most = std::mem::replace(&mut self.most.ghosts, 0);
        self.trim();
        self.most.ghosts = most;
        (pages, places)
    }

    pub(crate) fn clear_namespace(
        &mut self,
        namespace: usize,
        now: u64,
    ) -> (Vec<usize>, Vec<DiskPage>) {
        let (mut pages, mut places) = self.expire(now);
        let goes = |entries: &[Entry], e: &Entry| {
            let pinned = e.is_held() && (e.pins > 0 || !e.names.is_empty());
            let is_last = !entries.iter().any(|other| other.is_below(e));
            e.namespace == namespace && e.lingering.is_none() && !pinned && is_last
        };
        while let Some(index) = self.entries.iter().position(|e| goes(&self.entries, e)) {
            let entry = self.entries.remove(index);
            pages.extend(entry.page);
            places.extend(entry.place);
        }
        (pages, places)
    }
}
