//! What is kept of a key.

use sha2::{Digest, Sha256};

/// SHA-256: keys are random and long, so that no slower hash is needed against guessing.
pub(super) fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}
