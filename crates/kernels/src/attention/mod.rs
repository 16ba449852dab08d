//! Attention over the paged KV cache: `softmax(q K^T * scale) V` for each row and query head, over
//! the positions up to the row's own.
//!
//! The arithmetic is in [`tile`]; this file finds rows that can share tiles and divides the work.
//! Neither shows in the result: positions are always taken in segments of [`SEGMENT_TOKENS`],
//! whose partial results are merged in ascending order, by one worker or by several.

mod element;
mod pattern;
mod plan;
mod tile;

pub use pattern::{attention_pattern, attention_scores};
pub use tile::{SEGMENT_TOKENS, TILE_TOKENS};

use crate::disjoint::Disjoint;
use crate::kv_store::{KvStore, KvType, PAGE_TOKENS, RowPlace};
use crate::math::exp2;
use crate::rows::Strided;
use crate::simd::{Kernel, Simd, dispatch_bf16, dispatch_float};
use crate::team::{Team, range_of};
use element::{Element, Pair};
use plan::{Job, Plan};
use tile::{Lanes, Partial, QUERY_STRIDE, SEGMENT_PAGES, Shape, TILE_PAGES, TILE_ROWS, Tile, Unit};

/// The pages of a segment and of the tile after it.
const UNITS: usize = SEGMENT_PAGES + TILE_PAGES;

/// Memory that attention reuses from call to call.
#[derive(Default)]
pub struct AttentionScratch {
    plan: Plan,
    workers: Vec<Worker>,
    partials: Vec<Lanes>,
}

/// One worker's memory.
struct Worker {
    tile: Tile,
    running: Vec<Lanes>,
    segment: Vec<Lanes>,
}

/// What all workers of a call share.
#[derive(Clone, Copy)]
struct Call<'a> {
    store: &'a KvStore,
    layer: usize,
    queries: Strided<'a>,
    rows: &'a [RowPlace<'a>],
    heads: usize,
    scale: f32,
    shape: Shape,
    out: &'a Disjoint<'a, f32>,
    partials: &'a Disjoint<'a, Lanes>,
}

/// Attention of `rows.len()` rows. Row `r` has its queries, `heads * head_dim` numbers, in `q` and
/// gets as many in `out`; the number of heads follows from `out`, and query head `h` uses KV head
/// `h / (heads / kv_heads)`. Keys and values of all positions `0..=position` of each row must be
/// in the store.
///
/// Consecutive rows that are consecutive positions of one sequence (one page table, or tables that
/// begin alike) read keys and values once for several rows.
///
/// # Panics
/// If the sizes contradict each other, or a page table does not reach its row's position.
#[allow(clippy::too_many_arguments)] // Each is one thing; callers read better without a struct.
pub fn attention(
    team: &Team,
    store: &KvStore,
    layer: usize,
    q: Strided,
    rows: &[RowPlace],
    scale: f32,
    out: &mut [f32],
    scratch: &mut AttentionScratch,
) {
    let geometry = store.geometry();
    if rows.is_empty() {
        return;
    }
    let heads = out.len() / (rows.len() * geometry.head_dim);
    assert!(
        heads > 0
            && heads.is_multiple_of(geometry.kv_heads)
            && out.len() == rows.len() * heads * geometry.head_dim,
        "{} numbers out for {} rows of {geometry:?}",
        out.len(),
        rows.len()
    );
    let shape = Shape {
        head_dim: geometry.head_dim,
        value_dims: geometry.value_dims(),
        key_scales: geometry.key_scales_offset(),
        value_scales: geometry.value_scales_offset(),
    };
    let AttentionScratch { plan, workers, partials } = scratch;
    plan.make(rows, geometry.kv_heads, heads / geometry.kv_heads, team.threads());
    for last in plan.last_rows() {
        if let Err(error) = store.check_place(&rows[last]) {
            panic!("attention: {error}");
        }
    }
    partials.resize(plan.slots * Partial::lanes(shape), Lanes::ZERO);
    workers.resize_with(team.threads(), || Worker {
        tile: Tile::new(),
        running: Vec::new(),
        segment: Vec::new(),
    });
    let (out, partials) = (Disjoint::new(out), Disjoint::new(partials));
    let scale = (f64::from(scale) * std::f64::consts::LOG2_E) as f32;
    let call = Call {
        store,
        layer,
        queries: q,
        rows,
        heads,
        scale,
        shape,
        out: &out,
        partials: &partials,
    };
    run(team, call, plan, workers);
}

