//! Why a model cannot be loaded, or a step cannot be run.

use package::Config;

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A weight is missing or cannot be read.
    #[error(transparent)]
    Weights(#[from] package::WeightsError),
    /// A weight cannot be brought into the kernels' form.
    #[error("{part}: {source}")]
    Pack {
        /// Which matrix.
        part: String,
        /// What is wrong with it.
        source: kernels::PackError,
    },
    /// The rotary embedding cannot be computed.
    #[error(transparent)]
    Rope(#[from] kernels::RopeError),
    /// A norm has no gain.
    #[error("the model has no weight for {0}")]
    MissingNorm(String),
    /// Two matrices that read the same input disagree about its width.
    #[error("{0} read inputs of different widths")]
    Inputs(String),
}

/// Why a step could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// A token id beyond the vocabulary.
    #[error("token {token} is beyond the vocabulary of {vocab}")]
    Token {
        /// The id.
        token: u32,
        /// Ids that the model has.
        vocab: usize,
    },
    /// A position beyond the context.
    #[error("position {position} is beyond the context of {context}")]
    Position {
        /// The position.
        position: usize,
        /// Positions that the model has.
        context: usize,
    },
    /// Logits were asked for of a row that the step does not have.
    #[error("logits were asked for of row {row}, but the step has {rows} rows")]
    Row {
        /// The row asked for.
        row: usize,
        /// Rows of the step.
        rows: usize,
    },
    /// The step has no rows, or not as many places as tokens.
    #[error("a step of {tokens} tokens at {places} places")]
    Places {
        /// Tokens given.
        tokens: usize,
        /// Places given.
        places: usize,
    },
    /// The K/V could not be stored.
    #[error(transparent)]
    Kv(#[from] kernels::KvError),
}

impl ForwardError {
    /// Checks a step's tokens, positions and rows against the model.
    pub(crate) fn check(
        config: &Config,
        tokens: &[u32],
        positions: impl ExactSizeIterator<Item = usize>,
        logit_rows: &[usize],
    ) -> Result<(), ForwardError> {
        let (rows, vocab, context) = (tokens.len(), config.vocab, config.context);
        if rows == 0 || positions.len() != rows {
            return Err(ForwardError::Places { tokens: rows, places: positions.len() });
        }
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocab) {
            return Err(ForwardError::Token { token, vocab });
        }
        if let Some(position) = positions.into_iter().find(|&position| position >= context) {
            return Err(ForwardError::Position { position, context });
        }
        match logit_rows.iter().find(|&&row| row >= rows) {
            Some(&row) => Err(ForwardError::Row { row, rows }),
            None => Ok(()),
        }
    }
}
