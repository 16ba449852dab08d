//! Who may share a prefix.

use std::fmt;

/// The context string of BLAKE3's key derivation: it separates this use of the hash from any other
/// (BLAKE3 paper, section 6.2). Changing it separates all salted caches from their past.
const SALT_CONTEXT: &str = "refrain 2026 prompt cache: namespace from cache_salt";

/// Whose prefixes a request may see. Two requests share pages only in equal namespaces, and an
/// equal namespace comes only from the same constructor with the same input.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Namespace(Option<[u8; 32]>);

impl Namespace {
    /// The namespace of all callers that named none.
    pub const fn public() -> Self {
        Self(None)
    }

    /// The namespace of a caller's `cache_salt`, which may be of any length; the empty salt is a
    /// salt too, and not the public namespace.
    pub fn from_salt(salt: &str) -> Self {
        Self(Some(blake3::derive_key(SALT_CONTEXT, salt.as_bytes())))
    }
}

/// Shows that a namespace is derived, but neither the salt nor the whole of the hash.
impl fmt::Debug for Namespace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => formatter.write_str("Namespace(public)"),
            Some([a, b, c, d, ..]) => write!(formatter, "Namespace({a:02x}{b:02x}{c:02x}{d:02x}…)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Namespace;

    #[test]
    fn namespaces_are_equal_only_for_equal_salts() {
        assert_eq!(Namespace::from_salt("a"), Namespace::from_salt("a"));
        assert_ne!(Namespace::from_salt("a"), Namespace::from_salt("b"));
        assert_ne!(Namespace::from_salt(""), Namespace::public());
        assert_eq!(Namespace::default(), Namespace::public());
    }

    #[test]
    fn the_debug_form_does_not_show_the_salt() {
        let shown = format!("{:?}", Namespace::from_salt("secret"));
        assert!(!shown.contains("secret") && shown.len() < 30, "{shown}");
    }
}
