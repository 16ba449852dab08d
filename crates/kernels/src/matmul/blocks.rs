//! Tiles of quantized weights: integer dot products of blocks of 32 inputs.

use super::tile::{Part, Tile, Tiled};
use crate::packed::{Layout, PartHead};
use crate::quantize::BlockScale;
use crate::simd::Simd;
use crate::weights::{BLOCK_INPUTS, WeightType};

/// How far ahead of their use weights are asked for: about what one core
/// receives from memory during the latency of a read.
const PREFETCH_BYTES: usize = 2560;

/// A quantized type that a kernel is compiled for.
pub(super) trait Quantized: Copy + Send + Sync {
    const TYPE: WeightType;
}

/// Names the quantized types for the compiler.
macro_rules! types {
    ($($name:ident),+) => {$(
        #[derive(Clone, Copy)]
        #[allow(non_camel_case_types)] // As in `WeightType`.
        pub(super) struct $name;

        impl Quantized for $name {
            const TYPE: WeightType = WeightType::$name;
        }
        impl Tiled for $name {
            #[inline(always)]
            fn panels<S: Simd, const ROWS: usize, const PANELS: usize>(
                s: S,
                part: &Part<'_>,
                tile: &Tile,
            ) {
                for panel in tile.panels.clone() {
                    panel_tile::<S, $name, ROWS>(s, part, tile, panel);
                }
            }
        }
    )+};
}
types!(Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K);

/// The `ROWS` rows of a tile times one panel.
#[inline(always)]
fn panel_tile<S: Simd, T: Quantized, const ROWS: usize>(
    s: S,
    part: &Part<'_>,
    tile: &Tile,
    panel: usize,
) {
    let layout = const { Layout::of(T::TYPE) };
    let row = tile.rows.start;
    let inputs = part.weights.inputs();
    let blocks = inputs / BLOCK_INPUTS;
    let (bytes, scales) = part.input.quantized();
    let bytes = &bytes[row * inputs..][..ROWS * inputs];
    let scales = &scales[row * blocks..][..ROWS * blocks];
    let range = |input: usize| input / (layout.parts * BLOCK_INPUTS) * layout.block_bytes();
    let weights = part.panel_bytes(panel, 1);
    assert_eq!(weights.len(), range(inputs));
    let weights = &weights[range(tile.inputs.start)..range(tile.inputs.end)];
    let first = tile.inputs.start / BLOCK_INPUTS;
    let mut sums = [s.splat(0.0); ROWS];
    for (r, sum) in sums.iter_mut().enumerate() {
        *sum = part.begin(s, tile, row + r, panel);
    }
    for (block, weights) in weights.chunks_exact(layout.block_bytes()).enumerate() {
        // SAFETY: a block starts with 16 scales, then 16 minimums if the layout says so; part
        // `at` of it lies within the block, and its activations in each of the `ROWS` rows of
        // `inputs` bytes and `blocks` scales, which were sliced above.
        unsafe {
            let scale = s.load_f16(weights.as_ptr().cast());
            let minimum = if layout.minimum {
                s.load_f16(weights.as_ptr().add(32).cast())
            } else {
                s.splat(0.0)
            };
            for at in 0..layout.parts {
                let first = first + block * layout.parts + at;
                let offset = layout.head_bytes() + at * layout.part_bytes();
                let part = BlockPart {
                    weights: weights.as_ptr().add(offset),
                    bytes: bytes.as_ptr().add(first * BLOCK_INPUTS),
                    scales: scales.as_ptr().add(first),
                    blocks,
                };
                if row == 0 {
                    part.prefetch::<S, T>(s);
                }
                part.add::<S, T, ROWS>(s, scale, minimum, &mut sums);
            }
        }
    }
    for (r, sum) in sums.iter().enumerate() {
        part.end(s, tile, row + r, panel, *sum);
    }
}

/// Where 32 inputs lie in a panel and in the first row of a tile.
#[derive(Clone, Copy)]
struct BlockPart {
    weights: *const u8,
    bytes: *const i8,
    scales: *const BlockScale,
    /// Blocks of a row of activations, of [`BLOCK_INPUTS`] bytes and one scale each.
    blocks: usize,
}

impl BlockPart {
    /// Asks for weights that are needed soon, which need not exist.
    #[inline(always)]
    fn prefetch<S: Simd, T: Quantized>(self, s: S) {
        let mut at = 0;
        while at < const { Layout::of(T::TYPE).part_bytes() } {
            s.prefetch(self.weights.wrapping_add(PREFETCH_BYTES + at));
            at += 64;
        }
    }

