//! Why the rows cannot be checked.

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
    /// The prompt is too short or too long for this model.
    #[error("the prompt has {tokens} tokens in this model's vocabulary, which {problem}")]
    Prompt {
        /// Its tokens.
        tokens: usize,
        /// What is wrong with that.
        problem: &'static str,
    },
}
