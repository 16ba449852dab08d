//! Tokenizers from a `tokenizer.json`, Hugging Face's format.
//!
//! The parts are taken out here and checked, and only then given to the library: its own reader
//! panics on some damaged files.

use super::description::{Added, Description, Roles, Splitting, TokenName, merge_pair};
use super::error::TokenizerError;
use serde_json::Value;
use tokenizers::AddedToken;

/// Normalizers that byte-level tokenizers use.
const NORMALIZERS: [&str; 6] = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Sequence"];
/// Pre-tokenizers that byte-level tokenizers use.
const PRE_TOKENIZERS: [&str; 5] = ["ByteLevel", "Split", "Digits", "Punctuation", "Sequence"];

/// Reads the text of a `tokenizer.json`; `roles` is what other files say.
pub(super) fn describe(json: &[u8], mut roles: Roles) -> Result<Description, TokenizerError> {
    let mut json: Value = serde_json::from_slice(json)
        .map_err(|error| TokenizerError::Damaged(format!("tokenizer.json: {error}")))?;
    if !json.is_object() {
        return Err(damaged("it is no object"));
    }
    let mut model = json["model"].take();
    check_model(&model)?;
    let splitting = Splitting {
        normalizer: json["normalizer"].take(),
        pre_tokenizer: json["pre_tokenizer"].take(),
        ignore_merges: model["ignore_merges"].as_bool().unwrap_or(false),
    };
    check_parts(&splitting.normalizer, "normalizers", "the normalizer", &NORMALIZERS)?;
    let byte_level = check_parts(
        &splitting.pre_tokenizer,
        "pretokenizers",
        "the pre-tokenizer",
        &PRE_TOKENIZERS,
    )?;
    if !byte_level {
        return Err(unsupported("the tokenizer", "BPE without ByteLevel", "byte-level BPE is"));
    }
    let first = first_special(&json["post_processor"]);
    roles.adds_bos = Some(roles.adds_bos.unwrap_or(first.is_some()));
    roles.bos = roles.bos.take().or_else(|| first.map(TokenName::Text));
    Ok(Description {
        vocabulary: vocabulary(model["vocab"].take())?,
        merges: merges(model["merges"].take())?,
        added: added(&json["added_tokens"])?,
        splitting,
        roles,
    })
}

fn damaged(what: &str) -> TokenizerError {
    TokenizerError::Damaged(format!("tokenizer.json: {what}"))
}

fn unsupported(what: &'static str, name: &str, supported: &str) -> TokenizerError {
    TokenizerError::Unsupported { what, name: name.to_owned(), supported: supported.to_owned() }
}

/// Refuses models and settings that this crate's rules do not hold for.
fn check_model(model: &Value) -> Result<(), TokenizerError> {
    // Old files leave the type out; only BPE has merges.
    let kind = model["type"].as_str().unwrap_or(match model["merges"] {
        Value::Array(_) => "BPE",
        _ => "without a type",
    });
    if kind != "BPE" {
        return Err(unsupported("the tokenizer model", kind, "byte-level BPE is"));
    }
    for setting in ["dropout", "continuing_subword_prefix", "end_of_word_suffix"] {
        let value = &model[setting];
        if !value.is_null() && value.as_str() != Some("") && value.as_f64() != Some(0.0) {
            return Err(unsupported("the BPE setting", setting, "files without it are"));
        }
    }
    Ok(())
}

/// Checks that every part's type is among `known`; says whether one is `ByteLevel`.
fn check_parts(
    part: &Value,
    children: &str,
    what: &'static str,
    known: &[&str],
) -> Result<bool, TokenizerError> {
    if part.is_null() {
        return Ok(false);
    }
    let kind = part["type"].as_str().ok_or_else(|| damaged(&format!("{what} has no type")))?;
    if !known.contains(&kind) {
        return Err(unsupported(what, kind, &format!("{} are", known.join(", "))));
    }
    let mut byte_level = kind == "ByteLevel";
    for child in part[children].as_array().into_iter().flatten() {
        // A sequence in a sequence is nobody's format, and could be nested without end.
        if child["type"] == "Sequence" {
            return Err(unsupported(what, "Sequence in a Sequence", "one level is"));
        }
        byte_level |= check_parts(child, children, what, known)?;
    }
    Ok(byte_level)
}

fn vocabulary(value: Value) -> Result<Vec<(String, u32)>, TokenizerError> {
    let Value::Object(entries) = value else { return Err(damaged("the model has no vocab")) };
    let id = |value: Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    entries
        .into_iter()
        .map(|(text, value)| id(value).map(|id| (text, id)))
        .collect::<Option<_>>()
        .ok_or_else(|| damaged("a token id in vocab is no number"))
}

/// Merges are pairs, in old files written as one text.
fn merges(value: Value) -> Result<Vec<(String, String)>, TokenizerError> {
    let Value::Array(merges) = value else { return Err(damaged("the model has no merges")) };
    let pair = |merge: Value| match merge {
        Value::String(written) => merge_pair(&written),
        Value::Array(pair) => match <[Value; 2]>::try_from(pair) {
            Ok([Value::String(left), Value::String(right)]) => Ok((left, right)),
            _ => Err(damaged("a merge is no pair of texts")),
        },
        _ => Err(damaged("a merge is no pair of texts")),
    };
    merges.into_iter().map(pair).collect()
}

fn added(value: &Value) -> Result<Vec<Added>, TokenizerError> {
    let one = |value: &Value| {
        let id = u32::try_from(value["id"].as_u64()?).ok()?;
        let flag = |name: &str| value[name].as_bool();
        let special = flag("special").unwrap_or(false);
        let token = AddedToken::from(value["content"].as_str()?, special)
            .single_word(flag("single_word").unwrap_or(false))
            .lstrip(flag("lstrip").unwrap_or(false))
            .rstrip(flag("rstrip").unwrap_or(false))
            .normalized(flag("normalized").unwrap_or(!special));
        Some(Added { id, token })
    };
    let tokens = value.as_array().into_iter().flatten();
    tokens.map(one).collect::<Option<_>>().ok_or_else(|| damaged("an added token is incomplete"))
}

/// The special token that a post-processor puts before a single text.
fn first_special(processor: &Value) -> Option<String> {
    match processor["type"].as_str()? {
        "Sequence" => processor["processors"]
            .as_array()?
            .iter()
            .find_map(|part| if part["type"] == "Sequence" { None } else { first_special(part) }),
        "TemplateProcessing" => {
            Some(processor["single"][0]["SpecialToken"]["id"].as_str()?.to_owned())
        }
        "RobertaProcessing" | "BertProcessing" => Some(processor["cls"][0].as_str()?.to_owned()),
        _ => None,
    }
}
