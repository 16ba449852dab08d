//! The KV pool and the prompt cache that lives in it, as one thing with one budget.
//!
//! The prompt cache holds one reference to each page in its tree. When the pool is empty,
//! the cache gives up pages that no running sequence uses.

use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

use cache::disk::{DiskStats, ReadError, ReadRun};
use cache::{
    DiskPage, Freed, Held, Hit, Loss, Namespace, PinRefused, Pinnable, PromptCache, Restorable,
    Timestamp,
};
use kernels::{PAGE_TOKENS, PageId};

use crate::disk_tier::{DiskTier, Wake};
use crate::kv_pool::KvPool;
use crate::order_error::OrderError;
use crate::page_ages::{AgeFigures, PageAges};
use crate::request::Request;

const _: () = assert!(cache::PAGE_TOKENS == PAGE_TOKENS);

/// The request for whose sake pages are taken, which may evict others.
#[derive(Clone, Copy)]
pub(crate) struct By<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) request: &'a str,
    pub(crate) now: Timestamp,
    /// When the life of what it uses is over.
    pub(crate) expires_at: Option<Timestamp>,
}

impl<'a> By<'a> {
    /// For a request, at this moment.
    pub(crate) fn of(request: &'a Request, now: Timestamp) -> Self {
        let expires_at = request.expires_at(now);
        By { namespace: &request.namespace, request: &request.id, now, expires_at }
    }
}

/// What the prompt cache has given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenUp {
    /// Pages in memory.
    pub ram_pages: usize,
    /// Pages on disk.
    pub disk_pages: usize,
}

/// Pages for running sequences, and what is kept of finished ones.
pub(crate) struct KvMemory {
    pool: KvPool,
    cache: PromptCache<PageId>,
    /// Pages that the prompt cache has a reference to.
    in_cache: Vec<bool>,
    ages: PageAges,
    in_use: usize,
    shared: usize,
    disk: Option<DiskTier>,
}

impl KvMemory {
    /// Joins an empty pool and an empty cache.
    pub(crate) fn new(pool: KvPool, cache: PromptCache<PageId>, disk: Option<DiskTier>) -> Self {
        let in_cache = vec![false; pool.pages()];
        let ages = PageAges::new(pool.pages());
        KvMemory { pool, cache, in_cache, ages, in_use: 0, shared: 0, disk }
    }

    /// A zeroed page. If none is free, the prompt cache gives one up that no sequence uses;
    /// `None` if it has none that it can give.
    pub(crate) fn allocate(&mut self, by: By<'_>) -> Option<PageId> {
        let page = self.pool.allocate().or_else(|| {
            let pool = &self.pool;
            let unused = |page| pool.references(page) == 1;
            let evicted = self.cache.evict_one(by.namespace, by.request, by.now, unused)?;
            self.ages.note_evicted(evicted, by.now);
            self.give_back(vec![evicted]);
            self.pool.allocate()
        })?;
        self.in_use += 1;
        Some(page)
    }

    /// Commits a free page's memory ahead of its use; `false` if that was done for enough of them.
    pub(crate) fn prepare(&mut self) -> bool {
        self.pool.prepare()
    }

    /// Makes the prompt cache give up all that nobody has pinned, also pages that sequences use:
    /// only so can it give up pages of its own that stand before those.
    pub(crate) fn give_up_cached(&mut self, now: Timestamp) {
        // Of everybody's pages: they are not to name the request that they go for.
        let evicted = self.cache.evict(usize::MAX, "", now);
        evicted.iter().for_each(|&page| self.ages.note_evicted(page, now));
        self.give_back(evicted);
    }

    /// Pages that sequences hold.
    pub(crate) fn pages_in_use(&self) -> usize {
        self.in_use
    }

    /// Of those, pages that more than one sequence holds.
    pub(crate) fn pages_shared(&self) -> usize {
        self.shared
    }

    /// Whether a sequence holds the page.
    pub(crate) fn is_in_use(&self, page: PageId) -> bool {
        self.sequences_of(page) > 0
    }

    /// How many sequences hold the page.
    fn sequences_of(&self, page: PageId) -> u32 {
        self.pool.references(page) - u32::from(self.in_cache[page as usize])
    }

    /// What a lookup would find.
    pub(crate) fn held(&self, namespace: &Namespace, tokens: &[u32]) -> Held<PageId> {
        self.cache.held(namespace, tokens)
    }

