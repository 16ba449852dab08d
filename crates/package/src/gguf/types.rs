//! ggml's element types: how large they are, and which of them the project computes with.

use crate::tensor::DType;

/// An element type by ggml's name, with the size of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GgmlType {
    number: u32,
    pub(super) name: &'static str,
    pub(super) block_elements: usize,
    pub(super) block_bytes: usize,
}

/// ggml's table (`ggml.h`, `ggml-common.h`): number, name, elements and bytes of a block. The
/// sizes of types that are not supported are here so that their place in a file is checked and
/// the error can name them.
#[rustfmt::skip]
const TYPES: [(u32, &str, usize, usize); 32] = [
    (0, "F32", 1, 4),         (1, "F16", 1, 2),         (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),      (6, "Q5_0", 32, 22),      (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),      (9, "Q8_1", 32, 36),      (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),   (12, "Q4_K", 256, 144),   (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),   (15, "Q8_K", 256, 292),   (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),  (18, "IQ3_XXS", 256, 98), (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),   (21, "IQ3_S", 256, 110),  (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136), (24, "I8", 1, 1),         (25, "I16", 1, 2),
    (26, "I32", 1, 4),        (27, "I64", 1, 8),        (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),   (30, "BF16", 1, 2),       (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),   (39, "MXFP4", 32, 17),
];

impl GgmlType {
    pub(super) fn from_number(wanted: u32) -> Option<GgmlType> {
        let (number, name, block_elements, block_bytes) =
            *TYPES.iter().find(|(number, ..)| *number == wanted)?;
        Some(GgmlType { number, name, block_elements, block_bytes })
    }

    /// The type to compute with, `None` when it is not supported.
    pub(super) fn dtype(self) -> Option<DType> {
        match self.number {
            0 => Some(DType::F32),
            1 => Some(DType::F16),
            2 => Some(DType::Q4_0),
            3 => Some(DType::Q4_1),
            6 => Some(DType::Q5_0),
            7 => Some(DType::Q5_1),
            8 => Some(DType::Q8_0),
            12 => Some(DType::Q4_K),
            13 => Some(DType::Q5_K),
            14 => Some(DType::Q6_K),
            30 => Some(DType::BF16),
            _ => None,
        }
    }
}
