//! Storing keys and values of new rows.

use crate::bf16::bf16_bits;
use crate::kv_store::{KvError, KvGeometry, KvStore, KvType, PAGE_TOKENS, RowPlace, SCALED_DIMS};
use crate::quantize::quantize_block;
use crate::rows::Strided;
use crate::simd::{Kernel, LANES, Simd, dispatch_float};
use crate::team::{Team, range_of};

/// Below this many numbers one thread stores them all.
const SMALL: usize = 4096;

/// Stores the keys and values of `rows.len()` rows of a layer, each row at its own place: row `r`
/// of `k` and of `v` has `kv_heads * head_dim` numbers. For f16, too large numbers become ±65504
/// and are counted in [`KvStore::saturated`].
///
/// # Errors
/// If a row's page table does not reach its position or names a page that does not exist; nothing
/// is stored then.
///
/// # Panics
/// If the layer does not exist or `k` or `v` is too short.
pub fn store_kv(
    team: &Team,
    store: &mut KvStore,
    layer: usize,
    k: Strided,
    v: Strided,
    rows: &[RowPlace],
) -> Result<(), KvError> {
    let geometry = store.geometry();
    for place in rows {
        store.check_page_of(place)?;
    }
    let Some(last) = rows.len().checked_sub(1) else { return Ok(()) };
    let width = geometry.kv_heads * geometry.head_dim;
    let _ = (k.row(last, width), v.row(last, width));
    let base = store.base_mut(rows.iter().map(|place| place.pages[place.position / PAGE_TOKENS]));
    let write = Write {
        base: Base(base),
        geometry,
        page_bytes: geometry.page_bytes(),
        offset: store.unit_offset(layer, 0),
        rows,
    };
    let store = &*store;
    // A part of the work is the keys or the values of one head: parts never share memory.
    let parts = 2 * geometry.kv_heads;
    let work = |worker: usize| {
        for part in range_of(worker, team.threads(), parts) {
            let (head, is_value) = (part / 2, part % 2 == 1);
            let from = if is_value { v } else { k };
            let kernel = WritePart { write: &write, from, head, is_value };
            store.count_saturated(dispatch_float(team.isa(), kernel));
        }
    };
    if rows.len() * width < SMALL {
        (0..team.threads()).for_each(work);
    } else {
        team.run(work);
    }
    Ok(())
}

/// The store's memory, for workers that write different parts of it.
#[derive(Clone, Copy)]
struct Base(*mut u8);

// SAFETY: the memory is borrowed mutably for the whole call; workers write disjoint parts.
unsafe impl Sync for Base {}

struct Write<'a> {
    base: Base,
    geometry: KvGeometry,
    page_bytes: usize,
    offset: usize,
    rows: &'a [RowPlace<'a>],
}

struct WritePart<'a> {
    write: &'a Write<'a>,
    from: Strided<'a>,
    head: usize,
    is_value: bool,
}

impl Kernel for WritePart<'_> {
    /// How many numbers were saturated.
    type Output = u64;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> u64 {
        let WritePart { write, from, head, is_value } = self;
        let KvGeometry { head_dim: dims, kv_type, .. } = write.geometry;
        let (key_bytes, value_dims) = (write.geometry.key_bytes(), write.geometry.value_dims());
        let key_scales = write.geometry.key_scales_offset();
        let value_scales = write.geometry.value_scales_offset();
        let offset = write.offset + head * write.geometry.unit_bytes();
        let mut saturated = 0;
        for (row, place) in write.rows.iter().enumerate() {
            let numbers = &from.row(row, (head + 1) * dims)[head * dims..];
            let (page, slot) =
                (place.pages[place.position / PAGE_TOKENS], place.position % PAGE_TOKENS);
            let unit = page as usize * write.page_bytes + offset;
            // SAFETY: `store_kv` checked the page and `unit_offset` the layer; the unit lies inside
            // the page. No other worker touches this head's keys or values.
            unsafe {
                let unit = write.base.0.add(unit);
                let values = unit.add(key_bytes);
                match (kv_type, is_value) {
                    (KvType::F32, false) => {
                        let keys = unit.cast::<f32>().add(slot);
                        for (d, &x) in numbers.iter().enumerate() {
                            keys.add(d * PAGE_TOKENS).write(x);
                        }
                    }
                    (KvType::F32, true) => {
                        let to = values.cast::<f32>().add(slot * value_dims);
                        to.copy_from_nonoverlapping(numbers.as_ptr(), dims);
                    }
                    (KvType::BF16, false) => to_bf16_keys(numbers, unit.cast::<u32>().add(slot)),
                    (KvType::BF16, true) => {
                        let to = values.cast::<u16>().add(slot / 2 * value_dims * 2 + slot % 2);
                        for (d, &x) in numbers.iter().enumerate() {
                            to.add(2 * d).write(bf16_bits(x) as u16);
                        }
                    }
                    (KvType::F16, false) => {
                        let keys = unit.cast::<u16>().add(slot);
                        saturated += to_f16(s, numbers, keys, PAGE_TOKENS);
                    }
                    (KvType::F16, true) => {
                        let to = values.cast::<u16>().add(slot * value_dims);
                        saturated += to_f16(s, numbers, to, 1);
                    }
                    (KvType::Q8_0, false) => {
                        let scales = unit.add(key_scales).cast::<f32>().add(slot);
                        to_q8_0(s, numbers, unit.cast::<i8>().add(slot), PAGE_TOKENS, scales);
                    }
                    (KvType::Q8_0, true) => {
                        let scales = values.add(value_scales).cast::<f32>().add(slot);
                        let to = values.cast::<i8>().add(slot * value_dims);
                        to_q8_0(s, numbers, to, 1, scales);
                    }
                }
            }
        }
        saturated
    }
}

