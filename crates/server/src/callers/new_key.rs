//! Making a key.

use std::fmt::Write;
use std::str::FromStr;
use std::sync::Arc;

use super::digest::digest;

const NAME_CHARACTERS_MAX: usize = 64;
/// Bytes of randomness of a key.
const KEY_BYTES: usize = 32;
/// What keys begin with, so that one is known for what it is where it does not belong.
const KEY_PREFIX: &str = "rk-";

/// The name of a key: 1 to 64 letters, digits, dots, underscores and hyphens of ASCII, so that it
/// is one word in a file and in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyName(Arc<str>);

impl KeyName {
    /// What a name must be, in words.
    pub(super) const WANTED: &str = "a name has 1 to 64 of A-Z a-z 0-9 . _ -";

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyName {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=NAME_CHARACTERS_MAX).contains(&name.len()) && name.bytes().all(fits) {
            Ok(Self(name.into()))
        } else {
            Err(Self::WANTED)
        }
    }
}

impl From<KeyName> for Arc<str> {
    fn from(name: KeyName) -> Self {
        name.0
    }
}

/// A key that nobody has seen, and its line for the file of keys.
pub struct NewKey {
    /// The key, to be shown once: it cannot be had from the line.
    pub key: String,
    /// The line of the file that [`Callers::open`](crate::Callers::open) reads.
    pub line: String,
}

impl NewKey {
    /// A random key of 256 bits under `name`.
    ///
    /// # Errors
    /// A system without random numbers.
    pub fn random(name: &KeyName) -> Result<Self, getrandom::Error> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes)?;
        let key = format!("{KEY_PREFIX}{}", hexadecimal(&bytes));
        let line = format!("{} {}", name.as_str(), hexadecimal(&digest(&key)));
        Ok(Self { key, line })
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
