//! A slice whose parts several workers write at once.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice, shared between the workers of a region, each of which
/// takes parts that no other takes.
#[derive(Clone, Copy)]
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through `part`, whose callers vouch that parts taken by
// different threads do not overlap; so this is a set of `&mut [T]` sent around.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Borrows `slice` for as long as parts of it are in use.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Disjoint { start: slice.as_mut_ptr(), len: slice.len(), lifetime: PhantomData }
    }

    /// The elements of `range`.
    ///
    /// # Panics
    /// If the range is not within the slice.
    ///
    /// # Safety
    /// While the result lives, no other part that overlaps it may be taken.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // The caller keeps parts apart.
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: within the slice, and the caller keeps parts apart.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
