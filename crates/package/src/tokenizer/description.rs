//! What a loader finds out about a tokenizer, whatever files it came from.

use super::error::TokenizerError;
use serde_json::Value;
use std::collections::HashSet;
use tokenizers::AddedToken;
use tokenizers::models::bpe::{BPE, BpeBuilder, Vocab};

/// Special tokens that end an answer in every family that has them, whether or not the files say
/// so (llama.cpp's list, `src/llama-vocab.cpp`): chat models end a turn with one of them and a
/// text with another.
pub(super) const KNOWN_ENDS: [&str; 12] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<|eot|>",
    "<|EOT|>",
    "<EOT>",
    "<｜end▁of▁sentence｜>",
];

/// A token named by its id or by its text; files do either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenName {
    /// By id.
    Id(u32),
    /// By text.
    Text(String),
}

/// A token that is found in the text before BPE sees it.
#[derive(Debug, Clone)]
pub(super) struct Added {
    pub(super) id: u32,
    pub(super) token: AddedToken,
}

impl Added {
    /// A token whose text is taken as it is. Control tokens are special; user-defined ones are
    /// ordinary text that is never split.
    pub(super) fn literal(id: u32, text: &str, special: bool) -> Added {
        Added { id, token: AddedToken::from(text, special).normalized(false) }
    }
}

/// How text is split before BPE; the values are parts of a `tokenizer.json`.
#[derive(Debug, Clone)]
pub(super) struct Splitting {
    pub(super) normalizer: Value,
    pub(super) pre_tokenizer: Value,
    /// Whether a piece that is a token as a whole is taken without looking at the merges.
    pub(super) ignore_merges: bool,
}

/// The tokens that have a role, and whether BOS is put before a text.
#[derive(Debug, Clone, Default)]
pub(super) struct Roles {
    pub(super) bos: Option<TokenName>,
    pub(super) eos: Option<TokenName>,
    /// Further tokens that end an answer.
    pub(super) ends: Vec<TokenName>,
    pub(super) adds_bos: Option<bool>,
}

/// A byte-level BPE tokenizer, as its files describe it.
#[derive(Debug)]
pub(super) struct Description {
    /// Each entry as the vocabulary writes it, with its id; texts are unique.
    pub(super) vocabulary: Vec<(String, u32)>,
    /// Pairs of entries, the first to be merged first.
    pub(super) merges: Vec<(String, String)>,
    pub(super) added: Vec<Added>,
    pub(super) splitting: Splitting,
    pub(super) roles: Roles,
}

/// Splits a merge that is written as two entries with a space between them.
pub(super) fn merge_pair(written: &str) -> Result<(String, String), TokenizerError> {
    written
        .split_once(' ')
        .map(|(left, right)| (left.to_owned(), right.to_owned()))
        .ok_or_else(|| TokenizerError::Damaged(format!("the merge {written:?} is no pair")))
}

/// Makes the BPE model.
///
/// The merges are checked first: for one whose result is longer than every entry, the library
/// would write past its buffer and panic.
pub(super) fn model(
    vocabulary: &[(String, u32)],
    merges: Vec<(String, String)>,
    ignore_merges: bool,
) -> Result<BPE, TokenizerError> {
    let entries: HashSet<&str> = vocabulary.iter().map(|(text, _)| text.as_str()).collect();
    let mut joined = String::new();
    for (left, right) in &merges {
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        if let Some(missing) =
            [left, right, &joined].into_iter().find(|text| !entries.contains(text.as_str()))
        {
            return Err(TokenizerError::Damaged(format!(
                "the merge of {left:?} and {right:?} needs {missing:?}, \
                 which is not in the vocabulary"
            )));
        }
    }
    let vocabulary: Vocab = vocabulary.iter().cloned().collect();
    BpeBuilder::new()
        .vocab_and_merges(vocabulary, merges)
        .ignore_merges(ignore_merges)
        // The words of one text would be found sooner in the next, whoever's that is.
        .cache_capacity(0)
        .build()
        .map_err(|error| TokenizerError::Damaged(error.to_string()))
}
