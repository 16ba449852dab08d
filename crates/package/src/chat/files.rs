//! Where a model's files keep its chat template.

use super::error::ChatError;
use crate::gguf::Metadata;
use crate::text_file;
use serde_json::Value;
use std::path::Path;

/// Largest file read: `tokenizer_config.json` of models with many added tokens has some MB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The template in a GGUF file's metadata.
pub(super) fn in_gguf(metadata: &Metadata) -> Result<Option<String>, ChatError> {
    metadata.string("tokenizer.chat_template").map(|source| source.map(str::to_owned)).map_err(
        |error| ChatError::File { file: "the GGUF file".to_owned(), problem: error.to_string() },
    )
}

/// The template of a directory: `chat_template.jinja`, else `chat_template` in
/// `chat_template.json` or `tokenizer_config.json`. Of several named ones it is `default`.
pub(super) fn in_directory(directory: &Path) -> Result<Option<String>, ChatError> {
    let jinja = read(&directory.join("chat_template.jinja"))?;
    if jinja.is_some() {
        return Ok(jinja);
    }
    for name in ["chat_template.json", "tokenizer_config.json"] {
        let path = directory.join(name);
        let Some(text) = read(&path)? else { continue };
        let config: Value =
            serde_json::from_str(&text).map_err(|error| failed(&path, error.to_string()))?;
        let template = match &config["chat_template"] {
            Value::Array(named) => named
                .iter()
                .find(|template| template["name"] == "default")
                .and_then(|template| template["template"].as_str()),
            template => template.as_str(),
        };
        if let Some(template) = template {
            return Ok(Some(template.to_owned()));
        }
    }
    Ok(None)
}

fn failed(path: &Path, problem: String) -> ChatError {
    ChatError::File { file: path.display().to_string(), problem }
}

/// A text file's contents; `None` where there is no such file.
fn read(path: &Path) -> Result<Option<String>, ChatError> {
    text_file::read(path, FILE_BYTES_MAX).map_err(|error| failed(path, error.to_string()))
}