/// Rounds numbers to bf16 and writes them in pairs, [`PAGE_TOKENS`] pairs apart; a zero follows an
/// odd last one.
///
/// # Safety
/// `to` is writable at `0, PAGE_TOKENS, 2 * PAGE_TOKENS, …`, as many as there are pairs.
#[inline(always)]
unsafe fn to_bf16_keys(numbers: &[f32], to: *mut u32) {
    for (index, pair) in numbers.chunks(2).enumerate() {
        let second = pair.get(1).map_or(0, |&second| bf16_bits(second));
        // SAFETY: the caller vouches for it.
        unsafe { to.add(index * PAGE_TOKENS).write(bf16_bits(pair[0]) | second << 16) };
    }
}

/// Rounds numbers to bytes and writes them `step` apart, with a scale for each 32 of them,
/// [`PAGE_TOKENS`] apart.
///
/// # Safety
/// `to` is writable at `0, step, 2 * step, …`, as many as there are numbers, and `scales` likewise.
#[inline(always)]
unsafe fn to_q8_0<S: Simd>(s: S, numbers: &[f32], to: *mut i8, step: usize, scales: *mut f32) {
    for (block, chunk) in numbers.chunks(SCALED_DIMS).enumerate() {
        let mut x = [0.0; SCALED_DIMS];
        x[..chunk.len()].copy_from_slice(chunk);
        let mut bytes = [0; SCALED_DIMS];
        let scale = quantize_block(s, &x, &mut bytes).scale;
        // SAFETY: the caller vouches for both.
        unsafe {
            for (i, &byte) in bytes[..chunk.len()].iter().enumerate() {
                to.add((block * SCALED_DIMS + i) * step).write(byte);
            }
            scales.add(block * PAGE_TOKENS).write(scale);
        }
    }
}

/// Rounds numbers to f16 and writes them `step` elements apart. Returns how many were too large.
///
/// # Safety
/// `to` is writable at `0, step, 2 * step, …`, as many as there are numbers.
#[inline(always)]
unsafe fn to_f16<S: Simd>(s: S, numbers: &[f32], to: *mut u16, step: usize) -> u64 {
    let greatest = s.splat(65504.0);
    let least = s.splat(-65504.0);
    let mut saturated = 0;
    for (index, chunk) in numbers.chunks(LANES).enumerate() {
        let x = s.load_partial(chunk, 0.0);
        // Both keep NaN, their second argument.
        let held = s.max(least, s.min(greatest, x));
        for x in chunk {
            saturated += u64::from(x.abs() > 65504.0);
        }
        let mut halves = [0u16; LANES];
        // SAFETY: `halves` has 16 elements; for `to` the caller vouches.
        unsafe {
            s.store_f16(halves.as_mut_ptr(), held);
            for (i, &half) in halves[..chunk.len()].iter().enumerate() {
                to.add((index * LANES + i) * step).write(half);
            }
        }
    }
    saturated
}
