//! The part of a package that turns messages into token ids: tokenizer and chat template.

use crate::chat::{ChatError, ChatTemplate};
use crate::gguf::Metadata;
use crate::tokenizer::{Tokenizer, TokenizerError};
use std::path::Path;

/// What is needed to make a prompt, without weights.
#[derive(Debug)]
pub struct TextPackage {
    /// Turns text into token ids and back.
    pub tokenizer: Tokenizer,
    /// Turns messages into text; `None` for a base model, which has none.
    pub chat_template: Option<ChatTemplate>,
    /// Tokens of the model's context; `None` where no configuration that can be read says.
    pub context: Option<usize>,
}

/// Why tokenizer or chat template are not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// There is no tokenizer, or none that is supported.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template is damaged.
    #[error("the chat template is not usable: {0}")]
    Template(#[from] ChatError),
}

impl TextPackage {
    /// From a GGUF file's `tokenizer.*`; the context is the caller's to add.
    pub(crate) fn from_gguf(metadata: &Metadata) -> Result<TextPackage, TextError> {
        let tokenizer = Tokenizer::from_gguf(metadata)?;
        let chat_template = ChatTemplate::from_gguf(metadata, &tokenizer)?;
        Ok(TextPackage { tokenizer, chat_template, context: None })
    }

    /// From a directory of Hugging Face files; the context is the caller's to add.
    pub(crate) fn from_directory(directory: &Path) -> Result<TextPackage, TextError> {
        let tokenizer = Tokenizer::from_directory(directory)?;
        let chat_template = ChatTemplate::from_directory(directory, &tokenizer)?;
        Ok(TextPackage { tokenizer, chat_template, context: None })
    }
}
