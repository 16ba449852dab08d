//! A page's key: a hash over everything that its K/V depend on but the model.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use crate::token_page::PAGE_TOKENS;

/// Contexts of BLAKE3's key derivation. Changing one separates all stored pages from their past.
const ROOT_CONTEXT: &str = "refrain 2026 prompt cache: start of a namespace's chain";
const PAGE_CONTEXT: &str = "refrain 2026 prompt cache: page after page";

/// A hasher that has taken in the context, which is half of the work for so short an input.
static PAGE_HASHER: LazyLock<blake3::Hasher> =
    LazyLock::new(|| blake3::Hasher::new_derive_key(PAGE_CONTEXT));

/// Names a page by its namespace and by all token ids up to its end. The model is left out, so that
/// the same tokens under another model are recognized.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChainKey(pub(crate) [u8; 32]);

impl ChainKey {
    /// The key that a namespace's first pages follow.
    pub(crate) fn root(namespace: &[u8; 32]) -> Self {
        Self(blake3::derive_key(ROOT_CONTEXT, namespace))
    }

    /// The key of the page with these tokens after the page of this key.
    #[must_use]
    pub(crate) fn next(&self, tokens: &[u32; PAGE_TOKENS]) -> Self {
        let mut material = [0; 32 + 4 * PAGE_TOKENS];
        material[..32].copy_from_slice(&self.0);
        for (bytes, token) in material[32..].chunks_exact_mut(4).zip(tokens) {
            bytes.copy_from_slice(&token.to_le_bytes());
        }
        Self(*PAGE_HASHER.clone().update(&material).finalize().as_bytes())
    }
}

/// The keys of the full pages of a sequence, in order.
pub(crate) fn keys_of(namespace: &[u8; 32], tokens: &[u32]) -> Vec<ChainKey> {
    let (pages, _) = tokens.as_chunks::<PAGE_TOKENS>();
    let mut key = ChainKey::root(namespace);
    let next = |page| {
        key = key.next(page);
        key
    };
    pages.iter().map(next).collect()
}

/// The keys of the pages of one sequence after the other, so that a sequence whose pages come one
/// by one, or one that begins like the last, is not hashed from its start each time.
#[derive(Default)]
pub(crate) struct Chain {
    namespace: [u8; 32],
    tokens: Arc<[u32]>,
    /// The root, then one key for each page so far.
    keys: Vec<ChainKey>,
}

impl Chain {
    /// The keys of the pages of `tokens` from the first up to page `depth`, after that of the root;
    /// `None` where the tokens end before that page does.
    pub(crate) fn keys(
        &mut self,
        namespace: &[u8; 32],
        tokens: &Arc<[u32]>,
        depth: usize,
    ) -> Option<&[ChainKey]> {
        let (pages, _) = tokens.as_chunks::<PAGE_TOKENS>();
        let pages = pages.get(..=depth)?;
        if self.keys.is_empty() || self.namespace != *namespace {
            self.keys = vec![ChainKey::root(namespace)];
        } else if !Arc::ptr_eq(&self.tokens, tokens) {
            let common = self.tokens.iter().zip(&tokens[..]).take_while(|(a, b)| a == b).count();
            self.keys.truncate(1 + common / PAGE_TOKENS);
        }
        (self.namespace, self.tokens) = (*namespace, Arc::clone(tokens));
        while let Some(page) = pages.get(self.keys.len() - 1) {
            let key = self.keys[self.keys.len() - 1].next(page);
            self.keys.push(key);
        }
        Some(&self.keys[..depth + 2])
    }
}

/// A part of it is a hash already.
impl Hash for ChainKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        state.write_u64(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
    }
}

/// Its first bytes, which are enough to tell keys apart in a log.
impl fmt::Debug for ChainKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(formatter, "ChainKey({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_not_depend_on_what_was_asked_before() {
        let sequence = |ids: &[u32]| ids.iter().flat_map(|&id| [id; PAGE_TOKENS]).collect();
        let sequences: [Arc<[u32]>; 3] =
            [sequence(&[1, 2, 3]), sequence(&[1, 2, 4]), sequence(&[2, 1])];
        let mut chain = Chain::default();
        for round in 0..60 {
            let (namespace, tokens) = ([round as u8 / 7 % 2; 32], &sequences[round / 3 % 3]);
            let depth = round * 5 % 4;
            let mut fresh = Chain::default();
            let fresh = fresh.keys(&namespace, tokens, depth);
            assert_eq!(chain.keys(&namespace, tokens, depth), fresh, "round {round}");
            assert_eq!(fresh.is_some(), depth < tokens.len() / PAGE_TOKENS);
        }
    }
}
