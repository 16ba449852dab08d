//! Opening a model package: a GGUF file, or a directory with `config.json`.

use crate::config::{Config, ConfigError};
use crate::gguf::{GgufError, GgufFile};
use crate::map::FileBytes;
use crate::tokenizer::{Tokenizer, TokenizerError};
use crate::weights::{Weights, WeightsError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest JSON or text file read whole.
const TEXT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Everything that comes with a model.
#[derive(Debug)]
pub struct Package {
    /// The file's or directory's name, without `.gguf`.
    pub name: String,
    /// Where it was opened.
    pub path: PathBuf,
    /// Dimensions and options.
    pub config: Config,
    /// The weights, mapped.
    pub weights: Weights,
    /// Turns text into token ids and back.
    pub tokenizer: Tokenizer,
    /// The licence as the package names it, for instance `apache-2.0`.
    pub license: Option<String>,
}

/// Why a package cannot be opened. The message says what to do where that is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// Nothing is there.
    #[error("{path} does not exist", path = .0.display())]
    NotFound(PathBuf),
    /// Something is there that is no model.
    #[error("{path} is not a model: {problem}", path = path.display())]
    NotAModel {
        /// What was asked for.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {error}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        error: std::io::Error,
    },
    /// A GGUF file is damaged.
    #[error("{path}: {error}", path = path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: GgufError,
    },
    /// The configuration is wrong or not supported.
    #[error("{path}: {error}", path = path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: ConfigError,
    },
    /// The weights are damaged, contradict the configuration, or are not supported.
    #[error("{path}: {error}", path = path.display())]
    Weights {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong.
        error: WeightsError,
    },
    /// There is no tokenizer, or none that is supported.
    #[error("{path}: {error}", path = path.display())]
    Tokenizer {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong.
        error: TokenizerError,
    },
    /// The tokenizer has ids for which the token embedding has no row.
    #[error(
        "{path}: the tokenizer contradicts the weights: it has {tokens} tokens, the model's \
         vocabulary {vocab}",
        path = path.display()
    )]
    Vocabulary {
        /// The file or directory.
        path: PathBuf,
        /// The tokenizer's highest id plus one.
        tokens: usize,
        /// Rows of the token embedding.
        vocab: usize,
    },
}

impl Package {
    /// Opens a `.gguf` file or a directory with `config.json`. Weights are mapped, not read;
    /// their shapes are checked against the configuration.
    ///
    /// # Errors
    /// [`PackageError`] that names the file and what is wrong with it.
    pub fn open(path: &Path) -> Result<Package, PackageError> {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Package::open_directory(path),
            Ok(_) => Package::open_gguf(path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(PackageError::NotFound(path.to_owned()))
            }
            Err(error) => Err(PackageError::Io { path: path.to_owned(), error }),
        }
    }

    fn open_gguf(path: &Path) -> Result<Package, PackageError> {
        let file = read_gguf(path)?;
        let at = |error| PackageError::Config { path: path.to_owned(), error };
        let config = Config::from_gguf(&file).map_err(at)?;
        let license = file.metadata().string("general.license");
        let license = license.map_err(|error| at(error.into()))?.map(str::to_owned);
        let tokenizer = Tokenizer::from_gguf(file.metadata());
        let tokenizer = fitting(path, &config, tokenizer)?;
        let weights = Weights::from_gguf(file, &config)
            .map_err(|error| PackageError::Weights { path: path.to_owned(), error })?;
        let path = path.to_owned();
        Ok(Package { name: name_of(&path), path, config, weights, tokenizer, license })
    }

    fn open_directory(path: &Path) -> Result<Package, PackageError> {
        let config_path = path.join("config.json");
        let text = read_text(&config_path)?.ok_or_else(|| PackageError::NotAModel {
            path: path.to_owned(),
            problem: "the directory has no config.json; name a .gguf file or a directory that \
                      transformers saved"
                .to_owned(),
        })?;
        let config = Config::from_json(&text)
            .map_err(|error| PackageError::Config { path: config_path, error })?;
        let weights = Weights::from_safetensors(path, &config)
            .map_err(|error| PackageError::Weights { path: path.to_owned(), error })?;
        let tokenizer = fitting(path, &config, Tokenizer::from_directory(path))?;
        let license = read_text(&path.join("README.md"))?.as_deref().and_then(license_of_readme);
        let path = path.to_owned();
        Ok(Package { name: name_of(&path), path, config, weights, tokenizer, license })
    }
}

/// A tokenizer that gives no id beyond the model's vocabulary. (The vocabulary may be larger: it
/// is often padded.)
fn fitting(
    path: &Path,
    config: &Config,
    tokenizer: Result<Tokenizer, TokenizerError>,
) -> Result<Tokenizer, PackageError> {
    let path = path.to_owned();
    let tokenizer = match tokenizer {
        Ok(tokenizer) => tokenizer,
        Err(error) => return Err(PackageError::Tokenizer { path, error }),
    };
    let (tokens, vocab) = (tokenizer.vocab_size(), config.vocab);
    if tokens > vocab {
        return Err(PackageError::Vocabulary { path, tokens, vocab });
    }
    Ok(tokenizer)
}

fn read_gguf(path: &Path) -> Result<GgufFile, PackageError> {
    let bytes =
        FileBytes::map(path).map_err(|error| PackageError::Io { path: path.to_owned(), error })?;
    GgufFile::parse(Arc::new(bytes))
        .map_err(|error| PackageError::Gguf { path: path.to_owned(), error })
}

/// A text file's contents, `None` when it is not there.
fn read_text(path: &Path) -> Result<Option<String>, PackageError> {
    let io = |error| PackageError::Io { path: path.to_owned(), error };
    let length = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    if length > TEXT_BYTES_MAX {
        let problem = format!("{length} bytes, over the limit of {TEXT_BYTES_MAX}");
        return Err(PackageError::NotAModel { path: path.to_owned(), problem });
    }
    std::fs::read_to_string(path).map(Some).map_err(io)
}

/// The last part of the path, without `.gguf`.
fn name_of(path: &Path) -> String {
    // `refrain run .` has no last part until it is made absolute.
    let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = absolute.file_name().unwrap_or(absolute.as_os_str()).to_string_lossy();
    name.strip_suffix(".gguf").unwrap_or(&name).to_owned()
}

/// The `license:` line of a model card's front matter, between the first two `---`.
fn license_of_readme(readme: &str) -> Option<String> {
    let front_matter = readme.strip_prefix("---\n")?.split("\n---").next()?;
    let value = front_matter.lines().find_map(|line| line.strip_prefix("license:"))?;
    let value = value.trim().trim_matches(['"', '\'']);
    (!value.is_empty()).then(|| value.to_owned())
}
