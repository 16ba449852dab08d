//! The pages of the KV cache: who holds which, and which are free.
//!
//! A page is shared by counting references: sequences that go on from a common prefix and
//! the prompt cache hold the same page. Only a page with one holder may be written.

use kernels::{KvError, KvGeometry, KvStore, PageId};

/// Free pages up to this many bytes keep their memory, to be used again soon; beyond it,
/// memory goes back to the system.
const WARM_BYTES: usize = 64 << 20;

/// Free pages up to this many bytes are committed while there is nothing else to do.
const PREPARED_BYTES: usize = 32 << 20;

/// The KV memory and its free list.
pub(crate) struct KvPool {
    store: KvStore,
    /// Holders of each page; 0 is free.
    references: Vec<u32>,
    /// Free pages whose memory is committed; taken first.
    warm: Vec<PageId>,
    /// Free pages that hold no memory.
    cold: Vec<PageId>,
    warm_pages_max: usize,
    prepared_pages_max: usize,
}

impl KvPool {
    /// A pool of `pages` free pages; memory is committed as they are used.
    pub(crate) fn new(geometry: KvGeometry, pages: usize) -> Result<Self, KvError> {
        let store = KvStore::new(geometry, pages)?;
        let cold = (0..pages as PageId).rev().collect();
        let [warm_pages_max, prepared_pages_max] =
            [WARM_BYTES, PREPARED_BYTES].map(|bytes| bytes / geometry.page_bytes());
        let (references, warm) = (vec![0; pages], Vec::new());
        Ok(KvPool { store, references, warm, cold, warm_pages_max, prepared_pages_max })
    }

    /// Commits the memory of one free page, so that a prompt that comes later does not wait for it.
    /// `false` if there are enough of them.
    pub(crate) fn prepare(&mut self) -> bool {
        if self.warm.len() >= self.prepared_pages_max {
            return false;
        }
        let Some(page) = self.cold.pop() else { return false };
        self.store.commit_page(page);
        self.warm.push(page);
        true
    }

    /// A free page, zeroed, held once; `None` if there is none.
    pub(crate) fn allocate(&mut self) -> Option<PageId> {
        let page = self.warm.pop().or_else(|| self.cold.pop())?;
        debug_assert_eq!(self.references[page as usize], 0, "page {page} was not free");
        self.references[page as usize] = 1;
        self.store.zero_page(page);
        Some(page)
    }

    /// One more holder of a held page.
    pub(crate) fn retain(&mut self, page: PageId) {
        let references = &mut self.references[page as usize];
        debug_assert!(*references > 0, "page {page} is free and cannot be shared");
        *references += 1;
    }

    /// One holder less; the last one frees the page.
    pub(crate) fn release(&mut self, page: PageId) {
        let references = &mut self.references[page as usize];
        debug_assert!(*references > 0, "page {page} was freed twice");
        *references = references.saturating_sub(1);
        if *references > 0 {
            return;
        }
        if self.warm.len() < self.warm_pages_max {
            self.warm.push(page);
        } else {
            self.store.release_page(page);
            self.cold.push(page);
        }
    }

    /// Copies a page's rows into a page that only the caller holds.
    pub(crate) fn copy(&mut self, from: PageId, to: PageId) {
        debug_assert_eq!(self.references(to), 1, "page {to} is shared and cannot be written");
        self.store.copy_page(from, to);
    }

    /// Holders of a page.
    pub(crate) fn references(&self, page: PageId) -> u32 {
        self.references[page as usize]
    }

    /// Bytes of a page.
    pub(crate) fn page_bytes(&self) -> usize {
        self.store.geometry().page_bytes()
    }

    /// Pages in all.
    pub(crate) fn pages(&self) -> usize {
        self.references.len()
    }

    /// Pages nobody holds.
    pub(crate) fn free_pages(&self) -> usize {
        self.warm.len() + self.cold.len()
    }

    /// The memory itself, to compute on.
    pub(crate) fn store_mut(&mut self) -> &mut KvStore {
        &mut self.store
    }

    /// The memory itself.
    pub(crate) fn store(&self) -> &KvStore {
        &self.store
    }
}

#[cfg(test)]
mod tests {
    use kernels::KvType;
    use proptest::prelude::*;

    use super::*;

    const GEOMETRY: KvGeometry =
        KvGeometry { layers: 1, kv_heads: 1, head_dim: 16, kv_type: KvType::F32 };

    #[test]
    fn a_page_comes_back_zeroed() {
        for warm_pages_max in [0, 1] {
            let mut pool = KvPool::new(GEOMETRY, 1).unwrap();
            pool.warm_pages_max = warm_pages_max;
            let page = pool.allocate().unwrap();
            pool.store_mut().page_bytes_mut(page).fill(7);
            assert_eq!(pool.allocate(), None);
            pool.release(page);
            let again = pool.allocate().unwrap();
            assert!(pool.store().page_bytes(again).iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn some_pages_are_prepared_and_stay_zeroed() {
        let mut pool = KvPool::new(GEOMETRY, 3).unwrap();
        pool.prepared_pages_max = 2;
        assert_eq!([pool.prepare(), pool.prepare(), pool.prepare()], [true, true, false]);
        assert_eq!((pool.warm.len(), pool.free_pages()), (2, 3));
        for _ in 0..3 {
            let page = pool.allocate().unwrap();
            assert!(pool.store().page_bytes(page).iter().all(|&byte| byte == 0));
        }
        assert!(!pool.prepare(), "no page is free");
    }

    proptest! {
        /// Against a list of holders: a page is free exactly when nobody holds it.
        #[test]
        fn references_are_counted(
            operations in prop::collection::vec((0u8..3, any::<prop::sample::Index>()), 0..200),
        ) {
            let mut pool = KvPool::new(GEOMETRY, 8).unwrap();
            let mut held: Vec<PageId> = Vec::new();
            for (operation, index) in operations {
                match operation {
                    0 => match pool.allocate() {
                        Some(page) => {
                            prop_assert!(!held.contains(&page));
                            held.push(page);
                        }
                        None => prop_assert!((0..8).all(|page| held.contains(&page))),
                    },
                    1 if !held.is_empty() => {
                        let page = *index.get(&held);
                        pool.retain(page);
                        held.push(page);
                    }
                    2 if !held.is_empty() => {
                        pool.release(held.swap_remove(index.index(held.len())));
                    }
                    _ => {}
                }
                let free = (0..8).filter(|page| !held.contains(page)).count();
                prop_assert_eq!(pool.free_pages(), free);
                for page in 0..8 {
                    let count = held.iter().filter(|&&other| other == page).count();
                    prop_assert_eq!(pool.references(page) as usize, count);
                }
            }
        }
    }
}
