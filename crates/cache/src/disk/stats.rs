//! Figures for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::disk::shared::Shared;

/// Figures of a store. Sums count from its opening.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskStats {
    /// Pages of this model that can be read, each counted once.
    pub pages: usize,
    /// Segments in the directory, those of other models included.
    pub segments: usize,
    /// Bytes that they take, as of the last listing.
    pub directory_bytes: u64,
    /// Bytes of pages that wait to be written.
    pub queued_bytes: usize,
    /// Pages written.
    pub written_pages: u64,
    /// Time that this took, checksums included.
    pub write_time: Duration,
    /// Pages read.
    pub read_pages: u64,
    /// Time that this took on all threads together, checks included.
    pub read_time: Duration,
    /// Reads that brought no page.
    pub read_faults: u64,
    /// Pages that were taken and then not stored, for lack of room or for an error.
    pub refused_pages: u64,
    /// Pages that are not on disk any more, for whatever reason.
    pub dropped_pages: u64,
    /// Of these, pages that were damaged when they were read.
    pub damaged_pages: u64,
    /// Notes of uses, of longer lives and of faults that were dropped because too many waited. Each
    /// is made again when there is reason to.
    pub dropped_notes: u64,
    /// Bytes per second of the last reads.
    pub read_rate: Option<f64>,
}

impl DiskStats {
    pub(crate) fn of(shared: &Shared) -> Self {
        let counters = &shared.counters;
        let sum = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            pages: counters.pages.load(Ordering::Relaxed),
            segments: counters.segments.load(Ordering::Relaxed),
            directory_bytes: sum(&counters.directory_bytes),
            queued_bytes: shared.queued_bytes.load(Ordering::Relaxed),
            written_pages: sum(&counters.written_pages),
            write_time: Duration::from_nanos(sum(&counters.write_ns)),
            read_pages: sum(&counters.read_pages),
            read_time: Duration::from_nanos(sum(&counters.read_ns)),
            read_faults: sum(&counters.read_faults),
            refused_pages: sum(&counters.refused_pages),
            dropped_pages: sum(&counters.dropped_pages),
            damaged_pages: sum(&counters.damaged_pages),
            dropped_notes: sum(&counters.dropped_notes),
            read_rate: shared.read_rate(),
        }
    }
}
