//! Blocks of quantized weights as files store them (ggml's `ggml-common.h`; the order of their
//! numbers is that of `dequantize_row_*` in `ggml-quants.c`).

use crate::weights::{BLOCK_INPUTS, WeightType};

/// One block of a file, as many bytes as its type has.
#[derive(Clone, Copy)]
pub(super) struct FileBlock<'a> {
    pub(super) weight_type: WeightType,
    pub(super) bytes: &'a [u8],
}

impl FileBlock<'_> {
    /// The bits of the f16 scale.
    pub(super) fn scale(self) -> [u8; 2] {
        let at = if self.weight_type == WeightType::Q6_K { 208 } else { 0 };
        [self.bytes[at], self.bytes[at + 1]]
    }

    /// The bits of the f16 minimum, which is added: the K types store what they subtract.
    pub(super) fn minimum(self) -> [u8; 2] {
        let sign = match self.weight_type {
            WeightType::Q4_K | WeightType::Q5_K => 0x80,
            _ => 0,
        };
        [self.bytes[2], self.bytes[3] ^ sign]
    }

    /// What multiplies the scale, and the minimum, in part `part` of the types Q4_K and Q5_K:
    /// eight pairs of 6 bits in 12 bytes.
    pub(super) fn scale_and_minimum(self, part: usize) -> [u8; 2] {
        let q = &self.bytes[4..16];
        if part < 4 {
            [q[part] & 63, q[part + 4] & 63]
        } else {
            let low = q[part + 4];
            [low & 15 | q[part - 4] >> 6 << 4, low >> 4 | q[part] >> 6 << 4]
        }
    }

    /// The two signed bytes that multiply the scale in part `part` of Q6_K.
    pub(super) fn two_scales(self, part: usize) -> [u8; 2] {
        let scales = &self.bytes[192..208];
        [scales[2 * part], scales[2 * part + 1]]
    }

    /// The numbers of part `part`, before any offset.
    #[inline(always)]
    pub(super) fn numbers(self, part: usize) -> [u8; BLOCK_INPUTS] {
        let bytes = self.bytes;
        match self.weight_type {
            WeightType::Q4_0 => nibbles(&bytes[2..18]),
            WeightType::Q4_1 => nibbles(&bytes[4..20]),
            WeightType::Q5_0 => five_bits(&bytes[2..22]),
            WeightType::Q5_1 => five_bits(&bytes[4..24]),
            WeightType::Q4_K => nibbles_of_k(&bytes[16..144], part),
            WeightType::Q5_K => {
                let mut numbers = nibbles_of_k(&bytes[48..176], part);
                for (number, high) in numbers.iter_mut().zip(&bytes[16..48]) {
                    *number |= (high >> part & 1) << 4;
                }
                numbers
            }
            WeightType::Q6_K => six_bits(bytes, part),
            _ => {
                let mut numbers = [0; BLOCK_INPUTS];
                numbers.copy_from_slice(&bytes[2..34]);
                numbers
            }
        }
    }
}

/// 16 bytes: the low halves are the first 16 numbers, the high halves the last.
#[inline(always)]
fn nibbles(bytes: &[u8]) -> [u8; BLOCK_INPUTS] {
    let mut numbers = [0; BLOCK_INPUTS];
    for (i, byte) in bytes[..16].iter().enumerate() {
        numbers[i] = byte & 15;
        numbers[i + 16] = byte >> 4;
    }
    numbers
}

/// 32 fifth bits, then the other four as in `nibbles`.
#[inline(always)]
fn five_bits(bytes: &[u8]) -> [u8; BLOCK_INPUTS] {
    let high = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let mut numbers = nibbles(&bytes[4..20]);
    for (i, number) in numbers.iter_mut().enumerate() {
        *number |= ((high >> i & 1) as u8) << 4;
    }
    numbers
}

/// Two parts share 32 bytes, the even one has the low halves.
#[inline(always)]
fn nibbles_of_k(bytes: &[u8], part: usize) -> [u8; BLOCK_INPUTS] {
    let mut numbers = [0; BLOCK_INPUTS];
    for (number, byte) in numbers.iter_mut().zip(&bytes[part / 2 * 32..][..32]) {
        *number = byte >> (part % 2 * 4) & 15;
    }
    numbers
}

/// Four parts share 64 bytes of four bits each, and 32 bytes of two bits each.
#[inline(always)]
fn six_bits(bytes: &[u8], part: usize) -> [u8; BLOCK_INPUTS] {
    let (half, part) = (part / 4, part % 4);
    let low = &bytes[half * 64 + part % 2 * 32..][..32];
    let high = &bytes[128 + half * 32..][..32];
    let mut numbers = [0; BLOCK_INPUTS];
    for (i, number) in numbers.iter_mut().enumerate() {
        *number = low[i] >> (part / 2 * 4) & 15 | (high[i] >> (2 * part) & 3) << 4;
    }
    numbers
}
