//! A reader for GGUF files that copies nothing and trusts nothing.
//!
//! Layout (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>): magic, version, counts,
//! metadata, tensor descriptions, padding up to `general.alignment`, tensor data. Every count,
//! length, offset and shape is checked against the file and a limit before it is used.

mod cursor;
mod error;
mod metadata;
mod types;

pub use error::GgufError;
pub use metadata::Metadata;

use crate::map::FileBytes;
use crate::tensor::{DType, Tensor};
use cursor::Cursor;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Most tensors accepted; a 100-layer mixture of experts has about 1,500.
const TENSORS_MAX: u64 = 65_536;
/// Longest tensor name; ggml itself stops at 63.
const NAME_BYTES_MAX: u64 = 256;
/// Most dimensions of a tensor, which is ggml's limit.
const DIMENSIONS_MAX: u32 = 4;
const ALIGNMENT_DEFAULT: u32 = 32;
const ALIGNMENT_MAX: u32 = 65_536;

/// A parsed GGUF file: its metadata, and where each tensor lies.
#[derive(Debug, Clone)]
pub struct GgufFile {
    bytes: Arc<FileBytes>,
    metadata: Metadata,
    tensors: BTreeMap<String, Place>,
}

#[derive(Debug, Clone)]
struct Place {
    ggml_type: types::GgmlType,
    /// Outermost first (the file has them innermost first).
    shape: Vec<usize>,
    range: Range<usize>,
}

impl GgufFile {
    /// Reads the head of a file. The tensors' numbers are not touched.
    ///
    /// # Errors
    /// [`GgufError`] for anything that is not a sound GGUF file of version 2 or 3.
    pub fn parse(bytes: Arc<FileBytes>) -> Result<GgufFile, GgufError> {
        let mut cursor = Cursor::new(&bytes, 0);
        let magic = cursor.take(4.min(bytes.len() as u64), "the magic")?;
        if magic != b"GGUF" {
            let found = String::from_utf8_lossy(magic).into_owned();
            return Err(GgufError::WrongMagic { found });
        }
        let version = cursor.u32("the version")?;
        if !(2..=3).contains(&version) {
            return Err(GgufError::Version(version));
        }
        let tensor_count = cursor.u64("the number of tensors")?;
        if tensor_count > TENSORS_MAX {
            let what = "the number of tensors".to_owned();
            return Err(GgufError::TooLarge { what, value: tensor_count, limit: TENSORS_MAX });
        }
        let entry_count = cursor.u64("the number of metadata entries")?;
        let (metadata, end) = Metadata::read(&bytes, cursor.position(), entry_count)?;
        let alignment = metadata.u32("general.alignment")?.unwrap_or(ALIGNMENT_DEFAULT);
        if !alignment.is_power_of_two() || alignment > ALIGNMENT_MAX {
            return Err(GgufError::Alignment(alignment));
        }
        let tensors = read_tensors(&bytes, end, tensor_count, alignment as usize)?;
        Ok(GgufFile { bytes, metadata, tensors })
    }

    /// The whole file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives the file's pages back to the operating system.
    pub(crate) fn release_pages(&self) {
        self.bytes.release_pages();
    }

    /// The key-value part.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The tensor of that name, `None` when there is none.
    ///
    /// # Errors
    /// [`GgufError::Tensor`] that names the element type when the project cannot compute with it.
    pub fn tensor(&self, name: &str) -> Result<Option<Tensor<'_>>, GgufError> {
        let Some((name, place)) = self.tensors.get_key_value(name) else { return Ok(None) };
        let dtype = place.ggml_type.dtype().ok_or_else(|| GgufError::Tensor {
            name: name.clone(),
            problem: format!(
                "element type {} is not supported (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, \
                 Q5_1, Q4_K, Q5_K and Q6_K are)",
                place.ggml_type.name
            ),
        })?;
        Ok(Some(self.at(name, dtype, place)))
    }

    /// All tensors whose element type is supported, sorted by name.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.tensors.iter().filter_map(|(name, place)| {
            place.ggml_type.dtype().map(|dtype| self.at(name, dtype, place))
        })
    }

    fn at<'a>(&'a self, name: &'a str, dtype: DType, place: &Place) -> Tensor<'a> {
        let bytes = &self.bytes[place.range.clone()];
        Tensor { name, dtype, shape: place.shape.clone(), bytes }
    }
}