    /// The longest reusable prefix, pinned until [`unpin`](Self::unpin).
    pub(crate) fn lookup(&mut self, tokens: &[u32], by: By<'_>) -> Hit<PageId> {
        self.cache.lookup(by.namespace, tokens, by.request, by.now, by.expires_at)
    }

    /// Takes note of pages of the prompt cache that a request goes on from.
    pub(crate) fn note_reused(&mut self, pages: &[PageId], now: Timestamp) {
        self.ages.note_reused(pages, now);
    }

    /// How old pages are when they are reused or make room.
    pub(crate) fn ages(&self) -> &AgeFigures {
        self.ages.figures()
    }

    /// Where public prefixes hold more full pages of `tokens` than the request's namespace does,
    /// gives it copies of those. They are its own from then on, as if it had computed them. Returns
    /// the tokens that it got.
    ///
    /// Copies, and not the pages themselves, since each namespace gives up its own: what others do
    /// with a page is not to be seen.
    pub(crate) fn take_over_public(&mut self, tokens: &[u32], by: By<'_>) -> Range<usize> {
        let shared = self.cache.held(&Namespace::shared(), tokens);
        let full = shared.tokens / PAGE_TOKENS;
        let own = self.cache.held(by.namespace, tokens);
        let first = own.tokens / PAGE_TOKENS;
        if full <= first || *by.namespace == Namespace::shared() {
            return 0..0;
        }
        let mut pages = own.pages[..first].to_vec();
        // Neither what goes on nor what is copied may make room for the copies.
        let sources = &shared.pages[first..full];
        pages.iter().chain(sources).for_each(|&page| self.share(page));
        for &source in sources {
            let Some(copy) = self.allocate(by) else { break };
            self.pool.copy(source, copy);
            pages.push(copy);
        }
        let end = pages.len() * PAGE_TOKENS;
        // By nobody in particular: the request is not to be compared with itself.
        self.publish(&tokens[..end], &pages, By { request: "", ..by });
        self.release(&pages);
        self.release(sources);
        first * PAGE_TOKENS..end
    }

    /// Lets the prompt cache evict a hit's pages again.
    pub(crate) fn unpin(&mut self, pin: cache::Pin) {
        self.cache.unpin(pin);
    }

    /// Offers computed rows to the prompt cache. The caller keeps its references.
    pub(crate) fn publish(&mut self, tokens: &[u32], pages: &[PageId], by: By<'_>) {
        let pages = &pages[..tokens.len().div_ceil(PAGE_TOKENS)];
        if pages.is_empty() {
            return;
        }
        let By { namespace, request, now, expires_at } = by;
        self.retain_for_cache(pages, now);
        let unused = self.cache.insert(namespace, tokens, pages, request, now, expires_at);
        self.give_back(unused);
    }

    /// Offers the prompt cache the full pages of `tokens`, of which the last `restored` were read
    /// from disk. The caller keeps its references.
    pub(crate) fn publish_restored(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        pages: &[PageId],
        restored: usize,
        now: Timestamp,
    ) {
        self.retain_for_cache(pages, now);
        let unused = self.cache.insert_restored(namespace, tokens, pages, now);
        self.give_back(unused);
        if let Some(disk) = &mut self.disk {
            // They need not be written, unless somebody has deleted their copies meanwhile.
            let places = self.cache.places(namespace, tokens);
            let restored = pages.iter().zip(places).skip(pages.len() - restored);
            let stored =
                restored.filter(|(page, place)| self.in_cache[**page as usize] && place.is_some());
            disk.note_restored(&stored.map(|(&page, _)| page).collect::<Vec<_>>());
        }
    }

    /// A page that the cache holds already keeps its one reference.
    fn retain_for_cache(&mut self, pages: &[PageId], now: Timestamp) {
        for &page in pages {
            if !std::mem::replace(&mut self.in_cache[page as usize], true) {
                self.ages.note_held(page, now);
                self.pool.retain(page);
            }
        }
    }

    /// Notes the full pages of a sequence that was published, to be written to disk.
    pub(crate) fn note_for_disk(&mut self, tokens: &[u32], pages: &[PageId], by: By<'_>) {
        if let Some(disk) = &mut self.disk {
            let is_cached = |page| self.in_cache[page as usize];
            disk.note(by.namespace, tokens, pages, by.expires_at, by.now, is_cached);
        }
    }

