//! GPT-2's mapping between bytes and printable characters.
//!
//! Byte-level BPE writes each byte of the text as one character, so that vocabularies are files
//! of printable text: printable Latin-1 characters stand for themselves, the other 68 bytes for
//! U+0100 and up, in order (`bytes_to_unicode` in OpenAI's `encoder.py`).

/// The character that stands for a byte.
pub(super) fn char_of(byte: u8) -> char {
    let code = match byte {
        0..=32 => 256 + u32::from(byte),
        127..=160 => 256 + 33 + u32::from(byte - 127),
        173 => 256 + 67,
        _ => u32::from(byte),
    };
    // Every code above is below U+0144, so that a character exists.
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that a character stands for, or `None` where it stands for none.
pub(super) fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    let byte = match code {
        33..=126 | 161..=172 | 174..=255 => code,
        256..=288 => code - 256,
        289..=322 => code - 289 + 127,
        323 => 173,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// A text as the vocabulary writes it.
pub(super) fn written(text: &str) -> String {
    text.bytes().map(char_of).collect()
}

/// Appends the bytes of a vocabulary entry. An entry with a character that stands for no byte is
/// taken literally, as Hugging Face's decoder does.
pub(super) fn push_bytes(entry: &str, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    for character in entry.chars() {
        match byte_of(character) {
            Some(byte) => bytes.push(byte),
            None => {
                bytes.truncate(start);
                bytes.extend_from_slice(entry.as_bytes());
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{byte_of, char_of, push_bytes, written};

    #[test]
    fn every_byte_has_its_own_character() {
        for byte in 0..=255 {
            assert_eq!(byte_of(char_of(byte)), Some(byte));
        }
        assert_eq!(written(" é\n"), "ĠÃ©Ċ");
    }

    #[test]
    fn entries_that_are_not_byte_level_are_literal() {
        let mut bytes = vec![1];
        push_bytes("▁the", &mut bytes);
        assert_eq!(&bytes[1..], "▁the".as_bytes());
    }
}
