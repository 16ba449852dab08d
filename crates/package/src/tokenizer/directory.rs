//! Tokenizers from a directory of Hugging Face files.

use super::description::{Added, Description, Roles, Splitting, TokenName, merge_pair};
use super::error::TokenizerError;
use super::json;
use super::pre::PreRule;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;

/// Largest file read: the largest `tokenizer.json` of known models has 35 MB.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Names of the vocabulary and of its merges: Hugging Face's, and OpenAI's original ones.
const VOCABULARY_FILES: [(&str, &str); 2] =
    [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")];

/// Reads what a directory's files say about the tokenizer.
pub(super) fn describe(directory: &Path) -> Result<Description, TokenizerError> {
    let config = read_json(&directory.join("tokenizer_config.json"))?.unwrap_or(Value::Null);
    let roles = roles(directory, &config)?;
    if let Some(json) = read(&directory.join("tokenizer.json"))? {
        return json::describe(&json, roles);
    }
    for (vocabulary, merges) in VOCABULARY_FILES {
        if let (Some(vocabulary), Some(merges)) =
            (read(&directory.join(vocabulary))?, read(&directory.join(merges))?)
        {
            let added = read_json(&directory.join("added_tokens.json"))?.unwrap_or(Value::Null);
            return from_vocabulary(&vocabulary, &merges, &config, &added, roles);
        }
    }
    Err(TokenizerError::Missing { directory: directory.display().to_string() })
}

fn roles(directory: &Path, config: &Value) -> Result<Roles, TokenizerError> {
    let map = read_json(&directory.join("special_tokens_map.json"))?.unwrap_or(Value::Null);
    let named =
        |key: &str| token_text(&config[key]).or_else(|| token_text(&map[key])).map(TokenName::Text);
    let mut ends = Vec::new();
    for file in ["generation_config.json", "config.json"] {
        if let Some(value) = read_json(&directory.join(file))? {
            ends.extend(ids(&value["eos_token_id"]));
        }
    }
    let adds_bos = config["add_bos_token"].as_bool();
    Ok(Roles { bos: named("bos_token"), eos: named("eos_token"), ends, adds_bos })
}

/// A vocabulary with merges, as the class named in `tokenizer_config.json` uses them; without a
/// name they are GPT-2's.
fn from_vocabulary(
    vocabulary: &[u8],
    merges: &[u8],
    config: &Value,
    added: &Value,
    mut roles: Roles,
) -> Result<Description, TokenizerError> {
    let damaged = |problem: String| TokenizerError::Damaged(problem);
    let mut vocabulary: HashMap<String, u32> = serde_json::from_slice(vocabulary)
        .map_err(|error| damaged(format!("the vocabulary: {error}")))?;
    let merges = std::str::from_utf8(merges)
        .map_err(|_| damaged("the merges are not valid UTF-8".to_owned()))?
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("#version"))
        .map(merge_pair)
        .collect::<Result<_, _>>()?;
    let class = config["tokenizer_class"].as_str().unwrap_or("GPT2Tokenizer");
    let splitting = splitting_of_class(class)?;
    let end_of_text = "<|endoftext|>";
    if class.starts_with("GPT2") && vocabulary.contains_key(end_of_text) {
        // The class's own defaults.
        let name = || Some(TokenName::Text(end_of_text.to_owned()));
        roles.bos = roles.bos.take().or_else(name);
        roles.eos = roles.eos.take().or_else(name);
    }
    let added = added_tokens(config, added, &vocabulary, &roles);
    for token in &added {
        vocabulary.entry(token.token.content.clone()).or_insert(token.id);
    }
    let vocabulary = vocabulary.into_iter().collect();
    Ok(Description { vocabulary, merges, added, splitting, roles })
}

fn splitting_of_class(class: &str) -> Result<Splitting, TokenizerError> {
    match class.trim_end_matches("Fast") {
        "GPT2Tokenizer" => Ok(PreRule::Gpt2.splitting()),
        "Qwen2Tokenizer" => {
            Ok(Splitting { normalizer: json!({"type": "NFC"}), ..PreRule::Qwen2.splitting() })
        }
        _ => Err(TokenizerError::Unsupported {
            what: "the tokenizer class",
            name: class.to_owned(),
            supported: "GPT2Tokenizer and Qwen2Tokenizer are; others need a tokenizer.json"
                .to_owned(),
        }),
    }
}

/// Tokens outside BPE, by id: from `added_tokens_decoder`, from `added_tokens.json` and from the
/// names of BOS and EOS.
fn added_tokens(
    config: &Value,
    added: &Value,
    vocabulary: &HashMap<String, u32>,
    roles: &Roles,
) -> Vec<Added> {
    let mut tokens = BTreeMap::new();
    for (text, id) in added.as_object().into_iter().flatten() {
        if let Some(id) = id.as_u64().and_then(|id| u32::try_from(id).ok()) {
            tokens.insert(id, Added::literal(id, text, true));
        }
    }
    for (id, token) in config["added_tokens_decoder"].as_object().into_iter().flatten() {
        if let (Ok(id), Some(text)) = (id.parse(), token["content"].as_str()) {
            let special = token["special"].as_bool().unwrap_or(false);
            tokens.insert(id, Added::literal(id, text, special));
        }
    }
    for name in [&roles.bos, &roles.eos].into_iter().flatten() {
        if let TokenName::Text(text) = name
            && let Some(id) = vocabulary.get(text)
        {
            tokens.insert(*id, Added::literal(*id, text, true));
        }
    }
    tokens.into_values().collect()
}

/// A token given as its text, or as an object with its `content`.
fn token_text(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value["content"].as_str()).map(str::to_owned)
}

/// One id, or a list of them.
fn ids(value: &Value) -> Vec<TokenName> {
    let one =
        |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok()).map(TokenName::Id);
    match value {
        Value::Array(values) => values.iter().filter_map(one).collect(),
        value => one(value).into_iter().collect(),
    }
}

/// A file's bytes; `None` where there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>, TokenizerError> {
    let failed =
        |problem: String| TokenizerError::File { file: path.display().to_string(), problem };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error.to_string())),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("larger than the limit of {FILE_BYTES_MAX} bytes")));
    }
    Ok(Some(bytes))
}

fn read_json(path: &Path) -> Result<Option<Value>, TokenizerError> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| TokenizerError::File {
        file: path.display().to_string(),
        problem: format!("not valid JSON: {error}"),
    })
}
