//! Weights in the order in which the matmul reads them.
//!
//! A matrix is cut into panels of 16 outputs, one per lane; the last one is
//! filled up with zeros. In a panel the inputs follow each other: for f32 the
//! 16 weights of one input, for bf16 16 pairs of weights of two inputs.
//!
//! For f16 they are blocks of 64 inputs, the last one filled up with zeros: 16
//! scales (f16), then 32 groups of two inputs, 16 pairs of 16-bit integers each
//! ([`words`](crate::words) says what they are worth).
//!
//! For quantized types they are the file's blocks, of 32 or 256 inputs:
//!
//! - 16 scales (f16), then 16 minimums (f16) where the type has them;
//! - then for each 32 inputs, in the K types, 2 times 16 bytes that multiply
//!   scales and minimums ([`PartHead`](layout::PartHead)),
//! - and groups of 64 bytes, in which bytes `4 * r ..` belong to output `r`.
//!   Q8_0 has 8 groups of 4 inputs each; a byte is the weight, plus 128 where
//!   the instruction set wants it. In the other types group `g` of 4 holds the
//!   low four bits of inputs `4 * g ..` in the low halves and of `16 + 4 * g ..`
//!   in the high ones, which is how most files pair them. Their higher bits
//!   follow in one group, or in two ([`lane`] says where).
//!
//! A packed matrix is as large as the file's, but for the last panel and for
//! 3 % more in Q4_K and 2 % in Q5_K, whose scales take whole bytes, and 2 % in
//! f16, which has none in the file.

mod file_block;
mod lane;
mod layout;
mod source_row;
mod words;

use crate::isa::Isa;
use crate::simd::{dispatch_float, offset_w8};
use crate::weight_memory::{WeightMemory, WeightPart};
use crate::weights::{MatrixSource, RowOrder, WeightType};
use crate::words::WORDS_INPUTS;
use file_block::FileBlock;
use half::bf16;
pub(crate) use layout::{Layout, PANEL_OUTPUTS, PartHead};
use rayon::prelude::*;
use source_row::{SourceRow, rows_of_panel};
use words::{PackWords, WORDS_BLOCK};
pub(crate) use words::{WORDS_GROUP, WORDS_GROUP_INPUTS, WORDS_HEAD};

/// Why a matrix cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// There is nothing to pack.
    #[error("a matrix without {0}")]
    Empty(&'static str),
    /// The sources do not fit beside each other.
    #[error("matrices packed as one must have the same type and number of inputs")]
    Mixed,
    /// The bytes do not make up the shape.
    #[error("{outputs} x {inputs} {weight_type:?} weights do not take {bytes} bytes")]
    Shape {
        /// The source's type.
        weight_type: WeightType,
        /// The source's outputs.
        outputs: usize,
        /// The source's inputs.
        inputs: usize,
        /// What there is.
        bytes: usize,
    },
    /// Blocks lie along the inputs only.
    #[error("{0:?} weights cannot be stored input by input")]
    InputMajor(WeightType),
    /// The rope order does not fit the outputs.
    #[error("{outputs} outputs do not make up heads of {head_dim} rotated pairwise")]
    Heads {
        /// The source's outputs.
        outputs: usize,
        /// The size of a head.
        head_dim: usize,
    },
    /// The bias has another length.
    #[error("a bias of {found} values for {outputs} outputs")]
    Bias {
        /// Its length.
        found: usize,
        /// The outputs of all sources.
        outputs: usize,
    },
    /// The system gave no memory.
    #[error("no memory for {bytes} bytes of weights: {cause}")]
    Memory {
        /// What was asked for.
        bytes: usize,
        /// The system's answer.
        cause: std::io::Error,
    },
}

/// A weight matrix, and maybe a bias, packed for one instruction set.
pub struct PackedMatrix {
    isa: Isa,
    weight_type: WeightType,
    outputs: usize,
    inputs: usize,
    memory: WeightPart,
    /// Filled up with zeros to whole panels.
    bias: Option<Vec<f32>>,
}

impl std::fmt::Debug for PackedMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PackedMatrix")
            .field("weight_type", &self.weight_type)
            .field("outputs", &self.outputs)
            .field("inputs", &self.inputs)
            .field("isa", &self.isa)
            .finish_non_exhaustive()
    }
}

/// Inputs of a panel that are packed together.
const fn panel_block_inputs(weight_type: WeightType) -> usize {
    match weight_type {
        WeightType::BF16 => 2,
        WeightType::F16 => WORDS_INPUTS,
        _ => weight_type.block_inputs(),
    }
}

