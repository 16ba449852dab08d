//! Tokenizers from GGUF metadata (`tokenizer.ggml.*`).

use super::description::{Added, Description, KNOWN_ENDS, Roles, TokenName, merge_pair};
use super::error::TokenizerError;
use super::pre::PreRule;
use crate::gguf::Metadata;
use std::collections::HashSet;

/// Token types in `tokenizer.ggml.token_type` (llama.cpp's `llama_token_type`).
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// Reads what the metadata says about the tokenizer.
pub(super) fn describe(metadata: &Metadata) -> Result<Description, TokenizerError> {
    let model = metadata
        .string("tokenizer.ggml.model")?
        .ok_or(TokenizerError::MissingKey("tokenizer.ggml.model"))?;
    if model != "gpt2" {
        return Err(TokenizerError::Unsupported {
            what: "the tokenizer model",
            name: model.to_owned(),
            supported: "\"gpt2\" (byte-level BPE) is".to_owned(),
        });
    }
    let rule = PreRule::from_name(metadata.string("tokenizer.ggml.pre")?.unwrap_or("default"))?;
    let tokens = metadata
        .strings("tokenizer.ggml.tokens")?
        .ok_or(TokenizerError::MissingKey("tokenizer.ggml.tokens"))?;
    let merges = metadata
        .strings("tokenizer.ggml.merges")?
        .ok_or(TokenizerError::MissingKey("tokenizer.ggml.merges"))?;
    let types = metadata.integers("tokenizer.ggml.token_type")?.unwrap_or_default();
    if !types.is_empty() && types.len() != tokens.len() {
        return Err(TokenizerError::Damaged(format!(
            "{} tokens, but {} token types",
            tokens.len(),
            types.len()
        )));
    }
    let id = |key: &str| -> Result<Option<TokenName>, TokenizerError> {
        Ok(metadata.u32(key)?.map(TokenName::Id))
    };
    let ends = [id("tokenizer.ggml.eot_token_id")?, id("tokenizer.ggml.eom_token_id")?];
    let (vocabulary, added) = entries(&tokens, &types);
    Ok(Description {
        vocabulary,
        merges: merges.into_iter().map(merge_pair).collect::<Result<_, _>>()?,
        added,
        splitting: rule.splitting(),
        roles: Roles {
            bos: id("tokenizer.ggml.bos_token_id")?,
            eos: id("tokenizer.ggml.eos_token_id")?,
            ends: ends.into_iter().flatten().collect(),
            adds_bos: Some(
                metadata.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(rule.adds_bos()),
            ),
        },
    })
}

/// The vocabulary, and those of its tokens that BPE does not make. Some files name a text twice;
/// the first id is the one that text is encoded to.
fn entries(tokens: &[&str], types: &[i64]) -> (Vec<(String, u32)>, Vec<Added>) {
    let mut seen: HashSet<&str> = HashSet::with_capacity(tokens.len());
    let mut vocabulary = Vec::with_capacity(tokens.len());
    let mut added = Vec::new();
    for (index, (id, text)) in (0u32..).zip(tokens).enumerate() {
        if text.is_empty() || !seen.insert(text) {
            continue;
        }
        vocabulary.push(((*text).to_owned(), id));
        match types.get(index) {
            Some(&(UNKNOWN | CONTROL)) => added.push(Added::literal(id, text, true)),
            Some(&USER_DEFINED) => added.push(Added::literal(id, text, false)),
            // Old files call every token a normal one; llama.cpp corrects these too.
            _ if text.starts_with("<|") && KNOWN_ENDS.contains(text) => {
                added.push(Added::literal(id, text, true));
            }
            _ => {}
        }
    }
    (vocabulary, added)
}
