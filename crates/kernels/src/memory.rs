//! Zeroed, lazily committed memory straight from the operating system.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;

/// The unit in which memory is committed and given back, in bytes.
pub(crate) const COMMIT_BYTES: usize = 4096;

/// An anonymous private mapping: reads as zero, costs nothing until it is written.
pub(crate) struct ZeroedMemory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is owned by this value alone, like a `Box<[u8]>`, and is bound to no thread.
unsafe impl Send for ZeroedMemory {}
// SAFETY: shared access hands out `&[u8]` and raw pointers only; writes need `&mut self` or an
// unsafe block that argues its own disjointness.
unsafe impl Sync for ZeroedMemory {}

impl ZeroedMemory {
    /// Reserves `bytes` bytes of address space. Fails where the system refuses (a limit on address
    /// space) or where `bytes` is zero.
    pub(crate) fn reserve(bytes: usize) -> Result<ZeroedMemory, std::io::Error> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)?
        };
        // Large pages where the system has them: walking the positions of a head touches a few
        // kilobytes in each of many pages. A refusal changes nothing but speed.
        // SAFETY: the mapping just made; the advice does not change its contents.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| std::io::Error::other("the system mapped memory at address zero"))?;
        Ok(ZeroedMemory { start, bytes })
    }

    /// Where the memory begins, for who shares it out in parts: whole slices of it must not be
    /// taken then.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// The memory as bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is `self.bytes` long, readable, initialised (zero or written), and
        // lives as long as `self`; writers hold `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// The memory as writable bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Gives the memory of `offset..offset + bytes` back to the system; it reads as zero after.
    /// Both numbers are multiples of [`COMMIT_BYTES`].
    pub(crate) fn give_back(&mut self, offset: usize, bytes: usize) -> Result<(), std::io::Error> {
        assert!(offset.is_multiple_of(COMMIT_BYTES) && bytes.is_multiple_of(COMMIT_BYTES));
        let range = &mut self.bytes_mut()[offset..][..bytes];
        // SAFETY: the range lies in the mapping (the slice checked it) and is borrowed mutably;
        // for private anonymous memory `LinuxDontNeed` replaces its contents by zeros.
        unsafe { madvise(range.as_mut_ptr().cast::<c_void>(), bytes, Advice::LinuxDontNeed)? };
        Ok(())
    }
}

impl Drop for ZeroedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `reserve` made; nothing borrows it any more.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
