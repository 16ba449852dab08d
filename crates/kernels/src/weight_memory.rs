//! Memory that the matrices of a model share.
//!
//! The system backs memory with large pages only where one lies wholly within a mapping. Mappings
//! of a megabyte or two, one for each matrix, hardly ever hold one, and a step of decoding that
//! reads all matrices once then waits for a translation in every 4 KiB. So matrices are parts of
//! slabs that begin where a large page does.

use crate::memory::ZeroedMemory;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a slab.
const SLAB_BYTES: usize = 64 << 20;
/// What is larger gets a slab of its own, so that little of a slab remains unused.
const SHARED_BYTES: usize = SLAB_BYTES / 8;
/// The size of a large page, on which slabs begin.
const LARGE_PAGE_BYTES: usize = 2 << 20;
/// Where parts begin: two lines of the cache, which some processors fetch together.
const ALIGNMENT: usize = 128;

/// Where packed matrices go: those that are packed into the same one lie side by side. Its memory
/// lives as long as the last of them.
#[derive(Default)]
pub struct WeightMemory {
    slab: Mutex<Option<Slab>>,
}

/// Zeroed memory that parts are cut from.
struct Slab {
    memory: Arc<ZeroedMemory>,
    /// Where the next part begins at the earliest.
    used: usize,
}

/// A part of a slab, which nothing else reads or writes.
pub(crate) struct WeightPart {
    slab: Arc<ZeroedMemory>,
    start: usize,
    bytes: usize,
}

impl WeightMemory {
    /// A zeroed part of `bytes` bytes. Fails where the system refuses.
    pub(crate) fn part(&self, bytes: usize) -> Result<WeightPart, std::io::Error> {
        if bytes > SHARED_BYTES {
            return Ok(Slab::new(bytes)?.cut(bytes));
        }
        // A thread that panicked here has left a whole slab or none.
        let mut slab = self.slab.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *slab {
            Some(slab) if slab.holds(bytes) => Ok(slab.cut(bytes)),
            _ => Ok(slab.insert(Slab::new(SLAB_BYTES)?).cut(bytes)),
        }
    }
}

impl Slab {
    /// Room for `bytes` bytes. What is not written costs address space only.
    fn new(bytes: usize) -> Result<Slab, std::io::Error> {
        let bytes = bytes
            .checked_add(LARGE_PAGE_BYTES)
            .ok_or_else(|| std::io::Error::other("more bytes than there are addresses"))?;
        let memory = ZeroedMemory::reserve(bytes)?;
        let used = memory.start().addr().wrapping_neg() % LARGE_PAGE_BYTES;
        Ok(Slab { memory: Arc::new(memory), used })
    }

    fn holds(&self, bytes: usize) -> bool {
        bytes <= self.memory.len() - self.used
    }

    /// The next `bytes` bytes.
    ///
    /// # Panics
    /// If it does not [hold](Slab::holds) them.
    fn cut(&mut self, bytes: usize) -> WeightPart {
        assert!(self.holds(bytes), "{bytes} bytes of a slab that has not as many left");
        let start = self.used;
        // What is left may be less than the alignment.
        self.used = (start + bytes).next_multiple_of(ALIGNMENT).min(self.memory.len());
        WeightPart { slab: Arc::clone(&self.memory), start, bytes }
    }
}

impl WeightPart {
    /// The memory as bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the part lies in the mapping, which lives as long as `self`, and belongs to no
        // other part; it is initialised (zero or written), and writers hold `&mut self`.
        unsafe { std::slice::from_raw_parts(self.slab.start().add(self.start), self.bytes) }
    }

    /// The memory as writable bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes this the only access to the part.
        unsafe { std::slice::from_raw_parts_mut(self.slab.start().add(self.start), self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sizes() -> impl Strategy<Value = Vec<usize>> {
        let size = prop_oneof![
            8 => 1..5000usize,
            4 => 1..SHARED_BYTES,
            1 => Just(SHARED_BYTES),
            1 => SHARED_BYTES..2 * SHARED_BYTES,
        ];
        prop::collection::vec(size, 1..40)
    }

    proptest! {
        #[test]
        fn parts_lie_apart_and_outlive_where_they_come_from(sizes in sizes()) {
            let memory = WeightMemory::default();
            let parts = sizes.iter().map(|bytes| memory.part(*bytes));
            let mut parts = parts.collect::<Result<Vec<_>, _>>().unwrap();
            drop(memory);
            for (number, (part, bytes)) in parts.iter_mut().zip(&sizes).enumerate() {
                let part = part.bytes_mut();
                prop_assert_eq!((part.len(), part[0], part[bytes - 1]), (*bytes, 0, 0));
                prop_assert!(part.as_ptr().addr().is_multiple_of(ALIGNMENT));
                // The ends are enough: parts are ranges.
                part[0] = number as u8 + 1;
                part[bytes - 1] = number as u8 + 1;
            }
            while let Some(last) = parts.pop() {
                let number = parts.len() as u8 + 1;
                let bytes = last.bytes();
                prop_assert_eq!((bytes[0], bytes[bytes.len() - 1]), (number, number));
            }
        }
    }

    #[test]
    fn large_and_many_parts_begin_where_a_large_page_does() {
        let memory = WeightMemory::default();
        for bytes in [1, SHARED_BYTES + 1] {
            let part = memory.part(bytes).unwrap();
            assert!(part.bytes().as_ptr().addr().is_multiple_of(LARGE_PAGE_BYTES));
        }
        assert!(memory.part(usize::MAX).is_err());
    }
}
