//! Telling other text from other token ids of the same text.

use package::Tokenizer;

/// How many of the `request`'s first tokens have their text in `cached` too, where both begin with
/// other ids but with the same text. `None` where the texts part before the tokens of both end at
/// the same place: then something else was written.
pub(crate) fn same_text(cached: &[u32], request: &[u32], tokenizer: &Tokenizer) -> Option<usize> {
    let mut sides = [Side::new(cached), Side::new(request)];
    let (mut met, mut covered) = (false, 0);
    loop {
        let [held, asked] = &mut sides;
        let shorter = if held.bytes <= asked.bytes { &mut *held } else { &mut *asked };
        if !shorter.take(tokenizer) {
            // All that is held, or all that is asked, stands in the other.
            return (met || held.bytes > 0 && asked.bytes > 0).then_some(covered);
        }
        let common = held.ahead.len().min(asked.ahead.len());
        if held.ahead[..common] != asked.ahead[..common] {
            return met.then_some(covered);
        }
        held.ahead.drain(..common);
        asked.ahead.drain(..common);
        if asked.ahead.is_empty() {
            covered = asked.taken;
        }
        met |= held.bytes == asked.bytes;
    }
}

/// Tokens whose text is read from the start.
struct Side<'a> {
    tokens: &'a [u32],
    taken: usize,
    /// Bytes of the taken tokens.
    bytes: usize,
    /// Those of them that the other side has not come to.
    ahead: Vec<u8>,
}

impl<'a> Side<'a> {
    fn new(tokens: &'a [u32]) -> Self {
        Self { tokens, taken: 0, bytes: 0, ahead: Vec::new() }
    }

    /// Reads one more token; `false` where there is none, or it stands for no text.
    fn take(&mut self, tokenizer: &Tokenizer) -> bool {
        let token = self.tokens.get(self.taken).and_then(|&id| tokenizer.bytes(id));
        let Some(bytes) = token.filter(|bytes| !bytes.is_empty()) else { return false };
        self.taken += 1;
        self.bytes += bytes.len();
        self.ahead.extend_from_slice(bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::known_texts::tests::tokenizer;

    /// Ids of letters, and 26 for `ab`.
    fn ids(text: &str) -> Vec<u32> {
        let id = |letter: char| match letter {
            'A' => 26,
            letter => letter as u32 - 'a' as u32,
        };
        text.chars().map(id).collect()
    }

    #[test]
    fn the_same_text_is_told_from_another() {
        let tokenizer = tokenizer();
        let same = |cached: &str, request: &str| same_text(&ids(cached), &ids(request), &tokenizer);
        assert_eq!(same("abcc", "Acc"), Some(3), "up to the end of both");
        assert_eq!(same("Acc", "abcc"), Some(4));
        assert_eq!(same("abcx", "Acy"), Some(2), "up to where another text begins");
        assert_eq!(same("abcab", "AcA"), Some(3), "parted twice");
        assert_eq!(same("ab", "Ac"), Some(1), "all that is held");
        assert_eq!(same("a", "Ac"), Some(0), "all that is held, inside a token");
        assert_eq!(same("ac", "Ac"), None, "another letter inside a token");
        assert_eq!(same("b", "Ac"), None, "another text");
        assert_eq!(same("", "Ac"), None, "nothing is held");
    }

    proptest! {
        #[test]
        fn any_two_ways_to_write_a_text_are_the_same_text(
            pieces in prop::collection::vec((any::<bool>(), any::<bool>(), "[c-z]{0,2}"), 1..20),
        ) {
            let tokenizer = tokenizer();
            let write = |merged: fn(&(bool, bool, String)) -> bool| {
                let one = |piece| if merged(piece) { "A".to_owned() } else { "ab".to_owned() };
                ids(&pieces.iter().map(|piece| one(piece) + &piece.2).collect::<String>())
            };
            let (cached, request) = (write(|piece| piece.0), write(|piece| piece.1));
            prop_assert_eq!(same_text(&cached, &request, &tokenizer), Some(request.len()));
            // The same ids are the same text, too; and nothing of it is held in another.
            prop_assert_eq!(same_text(&[25, 24], &[24, 25], &tokenizer), None);
        }
    }
}
