//! Opening a model package: a GGUF file, or a directory with `config.json`.

use crate::chat::ChatTemplate;
use crate::config::{Config, ConfigError};
use crate::gguf::{GgufError, GgufFile};
use crate::map::FileBytes;
use crate::text::{TextError, TextPackage};
use crate::text_file;
use crate::tokenizer::Tokenizer;
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
    /// Turns messages into text; `None` for a base model, which has none.
    pub chat_template: Option<ChatTemplate>,
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
    /// Tokenizer or chat template are missing, damaged or not supported.
    #[error("{path}: {error}", path = path.display())]
    Text {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong.
        error: TextError,
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
        match is_directory(path)? {
            true => Package::open_directory(path),
            false => Package::open_gguf(path),
        }
    }

    /// Opens tokenizer and chat template alone; config and weights may be missing, or not be
    /// supported.
    ///
    /// # Errors
    /// [`PackageError`] that names the file and what is wrong with it.
    pub fn open_text(path: &Path) -> Result<TextPackage, PackageError> {
        let (text, config) = match is_directory(path)? {
            true => {
                let config = read_text(&path.join("config.json"))?;
                let config = config.and_then(|text| Config::from_json(&text).ok());
                (TextPackage::from_directory(path), config)
            }
            false => {
                let file = read_gguf(path)?;
                (TextPackage::from_gguf(file.metadata()), Config::from_gguf(&file).ok())
            }
        };
        let text = text.map_err(|error| PackageError::Text { path: path.to_owned(), error })?;
        Ok(TextPackage { context: config.map(|config| config.context), ..text })
    }

    fn open_gguf(path: &Path) -> Result<Package, PackageError> {
        let file = read_gguf(path)?;
        let at = |error| PackageError::Config { path: path.to_owned(), error };
        let config = Config::from_gguf(&file).map_err(at)?;
        let license = file.metadata().string("general.license");
        let license = license.map_err(|error| at(error.into()))?.map(str::to_owned);
        let TextPackage { tokenizer, chat_template, .. } =
            fitting(path, &config, TextPackage::from_gguf(file.metadata()))?;
        let weights = Weights::from_gguf(file, &config)
            .map_err(|error| PackageError::Weights { path: path.to_owned(), error })?;
        let path = path.to_owned();
        let name = name_of(&path);
        Ok(Package { name, path, config, weights, tokenizer, chat_template, license })
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
        let TextPackage { tokenizer, chat_template, .. } =
            fitting(path, &config, TextPackage::from_directory(path))?;
        let license = read_text(&path.join("README.md"))?.as_deref().and_then(license_of_readme);
        let path = path.to_owned();
        let name = name_of(&path);
        Ok(Package { name, path, config, weights, tokenizer, chat_template, license })
    }
}

/// A tokenizer that gives no id beyond the model's vocabulary. (The vocabulary may be larger: it
/// is often padded.)
fn fitting(
    path: &Path,
    config: &Config,
    text: Result<TextPackage, TextError>,
) -> Result<TextPackage, PackageError> {
    let path = path.to_owned();
    let text = match text {
        Ok(text) => text,
        Err(error) => return Err(PackageError::Text { path, error }),
    };
    let (tokens, vocab) = (text.tokenizer.vocab_size(), config.vocab);
    if tokens > vocab {
        return Err(PackageError::Vocabulary { path, tokens, vocab });
    }
    Ok(text)
}

fn is_directory(path: &Path) -> Result<bool, PackageError> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(PackageError::NotFound(path.to_owned()))
        }
        Err(error) => Err(PackageError::Io { path: path.to_owned(), error }),
    }
}

fn read_gguf(path: &Path) -> Result<GgufFile, PackageError> {
    let bytes =
        FileBytes::map(path).map_err(|error| PackageError::Io { path: path.to_owned(), error })?;
    GgufFile::parse(Arc::new(bytes))
        .map_err(|error| PackageError::Gguf { path: path.to_owned(), error })
}

/// A text file's contents, `None` when it is not there.
fn read_text(path: &Path) -> Result<Option<String>, PackageError> {
    text_file::read(path, TEXT_BYTES_MAX)
        .map_err(|error| PackageError::Io { path: path.to_owned(), error })
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
