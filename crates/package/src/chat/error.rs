//! What can go wrong with a chat template.

/// Why a template was refused, or could not render a conversation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The template is larger than any real one.
    #[error("the chat template has {bytes} bytes, over the limit of {limit}")]
    SourceTooLong {
        /// Bytes of the template.
        bytes: usize,
        /// The most that is accepted.
        limit: usize,
    },
    /// The template is no valid Jinja.
    #[error("the chat template is not valid: {0}")]
    Syntax(String),
    /// The template itself refused the conversation, with `raise_exception`.
    #[error("the model's chat template refuses this conversation: {0}")]
    Refused(String),
    /// The template did not finish within its limits.
    #[error("the chat template exceeds its limit of {0}")]
    Limit(&'static str),
    /// The template failed on this conversation.
    #[error("the model's chat template fails on this conversation: {0}")]
    Render(String),
    /// A message that this template cannot take.
    #[error("messages[{message}].content: {problem}")]
    Content {
        /// Which message.
        message: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A date that pins `strftime_now` but is none.
    #[error("{0:?} is no date; write it as 2026-11-29 or 2026-11-29T10:00:00")]
    Date(String),
    /// A file with a chat template could not be read.
    #[error("{file}: {problem}")]
    File {
        /// The file.
        file: String,
        /// What went wrong.
        problem: String,
    },
}
