//! The rows that a matmul multiplies, in the format that its weights need.

use crate::bf16::bf16_bits;
use crate::disjoint::Disjoint;
use crate::isa::Isa;
use crate::simd::{Kernel, LANES, Simd, dispatch};
use crate::team::{Team, range_of};
use crate::weights::{BLOCK_INPUTS, WeightType};
use crate::words::{LEAST_MAGNITUDE, WORDS_INPUTS, Words, words_of_row};

/// Values below which one thread is faster than a team.
const ALONE_VALUES: usize = 4_096;

/// What multiplies the integer sum of one block of one row.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C, align(32))]
pub(crate) struct BlockScale {
    /// What one step of the bytes is worth.
    pub(crate) scale: f32,
    /// The sum of the block's bytes, times `scale`.
    pub(crate) scaled_sum: f32,
    /// The sum of the block's bytes, times -8.
    pub(crate) minus_8_sums: i32,
    /// The sum of the block's bytes, times -16.
    pub(crate) minus_16_sums: i32,
    /// The sum of the block's bytes, times -128.
    pub(crate) minus_128_sums: i32,
    /// The sums of the first and of the last 16 bytes, times -32.
    pub(crate) minus_32_sums: [i32; 2],
}

impl BlockScale {
    /// Of a block of which one step is worth `scale`, and the first and the last 16 bytes have
    /// these sums.
    #[inline(always)]
    fn new(scale: f32, sums: [i32; 2]) -> BlockScale {
        let sum = sums[0] + sums[1];
        BlockScale {
            scale,
            scaled_sum: scale * sum as f32,
            minus_8_sums: -8 * sum,
            minus_16_sums: -16 * sum,
            minus_128_sums: -128 * sum,
            minus_32_sums: [-32 * sums[0], -32 * sums[1]],
        }
    }
}

/// Rows of activations, ready to be multiplied by weights; kept between steps
/// so that its memory is.
///
/// For f32 weights the rows stay f32; for bf16 weights they are rounded to bf16,
/// ties to even. For f16 weights each block of 64 values, the last one filled up
/// with zeros, becomes 16-bit integers and an f32 scale (`words` says how). For
/// quantized weights each block of 32
/// values `x` of a row becomes bytes `round(x * 127 / max|x|)`, ties to even,
/// and the f32 scale `max|x| / 127`: by the same code for one row and for
/// many, so a row's bytes depend on that row alone. A block whose greatest
/// magnitude is below 2^-100 counts as zero; a block with an infinity or a NaN
/// makes all outputs of its row NaN.
#[derive(Debug, Default)]
pub struct ActivationRows {
    rows: usize,
    inputs: usize,
    format: Format,
    values: Vec<f32>,
    /// Two bf16 values, the first in the low half; a zero follows an odd last one.
    pairs: Vec<u32>,
    bytes: Vec<i8>,
    scales: Vec<BlockScale>,
    words: Vec<Words>,
    word_scales: Vec<f32>,
}

/// What rows are rounded to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    #[default]
    F32,
    Bf16,
    Words,
    Bytes,
}

impl Format {
    /// The format that weights of a type are multiplied with.
    fn of(weight_type: WeightType) -> Format {
        match weight_type {
            WeightType::F32 => Format::F32,
            WeightType::BF16 => Format::Bf16,
            WeightType::F16 => Format::Words,
            _ => Format::Bytes,
        }
    }
}

