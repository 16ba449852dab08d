//! Bytes to text as they come, never splitting a character.

/// Turns the bytes of generated tokens into text.
///
/// Only whole characters come out; the first bytes of a character wait for the rest. Bytes that
/// are no UTF-8 become U+FFFD, one for each maximal part of a character, as in
/// [`String::from_utf8_lossy`]: what comes out, joined, is what that gives for all bytes at once.
#[derive(Debug, Clone, Default)]
pub struct StreamDecoder {
    /// The beginning of a character: at most three bytes.
    held: Vec<u8>,
}

impl StreamDecoder {
    /// A decoder at the beginning of a text.
    pub fn new() -> StreamDecoder {
        StreamDecoder::default()
    }

    /// Takes the next bytes and gives the characters that are complete now.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.held.len());
        let mut kept = 0;
        for chunk in self.held.utf8_chunks() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            // Only at the very end can an invalid part still become a character.
            let at_end = chunk.valid().len() + invalid.len() == self.held.len() - kept;
            kept += chunk.valid().len() + invalid.len();
            if at_end && is_unfinished(invalid) {
                kept -= invalid.len();
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.held.drain(..kept);
        text
    }

    /// Ends the text: an unfinished character becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }

    /// How many bytes wait for the rest of their character: at most three.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }
}

/// Whether more bytes could make these a character.
fn is_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::StreamDecoder;
    use proptest::prelude::*;

    /// Any bytes, with much real text among them.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let text = ".{0,20}".prop_map(String::into_bytes);
        let noise = prop::collection::vec(any::<u8>(), 0..8);
        prop::collection::vec(prop_oneof![text, noise], 0..6).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn fragments_join_to_the_lossy_text(
            bytes in bytes(),
            cuts in prop::collection::vec(0usize..9, 1..40),
        ) {
            let mut decoder = StreamDecoder::new();
            let mut joined = String::new();
            let mut rest = bytes.as_slice();
            for cut in cuts.iter().cycle().take(bytes.len() * 9 + cuts.len()) {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                joined.push_str(&decoder.push(now));
                prop_assert!(decoder.held_bytes() <= 3);
                rest = later;
            }
            joined.push_str(&decoder.push(rest));
            joined.push_str(&decoder.finish());
            prop_assert_eq!(joined, String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn a_character_comes_out_whole() {
        let mut decoder = StreamDecoder::new();
        let bytes = "😀".as_bytes();
        assert_eq!(decoder.push(&bytes[..1]), "");
        assert_eq!(decoder.push(&bytes[1..3]), "");
        assert_eq!(decoder.push(&bytes[3..]), "😀");
        assert_eq!(decoder.finish(), "");
    }
}