    /// Hands a page to be written to disk; `false` if there is none, or it is not time.
    pub(crate) fn write_to_disk(&mut self, beside: bool, now: Timestamp) -> bool {
        let store = self.pool.store();
        self.disk.as_mut().is_some_and(|disk| disk.write_one(store, beside, now))
    }

    /// Tells the prompt cache what has happened on disk, and ends the lives that end by `now`.
    pub(crate) fn look_after(&mut self, now: Timestamp) {
        if let Some(disk) = &mut self.disk {
            let has_lost = disk.poll(&mut self.cache, now);
            if has_lost {
                self.write_pinned_again(now);
            }
        }
        self.expire(now);
    }

    /// Notes to be written what is pinned and has lost its copy on disk.
    fn write_pinned_again(&mut self, now: Timestamp) {
        let Some(disk) = &mut self.disk else { return };
        let pinned: Vec<_> = self.cache.pinned().collect();
        let pages: HashSet<PageId> = pinned.iter().flat_map(|pin| &pin.pages).copied().collect();
        if disk.has_room_for_pins(pages.len(), self.pool.page_bytes()) {
            pinned.iter().for_each(|pin| disk.note_lost(pin, now));
        }
    }

    /// How long it should take to read so many pages, in seconds; `None` before anything was read.
    pub(crate) fn read_s(&self, pages: usize) -> Option<f64> {
        self.disk.as_ref()?.read_s(pages, self.pool.page_bytes())
    }

    /// Writes to disk what waits for it, within the limit, and says so where that was too short.
    pub(crate) fn write_out(&mut self, limit: Duration, now: Timestamp) {
        let Some(disk) = &mut self.disk else { return };
        let lost = disk.write_out(self.pool.store(), limit, now);
        // What went wrong is told before.
        disk.poll(&mut self.cache, now);
        if lost > 0 {
            disk.report(&format!(
                "{lost} pages of the prompt cache were not written to disk: that was given {} s",
                limit.as_secs_f64()
            ));
        }
    }

    /// Begins to read what can be restored; `wake` is called as pages come.
    pub(crate) fn read(
        &self,
        namespace: &Namespace,
        restorable: &Restorable,
        now: Timestamp,
        wake: &Wake,
    ) -> Option<ReadRun> {
        self.disk.as_ref()?.read(namespace, restorable, now, wake)
    }

    /// Tells the prompt cache of a page that could not be read, before the disk tier does: the
    /// verdict on the request that wanted it is to say so.
    pub(crate) fn note_unread(&mut self, place: DiskPage, error: ReadError, now: Timestamp) {
        let loss = match error {
            ReadError::Gone => Loss::Evicted,
            ReadError::Damaged => Loss::Damaged,
        };
        let in_memory = self.cache.note_dropped(place, loss, now);
        self.disk.iter_mut().zip(in_memory).for_each(|(disk, page)| disk.note_unstored(page));
    }

    /// How many of the tokens are held on disk for another model, or numerics id.
    pub(crate) fn held_otherwise(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        self.disk.as_ref().map_or(0, |disk| disk.held_otherwise(namespace, tokens))
    }

    /// When it wants to be looked after again: for the disk tier, or since a life ends.
    pub(crate) fn look_again_in(&self, now: Timestamp) -> Option<Duration> {
        let disk = self.disk.as_ref().map(DiskTier::look_again_in);
        let left = |at: Timestamp| Duration::from_millis(at.0.saturating_sub(now.0).max(1));
        disk.into_iter().chain(self.cache.next_expiry().map(left)).min()
    }

    /// Figures of the disk tier.
    pub(crate) fn disk_stats(&self) -> Option<DiskStats> {
        self.disk.as_ref().map(DiskTier::stats)
    }

