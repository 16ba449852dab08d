//! Who calls: API keys, and the namespaces of those who have them.

mod caller;
mod digest;
mod key_file;
mod limits;
mod new_key;
mod quota;

use std::path::Path;
use std::time::Instant;

use cache::Namespace;

pub(crate) use self::caller::Caller;
use self::key_file::KeyFile;
pub use self::key_file::KeyFileError;
pub use self::new_key::{KeyName, NewKey};
pub(crate) use self::quota::OverLimit;
use self::quota::Quotas;

/// Those who may use the server: the keys of a file, and the secret that keeps the namespaces of
/// their names apart.
pub struct Callers {
    keys: KeyFile,
    secret: [u8; 32],
    quotas: Quotas,
}

impl Callers {
    /// Reads the keys of the file at `path`, a `NAME HASH` a line, where the hash is SHA-256 of the
    /// key in hexadecimal; `#` begins a comment. Limits may follow: `requests=60` and
    /// `tokens=100000` are for a minute, `running=4` at the same time. A name's keys share them.
    /// The file is read again when it changes, which is looked for at most once a second; one that
    /// cannot be taken leaves the keys as they were.
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
        Ok(Self { keys, secret, quotas: Quotas::default() })
    }

    /// The caller that `key` belongs to. `warn` is told once of a changed file that cannot be
    /// taken.
    pub(crate) fn find(&self, key: &str, warn: &dyn Fn(&str)) -> Option<Caller> {
        self.keys.find(key, warn)
    }

    /// Counts a request, if the limits of its caller's name allow one more;
    /// [`leave`](Self::leave) must follow.
    pub(crate) fn enter(&self, caller: &Caller) -> Result<(), OverLimit> {
        let Some(name) = &caller.name else { return Ok(()) };
        self.quotas.enter(name, caller.limits, Instant::now())
    }

    /// Takes note that a request has ended, after it computed or drew so many tokens.
    pub(crate) fn leave(&self, caller: &Caller, tokens: usize) {
        if let Some(name) = &caller.name {
            self.quotas.leave(name, tokens);
        }
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
