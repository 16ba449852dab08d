//! The part of a package that turns messages into token ids: tokenizer and chat template.

use crate::chat::{ChatError, ChatTemplate, TEMPLATE_BYTES_MAX};
use crate::gguf::{GgufError, Metadata};
use crate::text_file;
use crate::tokenizer::{Tokenizer, TokenizerError};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Largest `tokenizer_config.json` read; it may list thousands of added tokens.
const CONFIG_BYTES_MAX: u64 = 64 << 20;

/// What is needed to make a prompt, without weights.
#[derive(Debug)]
pub struct TextPackage {
    /// Turns text into token ids and back.
    pub tokenizer: Tokenizer,
    /// Turns messages into text; `None` for a base model, which has none.
    pub chat_template: Option<ChatTemplate>,
}

/// Why tokenizer or chat template are not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// There is no tokenizer, or none that is supported.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template is no valid template.
    #[error("the chat template is not usable: {0}")]
    Template(#[from] ChatError),
    /// The metadata that should hold the chat template is damaged.
    #[error(transparent)]
    Metadata(#[from] GgufError),
    /// A file that should hold the chat template is damaged.
    #[error("{path}: {problem}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

impl TextPackage {
    /// From a GGUF file's `tokenizer.*`.
    pub(crate) fn from_gguf(metadata: &Metadata) -> Result<TextPackage, TextError> {
        let tokenizer = Tokenizer::from_gguf(metadata)?;
        let source = metadata.string("tokenizer.chat_template")?;
        TextPackage::new(tokenizer, source)
    }

    /// From a directory of Hugging Face files.
    pub(crate) fn from_directory(directory: &Path) -> Result<TextPackage, TextError> {
        let tokenizer = Tokenizer::from_directory(directory)?;
        TextPackage::new(tokenizer, template_source(directory)?.as_deref())
    }

    fn new(tokenizer: Tokenizer, source: Option<&str>) -> Result<TextPackage, TextError> {
        let text = |id: Option<u32>| id.map(|id| tokenizer.decode(&[id], true)).unwrap_or_default();
        let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos()));
        let chat_template =
            source.map(|source| ChatTemplate::new(source, &bos, &eos)).transpose()?;
        Ok(TextPackage { tokenizer, chat_template })
    }
}

/// `chat_template.jinja` as transformers writes it since 4.43, else the field of
/// `tokenizer_config.json`: one template, or several with names of which `default` counts.
fn template_source(directory: &Path) -> Result<Option<String>, TextError> {
    let read = |path: &Path, limit: u64| {
        let refuse = |problem: String| TextError::File { path: path.to_owned(), problem };
        text_file::read(path, limit).map_err(|error| refuse(error.to_string()))
    };
    let own_file = directory.join("chat_template.jinja");
    if let Some(source) = read(&own_file, TEMPLATE_BYTES_MAX as u64)? {
        return Ok(Some(source));
    }
    let path = directory.join("tokenizer_config.json");
    let Some(text) = read(&path, CONFIG_BYTES_MAX)? else { return Ok(None) };
    let config: Value = serde_json::from_str(&text)
        .map_err(|error| TextError::File { path, problem: error.to_string() })?;
    let field = &config["chat_template"];
    let named = field
        .as_array()
        .and_then(|templates| templates.iter().find(|template| template["name"] == "default"));
    let source = named.map_or(field, |template| &template["template"]);
    Ok(source.as_str().map(str::to_owned))
}
