//! Why a trace cannot be replayed.

/// What is wrong with a trace, and with which line of it.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] std::io::Error),
    /// There is no request in it.
    #[error("there is no request in it")]
    Empty,
    /// A line is not what it should be.
    #[error("line {line}: {problem}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// The lines are requests' bodies, and nobody says which model tokenizes them.
    #[error("its lines are requests, which take a model's tokenizer to read")]
    NoModel,
    /// Less than the least that can be held.
    #[error("a capacity of {capacity} tokens holds no block of {block}")]
    TooSmall {
        /// The capacity, in tokens.
        capacity: u64,
        /// Tokens that are held together.
        block: u64,
    },
}

impl ReplayError {
    /// `problem` is about line `line`.
    pub(crate) fn at(line: u64, problem: impl Into<String>) -> Self {
        Self::Line { line, problem: problem.into() }
    }

    /// The error for a line that is no JSON, or not of the right kind.
    pub(crate) fn json(line: u64, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        // Each line is a document of its own, whose only line says nothing.
        let problem = text.split(" at line ").next().unwrap_or_default();
        Self::at(line, format!("column {}: {problem}", error.column()))
    }
}