    /// Adds the products to the sums.
    ///
    /// # Safety
    /// The part must exist in a panel of type `T` and in `ROWS` rows.
    #[inline(always)]
    unsafe fn add<S: Simd, T: Quantized, const ROWS: usize>(
        self,
        s: S,
        scale: S::F32,
        minimum: S::F32,
        sums: &mut [S::F32; ROWS],
    ) {
        let layout = const { Layout::of(T::TYPE) };
        let (mut scales, mut minimum) = ([scale; 2], minimum);
        // SAFETY: the caller vouches for the part, whose head is what the layout says, and for a
        // scale of each row.
        unsafe {
            let second = self.weights.add(16);
            match layout.part_head {
                PartHead::Nothing => {}
                PartHead::ScalesAndMinimums => {
                    scales[0] = s.mul(scale, s.to_f32(s.load_u8(self.weights)));
                    minimum = s.mul(minimum, s.to_f32(s.load_u8(second)));
                }
                PartHead::TwoScales => {
                    scales[0] = s.mul(scale, s.to_f32(s.load_i8(self.weights.cast())));
                    scales[1] = s.mul(scale, s.to_f32(s.load_i8(second.cast())));
                }
            }
            let halves = matches!(layout.part_head, PartHead::TwoScales);
            let dots = self.dots::<S, T, ROWS>(s, halves);
            for row in 0..ROWS {
                let activation = &*self.scales.add(row * self.blocks);
                let step = s.splat(activation.scale);
                let of = s.mul(scales[0], step);
                sums[row] = s.mul_add(s.to_f32(dots[row][0]), of, sums[row]);
                if halves {
                    let of = s.mul(scales[1], step);
                    sums[row] = s.mul_add(s.to_f32(dots[row][1]), of, sums[row]);
                }
                if layout.minimum {
                    sums[row] = s.mul_add(minimum, s.splat(activation.scaled_sum), sums[row]);
                }
            }
        }
    }

    /// The exact sums of products of integers: of all inputs, or if `halves` of the first and of
    /// the last 16.
    ///
    /// # Safety
    /// As [`add`](BlockPart::add).
    #[inline(always)]
    unsafe fn dots<S: Simd, T: Quantized, const ROWS: usize>(
        self,
        s: S,
        halves: bool,
    ) -> [[S::I32; 2]; ROWS] {
        let layout = const { Layout::of(T::TYPE) };
        let mut dots = [[s.splat_i32(0); 2]; ROWS];
        for (row, [first, second]) in dots.iter_mut().enumerate() {
            // SAFETY: the caller vouches for the rows.
            let activation = unsafe { &*self.scales.add(row * self.blocks) };
            match T::TYPE {
                WeightType::Q8_0 if S::OFFSET_W8 => {
                    *first = s.splat_i32(activation.minus_128_sums);
                }
                WeightType::Q4_0 => *first = s.splat_i32(activation.minus_8_sums),
                WeightType::Q5_0 => *first = s.splat_i32(activation.minus_16_sums),
                WeightType::Q6_K => {
                    *first = s.splat_i32(activation.minus_32_sums[0]);
                    *second = s.splat_i32(activation.minus_32_sums[1]);
                }
                _ => {}
            }
        }
        let stride = self.blocks * BLOCK_INPUTS;
        for group in 0..if layout.bits == 8 { 8 } else { 4 } {
            // SAFETY: the groups of 64 bytes follow the head of the part, and each row has 32
            // bytes for it.
            unsafe {
                if layout.bits == 8 {
                    let w = s.load_bytes(self.group(layout, group));
                    for (row, [dot, _]) in dots.iter_mut().enumerate() {
                        let x = self.bytes.add(row * stride + group * 4);
                        *dot = s.dot_w8_i8(*dot, w, x);
                    }
                    continue;
                }
                let [low, high] = self.numbers(s, layout, group);
                let second = usize::from(halves);
                for (row, dots) in dots.iter_mut().enumerate() {
                    let x = self.bytes.add(row * stride + group * 4);
                    dots[0] = s.dot_u7_i8(dots[0], low, x);
                    dots[second] = s.dot_u7_i8(dots[second], high, x.add(16));
                }
            }
        }
        dots
    }

    /// Where group `group` begins.
    #[inline(always)]
    fn group(self, layout: Layout, group: usize) -> *const u8 {
        self.weights.wrapping_add(layout.part_head_bytes() + group * 64)
    }

    /// The numbers of four of the first 16 inputs and of four of the last, of group `group`.
    ///
    /// # Safety
    /// As [`add`](BlockPart::add).
    #[inline(always)]
    unsafe fn numbers<S: Simd>(self, s: S, layout: Layout, group: usize) -> [S::Bytes; 2] {
        // SAFETY: the layout has four groups, and one or two of higher bits.
        unsafe {
            let w = s.load_bytes(self.group(layout, group));
            let (low, high) = (s.low_nibbles(w), s.high_nibbles(w));
            let (bits, mask) = match layout.bits {
                5 => (s.words_down(s.load_bytes(self.group(layout, 4)), group as u32), 0x10),
                6 => {
                    let bits = s.load_bytes(self.group(layout, 4 + group / 2));
                    (s.words_down(bits, group as u32 % 2 * 2), 0x30)
                }
                _ => return [low, high],
            };
            [s.or_masked(low, bits, mask), s.or_masked(high, s.words_up_4(bits), mask)]
        }
    }
}
