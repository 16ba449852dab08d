//! The key-value part of a GGUF file, typed, borrowing from the file's bytes.

use super::GgufError;
use super::cursor::Cursor;
use crate::map::FileBytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// More entries than any real file has (llama.cpp writes about 40).
const ENTRIES_MAX: u64 = 65_536;
/// Longest key, which the specification limits to this.
const KEY_BYTES_MAX: u64 = 65_535;
/// Longest single string: chat templates are some tens of KiB.
const STRING_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Longest array: vocabularies and merges are under a million.
const ARRAY_LENGTH_MAX: u64 = 16 * 1024 * 1024;

/// The types of GGUF's metadata values, by their number in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    fn from_number(number: u32, key: &str) -> Result<Kind, GgufError> {
        use Kind::{Array, Bool, F32, F64, I8, I16, I32, I64, String, U8, U16, U32, U64};
        const KINDS: [Kind; 13] =
            [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64];
        KINDS
            .get(number as usize)
            .copied()
            .ok_or_else(|| GgufError::ValueKind { key: key.to_owned(), kind: number })
    }

    /// Bytes of one value; `None` where it differs from value to value.
    fn width(self) -> Option<usize> {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => Some(1),
            Kind::U16 | Kind::I16 => Some(2),
            Kind::U32 | Kind::I32 | Kind::F32 => Some(4),
            Kind::U64 | Kind::I64 | Kind::F64 => Some(8),
            Kind::String | Kind::Array => None,
        }
    }
}

/// Where a value lies: for strings the text itself, for arrays the elements.
#[derive(Debug, Clone)]
struct Entry {
    kind: Kind,
    /// `Some(element kind, count)` for an array.
    array: Option<(Kind, usize)>,
    range: Range<usize>,
}

/// A GGUF file's metadata. Values stay in the file's bytes; only keys are copied.
///
/// Each getter answers `Ok(None)` for a key that is not there, and an error that names the key
/// when the value has another type. Integer getters accept every integer type that the value
/// fits.
#[derive(Debug, Clone)]
pub struct Metadata {
    bytes: Arc<FileBytes>,
    entries: BTreeMap<String, Entry>,
}

impl Metadata {
    /// Reads `count` entries that begin at byte `start`; also returns where they end.
    pub(super) fn read(
        bytes: &Arc<FileBytes>,
        start: usize,
        count: u64,
    ) -> Result<(Metadata, usize), GgufError> {
        if count > ENTRIES_MAX {
            let what = "the number of metadata entries".to_owned();
            return Err(GgufError::TooLarge { what, value: count, limit: ENTRIES_MAX });
        }
        let mut cursor = Cursor::new(bytes, start);
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let key = cursor.string(KEY_BYTES_MAX, "a metadata key")?;
            let kind = Kind::from_number(cursor.u32(key)?, key)?;
            let entry = read_entry(&mut cursor, kind, key)?;
            if entries.insert(key.to_owned(), entry).is_some() {
                return Err(GgufError::Duplicate { what: "metadata", name: key.to_owned() });
            }
        }
        let end = cursor.position();
        Ok((Metadata { bytes: Arc::clone(bytes), entries }, end))
    }

    /// All keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Whether the key is there, whatever its type.
    pub fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// A string.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] when the value is no string, [`GgufError::NotUtf8`] when it is no
    /// text.
    pub fn string(&self, key: &str) -> Result<Option<&str>, GgufError> {
        let Some(entry) = self.entry(key, Kind::String, "a string")? else { return Ok(None) };
        std::str::from_utf8(&self.bytes[entry.range.clone()])
            .map(Some)
            .map_err(|_| GgufError::NotUtf8 { what: format!("metadata {key:?}") })
    }

    /// A Boolean.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] when the value is no Boolean.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        let entry = self.entry(key, Kind::Bool, "a Boolean")?;
        Ok(entry.map(|entry| self.bytes[entry.range.start] != 0))
    }

    /// An unsigned integer of at most 64 bits.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] when the value is no integer or negative.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        let expected = "an unsigned integer";
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        integer(entry.kind, &self.bytes[entry.range.clone()])
            .and_then(|value| u64::try_from(value).ok())
            .map(Some)
            .ok_or_else(|| wrong_type(key, expected))
    }

    /// An unsigned integer of at most 32 bits.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] when the value is no integer, negative, or too large.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        let expected = "an unsigned integer of at most 32 bits";
        let Some(value) = self.u64(key)? else { return Ok(None) };
        u32::try_from(value).map(Some).map_err(|_| wrong_type(key, expected))
    }

    /// A floating-point number, from an f32 or f64.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] when the value is no floating-point number.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, GgufError> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        let bytes = &self.bytes[entry.range.clone()];
        match entry.kind {
            Kind::F32 => Ok(Some(f64::from(f32::from_bits(low_bits(bytes) as u32)))),
            Kind::F64 => Ok(Some(f64::from_bits(low_bits(bytes)))),
            _ => Err(wrong_type(key, "a floating-point number")),
        }
    }

    /// A floating-point number; an f64 is rounded.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] when the value is no floating-point number.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        Ok(self.f64(key)?.map(|value| value as f32))
    }

    /// An array of strings, for instance the vocabulary.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] when the value is no array of strings, [`GgufError::NotUtf8`]
    /// when one of them is no text.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&str>>, GgufError> {
        let Some((entry, kind, count)) = self.array(key)? else { return Ok(None) };
        if kind != Kind::String {
            return Err(wrong_type(key, "an array of strings"));
        }
        let mut cursor = Cursor::new(&self.bytes, entry.range.start);
        let what = format!("an element of {key:?}");
        let strings: Result<_, _> =
            (0..count).map(|_| cursor.string(STRING_BYTES_MAX, &what)).collect();
        strings.map(Some)
    }

    /// An array of integers, for instance the token types.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] when the value is no array of integers.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, GgufError> {
        let expected = "an array of integers of at most 64 bits";
        let Some((entry, kind, count)) = self.array(key)? else { return Ok(None) };
        let width = kind.width().ok_or_else(|| wrong_type(key, expected))?;
        let values: Vec<i64> = self.bytes[entry.range.clone()]
            .chunks_exact(width)
            .filter_map(|bytes| integer(kind, bytes).and_then(|value| i64::try_from(value).ok()))
            .collect();
        if values.len() == count { Ok(Some(values)) } else { Err(wrong_type(key, expected)) }
    }

    /// An array of f32, for instance the token scores.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] when the value is no array of f32.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        let Some((entry, kind, _)) = self.array(key)? else { return Ok(None) };
        if kind != Kind::F32 {
            return Err(wrong_type(key, "an array of f32"));
        }
        let bytes = self.bytes[entry.range.clone()].chunks_exact(4);
        Ok(Some(bytes.map(|bytes| f32::from_bits(low_bits(bytes) as u32)).collect()))
    }

    /// Elements of an array of any type; `None` for a value that is no array.
    pub fn array_length(&self, key: &str) -> Option<usize> {
        self.entries.get(key)?.array.map(|(_, count)| count)
    }

    fn entry(
        &self,
        key: &str,
        kind: Kind,
        expected: &'static str,
    ) -> Result<Option<&Entry>, GgufError> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(entry) if entry.kind == kind => Ok(Some(entry)),
            Some(_) => Err(wrong_type(key, expected)),
        }
    }

    fn array(&self, key: &str) -> Result<Option<(&Entry, Kind, usize)>, GgufError> {
        let Some(entry) = self.entry(key, Kind::Array, "an array")? else { return Ok(None) };
        Ok(entry.array.map(|(kind, count)| (entry, kind, count)))
    }
}

