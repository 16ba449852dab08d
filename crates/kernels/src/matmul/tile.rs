//! What the tiles of both kinds of weights share.

use crate::disjoint::Disjoint;
use crate::packed::{PANEL_OUTPUTS, PackedMatrix};
use crate::quantize::ActivationRows;
use crate::simd::Simd;
use crate::weights::WeightType;
use std::ops::Range;

/// Bytes of panels that stay in the second-level cache while all rows pass.
const GROUP_BYTES: usize = 256 << 10;
/// Panels of a group are a multiple of what a tile may take at once.
const GROUP_PANELS: usize = 4;

/// A type of weights that a kernel is compiled for.
pub(super) trait Typed: Copy + Send + Sync {
    const TYPE: WeightType;
}

/// What one worker computes: some panels of the outputs of all rows.
pub(super) struct Part<'a> {
    pub(super) weights: &'a PackedMatrix,
    pub(super) input: &'a ActivationRows,
    pub(super) out: Disjoint<'a, f32>,
    pub(super) panels: Range<usize>,
}

impl Part<'_> {
    fn group_panels(&self) -> usize {
        let panels = GROUP_BYTES / self.weights.panel_bytes();
        panels.next_multiple_of(GROUP_PANELS).max(GROUP_PANELS)
    }

    /// How many tiles of at most `most` rows there are.
    pub(super) fn tiles(&self, most: usize) -> usize {
        self.panels.len().div_ceil(self.group_panels()) * self.input.rows().div_ceil(most)
    }

    /// The rows and panels of a tile. A group of panels meets all rows before
    /// the next, so that it is read from memory once.
    pub(super) fn tile(&self, tile: usize, most: usize) -> (Range<usize>, Range<usize>) {
        let rows = self.input.rows();
        let row_tiles = rows.div_ceil(most);
        let (group, tile) = (tile / row_tiles, tile % row_tiles);
        let start = self.panels.start + group * self.group_panels();
        let panels = start..(start + self.group_panels()).min(self.panels.end);
        (rows * tile / row_tiles..rows * (tile + 1) / row_tiles, panels)
    }

    /// The bytes of `count` panels from panel `first` on.
    pub(super) fn panel_bytes(&self, first: usize, count: usize) -> &[u8] {
        let bytes = self.weights.panel_bytes();
        &self.weights.panels()[first * bytes..][..count * bytes]
    }

    /// Writes the sums of one panel's outputs for one row.
    #[inline(always)]
    pub(super) fn write<S: Simd>(&self, s: S, row: usize, panel: usize, sum: S::F32) {
        let (outputs, first) = (self.weights.outputs(), panel * PANEL_OUTPUTS);
        let sum = match self.weights.bias() {
            Some(bias) => s.add(sum, s.load_slice(&bias[first..])),
            None => sum,
        };
        let count = (outputs - first).min(PANEL_OUTPUTS);
        let start = row * outputs + first;
        debug_assert!(self.panels.contains(&panel));
        // SAFETY: the panel is this worker's own, and no other part is alive.
        let to = unsafe { self.out.part(start..start + count) };
        if count == PANEL_OUTPUTS { s.store_slice(to, sum) } else { s.store_partial(to, sum) }
    }
}
