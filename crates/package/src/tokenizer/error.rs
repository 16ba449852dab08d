//! What can be wrong with a tokenizer, or with a text given to it.

use crate::gguf::GgufError;

/// Why a tokenizer could not be loaded or could not encode a text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The directory has neither `tokenizer.json` nor a vocabulary with merges.
    #[error(
        "no tokenizer in {directory}: it has neither tokenizer.json nor vocab.json with merges.txt"
    )]
    Missing {
        /// Where it was looked for.
        directory: String,
    },
    /// A file of the tokenizer could not be read.
    #[error("{file}: {problem}")]
    File {
        /// The file.
        file: String,
        /// What went wrong.
        problem: String,
    },
    /// A GGUF file's metadata was damaged.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A GGUF file without a part that every tokenizer has.
    #[error("the GGUF file has no {0:?}: it carries no tokenizer that can be used")]
    MissingKey(&'static str),
    /// A kind of tokenizer other than byte-level BPE.
    #[error("{what} {name:?} is not supported; {supported}")]
    Unsupported {
        /// What was named: the tokenizer model, the pre-tokenizer, …
        what: &'static str,
        /// Its name in the file.
        name: String,
        /// What would be.
        supported: String,
    },
    /// The parts contradict each other.
    #[error("the tokenizer is damaged: {0}")]
    Damaged(String),
    /// A text beyond the limit.
    #[error("the text has {bytes} bytes, over the limit of {limit}")]
    TextTooLong {
        /// Bytes of the text.
        bytes: usize,
        /// The most that is accepted.
        limit: usize,
    },
    /// The tokenizer library refused.
    #[error("the text cannot be encoded: {0}")]
    Encode(String),
}
