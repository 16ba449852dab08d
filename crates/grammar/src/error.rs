//! Why something is no grammar, or a token no part of an answer.

/// Why a [`Grammar`](crate::Grammar) cannot be held. The texts are for whoever sent it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// It means something that cannot be held exactly.
    #[error("{feature} is not supported (at {path})")]
    Unsupported {
        /// The keyword, and what about it, if not all of it.
        feature: String,
        /// Where it is in the schema, as a JSON pointer in a URI fragment: `#/properties/a`.
        /// `#` for what comes of several places together.
        path: String,
    },
    /// It, or what it would take to hold it, is beyond a limit.
    #[error("{what} is beyond the limit of {limit}")]
    TooLarge {
        /// What was counted.
        what: &'static str,
        /// The most that is allowed.
        limit: usize,
    },
    /// It is not well formed, or no answer can satisfy it.
    #[error("{message} (at {path})")]
    Invalid {
        /// What is wrong.
        message: String,
        /// Where, as in [`GrammarError::Unsupported`].
        path: String,
    },
}

impl GrammarError {
    pub(crate) fn unsupported(feature: impl Into<String>, path: &str) -> Self {
        GrammarError::Unsupported { feature: feature.into(), path: path.to_owned() }
    }

    pub(crate) fn invalid(message: impl Into<String>, path: &str) -> Self {
        GrammarError::Invalid { message: message.into(), path: path.to_owned() }
    }
}

/// Why an answer cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The token is none of those that were allowed. The constraint is as it was before.
    #[error("token {token} is not allowed here")]
    NotAllowed {
        /// The token's id.
        token: u32,
    },
    /// No token of the vocabulary goes on with the answer.
    #[error("no token can follow")]
    NoToken,
    /// To say what may follow would take more work than a step may.
    #[error("the grammar is too complex here: {message}")]
    TooComplex {
        /// What `llguidance` says.
        message: String,
    },
}
