//! Who calls: API keys, and the namespaces of those who have them.

mod digest;
mod key_file;
mod new_key;

use std::path::Path;
use std::sync::Arc;

use cache::Namespace;

use self::key_file::KeyFile;
pub use self::key_file::KeyFileError;
pub use self::new_key::{KeyName, NewKey};

/// Those who may use the server: the keys of a file, and the secret that keeps the namespaces of
/// their names apart.
pub struct Callers {
    keys: KeyFile,
    secret: [u8; 32],
}

impl Callers {
    /// Reads the keys of the file at `path`, a `NAME HASH` a line, where the hash is SHA-256 of the
    /// key in hexadecimal; `#` begins a comment. The file is read again when it changes, which is
    /// looked for at most once a second; one that cannot be taken leaves the keys as they were.
    ///
    /// `secret` must be the same at each start for as long as a prompt cache on disk is to be found
    /// again; without one, it is random.
    ///
    /// # Errors
    /// A file that cannot be read or taken, or a system without random numbers.
    pub fn open(path: &Path, secret: Option<[u8; 32]>) -> Result<Self, KeyFileError> {
        let keys = KeyFile::open(path)?;
        let secret = match secret {
            Some(secret) => secret,
            None => {
                let mut secret = [0; 32];
                getrandom::fill(&mut secret).map_err(KeyFileError::Random)?;
                secret
            }
        };
        Ok(Self { keys, secret })
    }

    /// The caller that `key` belongs to. `warn` is told once of a changed file that cannot be
    /// taken.
    pub(crate) fn find(&self, key: &str, warn: &dyn Fn(&str)) -> Option<Caller> {
        self.keys.find(key, warn).map(|name| Caller(Some(name)))
    }

    /// Whether a key has this name.
    pub fn knows(&self, name: &str) -> bool {
        self.keys.has_name(name)
    }

    /// The namespace of the caller of this name, and of a salt within it.
    pub fn namespace(&self, name: &str, salt: Option<&str>) -> Namespace {
        Namespace::of_caller(&self.secret, name, salt)
    }
}

/// Who sent a request: the name of its key, or nobody in particular where no keys are asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller(pub(crate) Option<Arc<str>>);
