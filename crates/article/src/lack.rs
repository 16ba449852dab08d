//! What is missing where a row is not run.

use serde::Serialize;

/// What a row lacks that is not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lack {
    /// Somebody who reads the documents.
    Reader,
    /// A model of DistilGPT-2's shape, or its vocabulary.
    Shape,
    /// DistilGPT-2's real weights.
    RealWeights,
    /// Something else, such as room in the context.
    Other,
}