fn wrong_type(key: &str, expected: &'static str) -> GgufError {
    GgufError::WrongType { key: key.to_owned(), expected }
}

/// Reads past one value and remembers where it lies.
fn read_entry(cursor: &mut Cursor<'_>, kind: Kind, key: &str) -> Result<Entry, GgufError> {
    let mut array = None;
    let mut start = cursor.position();
    match kind {
        Kind::Array => {
            let element = Kind::from_number(cursor.u32(key)?, key)?;
            let count = cursor.u64(key)?;
            array = Some((element, array_count(cursor, element, count, key)?));
            start = cursor.position();
            match element.width() {
                // Cannot overflow: the count is at most ARRAY_LENGTH_MAX.
                Some(width) => drop(cursor.take(count * width as u64, key)?),
                None => {
                    for _ in 0..count {
                        cursor.string_bytes(STRING_BYTES_MAX, key)?;
                    }
                }
            }
        }
        Kind::String => {
            let text = cursor.string_bytes(STRING_BYTES_MAX, key)?;
            start = cursor.position() - text.len();
        }
        _ => drop(cursor.take(kind.width().unwrap_or(0) as u64, key)?),
    }
    Ok(Entry { kind, array, range: start..cursor.position() })
}

/// Checks an array's claimed length before anything of that size is done.
fn array_count(
    cursor: &Cursor<'_>,
    element: Kind,
    count: u64,
    key: &str,
) -> Result<usize, GgufError> {
    if element == Kind::Array {
        return Err(GgufError::ValueKind { key: key.to_owned(), kind: 9 });
    }
    if count > ARRAY_LENGTH_MAX {
        let what = format!("the length of metadata {key:?}");
        return Err(GgufError::TooLarge { what, value: count, limit: ARRAY_LENGTH_MAX });
    }
    // A string takes at least its 8-byte length.
    let bytes_min = count * element.width().unwrap_or(8) as u64;
    if bytes_min > cursor.remaining() as u64 {
        return Err(GgufError::Truncated {
            what: format!("metadata {key:?}"),
            offset: cursor.position(),
            needed: bytes_min,
            available: cursor.remaining(),
        });
    }
    Ok(count as usize)
}

/// Up to eight little-endian bytes as a number.
fn low_bits(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// An integer of any width, or `None` when the kind is no integer.
fn integer(kind: Kind, bytes: &[u8]) -> Option<i128> {
    let bits = low_bits(bytes);
    match kind {
        Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 => Some(i128::from(bits)),
        Kind::I8 => Some(i128::from(bits as u8 as i8)),
        Kind::I16 => Some(i128::from(bits as u16 as i16)),
        Kind::I32 => Some(i128::from(bits as u32 as i32)),
        Kind::I64 => Some(i128::from(bits as i64)),
        _ => None,
    }
}
