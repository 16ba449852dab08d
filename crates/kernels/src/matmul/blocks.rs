//! Tiles of quantized weights: integer dot products of blocks of 32 inputs.

use super::tile::{Ahead, Part, Tile, Tiled, in_turn};
use crate::packed::{Layout, PartHead};
use crate::quantize::BlockScale;
use crate::simd::Simd;
use crate::weights::{BLOCK_INPUTS, WeightType};

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
            const WIDE_ROWS: usize = wide_rows(Layout::of(WeightType::$name));
            const FEW_ROWS: usize = 32;

            #[inline(always)]
            fn panels_at<S: Simd, const ROWS: usize, const PANELS: usize>(
                s: S,
                part: &Part<'_>,
                tile: &Tile,
                panel: usize,
            ) {
                panels_tile::<S, $name, ROWS, PANELS>(s, part, tile, panel);
            }

            #[inline(always)]
            fn panels<S: Simd, const ROWS: usize, const PANELS: usize>(
                s: S,
                part: &Part<'_>,
                tile: &Tile,
            ) {
                if S::REGISTERS >= 32 && ROWS > 1 {
                    in_turn::<S, $name, ROWS, 2>(s, part, tile);
                } else {
                    in_turn::<S, $name, ROWS, 1>(s, part, tile);
                }
            }
        }
    )+};
}
types!(Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K);

/// Rows of a tile of two panels, where there are 32 registers: as many as have their sums there,
/// and what these are made of. Two panels share each load of an activation, of which one panel
/// would want more than there are ports for.
const fn wide_rows(layout: Layout) -> usize {
    match (layout.part_head, layout.minimum) {
        (PartHead::Nothing, false) => 6,
        (PartHead::Nothing, true) => 4,
        _ => 5,
    }
}

/// The `ROWS` rows of a tile times `PANELS` panels.
#[inline(always)]
fn panels_tile<S: Simd, T: Quantized, const ROWS: usize, const PANELS: usize>(
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
    let weights = part.panel_bytes(panel, PANELS);
    assert_eq!(weights.len(), PANELS * range(inputs));
    let first = tile.inputs.start / BLOCK_INPUTS;
    let mut sums = [[s.splat(0.0); ROWS]; PANELS];
    for (p, sums) in sums.iter_mut().enumerate() {
        for (r, sum) in sums.iter_mut().enumerate() {
            *sum = part.begin(s, tile, row + r, panel + p);
        }
    }
    // One row is one tile, and this a constant.
    let ahead = if ROWS == 1 { Ahead::OWN } else { tile.ahead };
    let (mut at, mut turn) = (range(tile.inputs.start), ahead.turn);
    for block in 0..tile.inputs.len() / (layout.parts * BLOCK_INPUTS) {
        // SAFETY: a block starts with 16 scales, then 16 minimums if the layout says so; part
        // `at` of it lies within the block, and its activations in each of the `ROWS` rows of
        // `inputs` bytes and `blocks` scales, which were sliced above.
        unsafe {
            let (mut scale, mut minimum) = ([s.splat(0.0); PANELS], [s.splat(0.0); PANELS]);
            for p in 0..PANELS {
                let head = weights.as_ptr().add(at + p * range(inputs));
                scale[p] = s.load_f16(head.cast());
                if layout.minimum {
                    minimum[p] = s.load_f16(head.add(32).cast());
                }
            }
            for index in 0..layout.parts {
                let first = first + block * layout.parts + index;
                let offset = layout.head_bytes() + index * layout.part_bytes();
                let part = BlockPart {
                    weights: weights.as_ptr().add(at + offset),
                    panel_bytes: range(inputs),
                    bytes: bytes.as_ptr().add(first * BLOCK_INPUTS),
                    scales: scales.as_ptr().add(first),
                    blocks,
                };
                if turn == 0 {
                    // Behind the end of the panels come as many others.
                    let wraps = usize::from(at + ahead.bytes >= range(inputs));
                    let bytes = ahead.bytes + wraps * (PANELS - 1) * range(inputs);
                    let head = if index == 0 { layout.head_bytes() } else { 0 };
                    part.prefetch(s, PANELS, head, layout.part_bytes(), bytes);
                    turn = ahead.turns;
                }
                turn -= 1;
                part.add::<S, T, ROWS, PANELS>(s, scale, minimum, &mut sums);
            }
        }
        at += layout.block_bytes();
    }
    for (p, sums) in sums.iter().enumerate() {
        for (r, sum) in sums.iter().enumerate() {
            part.end(s, tile, row + r, panel + p, *sum);
        }
    }
}

/// Where 32 inputs lie in some panels and in the first row of a tile.
#[derive(Clone, Copy)]
struct BlockPart {
    weights: *const u8,
    /// Bytes from one panel to the next.
    panel_bytes: usize,
    bytes: *const i8,
    scales: *const BlockScale,
    /// Blocks of a row of activations, of [`BLOCK_INPUTS`] bytes and one scale each.
    blocks: usize,
}