    /// Ends the lives that end by `now`.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        let expired = self.cache.expire(now);
        // What lies on disk ends by itself at the same time.
        self.give_back(expired.pages);
    }

    /// Keeps what is in memory of a prefix there, and on disk where it was to be. Pins keep at most
    /// half of the pages, so that requests have room beside them.
    pub(crate) fn pin_prefix(
        &mut self,
        namespace: &Namespace,
        name: &str,
        tokens: &[u32],
        now: Timestamp,
    ) -> Result<usize, PinRefused> {
        let tokens = self.cache.pin_prefix(name, namespace, tokens, self.pins_max())?;
        self.write_pinned_again(now);
        Ok(tokens)
    }

    /// What of a prefix could be pinned.
    pub(crate) fn pinnable(
        &self,
        namespace: &Namespace,
        name: &str,
        tokens: &[u32],
    ) -> Result<Pinnable, PinRefused> {
        self.cache.pinnable(name, namespace, tokens, self.pins_max())
    }

    fn pins_max(&self) -> usize {
        self.pool.pages() / 2
    }

    /// Takes all pins back; whether there were any.
    pub(crate) fn give_up_pins(&mut self) -> bool {
        self.cache.unpin_all()
    }

    /// Takes a named pin back; whether there was one.
    pub(crate) fn unpin_prefix(&mut self, namespace: &Namespace, name: &str) -> bool {
        self.cache.unpin_prefix(namespace, name)
    }

    /// Whether the disk can be asked to delete something.
    fn check_disk(&self) -> Result<(), OrderError> {
        match self.disk.as_ref().is_some_and(DiskTier::is_behind) {
            true => Err(OrderError::DiskBehind),
            false => Ok(()),
        }
    }

    /// Gives up a prefix as far as no other shares it, in memory and on disk.
    pub(crate) fn evict_prefix(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        now: Timestamp,
    ) -> Result<GivenUp, OrderError> {
        self.check_disk()?;
        self.expire(now);
        let freed = self.cache.evict_prefix(namespace, tokens, "", now);
        if let Some(disk) = &self.disk {
            let alive = self.cache.alive_tokens(namespace, tokens);
            disk.delete_pages(namespace, tokens, alive / PAGE_TOKENS);
        }
        Ok(self.take_freed(freed))
    }

    /// Gives up all of a namespace that is not pinned, in memory and on disk.
    pub(crate) fn clear_namespace(
        &mut self,
        namespace: &Namespace,
        now: Timestamp,
    ) -> Result<GivenUp, OrderError> {
        self.check_disk()?;
        self.expire(now);
        let freed = self.cache.clear_namespace(namespace, now);
        if let Some(disk) = &mut self.disk {
            let pinned = self.cache.pinned().filter(|pin| pin.namespace == *namespace);
            disk.delete_namespace(namespace, pinned.map(|pin| pin.tokens).collect());
        }
        Ok(self.take_freed(freed))
    }

    fn take_freed(&mut self, freed: Freed<PageId>) -> GivenUp {
        let given_up = GivenUp { ram_pages: freed.pages.len(), disk_pages: freed.stored.len() };
        self.give_back(freed.pages);
        given_up
    }

    /// Takes pages back from the prompt cache.
    fn give_back(&mut self, pages: Vec<PageId>) {
        for page in pages {
            debug_assert!(self.in_cache[page as usize], "page {page} is not the cache's");
            self.in_cache[page as usize] = false;
            self.disk.iter_mut().for_each(|disk| disk.note_left(page));
            self.pool.release(page);
        }
    }

    /// Whether the prompt cache holds the page.
    #[cfg(test)]
    pub(crate) fn is_cached(&self, page: PageId) -> bool {
        self.in_cache[page as usize]
    }

    /// Empties the prompt cache, except what is pinned.
    #[cfg(test)]
    pub(crate) fn clear_cache(&mut self, now: Timestamp) {
        let freed = self.cache.clear(now);
        self.give_back(freed.pages);
    }

    /// One more sequence holds the page.
    pub(crate) fn share(&mut self, page: PageId) {
        self.in_use += usize::from(self.sequences_of(page) == 0);
        self.shared += usize::from(self.sequences_of(page) == 1);
        self.pool.retain(page);
    }

    /// Gives up a sequence's references.
    pub(crate) fn release(&mut self, pages: &[PageId]) {
        for &page in pages {
            self.pool.release(page);
            if self.sequences_of(page) == 0 {
                self.in_use -= 1;
                self.cache.release(page);
            }
            self.shared -= usize::from(self.sequences_of(page) == 1);
        }
    }

    /// The pool, to copy and compute.
    pub(crate) fn pool_mut(&mut self) -> &mut KvPool {
        &mut self.pool
    }

    /// The pool, to look at.
    pub(crate) fn pool(&self) -> &KvPool {
        &self.pool
    }

    /// The prompt cache, to look at.
    pub(crate) fn cache(&self) -> &PromptCache<PageId> {
        &self.cache
    }
}
