//! The tokens of texts that came before.
//!
//! The messages of a conversation come again with each of its turns. Their tokens depend on their
//! text alone, so they are looked up instead of computed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use cache::Namespace;
use package::{Encoding, Tokenizer, TokenizerError};

/// Tokens that are remembered, in bytes of memory.
const BYTES_MAX: usize = 16 << 20;

/// A shorter part is tokenized in less time than it would be worth.
const PART_BYTES_MIN: usize = 256;

/// Whose text it is, whether it begins with BOS, and its BLAKE3 hash.
type Key = (Namespace, bool, [u8; 32]);

/// The tokens of texts that came before, the least recently used forgotten first. Nobody is served
/// what only another namespace's requests held: not even by being faster.
#[derive(Debug, Default)]
pub struct KnownTexts(Mutex<Texts>);

#[derive(Debug, Default)]
struct Texts {
    /// Each text's tokens, and when it was last used.
    encodings: HashMap<Key, (Arc<Encoding>, u64)>,
    order: BTreeMap<u64, Key>,
    uses: u64,
    bytes: usize,
}

impl KnownTexts {
    /// What `tokenizer.encode(text, bos)` is. All calls must be with one tokenizer.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode(
        &self,
        namespace: Namespace,
        tokenizer: &Tokenizer,
        text: &str,
        bos: bool,
    ) -> Result<Encoding, TokenizerError> {
        let mut whole = Encoding::default();
        let mut start = 0;
        for part in tokenizer.parts(text) {
            let bos = bos && start == 0;
            let encoding = match part.len() < PART_BYTES_MIN {
                true => Arc::new(tokenizer.encode(part, bos)?),
                false => self.part(namespace, tokenizer, part, bos)?,
            };
            whole.ids.extend_from_slice(&encoding.ids);
            let moved = encoding.offsets.iter().map(|range| start + range.start..start + range.end);
            whole.offsets.extend(moved);
            start += part.len();
        }
        Ok(whole)
    }

    fn part(
        &self,
        namespace: Namespace,
        tokenizer: &Tokenizer,
        part: &str,
        bos: bool,
    ) -> Result<Arc<Encoding>, TokenizerError> {
        let key = (namespace, bos, blake3::hash(part.as_bytes()).into());
        // Nobody panics with the lock held.
        let texts = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(encoding) = texts().find(&key) {
            return Ok(encoding);
        }
        let encoding = Arc::new(tokenizer.encode(part, bos)?);
        texts().remember(key, Arc::clone(&encoding));
        Ok(encoding)
    }
}

impl Texts {
    fn find(&mut self, key: &Key) -> Option<Arc<Encoding>> {
        let (encoding, used) = self.encodings.get_mut(key)?;
        self.uses += 1;
        self.order.remove(used);
        self.order.insert(self.uses, *key);
        *used = self.uses;
        Some(Arc::clone(encoding))
    }

    fn remember(&mut self, key: Key, encoding: Arc<Encoding>) {
        let bytes = bytes_of(&encoding);
        // Of two requests that encode one text at the same time the first is enough.
        if bytes > BYTES_MAX || self.encodings.contains_key(&key) {
            return;
        }
        self.uses += 1;
        self.bytes += bytes;
        self.encodings.insert(key, (encoding, self.uses));
        self.order.insert(self.uses, key);
        while self.bytes > BYTES_MAX {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            let Some((forgotten, _)) = self.encodings.remove(&oldest) else { return };
            self.bytes -= bytes_of(&forgotten);
        }
    }
}

/// Bytes of memory that an entry takes, its places in both maps among them (B-trees and hash tables
/// are at least half full).
fn bytes_of(encoding: &Encoding) -> usize {
    let entry = 2 * (2 * size_of::<Key>() + size_of::<(Arc<Encoding>, u64)>() + size_of::<u64>());
    let token = size_of::<u32>() + size_of::<std::ops::Range<usize>>();
    entry + size_of::<Encoding>() + encoding.ids.len() * token
}

#[cfg(test)]
pub(crate) mod tests {
    use package::Tokenizer;
    use proptest::prelude::*;

    use super::*;

    /// Bytes as tokens, two marks, and one pair that is merged.
    pub(crate) fn tokenizer() -> Tokenizer {
        let mut vocabulary = serde_json::Map::new();
        for (id, byte) in (b'a'..=b'z').enumerate() {
            vocabulary.insert(char::from(byte).to_string(), id.into());
        }
        vocabulary.insert("ab".into(), 26.into());
        let added = |id: u32, text: &str| {
            serde_json::json!({
                "id": id, "content": text, "special": true, "normalized": false,
                "lstrip": false, "rstrip": false, "single_word": false
            })
        };
        let description = serde_json::json!({
            "added_tokens": [added(27, "<1>"), added(28, "<2>")],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
                "trim_offsets": false, "use_regex": true},
            "decoder": {
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
                "use_regex": true
            },
            "model": {"type": "BPE", "vocab": vocabulary, "merges": ["a b"]},
        });
        Tokenizer::from_json(description.to_string().as_bytes()).expect("a sound tokenizer")
    }

    proptest! {
        #[test]
        fn what_is_remembered_is_what_is_encoded(
            texts in prop::collection::vec(("[a-c]{0,4}", 0_usize..200, "(<[12]>)?"), 1..20),
        ) {
            let (tokenizer, known) = (tokenizer(), KnownTexts::default());
            let parts = texts.iter().map(|(text, times, mark)| text.repeat(*times) + mark);
            let text = parts.collect::<String>();
            let whole = tokenizer.encode(&text, true).expect("encodes");
            for namespace in [Namespace::public(), Namespace::from_salt("a"), Namespace::public()] {
                let known = known.encode(namespace, &tokenizer, &text, true).expect("encodes");
                prop_assert_eq!(&known, &whole);
            }
        }
    }

    #[test]
    fn the_oldest_are_forgotten_when_there_are_too_many() {
        let (tokenizer, known) = (tokenizer(), KnownTexts::default());
        let text = |index: usize| format!("{index:b}").replace('0', "a").replace('1', "b");
        let long = |index: usize| text(index).repeat(200_000 / text(index).len());
        for index in 0..12 {
            let encoded = known.encode(Namespace::public(), &tokenizer, &long(index), false);
            let whole = tokenizer.encode(&long(index), false).expect("encodes");
            assert_eq!(encoded.expect("encodes"), whole);
        }
        let texts = known.0.lock().expect("not poisoned");
        assert!(texts.bytes <= BYTES_MAX && texts.bytes > BYTES_MAX / 2, "{}", texts.bytes);
        assert!(texts.encodings.len() < 12 && texts.encodings.len() == texts.order.len());
        let key = |index| (Namespace::public(), false, blake3::hash(long(index).as_bytes()).into());
        assert!(texts.encodings.contains_key(&key(11)) && !texts.encodings.contains_key(&key(0)));
    }
}
