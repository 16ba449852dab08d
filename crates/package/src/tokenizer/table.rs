//! What bytes each token stands for.

use super::byte_level::push_bytes;
use super::error::TokenizerError;
use std::collections::HashMap;

/// More ids than any vocabulary has; a damaged file must not choose how much is allocated.
const IDS_MAX: u32 = 1 << 22;

/// The bytes and kind of every token, in one allocation.
#[derive(Debug, Default)]
pub(super) struct TokenTable {
    bytes: Vec<u8>,
    /// Where each token's bytes lie; `None` for an id that has no token.
    spans: Vec<Option<(u32, u32)>>,
    special: Vec<bool>,
}

impl TokenTable {
    /// Makes the table of `vocabulary` (text by id, as the vocabulary writes it) and of the
    /// tokens added to it, whose text is literal: `(text, special)` by id.
    pub(super) fn new(
        vocabulary: &[(String, u32)],
        added: &HashMap<u32, (String, bool)>,
    ) -> Result<TokenTable, TokenizerError> {
        let ids = vocabulary.iter().map(|(_, id)| id).chain(added.keys());
        let count = ids.copied().max().map_or(0, |id| id.saturating_add(1));
        if count > IDS_MAX {
            let problem = format!("token id {} is over the limit of {IDS_MAX}", count - 1);
            return Err(TokenizerError::Damaged(problem));
        }
        let mut table = TokenTable {
            bytes: Vec::with_capacity(vocabulary.len() * 8),
            spans: vec![None; count as usize],
            special: vec![false; count as usize],
        };
        for (text, id) in vocabulary.iter().filter(|(_, id)| !added.contains_key(id)) {
            table.insert(*id, |bytes| push_bytes(text, bytes))?;
        }
        for (id, (text, special)) in added {
            table.insert(*id, |bytes| bytes.extend_from_slice(text.as_bytes()))?;
            table.special[*id as usize] = *special;
        }
        Ok(table)
    }

    fn insert(&mut self, id: u32, push: impl FnOnce(&mut Vec<u8>)) -> Result<(), TokenizerError> {
        let start = self.bytes.len();
        push(&mut self.bytes);
        let end = u32::try_from(self.bytes.len())
            .map_err(|_| TokenizerError::Damaged("the vocabulary has over 4 GiB".to_owned()))?;
        self.spans[id as usize] = Some((start as u32, end));
        Ok(())
    }

    /// Highest id plus one.
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(super) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let (start, end) = (*self.spans.get(id as usize)?)?;
        Some(&self.bytes[start as usize..end as usize])
    }

    pub(super) fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }
}