fn run(team: &Team, call: Call, plan: &Plan, workers: &mut [Worker]) {
    let workers = Disjoint::new(workers);
    let work = |worker: usize| {
        // SAFETY: each worker takes its own element.
        let worker_memory = &mut unsafe { workers.part(worker..worker + 1) }[0];
        let jobs = plan.jobs_of(worker);
        let isa = team.isa();
        match call.store.geometry().kv_type {
            KvType::F32 => {
                dispatch_float(isa, RunJobs::<f32>(call, jobs, worker_memory, [Unit::NONE; _]));
            }
            KvType::F16 => {
                dispatch_float(isa, RunJobs::<u16>(call, jobs, worker_memory, [Unit::NONE; _]));
            }
            KvType::BF16 => {
                dispatch_bf16(isa, RunJobs::<Pair>(call, jobs, worker_memory, [Unit::NONE; _]));
            }
            KvType::Q8_0 => {
                dispatch_float(isa, RunJobs::<i8>(call, jobs, worker_memory, [Unit::NONE; _]));
            }
        }
    };
    if plan.is_small() {
        (0..team.threads()).for_each(work);
    } else {
        team.run(work);
    }
    if !plan.merges.is_empty() {
        team.run(|worker| {
            let merges = &plan.merges[range_of(worker, team.threads(), plan.merges.len())];
            dispatch_float(team.isa(), RunMerges(call, merges));
        });
    }
}

/// Runs jobs with elements of type `E`.
struct RunJobs<'a, E>(Call<'a>, &'a [Job], &'a mut Worker, [Unit<E>; UNITS]);

impl<E: Element> Kernel for RunJobs<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let RunJobs(call, jobs, worker, mut units) = self;
        let lanes = Partial::lanes(call.shape);
        worker.running.resize(lanes, Lanes::ZERO);
        worker.segment.resize(lanes, Lanes::ZERO);
        for (index, job) in jobs.iter().enumerate() {
            call.load_queries::<E>(job, &mut worker.tile);
            // Few rows wait for memory. Many bring their keys and values into a cache, where the
            // next rows find them.
            let again = index > 0 && job.reads_again(&jobs[index - 1]);
            worker.tile.asks_ahead = worker.tile.rows <= 4 || !again;
            for index in job.segments.clone() {
                let (units, count) = call.find_units(job, index, &mut units);
                let start = index * SEGMENT_TOKENS;
                let mut partial = Partial::of(&mut worker.segment);
                // SAFETY: `find_units` gives units of the store's geometry up to the last visible
                // key, `load_queries` sized the queries, and `segment` has room for all rows.
                unsafe {
                    let tile = &mut worker.tile;
                    tile::segment(s, call.shape, tile, start, units, count, &mut partial);
                }
                if let Some(slot) = job.slot {
                    // SAFETY: a slot belongs to one job.
                    let to = unsafe { call.partials.part(slot * lanes..(slot + 1) * lanes) };
                    to.copy_from_slice(&worker.segment);
                } else if index == 0 {
                    std::mem::swap(&mut worker.segment, &mut worker.running);
                } else {
                    let mut running = Partial::of(&mut worker.running);
                    call.merge(s, job, index, &mut running, &partial);
                }
            }
            if job.slot.is_none() {
                call.finish(s, job, &Partial::of(&mut worker.running));
            }
        }
    }
}

/// Merges partial results of segments that several workers computed: jobs of all segments, whose
/// results lie in slots from the job's on.
struct RunMerges<'a>(Call<'a>, &'a [Job]);

impl Kernel for RunMerges<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let RunMerges(call, jobs) = self;
        let lanes = Partial::lanes(call.shape);
        for job in jobs {
            let slot = |index: usize| {
                let start = (job.slot.unwrap_or(0) + index) * lanes;
                // SAFETY: the slots of a job's segments belong to one merge, and each index is
                // asked for once.
                unsafe { call.partials.part(start..start + lanes) }
            };
            let mut running = Partial::of(slot(0));
            for index in job.segments.clone().skip(1) {
                call.merge(s, job, index, &mut running, &Partial::of(slot(index)));
            }
            call.finish(s, job, &running);
        }
    }
}

