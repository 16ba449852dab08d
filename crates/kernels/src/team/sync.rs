//! What the barrier is made of: the standard library's parts, or in its checks those of loom, which
//! runs a test through the orders in which threads can take their steps and see what others wrote.

#[cfg(all(loom, test))]
pub(super) use checked::{AtomicU64, Without, fence_between, without};
#[cfg(all(loom, test))]
pub(super) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicUsize},
    sync::{Condvar, Mutex},
};
#[cfg(not(all(loom, test)))]
pub(super) use standard::{UnsafeCell, fence_between};
#[cfg(not(all(loom, test)))]
pub(super) use std::sync::{
    Condvar, Mutex,
    atomic::{AtomicBool, AtomicU64, AtomicUsize},
};

#[cfg(not(all(loom, test)))]
mod standard {
    /// Stands between two sequentially consistent accesses, whose order it need not make. Loom
    /// takes such accesses as acquiring and releasing only, so that there it is a fence.
    pub(crate) fn fence_between() {}

    /// The standard cell, used as loom's is, which sees when an access begins and ends.
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        /// Lends the value to be read.
        pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// Lends the value to be written.
        pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

/// Loom's parts, from which a test can take what it must miss.
#[cfg(all(loom, test))]
mod checked {
    use loom::sync::atomic::Ordering;
    use std::cell::Cell;

    /// What is taken away.
    #[derive(Clone, Copy, PartialEq)]
    pub(crate) enum Without {
        Nothing,
        Acquire,
        Release,
        Fence,
    }

    thread_local! {
        // Loom's threads all run on the thread of the test.
        static MISSING: Cell<Without> = const { Cell::new(Without::Nothing) };
    }

    /// Takes something away for the rest of this test.
    pub(crate) fn without(missing: Without) {
        MISSING.set(missing);
    }

    /// What loom has for two sequentially consistent accesses.
    pub(crate) fn fence_between() {
        if MISSING.get() != Without::Fence {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    fn weakened(order: Ordering, by: Without) -> Ordering {
        if MISSING.get() == by { Ordering::Relaxed } else { order }
    }

    #[derive(Default)]
    pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn load(&self, order: Ordering) -> u64 {
            self.0.load(weakened(order, Without::Acquire))
        }

        pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            self.0.fetch_add(value, weakened(order, Without::Release))
        }

        pub(crate) fn compare_exchange(
            &self,
            current: u64,
            new: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.0.compare_exchange(current, new, success, failure)
        }
    }
}
