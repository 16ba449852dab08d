//! The memory of the KV cache: pages of sixteen tokens.
//!
//! A page holds the keys and values of [`PAGE_TOKENS`] consecutive positions of one sequence, for
//! all layers. Inside, each (layer, KV head) has one *unit*: the keys dimension-major
//! (`[head_dim][16 tokens]`, so that one vector is one dimension of sixteen keys) and then the
//! values token-major (`[16 tokens][head_dim padded to 16]`). In bf16, two numbers that are
//! multiplied and added at once lie side by side: two dimensions of a key
//! (`[head_dim / 2][16 tokens][2]`), and a dimension of two tokens' values
//! (`[8][head_dim padded to 16][2 tokens]`). Where numbers are bytes, the scales
//! of the keys follow the keys and those of the values the values, both `[blocks][16 tokens]`, a
//! block being [`SCALED_DIMS`] dimensions.

use crate::memory::{COMMIT_BYTES, ZeroedMemory};
use half::{bf16, f16};
use std::sync::atomic::{AtomicU64, Ordering};

/// Names a page of a [`KvStore`]: its index.
pub type PageId = u32;

/// Token positions in one page.
pub const PAGE_TOKENS: usize = 16;

/// The largest head dimension that attention handles.
pub const MAX_HEAD_DIM: usize = 512;

/// Dimensions of a key or value that share a scale, where there are scales. The last block of a
/// head may have fewer.
pub(crate) const SCALED_DIMS: usize = 32;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvType {
    /// 32-bit floats: what the projections computed, unrounded.
    F32,
    /// Bfloat16: the upper half of an f32, rounded to nearest even. Attention rounds queries and
    /// weights to it too, and multiplies twice as fast where the processor has an instruction for
    /// it.
    BF16,
    /// 16-bit floats, rounded to nearest even; what is too large is stored as ±65504 and counted.
    F16,
    /// Bytes in -127 ..= 127, and an f32 scale for each 32 dimensions of each token's own key and
    /// value in each head: `max|x| / 127`, so that the greatest number is a byte of ±127. Where
    /// that is below 2^-100, the 32 numbers are stored as zeros; where one of them is infinite or
    /// NaN, all 32 are stored as NaN, and no other number is.
    Q8_0,
}

impl KvType {
    /// All types.
    pub const ALL: [KvType; 4] = [KvType::F32, KvType::BF16, KvType::F16, KvType::Q8_0];

    /// The type's name, as it is asked for and reported.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::BF16 => "bf16",
            KvType::F16 => "f16",
            KvType::Q8_0 => "q8_0",
        }
    }

    /// The type of this name.
    pub fn of_name(name: &str) -> Option<KvType> {
        KvType::ALL.into_iter().find(|kv_type| kv_type.name() == name)
    }

    /// Bytes of one number, scales apart.
    pub fn bytes(self) -> usize {
        match self {
            KvType::F32 => 4,
            KvType::BF16 | KvType::F16 => 2,
            KvType::Q8_0 => 1,
        }
    }
}

/// The shape of what one token stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvGeometry {
    /// Layers of the model.
    pub layers: usize,
    /// Key/value heads in a layer.
    pub kv_heads: usize,
    /// Dimensions of one head.
    pub head_dim: usize,
    /// Element type.
    pub kv_type: KvType,
}

impl KvGeometry {
    /// Dimensions of a stored value row: `head_dim` rounded up to sixteen.
    pub(crate) fn value_dims(&self) -> usize {
        self.head_dim.next_multiple_of(16)
    }

    /// Scales of one token's key in one head, and of its value.
    fn scales(&self) -> usize {
        match self.kv_type {
            KvType::F32 | KvType::BF16 | KvType::F16 => 0,
            KvType::Q8_0 => self.head_dim.div_ceil(SCALED_DIMS),
        }
    }

    /// Dimensions of a stored key: in bf16 an even number.
    fn key_dims(&self) -> usize {
        match self.kv_type {
            KvType::BF16 => self.head_dim.next_multiple_of(2),
            KvType::F32 | KvType::F16 | KvType::Q8_0 => self.head_dim,
        }
    }

    /// How far the scales of one unit's keys are behind its keys, in bytes.
    pub(crate) fn key_scales_offset(&self) -> usize {
        (self.key_dims() * PAGE_TOKENS * self.kv_type.bytes()).next_multiple_of(64)
    }

    /// How far the scales of one unit's values are behind its values, in bytes.
    pub(crate) fn value_scales_offset(&self) -> usize {
        self.value_dims() * PAGE_TOKENS * self.kv_type.bytes()
    }

    /// Bytes of the keys of one unit.
    pub(crate) fn key_bytes(&self) -> usize {
        self.key_scales_offset() + self.scales() * PAGE_TOKENS * size_of::<f32>()
    }

    /// Bytes of one unit: keys and values of one layer and KV head.
    pub(crate) fn unit_bytes(&self) -> usize {
        let values = self.value_scales_offset() + self.scales() * PAGE_TOKENS * size_of::<f32>();
        self.key_bytes() + values
    }

