//! How blocks of quantized weights lie in a panel.

use crate::weights::{BLOCK_INPUTS, WeightType};

/// Outputs of a panel.
pub(crate) const PANEL_OUTPUTS: usize = 16;

/// The parts of one file block's inputs of a panel, in their order: a head; then, for each 32
/// inputs, a head of their own and groups of 64 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Bits of a number.
    pub(crate) bits: usize,
    /// Whether 16 minimums (f16) follow the 16 scales (f16) of the head.
    pub(crate) minimum: bool,
    /// How many 32 inputs there are.
    pub(crate) parts: usize,
    /// What the head of a part holds.
    pub(crate) part_head: PartHead,
}

/// The 32 bytes before a part's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartHead {
    /// Nothing: the head says all.
    Nothing,
    /// 16 unsigned bytes that multiply the scales, then 16 that multiply the minimums.
    ScalesAndMinimums,
    /// 16 signed bytes that multiply the scales for the first 16 inputs, then 16 for the last.
    TwoScales,
}

impl Layout {
    /// The layout of a quantized type.
    pub(crate) const fn of(weight_type: WeightType) -> Layout {
        let bits = match weight_type {
            WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Q4_K => 4,
            WeightType::Q5_0 | WeightType::Q5_1 | WeightType::Q5_K => 5,
            WeightType::Q6_K => 6,
            _ => 8,
        };
        let (minimum, part_head) = match weight_type {
            WeightType::Q4_1 | WeightType::Q5_1 => (true, PartHead::Nothing),
            WeightType::Q4_K | WeightType::Q5_K => (true, PartHead::ScalesAndMinimums),
            WeightType::Q6_K => (false, PartHead::TwoScales),
            _ => (false, PartHead::Nothing),
        };
        let parts = weight_type.block_inputs() / BLOCK_INPUTS;
        Layout { bits, minimum, parts, part_head }
    }

    /// Bytes of the head.
    pub(crate) const fn head_bytes(self) -> usize {
        if self.minimum { 64 } else { 32 }
    }

    /// Bytes of a part's head.
    pub(crate) const fn part_head_bytes(self) -> usize {
        match self.part_head {
            PartHead::Nothing => 0,
            PartHead::ScalesAndMinimums | PartHead::TwoScales => 32,
        }
    }

    /// Bytes of a part.
    pub(crate) const fn part_bytes(self) -> usize {
        self.part_head_bytes() + self.bits * 64
    }

    /// Bytes of everything.
    pub(crate) const fn block_bytes(self) -> usize {
        self.head_bytes() + self.parts * self.part_bytes()
    }
}
