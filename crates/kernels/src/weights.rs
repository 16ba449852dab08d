//! How weights are stored in files, and what a matrix to be packed looks like.

/// Inputs whose activations share one scale, where weights are quantized.
pub(crate) const BLOCK_INPUTS: usize = 32;

/// The types that weights may have, as in files of the GGUF format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)] // The format's own names.
pub enum WeightType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of single precision.
    BF16,
    /// Per 32 inputs an f16 scale `d` and signed bytes `q`: `d * q`.
    Q8_0,
    /// Per 32 inputs an f16 scale `d` and 4-bit numbers `q`: `d * (q - 8)`.
    Q4_0,
    /// Per 32 inputs an f16 scale `d`, an f16 minimum `m` and 4-bit numbers
    /// `q`: `d * q + m`.
    Q4_1,
    /// As `Q4_0` with 5-bit numbers: `d * (q - 16)`.
    Q5_0,
    /// As `Q4_1` with 5-bit numbers.
    Q5_1,
    /// Per 256 inputs two f16 numbers `d` and `m`, per 32 of them a 6-bit scale
    /// `s` and a 6-bit minimum `t`, and 4-bit numbers `q`: `d * s * q - m * t`.
    Q4_K,
    /// As `Q4_K` with 5-bit numbers.
    Q5_K,
    /// Per 256 inputs an f16 number `d`, per 16 of them a signed byte `s`, and
    /// 6-bit numbers `q`: `d * s * (q - 32)`.
    Q6_K,
}

impl WeightType {
    /// Whether inputs share a scale, so that activations are quantized too.
    pub const fn is_quantized(self) -> bool {
        !matches!(self, WeightType::F32 | WeightType::F16 | WeightType::BF16)
    }

    /// Inputs that are stored together: 32 or 256 if quantized, else 1.
    pub const fn block_inputs(self) -> usize {
        match self {
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => 1,
            WeightType::Q4_K | WeightType::Q5_K | WeightType::Q6_K => 256,
            _ => BLOCK_INPUTS,
        }
    }

    /// Bytes of one block of inputs in a file.
    pub const fn block_bytes(self) -> usize {
        match self {
            WeightType::F32 => 4,
            WeightType::F16 | WeightType::BF16 => 2,
            WeightType::Q8_0 => 2 + 32,
            WeightType::Q4_0 => 2 + 16,
            WeightType::Q4_1 => 2 + 2 + 16,
            WeightType::Q5_0 => 2 + 4 + 16,
            WeightType::Q5_1 => 2 + 2 + 4 + 16,
            WeightType::Q4_K => 2 + 2 + 12 + 128,
            WeightType::Q5_K => 2 + 2 + 12 + 32 + 128,
            WeightType::Q6_K => 128 + 64 + 16 + 2,
        }
    }
}

/// In which order a matrix stores the outputs of its attention heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowOrder {
    /// Output `i` is stored at `i`.
    Natural,
    /// Rope pairs lie side by side: of each head, output `s * half + i` (half
    /// `s`, pair `i`) is stored at `2 * i + s`, as in GGUF files of Llama.
    InterleavedRope {
        /// Outputs of one head; even.
        head_dim: usize,
    },
}

impl RowOrder {
    /// Where output `output` is stored.
    pub(crate) fn stored(self, output: usize) -> usize {
        match self {
            RowOrder::Natural => output,
            RowOrder::InterleavedRope { head_dim } => {
                let (head, within, half) = (output / head_dim, output % head_dim, head_dim / 2);
                head * head_dim + 2 * (within % half) + within / half
            }
        }
    }
}

/// A weight matrix as it lies in a file.
#[derive(Clone, Copy, Debug)]
pub struct MatrixSource<'a> {
    /// The type of its elements.
    pub weight_type: WeightType,
    /// Its elements, little-endian, without gaps, of any alignment.
    pub bytes: &'a [u8],
    /// Outputs (rows, unless `input_major`).
    pub outputs: usize,
    /// Inputs, over which a product sums.
    pub inputs: usize,
    /// Whether the elements of one input lie together, as in GPT-2's `Conv1D`,
    /// rather than those of one output. Not for quantized types.
    pub input_major: bool,
    /// The order of the outputs.
    pub row_order: RowOrder,
}