    /// Bytes that K and V of one token take, without what pads them.
    pub fn token_bytes(&self) -> usize {
        let row = self.head_dim * self.kv_type.bytes() + self.scales() * size_of::<f32>();
        2 * self.layers * self.kv_heads * row
    }

    /// Bytes of one page, with what rounding up to the system's own pages adds, so that a page can
    /// be given back on its own.
    pub fn page_bytes(&self) -> usize {
        (self.layers * self.kv_heads * self.unit_bytes()).next_multiple_of(COMMIT_BYTES)
    }

    fn check(&self) -> Result<(), KvError> {
        let in_range = |n: usize, most: usize| (1..=most).contains(&n);
        if in_range(self.layers, 4096)
            && in_range(self.kv_heads, 4096)
            && in_range(self.head_dim, MAX_HEAD_DIM)
        {
            Ok(())
        } else {
            Err(KvError::Geometry(*self))
        }
    }
}

/// Why a KV store cannot be made or written.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// A count is zero or beyond what attention handles.
    #[error(
        "a KV cache of {} layers, {} KV heads and {} dimensions is not supported",
        .0.layers, .0.kv_heads, .0.head_dim
    )]
    Geometry(KvGeometry),
    /// No page, or more than can be numbered or addressed.
    #[error("a KV cache of {0} pages is not possible")]
    Pages(usize),
    /// The system refused the memory.
    #[error("cannot reserve {bytes} bytes for the KV cache: {source}")]
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A row's position lies beyond its page table.
    #[error("position {position} needs page {} of a table of {pages}", position / PAGE_TOKENS)]
    Position {
        /// The row's position.
        position: usize,
        /// Pages in its table.
        pages: usize,
    },
    /// A page table names a page that the store does not have.
    #[error("page {page} of a KV cache of {pages} pages")]
    Page {
        /// The page named.
        page: PageId,
        /// Pages of the store.
        pages: usize,
    },
}

/// The pages' memory. It is committed as pages are written and can be given back page by page.
pub struct KvStore {
    geometry: KvGeometry,
    pages: usize,
    memory: ZeroedMemory,
    /// Whether a page may hold anything but zeros.
    written: Vec<bool>,
    saturated: AtomicU64,
}

impl KvStore {
    /// Reserves `pages` pages. Memory is committed when pages are first written.
    ///
    /// # Errors
    /// A geometry or page count out of range, or a system that refuses the address space.
    pub fn new(geometry: KvGeometry, pages: usize) -> Result<KvStore, KvError> {
        geometry.check()?;
        let bytes = geometry
            .page_bytes()
            .checked_mul(pages)
            .filter(|&bytes| {
                pages > 0 && pages <= PageId::MAX as usize && bytes <= isize::MAX as usize
            })
            .ok_or(KvError::Pages(pages))?;
        let memory =
            ZeroedMemory::reserve(bytes).map_err(|source| KvError::Memory { bytes, source })?;
        let written = vec![false; pages];
        Ok(KvStore { geometry, pages, memory, written, saturated: AtomicU64::new(0) })
    }

    /// The shape of what is stored.
    pub fn geometry(&self) -> KvGeometry {
        self.geometry
    }

    /// How many pages there are.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Makes a page all zeros, as it must be before a sequence writes to it.
    ///
    /// # Panics
    /// If the store has no such page, as all functions that take a page.
    pub fn zero_page(&mut self, page: PageId) {
        if self.written[page as usize] {
            self.page_bytes_mut(page).fill(0);
            self.written[page as usize] = false;
        }
    }

    /// Has the system commit a zeroed page's memory now, which is slow, so that writing to it will
    /// not wait for that.
    pub fn commit_page(&mut self, page: PageId) {
        if !self.written[page as usize] {
            self.page_bytes_mut(page).fill(0);
            self.written[page as usize] = false;
        }
    }

    /// Copies all of `from` over `to`.
    pub fn copy_page(&mut self, from: PageId, to: PageId) {
        if !self.written[from as usize] {
            return self.zero_page(to);
        }
        let bytes = self.geometry.page_bytes();
        self.written[to as usize] = true;
        let start = from as usize * bytes;
        self.memory.bytes_mut().copy_within(start..start + bytes, to as usize * bytes);
    }

    /// Gives a page's memory back to the system; the page reads as zeros after.
    pub fn release_page(&mut self, page: PageId) {
        if self.written[page as usize] {
            let bytes = self.geometry.page_bytes();
            // Where the system refuses, the page stays marked as written: the memory is kept and
            // `zero_page` clears it by hand.
            if self.memory.give_back(page as usize * bytes, bytes).is_ok() {
                self.written[page as usize] = false;
            }
        }
    }

    /// The bytes of a page, for checksums and lower tiers.
    pub fn page_bytes(&self, page: PageId) -> &[u8] {
        let bytes = self.geometry.page_bytes();
        &self.memory.bytes()[page as usize * bytes..][..bytes]
    }