impl BlockPart {
    /// Asks for weights of `panels` panels that are needed soon, which need not exist: as many as
    /// the part's bytes and the `head` before them, so many bytes ahead.
    #[inline(always)]
    fn prefetch<S: Simd>(self, s: S, panels: usize, head: usize, part: usize, ahead: usize) {
        for panel in 0..panels {
            let panel = self.weights.wrapping_add(panel * self.panel_bytes + ahead);
            // One for each line that begins here, at least: none is left to be missed.
            for line in 0..(head + part).div_ceil(64) {
                s.prefetch(panel.wrapping_sub(head).wrapping_add(line * 64));
            }
        }
    }

    /// Adds the products to the sums.
    ///
    /// # Safety
    /// The part must exist in `PANELS` panels of type `T` and in `ROWS` rows.
    #[inline(always)]
    unsafe fn add<S: Simd, T: Quantized, const ROWS: usize, const PANELS: usize>(
        self,
        s: S,
        scale: [S::F32; PANELS],
        minimum: [S::F32; PANELS],
        sums: &mut [[S::F32; ROWS]; PANELS],
    ) {
        let layout = const { Layout::of(T::TYPE) };
        let mut scales = [[s.splat(0.0); 2]; PANELS];
        let mut minimum = minimum;
        // SAFETY: the caller vouches for the part, whose head is what the layout says, and for a
        // scale of each row.
        unsafe {
            for p in 0..PANELS {
                let head = self.weights.add(p * self.panel_bytes);
                let second = head.add(16);
                scales[p] = [scale[p]; 2];
                match layout.part_head {
                    PartHead::Nothing => {}
                    PartHead::ScalesAndMinimums => {
                        scales[p][0] = s.mul(scale[p], s.to_f32(s.load_u8(head)));
                        minimum[p] = s.mul(minimum[p], s.to_f32(s.load_u8(second)));
                    }
                    PartHead::TwoScales => {
                        scales[p][0] = s.mul(scale[p], s.to_f32(s.load_i8(head.cast())));
                        scales[p][1] = s.mul(scale[p], s.to_f32(s.load_i8(second.cast())));
                    }
                }
            }
            let halves = matches!(layout.part_head, PartHead::TwoScales);
            let dots = self.dots::<S, T, ROWS, PANELS>(s, halves);
            for row in 0..ROWS {
                let activation = &*self.scales.add(row * self.blocks);
                let step = s.splat(activation.scale);
                for p in 0..PANELS {
                    let (sum, dots) = (&mut sums[p][row], dots[p][row]);
                    let of = s.mul(scales[p][0], step);
                    *sum = s.mul_add(s.to_f32(dots[0]), of, *sum);
                    if halves {
                        let of = s.mul(scales[p][1], step);
                        *sum = s.mul_add(s.to_f32(dots[1]), of, *sum);
                    }
                    if layout.minimum {
                        *sum = s.mul_add(minimum[p], s.splat(activation.scaled_sum), *sum);
                    }
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
    unsafe fn dots<S: Simd, T: Quantized, const ROWS: usize, const PANELS: usize>(
        self,
        s: S,
        halves: bool,
    ) -> [[[S::I32; 2]; ROWS]; PANELS] {
        let layout = const { Layout::of(T::TYPE) };
        let mut dots = [[[s.splat_i32(0); 2]; ROWS]; PANELS];
        for row in 0..ROWS {
            // SAFETY: the caller vouches for the rows.
            let activation = unsafe { &*self.scales.add(row * self.blocks) };
            let [first, second] = match T::TYPE {
                WeightType::Q8_0 if S::OFFSET_W8 => [activation.minus_128_sums, 0],
                WeightType::Q4_0 => [activation.minus_8_sums, 0],
                WeightType::Q5_0 => [activation.minus_16_sums, 0],
                WeightType::Q6_K => activation.minus_32_sums,
                _ => continue,
            };
            let (first, second) = (s.splat_i32(first), s.splat_i32(second));
            for dots in &mut dots {
                dots[row] = [first, second];
            }
        }
        let stride = self.blocks * BLOCK_INPUTS;
        for group in 0..if layout.bits == 8 { 8 } else { 4 } {
            // SAFETY: the groups of 64 bytes follow the head of the part, and each row has 32
            // bytes for it.
            unsafe {
                let mut w = [[s.load_bytes(self.weights); 2]; PANELS];
                for (p, w) in w.iter_mut().enumerate() {
                    let of = BlockPart { weights: self.weights.add(p * self.panel_bytes), ..self };
                    if layout.bits == 8 {
                        w[0] = s.load_bytes(of.group(layout, group));
                    } else {
                        *w = of.numbers(s, layout, group);
                    }
                }
                let second = usize::from(halves);
                for row in 0..ROWS {
                    let x = self.bytes.add(row * stride + group * 4);
                    for (dots, w) in dots.iter_mut().zip(&w) {
                        let dots = &mut dots[row];
                        if layout.bits == 8 {
                            dots[0] = s.dot_w8_i8(dots[0], w[0], x);
                        } else {
                            dots[0] = s.dot_u7_i8(dots[0], w[0], x);
                            dots[second] = s.dot_u7_i8(dots[second], w[1], x.add(16));
                        }
                    }
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
