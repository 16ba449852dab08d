//! f16 weights as blocks of words in the lanes of a panel: written when packing, read back for a
//! table.

use super::layout::PANEL_OUTPUTS;
use super::source_row::SourceRow;
use crate::simd::{Kernel, Simd};
use crate::words::{WORDS_INPUTS, words_of_weights};
use half::f16;

/// Bytes of a block's head, the scales of all lanes.
pub(crate) const WORDS_HEAD: usize = 2 * PANEL_OUTPUTS;
/// Bytes of a group: two words of each lane.
pub(crate) const WORDS_GROUP: usize = 4 * PANEL_OUTPUTS;
/// Inputs of a group.
pub(crate) const WORDS_GROUP_INPUTS: usize = 2;
/// Bytes of a block.
pub(super) const WORDS_BLOCK: usize = WORDS_HEAD + WORDS_INPUTS / WORDS_GROUP_INPUTS * WORDS_GROUP;

/// Makes words of one row and writes them into lane `lane` of the panel `to`.
pub(super) struct PackWords<'a> {
    pub(super) row: &'a SourceRow<'a>,
    pub(super) lane: usize,
    pub(super) to: &'a mut [u8],
}

impl Kernel for PackWords<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let SourceRow { bytes, start, step, inputs } = *self.row;
        for (block, to) in self.to.chunks_exact_mut(WORDS_BLOCK).enumerate() {
            let first = block * WORDS_INPUTS;
            let mut weights = [0; WORDS_INPUTS];
            for (k, weight) in weights.iter_mut().enumerate().take(inputs - first) {
                let at = start + (first + k) * step;
                *weight = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            }
            let mut words = [0; WORDS_INPUTS];
            let scale = words_of_weights(s, &weights, &mut words);
            let (head, groups) = to.split_at_mut(WORDS_HEAD);
            head[2 * self.lane..][..2].copy_from_slice(&scale.to_le_bytes());
            let pairs = words.as_chunks::<WORDS_GROUP_INPUTS>().0;
            for (pair, to) in pairs.iter().zip(groups.chunks_exact_mut(WORDS_GROUP)) {
                let [first, second] = pair.map(i16::to_le_bytes);
                to[4 * self.lane..][..2].copy_from_slice(&first);
                to[4 * self.lane + 2..][..2].copy_from_slice(&second);
            }
        }
    }
}

/// Reads lane `lane` of the panel's block `block`: its weights to `out`, one per input.
pub(super) fn unpack(block: &[u8], lane: usize, out: &mut [f32]) {
    let word_at = |at: usize| [block[at], block[at + 1]];
    let scale = f16::from_le_bytes(word_at(2 * lane)).to_f32();
    for (input, out) in out.iter_mut().enumerate() {
        let (group, within) = (input / WORDS_GROUP_INPUTS, input % WORDS_GROUP_INPUTS);
        let at = WORDS_HEAD + group * WORDS_GROUP + 4 * lane + 2 * within;
        *out = scale * f32::from(i16::from_le_bytes(word_at(at)));
    }
}
