//! What a store is opened with.

use std::path::PathBuf;

use crate::disk::format::{Geometry, RECORD_HEADER_BYTES};
use crate::disk::index::RECORDS_MAX;

/// A segment is this part of the budget …
const SEGMENTS: u64 = 32;
/// … within these bytes, …
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=64 << 20;
/// … but there are never more segments than this, since each is an open file, …
const SEGMENTS_MAX: u64 = 256;
/// … and in a tiny budget never fewer than this.
const SEGMENTS_MIN: u64 = 4;

/// What a store is opened with.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// Where it keeps its files; made if it is missing.
    pub directory: PathBuf,
    /// Bytes that all files in the directory may take together, whoever wrote them. Each process
    /// that writes may exceed it by one segment.
    pub budget_bytes: u64,
    /// What K/V depend on beside token ids: a digest of the weights and of the numerics.
    pub model: [u8; 32],
    /// Bytes of each page: 1 to 2³⁰.
    pub page_bytes: usize,
    /// Bytes of pages that may wait to be written.
    pub queue_bytes: usize,
}

impl DiskOptions {
    /// The budget, or less where so many pages would fit it that their index would not fit memory.
    pub(crate) fn budget(&self) -> u64 {
        let stride = self.page_bytes as u64 + RECORD_HEADER_BYTES as u64;
        self.budget_bytes.min(stride.saturating_mul(RECORDS_MAX as u64))
    }

    /// How new segments are laid out.
    pub(crate) fn geometry(&self, page_bytes: u32) -> Geometry {
        let budget = self.budget();
        let bytes = (budget / SEGMENTS)
            .clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end())
            .max(budget / SEGMENTS_MAX)
            .min(budget / SEGMENTS_MIN);
        Geometry::new(page_bytes, bytes)
    }
}
