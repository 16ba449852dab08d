//! Why the rows cannot be checked.

use std::path::PathBuf;

/// Why the rows cannot be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArticleError {
    /// The model cannot be loaded.
    #[error(transparent)]
    Load(#[from] engine::LoadError),
    /// No threads.
    #[error(transparent)]
    Team(#[from] kernels::TeamError),
    /// The tokenizer cannot encode the prompt.
    #[error(transparent)]
    Tokenizer(#[from] package::TokenizerError),
    /// The model cannot be opened again, to be given a chat template.
    #[error(transparent)]
    Package(#[from] package::PackageError),
    /// The plain chat template is refused.
    #[error(transparent)]
    Template(#[from] package::ChatError),
    /// A server's engine cannot be started.
    #[error(transparent)]
    Start(#[from] engine::StartError),
    /// No port can be listened at, or no thread started.
    #[error("a server cannot be started: {0}")]
    Server(#[from] std::io::Error),
    /// What was given as DistilGPT-2's real weights is another model.
    #[error("{path} is not DistilGPT-2: {problem}", path = path.display())]
    NotDistilGpt2 {
        /// What was given.
        path: PathBuf,
        /// What is different.
        problem: String,
    },
    /// The prompt is too short or too long for this model.
    #[error("the prompt has {tokens} tokens in this model's vocabulary, which {problem}")]
    Prompt {
        /// Its tokens.
        tokens: usize,
        /// What is wrong with that.
        problem: &'static str,
    },
}
