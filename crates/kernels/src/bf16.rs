//! Rounding to bfloat16.

/// To bfloat16, ties to even; a NaN stays one.
#[inline(always)]
pub(crate) fn bf16_bits(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16;
    if x.is_nan() { bits >> 16 | 0x40 } else { rounded }
}