impl ActivationRows {
    /// No rows.
    pub fn new() -> ActivationRows {
        ActivationRows::default()
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values of a row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Whether weights of this type can multiply the rows.
    pub fn suits(&self, weight_type: WeightType) -> bool {
        self.format == Format::of(weight_type)
    }

    /// Replaces the rows by those of `x`, `rows` times `inputs` values, for
    /// weights of type `weight_type`.
    ///
    /// # Panics
    /// If `x` has another length, or `inputs` is not a multiple of the type's
    /// block.
    pub fn set(
        &mut self,
        team: &Team,
        x: &[f32],
        rows: usize,
        inputs: usize,
        weight_type: WeightType,
    ) {
        assert_eq!(x.len(), rows * inputs, "rows times inputs");
        assert!(inputs.is_multiple_of(weight_type.block_inputs()), "whole blocks");
        (self.rows, self.inputs, self.format) = (rows, inputs, Format::of(weight_type));
        match self.format {
            Format::F32 => {
                self.values.clear();
                self.values.extend_from_slice(x);
            }
            Format::Bf16 => self.set_pairs(team, x),
            Format::Words => self.set_words(team, x),
            Format::Bytes => self.set_bytes(team, x),
        }
    }

    fn set_pairs(&mut self, team: &Team, x: &[f32]) {
        let pairs = self.inputs.div_ceil(2);
        self.pairs.resize(self.rows * pairs, 0);
        let (to, inputs) = (Disjoint::new(&mut self.pairs), self.inputs);
        let round = |rows: std::ops::Range<usize>| {
            // SAFETY: the rows of different workers do not overlap.
            let pairs = unsafe { to.part(rows.start * pairs..rows.end * pairs) };
            dispatch(team.isa(), Round { x: &x[rows.start * inputs..], inputs, pairs });
        };
        if x.len() < ALONE_VALUES {
            return round(0..self.rows);
        }
        team.run_ranges(self.rows, |_, rows| round(rows));
    }

    fn set_words(&mut self, team: &Team, x: &[f32]) {
        let (inputs, blocks) = (self.inputs, self.inputs.div_ceil(WORDS_INPUTS));
        self.words.resize(self.rows * blocks, [0; WORDS_INPUTS]);
        self.word_scales.resize(self.rows * blocks, 0.0);
        let words = Disjoint::new(&mut self.words);
        let scales = Disjoint::new(&mut self.word_scales);
        let make = |rows: std::ops::Range<usize>| {
            let (x, own) = (&x[rows.start * inputs..], rows.start * blocks..rows.end * blocks);
            // SAFETY: the rows of different workers do not overlap.
            let (words, scales) = unsafe { (words.part(own.clone()), scales.part(own)) };
            dispatch(team.isa(), MakeWords { x, inputs, words, scales });
        };
        if x.len() < ALONE_VALUES {
            return make(0..self.rows);
        }
        team.run_ranges(self.rows, |_, rows| make(rows));
    }

    fn set_bytes(&mut self, team: &Team, x: &[f32]) {
        let blocks = x.len() / BLOCK_INPUTS;
        self.bytes.resize(x.len(), 0);
        self.scales.resize(blocks, BlockScale::default());
        if x.len() < ALONE_VALUES {
            quantize(team.isa(), x, &mut self.bytes, &mut self.scales);
            return;
        }
        let bytes = Disjoint::new(&mut self.bytes);
        let scales = Disjoint::new(&mut self.scales);
        team.run(|worker| {
            let own = range_of(worker, team.threads(), blocks);
            let values = own.start * BLOCK_INPUTS..own.end * BLOCK_INPUTS;
            // SAFETY: the ranges of different workers do not overlap.
            let (bytes, scales) = unsafe { (bytes.part(values.clone()), scales.part(own)) };
            quantize(team.isa(), &x[values], bytes, scales);
        });
    }

    /// The f32 rows; empty where they are rounded.
    pub(crate) fn values(&self) -> &[f32] {
        if self.format == Format::F32 { &self.values } else { &[] }
    }

    /// The bf16 rows in pairs; empty where they are something else.
    pub(crate) fn pairs(&self) -> &[u32] {
        if self.format == Format::Bf16 { &self.pairs } else { &[] }
    }

    /// The rows as blocks of words, and their scales; empty where they are something else.
    pub(crate) fn words(&self) -> (&[Words], &[f32]) {
        if self.format == Format::Words { (&self.words, &self.word_scales) } else { (&[], &[]) }
    }

    /// The quantized rows and their scales; empty where they are not quantized.
    pub(crate) fn quantized(&self) -> (&[i8], &[BlockScale]) {
        if self.format == Format::Bytes { (&self.bytes, &self.scales) } else { (&[], &[]) }
    }
}

/// Rounds rows to bf16.
struct Round<'a> {
    x: &'a [f32],
    inputs: usize,
    pairs: &'a mut [u32],
}

