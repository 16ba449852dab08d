//! Reading little-endian numbers and strings from a byte slice, every length checked.

use super::GgufError;

/// A position in a file's bytes. No read goes past the end, whatever the file claims.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], position: usize) -> Cursor<'a> {
        Cursor { bytes, position: position.min(bytes.len()) }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// The next `length` bytes. `what` names them in the error.
    pub(super) fn take(&mut self, length: u64, what: &str) -> Result<&'a [u8], GgufError> {
        let available = self.remaining();
        match usize::try_from(length) {
            Ok(length) if length <= available => {
                let taken = &self.bytes[self.position..self.position + length];
                self.position += length;
                Ok(taken)
            }
            _ => Err(GgufError::Truncated {
                what: what.to_owned(),
                offset: self.position,
                needed: length,
                available,
            }),
        }
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], GgufError> {
        let taken = self.take(N as u64, what)?;
        let mut array = [0; N];
        array.copy_from_slice(taken);
        Ok(array)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, GgufError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, GgufError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A length-prefixed string of at most `limit` bytes, as bytes.
    pub(super) fn string_bytes(&mut self, limit: u64, what: &str) -> Result<&'a [u8], GgufError> {
        let length = self.u64(what)?;
        if length > limit {
            return Err(GgufError::TooLarge { what: what.to_owned(), value: length, limit });
        }
        self.take(length, what)
    }

    /// A length-prefixed UTF-8 string of at most `limit` bytes.
    pub(super) fn string(&mut self, limit: u64, what: &str) -> Result<&'a str, GgufError> {
        let bytes = self.string_bytes(limit, what)?;
        std::str::from_utf8(bytes).map_err(|_| GgufError::NotUtf8 { what: what.to_owned() })
    }
}
