//! Who may share a prefix.

use std::fmt;

/// The context string of BLAKE3's key derivation: it separates this use of the hash from any other
/// (BLAKE3 paper, section 6.2). Changing it separates all salted caches from their past.
const SALT_CONTEXT: &str = "refrain 2026 prompt cache: namespace from cache_salt";

/// As [`SALT_CONTEXT`], for the key that the names of callers are hashed with.
const CALLER_CONTEXT: &str = "refrain 2026 prompt cache: namespace from an API key's name";

/// As [`SALT_CONTEXT`], for the operator's public prefixes.
const SHARED_CONTEXT: &str = "refrain 2026 prompt cache: namespace of public prefixes";

/// Whose prefixes a request may see. Two requests share pages only in equal namespaces, and an
/// equal namespace comes only from the same constructor with the same input.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Namespace([u8; 32]);

impl Namespace {
    /// The namespace of all callers that named none.
    pub const fn public() -> Self {
        Self([0; 32])
    }

    /// The namespace of the prefixes that an operator has declared public, which no caller's is:
    /// what callers share goes from here to each, and nothing comes back.
    pub fn shared() -> Self {
        Self(blake3::derive_key(SHARED_CONTEXT, &[]))
    }

    /// The namespace of a caller's `cache_salt`, which may be of any length; the empty salt is a
    /// salt too, and not the public namespace.
    pub fn from_salt(salt: &str) -> Self {
        Self(blake3::derive_key(SALT_CONTEXT, salt.as_bytes()))
    }

    /// The namespace of the caller of this name, and within it that of a `cache_salt`; both may be
    /// of any length. Hashed under `secret`, so that a caller who knows another's name, or chooses
    /// any salt, still cannot name that one's namespace, and who sees a namespace on disk cannot
    /// guess names.
    pub fn of_caller(secret: &[u8; 32], name: &str, salt: Option<&str>) -> Self {
        let key = blake3::derive_key(CALLER_CONTEXT, secret);
        let mut hasher = blake3::Hasher::new_keyed(&key);
        // The length says where the name ends; no salt is not the empty one.
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        hasher.update(&[u8::from(salt.is_some())]);
        hasher.update(salt.unwrap_or_default().as_bytes());
        Self(hasher.finalize().into())
    }

    /// The namespace as it is stored: all zeros are the public one.
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// The namespace that [`Self::to_bytes`] gave these bytes of. Never of bytes that a caller
    /// chose: they would name another's namespace.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Shows that a namespace is derived, but neither the salt nor the whole of the hash.
impl fmt::Debug for Namespace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::public() {
            return formatter.write_str("Namespace(public)");
        }
        let [a, b, c, d, ..] = self.0;
        write!(formatter, "Namespace({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Namespace;

    /// A name and a salt, of few letters, so that joined they are often the same text.
    fn caller() -> impl Strategy<Value = (String, Option<String>)> {
        ("[ab\0\u{1}]{0,3}", prop::option::of("[ab\0\u{1}]{0,3}"))
    }

    proptest! {
        #[test]
        fn callers_namespaces_are_equal_only_for_equal_names_and_salts(
            a in caller(), b in caller()
        ) {
            let of = |secret, (name, salt): &(String, Option<String>)| {
                Namespace::of_caller(&[secret; 32], name, salt.as_deref())
            };
            prop_assert_eq!(of(1, &a) == of(1, &b), a == b);
            prop_assert_ne!(of(1, &a), of(2, &a));
            let salt = a.1.as_deref().unwrap_or(&a.0);
            for other in [Namespace::public(), Namespace::shared(), Namespace::from_salt(salt)] {
                prop_assert_ne!(of(1, &a), other);
            }
        }
    }

    #[test]
    fn namespaces_are_equal_only_for_equal_salts() {
        assert_eq!(Namespace::from_salt("a"), Namespace::from_salt("a"));
        assert_ne!(Namespace::from_salt("a"), Namespace::from_salt("b"));
        assert_ne!(Namespace::from_salt(""), Namespace::public());
        assert_ne!(Namespace::from_salt(""), Namespace::shared());
        assert_eq!(Namespace::default(), Namespace::public());
    }

    #[test]
    fn a_namespace_is_stored_in_bytes_and_the_public_one_in_zeros() {
        assert_eq!(Namespace::public().to_bytes(), [0; 32]);
        for namespace in [Namespace::public(), Namespace::from_salt(""), Namespace::from_salt("a")]
        {
            assert_eq!(Namespace::from_bytes(namespace.to_bytes()), namespace);
        }
    }

    #[test]
    fn the_debug_form_does_not_show_the_salt() {
        let shown = format!("{:?}", Namespace::from_salt("secret"));
        assert!(!shown.contains("secret") && shown.len() < 30, "{shown}");
    }
}