impl Kernel for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let rows = self.pairs.chunks_exact_mut(self.inputs.div_ceil(2).max(1));
        for (pairs, x) in rows.zip(self.x.chunks_exact(self.inputs.max(1))) {
            let (whole, rest) = x.as_chunks::<2>();
            for (pair, [low, high]) in pairs.iter_mut().zip(whole) {
                *pair = bf16_bits(*low) | bf16_bits(*high) << 16;
            }
            if let ([last], Some(pair)) = (rest, pairs.last_mut()) {
                *pair = bf16_bits(*last);
            }
        }
    }
}

/// Makes words of rows.
struct MakeWords<'a> {
    x: &'a [f32],
    inputs: usize,
    words: &'a mut [Words],
    scales: &'a mut [f32],
}

impl Kernel for MakeWords<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let blocks = self.inputs.div_ceil(WORDS_INPUTS).max(1);
        let x = self.x.chunks_exact(self.inputs.max(1));
        let (words, scales) = (self.words.chunks_exact_mut(blocks), self.scales.chunks_mut(blocks));
        for ((x, words), scales) in x.zip(words).zip(scales) {
            for ((x, words), scale) in x.chunks(WORDS_INPUTS).zip(words).zip(scales) {
                *scale = match x.first_chunk() {
                    Some(x) => words_of_row(s, x, words),
                    None => {
                        let mut filled = [0.0; WORDS_INPUTS];
                        filled[..x.len()].copy_from_slice(x);
                        words_of_row(s, &filled, words)
                    }
                };
            }
        }
    }
}

/// Quantizes whole blocks.
fn quantize(isa: Isa, x: &[f32], bytes: &mut [i8], scales: &mut [BlockScale]) {
    dispatch(isa, Quantize { x, bytes, scales });
}

struct Quantize<'a> {
    x: &'a [f32],
    bytes: &'a mut [i8],
    scales: &'a mut [BlockScale],
}

impl Kernel for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (x, last_x) = self.x.as_chunks::<{ LANES * BLOCK_INPUTS }>();
        let (bytes, last_bytes) = self.bytes.as_chunks_mut::<{ LANES * BLOCK_INPUTS }>();
        let (scales, last_scales) = self.scales.as_chunks_mut::<LANES>();
        for ((x, bytes), scales) in x.iter().zip(bytes).zip(scales) {
            quantize_blocks(s, x, bytes, scales);
        }
        let blocks = last_x.chunks_exact(BLOCK_INPUTS);
        let bytes = last_bytes.chunks_exact_mut(BLOCK_INPUTS);
        for ((x, bytes), scale) in blocks.zip(bytes).zip(last_scales) {
            *scale = quantize_block(s, x, bytes);
        }
    }
}

