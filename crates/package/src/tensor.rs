//! How a tensor lies in a file: element types, shapes, and the order of a matrix's numbers.

/// The element types that the project computes with. Block types hold 32 weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of a single-precision number.
    BF16,
    /// Blocks of 32: an f16 scale and 32 signed bytes.
    Q8_0,
    /// Blocks of 32: an f16 scale and 32 four-bit numbers, minus 8.
    Q4_0,
    /// Blocks of 32: f16 scale and minimum, and 32 four-bit numbers.
    Q4_1,
}

impl DType {
    /// Elements in one block; 1 for the plain types.
    pub fn block_elements(self) -> usize {
        match self {
            DType::F32 | DType::F16 | DType::BF16 => 1,
            DType::Q8_0 | DType::Q4_0 | DType::Q4_1 => 32,
        }
    }

    /// Bytes of one block (of one number for the plain types).
    pub fn block_bytes(self) -> usize {
        match self {
            DType::F32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::Q8_0 => 34,
            DType::Q4_0 => 18,
            DType::Q4_1 => 20,
        }
    }

    /// The name that both file formats use.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "F32",
            DType::F16 => "F16",
            DType::BF16 => "BF16",
            DType::Q8_0 => "Q8_0",
            DType::Q4_0 => "Q4_0",
            DType::Q4_1 => "Q4_1",
        }
    }
}

/// A tensor in a mapped file: nothing is copied.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor<'a> {
    /// Its name in the file.
    pub name: &'a str,
    /// The type of its elements.
    pub dtype: DType,
    /// Outermost dimension first; the last one is contiguous.
    pub shape: Vec<usize>,
    /// The elements, row-major; as many bytes as `shape` and `dtype` need.
    pub bytes: &'a [u8],
}

/// The order in which a matrix's output rows are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOrder {
    /// Row `o` is output `o`; rotary pairs are `(i, i + head_dim / 2)` of each head.
    Natural,
    /// GGUF's `llama`: the rotary pairs of a head are neighbours. Output row
    /// `h * head_dim + s * head_dim / 2 + i` (with `s` 0 or 1) is stored as row
    /// `h * head_dim + 2 * i + s`.
    InterleavedRope {
        /// Rows of one head.
        head_dim: usize,
    },
}

/// A weight matrix `y = W x`, with what is needed to read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix<'a> {
    /// Where the numbers are.
    pub tensor: Tensor<'a>,
    /// Length of `y`.
    pub outputs: usize,
    /// Length of `x`.
    pub inputs: usize,
    /// `true`: stored inputs × outputs, as GPT-2's Conv1D; `false`: outputs × inputs.
    pub input_major: bool,
    /// Which output a stored row is.
    pub row_order: RowOrder,
}
