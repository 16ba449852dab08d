//! One output's weights in the lanes of a panel: written when packing, read back for a table.

use super::file_block::FileBlock;
use super::layout::{Layout, PANEL_OUTPUTS, PartHead};
use crate::weights::{BLOCK_INPUTS, WeightType};
use half::f16;

/// Bytes of a group, and of the 16 f16 numbers of a head.
const GROUP: usize = 4 * PANEL_OUTPUTS;
const HALVES: usize = 2 * PANEL_OUTPUTS;

/// Writes a file's block into lane `lane` of the panel's block `to`. Whole bytes are XORed with
/// `flip`.
#[inline(always)]
pub(super) fn pack(block: FileBlock<'_>, lane: usize, flip: u8, to: &mut [u8]) {
    let layout = Layout::of(block.weight_type);
    let (head, parts) = to.split_at_mut(layout.head_bytes());
    head[2 * lane..][..2].copy_from_slice(&block.scale());
    if layout.minimum {
        head[HALVES + 2 * lane..][..2].copy_from_slice(&block.minimum());
    }
    for (part, to) in parts.chunks_exact_mut(layout.part_bytes()).enumerate() {
        let (head, groups) = to.split_at_mut(layout.part_head_bytes());
        let pair = match layout.part_head {
            PartHead::Nothing => None,
            PartHead::ScalesAndMinimums => Some(block.scale_and_minimum(part)),
            PartHead::TwoScales => Some(block.two_scales(part)),
        };
        if let Some([first, second]) = pair {
            head[lane] = first;
            head[PANEL_OUTPUTS + lane] = second;
        }
        let numbers = block.numbers(part);
        match layout.bits {
            8 => spread(&numbers.map(|number| number ^ flip), lane, groups),
            bits => {
                spread(&low_bits(&numbers), lane, groups);
                match bits {
                    5 => spread(&fifth_bits(&numbers), lane, &mut groups[4 * GROUP..]),
                    6 => spread(&two_high_bits(&numbers), lane, &mut groups[4 * GROUP..]),
                    _ => {}
                }
            }
        }
    }
}

/// Four bytes into the lane's place in each group.
#[inline(always)]
fn spread(bytes: &[u8], lane: usize, groups: &mut [u8]) {
    for (from, to) in bytes.chunks_exact(4).zip(groups.chunks_exact_mut(GROUP)) {
        to[4 * lane..][..4].copy_from_slice(from);
    }
}

/// The low four bits of the first 16 numbers in the low halves, of the last in the high halves.
#[inline(always)]
fn low_bits(numbers: &[u8; BLOCK_INPUTS]) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = numbers[i] & 15 | numbers[i + 16] << 4;
    }
    bytes
}

/// The fifth bits: those of group `g` in bit `4 + g` for low halves, in bit `g` for high halves.
#[inline(always)]
fn fifth_bits(numbers: &[u8; BLOCK_INPUTS]) -> [u8; 4] {
    let mut bytes = [0; 4];
    for (j, byte) in bytes.iter_mut().enumerate() {
        for group in 0..4 {
            let (low, high) = (numbers[4 * group + j], numbers[16 + 4 * group + j]);
            *byte |= (low >> 4 & 1) << (4 + group) | (high >> 4 & 1) << group;
        }
    }
    bytes
}

/// The fifth and sixth bits: four bytes for groups 0 and 1, four for 2 and 3. In each the first
/// group's are in bits 4 and 5 for low halves, 0 and 1 for high halves; the second's two above.
#[inline(always)]
fn two_high_bits(numbers: &[u8; BLOCK_INPUTS]) -> [u8; 8] {
    let mut bytes = [0; 8];
    for (i, byte) in bytes.iter_mut().enumerate() {
        for second in 0..2 {
            let at = i / 4 * 8 + second * 4 + i % 4;
            let (low, high) = (numbers[at] >> 4 & 3, numbers[16 + at] >> 4 & 3);
            *byte |= low << (4 + 2 * second) | high << (2 * second);
        }
    }
    bytes
}

/// Reads lane `lane` of the panel's block `block`: its weights to `out`, one per input.
pub(super) fn unpack(
    weight_type: WeightType,
    block: &[u8],
    lane: usize,
    flip: u8,
    out: &mut [f32],
) {
    let layout = Layout::of(weight_type);
    let half_at = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    let scale = half_at(2 * lane);
    let minimum = if layout.minimum { half_at(HALVES + 2 * lane) } else { 0.0 };
    let offset = match weight_type {
        WeightType::Q4_0 => 8.0,
        WeightType::Q5_0 => 16.0,
        WeightType::Q6_K => 32.0,
        _ => 0.0,
    };
    let parts = block[layout.head_bytes()..].chunks_exact(layout.part_bytes());
    for (part, out) in parts.zip(out.chunks_exact_mut(BLOCK_INPUTS)) {
        let (head, groups) = part.split_at(layout.part_head_bytes());
        let (mut scales, mut minimum) = ([scale; 2], minimum);
        match layout.part_head {
            PartHead::Nothing => {}
            PartHead::ScalesAndMinimums => {
                scales = [scale * f32::from(head[lane]); 2];
                minimum *= f32::from(head[PANEL_OUTPUTS + lane]);
            }
            PartHead::TwoScales => {
                let byte = |at: usize| f32::from(head[at] as i8);
                scales = [scale * byte(lane), scale * byte(PANEL_OUTPUTS + lane)];
            }
        }
        for (input, out) in out.iter_mut().enumerate() {
            let number = number(layout, groups, lane, input);
            let number = if layout.bits == 8 {
                f32::from((number ^ flip) as i8)
            } else {
                f32::from(number) - offset
            };
            *out = scales[input / 16] * number;
            if layout.minimum {
                *out += minimum;
            }
        }
    }
}

/// The number of input `input` of a part, in lane `lane`.
fn number(layout: Layout, groups: &[u8], lane: usize, input: usize) -> u8 {
    let byte = |group: usize, j: usize| groups[group * GROUP + 4 * lane + j];
    if layout.bits == 8 {
        return byte(input / 4, input % 4);
    }
    let (group, j, upper) = (input % 16 / 4, input % 4, input / 16 == 1);
    let low = if upper { byte(group, j) >> 4 } else { byte(group, j) & 15 };
    let up = if upper { 0 } else { 4 };
    let high = match layout.bits {
        5 => byte(4, j) >> (up + group) & 1,
        6 => byte(4 + group / 2, j) >> (up + group % 2 * 2) & 3,
        _ => 0,
    };
    low | high << 4
}