/// Bytes of a panel's block of inputs ([`panel_block_inputs`]).
pub(crate) const fn panel_block_bytes(weight_type: WeightType) -> usize {
    match weight_type {
        WeightType::BF16 => 4 * PANEL_OUTPUTS,
        WeightType::F32 => 4 * PANEL_OUTPUTS,
        WeightType::F16 => WORDS_BLOCK,
        _ => Layout::of(weight_type).block_bytes(),
    }
}

/// Bytes of one panel.
fn panel_bytes(weight_type: WeightType, inputs: usize) -> usize {
    inputs.div_ceil(panel_block_inputs(weight_type)) * panel_block_bytes(weight_type)
}

impl PackedMatrix {
    /// What [`bytes`](Self::bytes) will be of weights of this type and shape, without packing.
    pub fn bytes_of(weight_type: WeightType, outputs: usize, inputs: usize) -> u64 {
        let panels = outputs.div_ceil(PANEL_OUTPUTS) as u64;
        panels * panel_bytes(weight_type, inputs) as u64
    }

    /// Packs `sources`, whose outputs follow each other, for `isa` into `memory`;
    /// `bias` has one value per output of all, in canonical (not stored) order.
    /// Uses all processors.
    ///
    /// # Errors
    /// See [`PackError`]; nothing is assumed of the sources.
    pub fn pack(
        isa: Isa,
        memory: &WeightMemory,
        sources: &[MatrixSource<'_>],
        bias: Option<&[f32]>,
    ) -> Result<PackedMatrix, PackError> {
        let first = sources.first().ok_or(PackError::Empty("sources"))?;
        let (weight_type, inputs) = (first.weight_type, first.inputs);
        for source in sources {
            check(source)?;
            if (source.weight_type, source.inputs) != (weight_type, inputs) {
                return Err(PackError::Mixed);
            }
        }
        let outputs = sources.iter().map(|source| source.outputs).sum::<usize>();
        let panels = outputs.div_ceil(PANEL_OUTPUTS);
        if let Some(found) = bias.map(<[f32]>::len).filter(|found| *found != outputs) {
            return Err(PackError::Bias { found, outputs });
        }
        let bias = bias.map(|bias| {
            let mut bias = bias.to_vec();
            bias.resize(panels * PANEL_OUTPUTS, 0.0);
            bias
        });
        let panel_bytes = panel_bytes(weight_type, inputs);
        let bytes = panels * panel_bytes;
        let mut memory = memory.part(bytes).map_err(|cause| PackError::Memory { bytes, cause })?;
        memory.bytes_mut().par_chunks_mut(panel_bytes).enumerate().for_each(|(panel, to)| {
            pack_panel(isa, &rows_of_panel(sources, panel), weight_type, to);
        });
        Ok(PackedMatrix { isa, weight_type, outputs, inputs, memory, bias })
    }

    /// Outputs of all sources together.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Inputs, over which a product sums.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The type of the weights.
    pub fn weight_type(&self) -> WeightType {
        self.weight_type
    }

    /// The instruction set that it was packed for.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Memory that the weights take, in bytes.
    pub fn bytes(&self) -> usize {
        self.memory.bytes().len()
    }

    /// Writes the weights of one output, as f32, to `out`; the bias is no part
    /// of it. A tied embedding table is read this way. They are the file's, but
    /// for f16 weights that are much smaller than others of their 64 inputs:
    /// those may be off by 2^-12 of the greatest of these.
    ///
    /// # Panics
    /// If there is no such output, or `out` has not one place per input.
    pub fn row(&self, output: usize, out: &mut [f32]) {
        assert!(output < self.outputs, "output {output} of {}", self.outputs);
        assert_eq!(out.len(), self.inputs, "one place per input");
        let lane = output % PANEL_OUTPUTS;
        let panel = &self.panels()[output / PANEL_OUTPUTS * self.panel_bytes()..];
        let blocks = panel.chunks_exact(panel_block_bytes(self.weight_type));
        let out = out.chunks_mut(panel_block_inputs(self.weight_type));
        for (block, out) in blocks.zip(out) {
            unpack_block(self.isa, self.weight_type, block, lane, out);
        }
    }

    /// All panels, one after the other.
    pub(crate) fn panels(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// Bytes of one panel.
    pub(crate) fn panel_bytes(&self) -> usize {
        panel_bytes(self.weight_type, self.inputs)
    }

    /// How many panels there are.
    pub(crate) fn panel_count(&self) -> usize {
        self.outputs.div_ceil(PANEL_OUTPUTS)
    }

    /// The bias, filled up to whole panels.
    pub(crate) fn bias(&self) -> Option<&[f32]> {
        self.bias.as_deref()
    }
}

/// Checks one source by itself.
fn check(source: &MatrixSource<'_>) -> Result<(), PackError> {
    let MatrixSource { weight_type, bytes, outputs, inputs, input_major, row_order } = *source;
    if outputs == 0 {
        return Err(PackError::Empty("outputs"));
    }
    if inputs == 0 {
        return Err(PackError::Empty("inputs"));
    }
    if input_major && weight_type.is_quantized() {
        return Err(PackError::InputMajor(weight_type));
    }
    let row_bytes = (inputs / weight_type.block_inputs()).checked_mul(weight_type.block_bytes());
    let expected = row_bytes.and_then(|row_bytes| row_bytes.checked_mul(outputs));
    let whole = inputs.is_multiple_of(weight_type.block_inputs());
    if !whole || expected != Some(bytes.len()) {
        return Err(PackError::Shape { weight_type, outputs, inputs, bytes: bytes.len() });
    }
    if let RowOrder::InterleavedRope { head_dim } = row_order {
        let fits = head_dim > 0 && head_dim.is_multiple_of(2) && outputs.is_multiple_of(head_dim);
        if !fits {
            return Err(PackError::Heads { outputs, head_dim });
        }
    }
    Ok(())
}

fn pack_panel(
    isa: Isa,
    rows: &[Option<SourceRow<'_>>; PANEL_OUTPUTS],
    weight_type: WeightType,
    to: &mut [u8],
) {
    for (lane, row) in rows.iter().enumerate() {
        let Some(row) = row else { continue };
        match weight_type {
            WeightType::F32 => pack_floats::<4, 1>(row, lane, to),
            WeightType::F16 => dispatch_float(isa, PackWords { row, lane, to }),
            WeightType::BF16 => pack_floats::<2, 2>(row, lane, to),
            // Named one by one, so that each type is compiled by itself.
            WeightType::Q8_0 => pack_blocks(isa, WeightType::Q8_0, row, lane, to),
            WeightType::Q4_0 => pack_blocks(isa, WeightType::Q4_0, row, lane, to),
            WeightType::Q4_1 => pack_blocks(isa, WeightType::Q4_1, row, lane, to),
            WeightType::Q5_0 => pack_blocks(isa, WeightType::Q5_0, row, lane, to),
            WeightType::Q5_1 => pack_blocks(isa, WeightType::Q5_1, row, lane, to),
            WeightType::Q4_K => pack_blocks(isa, WeightType::Q4_K, row, lane, to),
            WeightType::Q5_K => pack_blocks(isa, WeightType::Q5_K, row, lane, to),
            WeightType::Q6_K => pack_blocks(isa, WeightType::Q6_K, row, lane, to),
        }
    }
}

/// Copies one row of elements of `BYTES` bytes into its lane, `GROUP` inputs side by side.
fn pack_floats<const BYTES: usize, const GROUP: usize>(
    row: &SourceRow<'_>,
    lane: usize,
    to: &mut [u8],
) {
    for k in 0..row.inputs {
        let from = &row.bytes[row.start + k * row.step..][..BYTES];
        let at = (k / GROUP * PANEL_OUTPUTS + lane) * GROUP + k % GROUP;
        to[at * BYTES..][..BYTES].copy_from_slice(from);
    }
}

/// Copies one row of blocks into its lane.
#[inline(always)]
fn pack_blocks(isa: Isa, weight_type: WeightType, row: &SourceRow<'_>, lane: usize, to: &mut [u8]) {
    let blocks = row.bytes[row.start..].chunks_exact(weight_type.block_bytes());
    for (bytes, to) in blocks.zip(to.chunks_exact_mut(panel_block_bytes(weight_type))) {
        lane::pack(FileBlock { weight_type, bytes }, lane, flip(isa), to);
    }
}

/// What whole bytes are XORed with: an offset by 128, where the instruction set wants it.
fn flip(isa: Isa) -> u8 {
    if offset_w8(isa) { 128 } else { 0 }
}

/// Writes the f32 weights of one lane of a block.
fn unpack_block(isa: Isa, weight_type: WeightType, block: &[u8], lane: usize, out: &mut [f32]) {
    let half_at = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
    match weight_type {
        WeightType::F32 => {
            let bytes = &block[lane * 4..][..4];
            out[0] = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        WeightType::F16 => words::unpack(block, lane, out),
        WeightType::BF16 => {
            for (k, out) in out.iter_mut().enumerate() {
                *out = bf16::from_bits(half_at(lane * 4 + k * 2)).to_f32();
            }
        }
        _ => lane::unpack(weight_type, block, lane, flip(isa), out),
    }
}
