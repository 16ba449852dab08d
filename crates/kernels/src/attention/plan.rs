//! How a call's work is cut: jobs for workers, in an order that keeps a KV head's pages in cache.

use super::tile::{SEGMENT_TOKENS, TILE_ROWS};
use crate::kv_store::{PAGE_TOKENS, RowPlace};
use std::ops::Range;

/// With fewer tiles for each worker than this, segments are jobs of their own.
const TILES_PER_WORKER: usize = 16;
/// Below this cost (rows times pages) waking the other workers takes longer than the work.
const SMALL: usize = 160;

/// Some rows and query heads, one tile, over some segments.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    /// Consecutive rows of the batch, consecutive positions of one sequence.
    pub(super) rows: Range<usize>,
    pub(super) kv_head: usize,
    /// Query heads of that KV head.
    pub(super) heads: Range<usize>,
    pub(super) segments: Range<usize>,
    /// Where a partial result goes; `None` where the job covers all segments.
    pub(super) slot: Option<usize>,
}

impl Job {
    /// Whether the job `before` it is likely to have read the same keys and values: it is of the
    /// rows before these, which are several.
    pub(super) fn reads_again(&self, before: &Job) -> bool {
        self.rows.len() > 1
            && self.rows.start == before.rows.end
            && (self.kv_head, self.segments.start) == (before.kv_head, before.segments.start)
    }

    /// The tile's rows as pairs of index in the tile and row of the batch.
    #[inline(always)]
    pub(super) fn tile_rows(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (heads, first) = (self.heads.len(), self.rows.start);
        (0..self.rows.len() * heads).map(move |r| (r, first + r / heads))
    }
}

/// The jobs of a call.
#[derive(Default)]
pub(super) struct Plan {
    jobs: Vec<Job>,
    /// Jobs before which each worker's range ends, in order of workers.
    ends: Vec<usize>,
    /// Rows that share tiles.
    groups: Vec<Range<usize>>,
    /// Jobs cut into segments, to be merged: `slot` is that of the first segment.
    pub(super) merges: Vec<Job>,
    /// Partial results.
    pub(super) slots: usize,
    cost: usize,
}

impl Plan {
    /// Plans for `rows`, with `group` query heads for each of `kv_heads` KV heads.
    pub(super) fn make(
        &mut self,
        rows: &[RowPlace],
        kv_heads: usize,
        group: usize,
        threads: usize,
    ) {
        self.jobs.clear();
        self.merges.clear();
        self.slots = 0;
        find_groups(rows, (TILE_ROWS / group).max(1), &mut self.groups);
        let chunks = group.div_ceil(TILE_ROWS);
        let chunk = group.div_ceil(chunks);
        let tiles = self.groups.len() * kv_heads * chunks;
        let cut = threads > 1 && tiles < TILES_PER_WORKER * threads;
        for kv_head in 0..kv_heads {
            for start in (0..group).step_by(chunk) {
                let first = kv_head * group;
                let heads = first + start..first + (start + chunk).min(group);
                for rows_of_tile in &self.groups {
                    let position = rows[rows_of_tile.end - 1].position;
                    let segments = 0..position / SEGMENT_TOKENS + 1;
                    let (rows, heads) = (rows_of_tile.clone(), heads.clone());
                    let job = Job { rows, kv_head, heads, segments, slot: None };
                    if !cut || job.segments.len() == 1 {
                        self.jobs.push(job);
                        continue;
                    }
                    for index in job.segments.clone() {
                        let slot = Some(self.slots + index);
                        self.jobs.push(Job { segments: index..index + 1, slot, ..job.clone() });
                    }
                    self.merges.push(Job { slot: Some(self.slots), ..job });
                    self.slots += self.merges[self.merges.len() - 1].segments.len();
                }
            }
        }
        self.divide(rows, threads);
    }

    /// Gives each worker consecutive jobs of about equal cost.
    fn divide(&mut self, rows: &[RowPlace], threads: usize) {
        let cost = |job: &Job| {
            let pages = rows[job.rows.end - 1].position / PAGE_TOKENS + 1;
            let end = pages.min(job.segments.end * SEGMENT_TOKENS / PAGE_TOKENS);
            let pages = end - job.segments.start * SEGMENT_TOKENS / PAGE_TOKENS;
            // Reading a page costs about as much as two rows of arithmetic.
            pages * (2 + job.rows.len() * job.heads.len())
        };
        self.cost = self.jobs.iter().map(cost).sum();
        self.ends.clear();
        let mut passed = 0;
        for (index, job) in self.jobs.iter().enumerate() {
            // A job goes to the worker in whose share its middle lies.
            let worker = (2 * passed + cost(job)) * threads / (2 * self.cost).max(1);
            while self.ends.len() < worker.min(threads - 1) {
                self.ends.push(index);
            }
            passed += cost(job);
        }
        self.ends.resize(threads, self.jobs.len());
    }

    /// The jobs of a worker.
    pub(super) fn jobs_of(&self, worker: usize) -> &[Job] {
        let start = if worker == 0 { 0 } else { self.ends[worker - 1] };
        &self.jobs[start..self.ends[worker]]
    }

    /// Whether one thread should do it all.
    pub(super) fn is_small(&self) -> bool {
        self.cost < SMALL
    }

    /// The last row of each group: its page table covers those of the others.
    pub(super) fn last_rows(&self) -> impl Iterator<Item = usize> {
        self.groups.iter().map(|rows| rows.end - 1)
    }
}

/// Finds runs of at most `most` rows that are consecutive positions of one sequence.
fn find_groups(rows: &[RowPlace], most: usize, groups: &mut Vec<Range<usize>>) {
    groups.clear();
    let mut start = 0;
    for row in 1..=rows.len() {
        let goes_on = row < rows.len() && row - start < most && follows(&rows[row - 1], &rows[row]);
        if !goes_on {
            groups.push(start..row);
            start = row;
        }
    }
}

/// Whether `next` is the position after `row` in the same pages.
fn follows(row: &RowPlace, next: &RowPlace) -> bool {
    if next.position != row.position + 1 {
        return false;
    }
    let used = row.position / PAGE_TOKENS + 1;
    match (row.pages.get(..used), next.pages.get(..used)) {
        (Some(a), Some(b)) => std::ptr::eq(a, b) || a == b,
        _ => false,
    }
}
