//! How few tokens a text can have: a bound that takes no tokenizing.

use super::byte_level::char_of;
use super::description::Added;
use super::table::TokenTable;
use serde_json::Value;
use std::collections::HashSet;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::{NormalizedString, Normalizer};

/// What a token can stand for at most.
#[derive(Debug)]
pub(super) struct Bound {
    /// The longest token, in bytes of the text before it is normalized.
    longest_token_bytes: usize,
    /// Bytes of a text that make no token: those that the vocabulary lacks, and white space where
    /// an added token swallows as much of it as there is.
    free: [bool; 256],
}

impl Bound {
    pub(super) fn new(
        table: &TokenTable,
        vocabulary: &[(String, u32)],
        added: &[Added],
        normalizer: Option<&NormalizerWrapper>,
        description: &Value,
    ) -> Bound {
        let ids = 0..table.len() as u32;
        let longest = ids.filter_map(|id| table.bytes(id)).map(<[u8]>::len).max().unwrap_or(0);
        // An added token is also found in the normalized text, in its own normalized form.
        let normalized = added.iter().map(|added| {
            let mut text = NormalizedString::from(added.token.content.as_str());
            let done = normalizer.is_none_or(|normalizer| normalizer.normalize(&mut text).is_ok());
            if done { text.get().len() } else { usize::MAX }
        });
        let longest = normalized.fold(longest, usize::max).max(1);
        let swallows = added.iter().any(|added| added.token.lstrip || added.token.rstrip);
        let entries: HashSet<&str> = vocabulary.iter().map(|(text, _)| text.as_str()).collect();
        let mut free = [false; 256];
        for (byte, free) in (0_u8..=u8::MAX).zip(&mut free) {
            let mut buffer = [0; 4];
            *free = !entries.contains(&*char_of(byte).encode_utf8(&mut buffer));
        }
        // UTF-8 has no such bytes.
        let is_whole = (0..=0xF4).filter(|byte| ![0xC0, 0xC1].contains(byte)).all(|b| !free[b]);
        if swallows {
            // The bytes of all white space, some of which belong to other characters too.
            let spaces = (0..=u32::from(char::MAX)).filter_map(char::from_u32);
            for space in spaces.filter(|c| c.is_whitespace()) {
                let mut buffer = [0; 4];
                for byte in space.encode_utf8(&mut buffer).bytes() {
                    free[usize::from(byte)] = true;
                }
            }
        }
        let mut longest = longest.saturating_mul(shrinking(description));
        if normalizer.is_some() && !is_whole {
            // Which bytes the normalizer makes of a text is not known here.
            longest = usize::MAX;
            free = [true; 256];
        }
        Bound { longest_token_bytes: longest, free }
    }

    pub(super) fn tokens_at_least(&self, text: &str) -> usize {
        let counted = text.bytes().filter(|&byte| !self.free[usize::from(byte)]).count();
        counted.div_ceil(self.longest_token_bytes)
    }
}

/// How many bytes of a text may become one byte of its normalized form.
///
/// A normalizer here never removes a character. One that decomposes or lowers makes at least one
/// byte of each character, and a character has at most 4. One that composes joins up to 4 of the
/// characters that a canonical decomposition has: up to 3 of them into one of 2 bytes, 4 only into
/// one of 3 or more (Unicode Standard Annex #15, UnicodeData.txt), which is at most 3 × 4 / 2.
fn shrinking(normalizer: &Value) -> usize {
    match normalizer["type"].as_str() {
        None => 1,
        Some("NFC" | "NFKC") => 6,
        Some("Sequence") => {
            let parts = normalizer["normalizers"].as_array().into_iter().flatten();
            parts.map(shrinking).fold(1, usize::saturating_mul)
        }
        Some(_) => 4,
    }
}