impl<'a> Call<'a> {
    /// Fills the tile with a job's rows: for each of its batch rows, each of its query heads.
    #[inline(always)]
    fn load_queries<E: Element>(&self, job: &Job, tile: &mut Tile) {
        let dims = self.shape.head_dim;
        tile.rows = 0;
        tile.visible = [0; TILE_ROWS];
        for row in job.rows.clone() {
            let queries = self.queries.row(row, self.heads * dims);
            for head in job.heads.clone() {
                let query = &queries[head * dims..][..dims];
                let to = &mut tile.queries[tile.rows * QUERY_STRIDE..][..dims];
                E::keep_query(query, self.scale, to);
                tile.visible[tile.rows] = self.rows[row].position + 1;
                tile.rows += 1;
            }
        }
        for row in tile.rows..tile.used_rows {
            tile.queries[row * QUERY_STRIDE..][..dims].fill(0.0);
        }
        tile.used_rows = tile.rows;
    }

    /// Where the pages of a segment lie that the job's last row sees, then the first few of the
    /// next segment. Returns them and how many are of this segment.
    #[inline(always)]
    fn find_units<'u, E: Element>(
        &self,
        job: &Job,
        index: usize,
        units: &'u mut [Unit<E>; UNITS],
    ) -> (&'u [Unit<E>], usize) {
        let geometry = self.store.geometry();
        debug_assert_eq!(geometry.kv_type, E::TYPE);
        let RowPlace { pages, position } = self.rows[job.rows.end - 1];
        let pages = &pages[index * SEGMENT_PAGES..position / PAGE_TOKENS + 1];
        let found = pages.len().min(UNITS);
        let offset = self.store.unit_offset(self.layer, job.kv_head);
        for (unit, &page) in units.iter_mut().zip(pages) {
            // SAFETY: `attention` checked that the last rows' pages exist, and `unit_offset` lies
            // inside a page.
            unsafe {
                let start = self.store.base().add(page as usize * geometry.page_bytes() + offset);
                unit.keys = start.cast();
                unit.values = start.add(geometry.key_bytes()).cast();
            }
        }
        (&units[..found], found.min(SEGMENT_PAGES))
    }

    /// Adds a segment's result to that of the segments before it, for the rows that see any of it.
    #[inline(always)]
    fn merge<S: Simd>(
        &self,
        s: S,
        job: &Job,
        index: usize,
        running: &mut Partial,
        segment: &Partial,
    ) {
        let vectors = self.shape.value_dims / 16;
        for (r, row) in job.tile_rows() {
            if self.rows[row].position < index * SEGMENT_TOKENS {
                continue;
            }
            let max = if running.max[r] > segment.max[r] { running.max[r] } else { segment.max[r] };
            let before = exp2(s, s.splat(running.max[r] - max));
            let here = exp2(s, s.splat(segment.max[r] - max));
            let more = s.mul(s.splat(segment.sum[r]), here);
            running.sum[r] = s.to_array(s.mul_add(s.splat(running.sum[r]), before, more))[0];
            running.max[r] = max;
            for v in r * vectors..(r + 1) * vectors {
                let more = s.mul(segment.out[v].load(s), here);
                let sum = s.mul_add(running.out[v].load(s), before, more);
                running.out[v].store(s, sum);
            }
        }
    }

    /// Divides by the sums and writes the rows' output.
    #[inline(always)]
    fn finish<S: Simd>(&self, s: S, job: &Job, result: &Partial) {
        let dims = self.shape.head_dim;
        let vectors = self.shape.value_dims / 16;
        for (r, row) in job.tile_rows() {
            let head = job.heads.start + r % job.heads.len();
            let start = (row * self.heads + head) * dims;
            // SAFETY: each row and head belongs to one job.
            let out = unsafe { self.out.part(start..start + dims) };
            let factor = s.splat(1.0 / result.sum[r]);
            for (lanes, to) in result.out[r * vectors..].iter().zip(out.chunks_mut(16)) {
                let x = s.mul(lanes.load(s), factor);
                if to.len() == 16 {
                    s.store_slice(to, x);
                } else {
                    s.store_partial(to, x);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