/// Reads the tensor descriptions and checks that the data they claim is there, aligned, and
/// claimed once.
fn read_tensors(
    bytes: &FileBytes,
    start: usize,
    count: u64,
    alignment: usize,
) -> Result<BTreeMap<String, Place>, GgufError> {
    let mut cursor = Cursor::new(bytes, start);
    let mut descriptions = Vec::new();
    for _ in 0..count {
        descriptions.push(read_description(&mut cursor)?);
    }
    let data_start = cursor.position().next_multiple_of(alignment);
    let mut tensors = BTreeMap::new();
    for description in descriptions {
        let range = data_range(&description, data_start, alignment, bytes.len())?;
        let Description { name, ggml_type, shape, .. } = description;
        let place = Place { ggml_type, shape, range };
        if tensors.insert(name.to_owned(), place).is_some() {
            return Err(GgufError::Duplicate { what: "tensor", name: name.to_owned() });
        }
    }
    refuse_overlap(&tensors)?;
    Ok(tensors)
}

/// One tensor description as the file has it, shape turned outermost first.
struct Description<'a> {
    name: &'a str,
    ggml_type: types::GgmlType,
    shape: Vec<usize>,
    byte_count: usize,
    offset: u64,
}

fn read_description<'a>(cursor: &mut Cursor<'a>) -> Result<Description<'a>, GgufError> {
    let name = cursor.string(NAME_BYTES_MAX, "a tensor name")?;
    let refuse = |problem: String| GgufError::Tensor { name: name.to_owned(), problem };
    let dimensions = cursor.u32(name)?;
    if dimensions == 0 || dimensions > DIMENSIONS_MAX {
        return Err(refuse(format!("{dimensions} dimensions; 1 to {DIMENSIONS_MAX} are possible")));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        let length = cursor.u64(name)?;
        match usize::try_from(length) {
            Ok(length) if length > 0 => shape.push(length),
            _ => return Err(refuse(format!("a dimension of {length}"))),
        }
    }
    let number = cursor.u32(name)?;
    let ggml_type = types::GgmlType::from_number(number)
        .ok_or_else(|| refuse(format!("unknown element type {number}")))?;
    if shape[0] % ggml_type.block_elements != 0 {
        return Err(refuse(format!(
            "rows of {} are not whole blocks of {} ({})",
            shape[0], ggml_type.block_elements, ggml_type.name
        )));
    }
    let byte_count = shape
        .iter()
        .try_fold(1_usize, |product, length| product.checked_mul(*length))
        .map(|elements| elements / ggml_type.block_elements)
        .and_then(|blocks| blocks.checked_mul(ggml_type.block_bytes))
        .ok_or_else(|| refuse(format!("the shape {shape:?} is too large")))?;
    shape.reverse();
    Ok(Description { name, ggml_type, shape, byte_count, offset: cursor.u64(name)? })
}

fn data_range(
    description: &Description<'_>,
    data_start: usize,
    alignment: usize,
    file_bytes: usize,
) -> Result<Range<usize>, GgufError> {
    let refuse = |problem: String| GgufError::Tensor { name: description.name.to_owned(), problem };
    let Description { offset, byte_count, .. } = description;
    if offset % alignment as u64 != 0 {
        return Err(refuse(format!("offset {offset} is not aligned to {alignment}")));
    }
    let range = usize::try_from(*offset)
        .ok()
        .and_then(|offset| data_start.checked_add(offset))
        .and_then(|start| Some(start..start.checked_add(*byte_count)?));
    match range {
        Some(range) if range.end <= file_bytes => Ok(range),
        _ => Err(refuse(format!(
            "its {byte_count} bytes at offset {offset} go past the end of the file \
             ({file_bytes} bytes): truncated or damaged"
        ))),
    }
}

/// Two tensors must not share a byte: a sound writer never does it, a crafted file might.
fn refuse_overlap(tensors: &BTreeMap<String, Place>) -> Result<(), GgufError> {
    let mut places: Vec<_> = tensors.iter().collect();
    places.sort_by_key(|(_, place)| place.range.start);
    for pair in places.windows(2) {
        let [(first, before), (second, after)] = pair else { continue };
        if after.range.start < before.range.end {
            let problem = format!("its data overlaps that of tensor {first:?}");
            return Err(GgufError::Tensor { name: (*second).clone(), problem });
        }
    }
    Ok(())
}
