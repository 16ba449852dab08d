//! What waiting threads do: they bring the weights that they need next into their caches.
//!
//! Between two matmuls of a single row, one thread does what is too small to share, and memory
//! would stand still.

use crate::packed::PackedMatrix;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most bytes that a thread asks for: what its second-level cache holds beside what is in use.
const READ_AHEAD_BYTES: usize = 192 << 10;
const LINE_BYTES: usize = 64;
/// Lines between two looks at whether there is work.
const LINES_AT_ONCE: usize = 4;

/// Where the panels of a matrix lie. It keeps nothing alive: who uses it only asks the processor
/// for what lies there, which is allowed of any address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightPlace {
    address: usize,
    panel_bytes: usize,
    panels: usize,
}

impl WeightPlace {
    /// The place of `weights`.
    pub fn of(weights: &PackedMatrix) -> WeightPlace {
        WeightPlace {
            address: weights.panels().as_ptr().addr(),
            panel_bytes: weights.panel_bytes(),
            panels: weights.panel_count(),
        }
    }

    #[cfg(test)]
    pub(super) fn at(address: usize, panel_bytes: usize, panels: usize) -> WeightPlace {
        WeightPlace { address, panel_bytes, panels }
    }

    /// The addresses of what a worker begins with, whose panels `part` gives from their number.
    fn begin_of(self, part: impl Fn(usize) -> Range<usize>) -> Range<usize> {
        let panels = part(self.panels);
        let bytes = (panels.len() * self.panel_bytes).min(READ_AHEAD_BYTES);
        let start = self.address + panels.start * self.panel_bytes;
        start..start + bytes
    }
}

/// The weights that come next, as the caller said.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Next {
    address: AtomicUsize,
    panel_bytes: AtomicUsize,
    panels: AtomicUsize,
}

impl Next {
    pub(super) fn set(&self, place: WeightPlace) {
        self.address.store(place.address, Ordering::Relaxed);
        self.panel_bytes.store(place.panel_bytes, Ordering::Relaxed);
        self.panels.store(place.panels, Ordering::Relaxed);
    }

    /// The place, or while it is being set a mixture of two: addresses that are of no use.
    fn get(&self) -> WeightPlace {
        WeightPlace {
            address: self.address.load(Ordering::Relaxed),
            panel_bytes: self.panel_bytes.load(Ordering::Relaxed),
            panels: self.panels.load(Ordering::Relaxed),
        }
    }
}

/// How far one worker is with them.
#[derive(Default)]
pub(super) struct Reading {
    place: WeightPlace,
    left: Range<usize>,
}

impl Reading {
    /// Goes on asking until all is asked for or there is `work`. `part` gives the worker's panels
    /// from the number of all.
    pub(super) fn go_on(
        &mut self,
        next: &Next,
        part: impl Fn(usize) -> Range<usize>,
        work: impl Fn() -> bool,
    ) {
        let place = next.get();
        if place != self.place {
            *self = Reading { place, left: place.begin_of(part) };
        }
        while !self.left.is_empty() && !work() {
            let end = (self.left.start + LINES_AT_ONCE * LINE_BYTES).min(self.left.end);
            (self.left.start..end).step_by(LINE_BYTES).for_each(ask_for);
            self.left.start = end;
        }
    }
}

/// Asks for the line at `address`, into the second-level cache.
#[cfg(target_arch = "x86_64")]
fn ask_for(address: usize) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: a prefetch of any address has no effect but on caches.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(std::ptr::without_provenance(address)) }
}

#[cfg(not(target_arch = "x86_64"))]
fn ask_for(_address: usize) {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// What is yet to be asked for, after the second half's reader was let go on for `looks` looks.
    fn left(reading: &mut Reading, next: &Next, looks: usize) -> Range<usize> {
        let looked = Cell::new(0);
        let work = || looked.replace(looked.get() + 1) == looks;
        reading.go_on(next, |panels| panels / 2..panels, work);
        reading.left.clone()
    }

    #[test]
    fn each_reads_the_begin_of_its_part_until_there_is_work() {
        let (next, mut reading) = (Next::default(), Reading::default());
        assert!(left(&mut reading, &next, 9).is_empty(), "nothing is known");
        next.set(WeightPlace::at(1 << 30, 1000, 10));
        let part = (1 << 30) + 5_000..(1 << 30) + 10_000;
        assert_eq!(left(&mut reading, &next, 2), part.start + 512..part.end);
        assert_eq!(left(&mut reading, &next, 1), part.start + 768..part.end, "it goes on there");
        assert!(left(&mut reading, &next, 100).is_empty());
        assert!(left(&mut reading, &next, 100).is_empty(), "once is enough");
        next.set(WeightPlace::at(1 << 31, 1 << 20, 2));
        let begin = (1 << 31) + (1 << 20);
        let most = begin..begin + READ_AHEAD_BYTES;
        assert_eq!(left(&mut reading, &next, 0), most, "no more than the cache has");
    }
}