    /// The bytes of a page, for restoring it.
    pub fn page_bytes_mut(&mut self, page: PageId) -> &mut [u8] {
        let bytes = self.geometry.page_bytes();
        self.written[page as usize] = true;
        &mut self.memory.bytes_mut()[page as usize * bytes..][..bytes]
    }

    /// Key and value (each `head_dim` numbers) stored in one slot of a page, as floats.
    ///
    /// # Panics
    /// If page, layer, head or slot is out of range.
    pub fn read(
        &self,
        page: PageId,
        layer: usize,
        head: usize,
        slot: usize,
    ) -> (Vec<f32>, Vec<f32>) {
        assert!(slot < PAGE_TOKENS, "slot {slot} of a page of {PAGE_TOKENS}");
        let geometry = &self.geometry;
        let unit = &self.page_bytes(page)[self.unit_offset(layer, head)..];
        let float = |at: usize| f32::from_le_bytes([0, 1, 2, 3].map(|i| unit[at + i]));
        // Number `index` of what starts at byte `start`; it is of dimension `dim`.
        let number = |start: usize, scales: usize, index: usize, dim: usize| {
            let at = start + index * geometry.kv_type.bytes();
            match geometry.kv_type {
                KvType::F32 => float(at),
                KvType::BF16 => bf16::from_le_bytes([unit[at], unit[at + 1]]).to_f32(),
                KvType::F16 => f16::from_le_bytes([unit[at], unit[at + 1]]).to_f32(),
                KvType::Q8_0 => {
                    let scale = dim / SCALED_DIMS * PAGE_TOKENS + slot;
                    let scale = float(start + scales + scale * size_of::<f32>());
                    f32::from(unit[at].cast_signed()) * scale
                }
            }
        };
        let dims = 0..geometry.head_dim;
        let scales = geometry.key_scales_offset();
        let key_index = |dim| match geometry.kv_type {
            KvType::BF16 => (dim / 2 * PAGE_TOKENS + slot) * 2 + dim % 2,
            _ => dim * PAGE_TOKENS + slot,
        };
        let key = dims.clone().map(|dim| number(0, scales, key_index(dim), dim));
        let (start, scales) = (geometry.key_bytes(), geometry.value_scales_offset());
        let value_index = |dim| match geometry.kv_type {
            KvType::BF16 => (slot / 2 * geometry.value_dims() + dim) * 2 + slot % 2,
            _ => slot * geometry.value_dims() + dim,
        };
        (key.collect(), dims.map(|dim| number(start, scales, value_index(dim), dim)).collect())
    }

    /// How many elements were too large for f16 and stored as ±65504 so far.
    pub fn saturated(&self) -> u64 {
        self.saturated.load(Ordering::Relaxed)
    }

    pub(crate) fn count_saturated(&self, elements: u64) {
        if elements > 0 {
            self.saturated.fetch_add(elements, Ordering::Relaxed);
        }
    }

    /// Where a unit starts inside its page, in bytes.
    pub(crate) fn unit_offset(&self, layer: usize, head: usize) -> usize {
        let KvGeometry { layers, kv_heads, .. } = self.geometry;
        assert!(layer < layers && head < kv_heads, "layer {layer} or KV head {head} out of range");
        (layer * kv_heads + head) * self.geometry.unit_bytes()
    }

    /// Checks that a row's page table reaches its position with pages that exist.
    pub(crate) fn check_place(&self, place: &RowPlace) -> Result<(), KvError> {
        let used = place.position / PAGE_TOKENS + 1;
        let Some(pages) = place.pages.get(..used) else {
            return Err(KvError::Position { position: place.position, pages: place.pages.len() });
        };
        match pages.iter().find(|&&page| page as usize >= self.pages) {
            Some(&page) => Err(KvError::Page { page, pages: self.pages }),
            None => Ok(()),
        }
    }

    /// Checks that the page of a row's own position exists.
    pub(crate) fn check_page_of(&self, place: &RowPlace) -> Result<(), KvError> {
        match place.pages.get(place.position / PAGE_TOKENS) {
            None => Err(KvError::Position { position: place.position, pages: place.pages.len() }),
            Some(&page) if page as usize >= self.pages => {
                Err(KvError::Page { page, pages: self.pages })
            }
            Some(_) => Ok(()),
        }
    }

    /// Start of the memory, for kernels that compute unit addresses themselves.
    pub(crate) fn base(&self) -> *const u8 {
        self.memory.bytes().as_ptr()
    }

    /// Start of the memory, writable. The pages in `pages` count as written from now on.
    pub(crate) fn base_mut(&mut self, pages: impl Iterator<Item = PageId>) -> *mut u8 {
        for page in pages {
            self.written[page as usize] = true;
        }
        self.memory.bytes_mut().as_mut_ptr()
    }
}

/// Where a row stands: the page table of its sequence and its position in it. The row attends to
/// the positions `0..=position`, which are its own key and value and those before.
#[derive(Clone, Copy, Debug)]
pub struct RowPlace<'a> {
    /// The sequence's pages, in order; page `i` holds the positions `16 * i..16 * (i + 1)`.
    pub pages: &'a [PageId],
    /// The row's position.
    pub position: usize,
}
