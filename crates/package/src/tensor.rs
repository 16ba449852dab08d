//! How a tensor lies in a file: element types, shapes, and the order of a matrix's numbers.

/// The element types that the project computes with. Block types hold 32 or 256 weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)] // The format's own names.
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
    /// Blocks of 32: an f16 scale and 32 five-bit numbers, minus 16.
    Q5_0,
    /// Blocks of 32: f16 scale and minimum, and 32 five-bit numbers.
    Q5_1,
    /// Blocks of 256: f16 scale and minimum, six bits for each of both in each 32 numbers, and 256
    /// four-bit numbers.
    Q4_K,
    /// As `Q4_K`, with five-bit numbers.
    Q5_K,
    /// Blocks of 256: an f16 scale, eight bits for it in each 16 numbers, and 256 six-bit numbers,
    /// minus 32.
    Q6_K,
}

impl DType {
    /// Elements in one block; 1 for the plain types.
    pub fn block_elements(self) -> usize {
        match self {
            DType::F32 | DType::F16 | DType::BF16 => 1,
            DType::Q8_0 | DType::Q4_0 | DType::Q4_1 | DType::Q5_0 | DType::Q5_1 => 32,
            DType::Q4_K | DType::Q5_K | DType::Q6_K => 256,
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
            DType::Q5_0 => 22,
            DType::Q5_1 => 24,
            DType::Q4_K => 144,
            DType::Q5_K => 176,
            DType::Q6_K => 210,
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
            DType::Q5_0 => "Q5_0",
            DType::Q5_1 => "Q5_1",
            DType::Q4_K => "Q4_K",
            DType::Q5_K => "Q5_K",
            DType::Q6_K => "Q6_K",
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