/// Does what [`quantize_block`] does to one block to 16 side by side, with the same bits: what is
/// one number for a block is computed for all at once.
#[inline(always)]
fn quantize_blocks<S: Simd>(
    s: S,
    x: &[f32; LANES * BLOCK_INPUTS],
    bytes: &mut [i8; LANES * BLOCK_INPUTS],
    scales: &mut [BlockScale; LANES],
) {
    let (x, _) = x.as_chunks::<LANES>();
    let mut greatest = [s.splat_i32(0); LANES];
    for (greatest, [low, high]) in greatest.iter_mut().zip(x.as_chunks::<2>().0) {
        let (low, high) = (s.load_slice(low), s.load_slice(high));
        *greatest = s.max_i32(s.magnitude_bits(low), s.magnitude_bits(high));
    }
    let mut magnitudes = [0.0; LANES];
    for (magnitude, bits) in magnitudes.iter_mut().zip(s.reduce_max_i32_of_each(&greatest)) {
        *magnitude = f32::from_bits(bits as u32);
    }
    let greatest = s.load_slice(&magnitudes);
    let finite = s.less(greatest, s.splat(f32::INFINITY));
    let zero = s.less(greatest, s.splat(LEAST_MAGNITUDE));
    let (nothing, most) = (s.splat(0.0), s.splat(127.0));
    let inverse = s.select(finite, s.div(most, greatest), nothing);
    let inverses = s.to_array(s.select(zero, nothing, inverse));
    let steps = s.select(finite, s.div(greatest, most), s.splat(f32::NAN));
    let steps = s.to_array(s.select(zero, nothing, steps));
    let eights =
        x.as_chunks::<LANES>().0.iter().zip(bytes.as_chunks_mut::<LANES>().0.as_chunks_mut().0);
    let steps = steps.as_chunks::<8>().0.iter().zip(inverses.as_chunks::<8>().0);
    let steps = steps.zip(scales.as_chunks_mut::<8>().0);
    for ((x, bytes), ((steps, inverses), scales)) in eights.zip(steps) {
        quantize_halves(s, x, bytes, inverses, steps, scales);
    }
}

/// The second part of [`quantize_blocks`], for eight blocks.
#[inline(always)]
fn quantize_halves<S: Simd>(
    s: S,
    x: &[[f32; LANES]; LANES],
    bytes: &mut [[i8; LANES]; LANES],
    inverses: &[f32; LANES / 2],
    steps: &[f32; LANES / 2],
    scales: &mut [BlockScale; LANES / 2],
) {
    let mut halves = [s.splat_i32(0); LANES];
    for i in 0..LANES {
        halves[i] = bound(s, s.mul(s.load_slice(&x[i]), s.splat(inverses[i / 2])));
    }
    for (bytes, halves) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(halves.as_chunks().0) {
        // SAFETY: there are four times 16 bytes.
        unsafe { s.store_i8_of_each(bytes.as_flattened_mut().as_mut_ptr(), *halves) };
    }
    let sums = s.reduce_add_i32_of_each(&halves);
    for i in 0..LANES / 2 {
        scales[i] = BlockScale::new(steps[i], [sums[2 * i], sums[2 * i + 1]]);
    }
}

/// Quantizes one block of 32 values.
#[inline(always)]
pub(crate) fn quantize_block<S: Simd>(s: S, x: &[f32], bytes: &mut [i8]) -> BlockScale {
    let (low, high) = (s.load_slice(&x[..LANES]), s.load_slice(&x[LANES..]));
    // Compared as integers, so that a NaN is the greatest and is not lost.
    let greatest = s.max_i32(s.magnitude_bits(low), s.magnitude_bits(high));
    let greatest = f32::from_bits(s.reduce_max_i32(greatest) as u32);
    let (inverse, scale) = match greatest {
        LEAST_MAGNITUDE..=f32::MAX => (127.0 / greatest, greatest / 127.0),
        0.0..LEAST_MAGNITUDE => (0.0, 0.0),
        _ => (0.0, f32::NAN),
    };
    let low = bound(s, s.mul(low, s.splat(inverse)));
    let high = bound(s, s.mul(high, s.splat(inverse)));
    let sums = [s.reduce_add_i32(low), s.reduce_add_i32(high)];
    assert!(bytes.len() >= BLOCK_INPUTS);
    // SAFETY: `bytes` has 32 elements.
    unsafe {
        s.store_i8(bytes.as_mut_ptr(), low);
        s.store_i8(bytes.as_mut_ptr().add(LANES), high);
    }
    BlockScale::new(scale, sums)
}

/// To integers in -127 ..= 127, also what rounding or a NaN put outside.
#[inline(always)]
fn bound<S: Simd>(s: S, x: S::F32) -> S::I32 {
    s.to_i32(s.max(s.min(x, s.splat(127.0)), s.splat(-127.0)))
}
