//! DistilGPT-2's real weights: how they are known.

use package::{Package, Part};

use crate::oracle::{Oracle, matrix_row};

/// What the article prints of the embedding of 464.
pub(crate) const FIRST: [f64; 8] = [
    -0.06264858692884445,
    -0.04490645229816437,
    0.0558876097202301,
    -0.05465700104832649,
    -0.1171262264251709,
    -0.07286953926086426,
    -0.22325637936592102,
    -0.0032198030967265368,
];
/// The row of the token table that these are from.
const ID: usize = 464;
/// Numbers this near are meant to be the article's; whether they are is for a row to say.
const NEAR: f64 = 0.01;

/// Whether `package` is meant to be DistilGPT-2 with its real weights.
pub(crate) fn is_meant_to_be(package: &Package) -> bool {
    let Ok(table) = Oracle::new(package).matrix(Part::TokenEmbedding) else { return false };
    if table.outputs <= ID || table.inputs < FIRST.len() {
        return false;
    }
    let found = matrix_row(&table, ID);
    FIRST.iter().zip(found).all(|(expected, found)| (expected - found).abs() < NEAR)
}
