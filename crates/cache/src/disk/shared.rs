//! What the thread that writes, the threads that read and the store's owner share.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use crate::disk::segment::Segment;
use crate::timestamp::Timestamp;

/// How long writing rests after it failed.
const PAUSE_MS: u64 = 30_000;
/// Of what was measured before, the part that counts beside a new measurement.
const RATE_MEMORY: f64 = 0.9;

/// Bytes per second over the last reads, the latest counting most.
#[derive(Default)]
struct ReadRate {
    bytes: f64,
    seconds: f64,
}

/// Sums since the store was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) pages: AtomicUsize,
    pub(crate) segments: AtomicUsize,
    pub(crate) directory_bytes: AtomicU64,
    pub(crate) written_pages: AtomicU64,
    pub(crate) write_ns: AtomicU64,
    pub(crate) read_pages: AtomicU64,
    pub(crate) read_ns: AtomicU64,
    pub(crate) read_faults: AtomicU64,
    pub(crate) refused_pages: AtomicU64,
    pub(crate) dropped_pages: AtomicU64,
    pub(crate) damaged_pages: AtomicU64,
    pub(crate) dropped_notes: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Shared {
    segments: RwLock<HashMap<u32, Arc<Segment>>>,
    /// First halves of chain keys that are held under other models.
    other_models: RwLock<HashSet<[u8; 16]>>,
    read_rate: Mutex<ReadRate>,
    pub(crate) counters: Counters,
    /// Bytes of pages that wait to be written.
    pub(crate) queued_bytes: AtomicUsize,
    /// Bytes of all messages that wait, but for those.
    pub(crate) waiting_bytes: AtomicUsize,
    /// True while a listing is asked for and has not been made.
    pub(crate) refreshing: AtomicBool,
    /// Until then, in milliseconds, nothing is written, because it failed.
    paused_until: AtomicU64,
}

impl Shared {
    pub(crate) fn segments(&self) -> RwLockReadGuard<'_, HashMap<u32, Arc<Segment>>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn segments_mut(&self) -> RwLockWriteGuard<'_, HashMap<u32, Arc<Segment>>> {
        self.segments.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn segment(&self, number: u32) -> Option<Arc<Segment>> {
        self.segments().get(&number).cloned()
    }

    pub(crate) fn other_models(&self) -> RwLockReadGuard<'_, HashSet<[u8; 16]>> {
        self.other_models.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn other_models_mut(&self) -> RwLockWriteGuard<'_, HashSet<[u8; 16]>> {
        self.other_models.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn rate(&self) -> MutexGuard<'_, ReadRate> {
        self.read_rate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets writing rest for a while.
    pub(crate) fn pause(&self, now: Timestamp) {
        self.paused_until.store(now.0.saturating_add(PAUSE_MS), Ordering::Relaxed);
    }

    pub(crate) fn is_paused(&self, now: Timestamp) -> bool {
        let rest = self.paused_until.load(Ordering::Relaxed).saturating_sub(now.0);
        // A clock that was set back must not make it longer.
        (1..=PAUSE_MS).contains(&rest)
    }

    /// Notes that a page of `bytes` was read and checked.
    pub(crate) fn note_read(&self, bytes: usize, took: Duration) {
        add_duration(&self.counters.read_ns, took);
        self.counters.read_pages.fetch_add(1, Ordering::Relaxed);
        let mut rate = self.rate();
        rate.bytes = rate.bytes * RATE_MEMORY + bytes as f64;
        rate.seconds = rate.seconds * RATE_MEMORY + took.as_secs_f64();
    }

    /// Bytes per second, once something was read.
    pub(crate) fn read_rate(&self) -> Option<f64> {
        let rate = self.rate();
        (rate.seconds > 0.0).then(|| rate.bytes / rate.seconds)
    }
}

pub(crate) fn add_duration(sum: &AtomicU64, took: Duration) {
    sum.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}
