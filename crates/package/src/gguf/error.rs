//! What can be wrong with a GGUF file.

/// Why a GGUF file was refused. Every variant names the part of the file that is wrong.
#[derive(Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum GgufError {
    /// The file does not begin with `GGUF`.
    #[error("not a GGUF file: it begins with {found:?} instead of \"GGUF\"")]
    WrongMagic {
        /// The first bytes, as text.
        found: String,
    },
    /// A version this reader does not know; a huge number means a big-endian file.
    #[error("GGUF version {0} is not supported (2 and 3 are; big-endian files are not)")]
    Version(u32),
    /// The file ends too early, or claims a length that it does not have.
    #[error(
        "the GGUF file is truncated or damaged: {what} at byte {offset} needs {needed} bytes, \
         {available} are left"
    )]
    Truncated {
        /// What was being read.
        what: String,
        /// Where in the file.
        offset: usize,
        /// Bytes it claims to have.
        needed: u64,
        /// Bytes left in the file.
        available: usize,
    },
    /// A count or length beyond this reader's limit.
    #[error("{what} is {value}, over the limit of {limit}")]
    TooLarge {
        /// What was counted.
        what: String,
        /// The value in the file.
        value: u64,
        /// The largest value accepted.
        limit: u64,
    },
    /// A string that should be text is not UTF-8.
    #[error("{what} is not valid UTF-8")]
    NotUtf8 {
        /// Which string.
        what: String,
    },
    /// A metadata value of a kind that GGUF does not define, or an array of arrays.
    #[error("metadata {key:?} has value type {kind}, which is not supported")]
    ValueKind {
        /// The metadata key.
        key: String,
        /// The type number in the file.
        kind: u32,
    },
    /// Two metadata entries or two tensors of one name.
    #[error("{what} {name:?} occurs twice")]
    Duplicate {
        /// "metadata" or "tensor".
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A metadata value is there, but not of the type that its key should have.
    #[error("metadata {key:?} should be {expected}")]
    WrongType {
        /// The metadata key.
        key: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A tensor's shape, type or place in the file is impossible.
    #[error("tensor {name:?}: {problem}")]
    Tensor {
        /// The tensor.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// `general.alignment` is no power of two, or beyond the limit.
    #[error("general.alignment is {0}; it must be a power of two between 1 and 65536")]
    Alignment(u32),
}
