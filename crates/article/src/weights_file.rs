//! Looks into a weights file itself, past the package that reads it.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Longest header that is read.
const HEADER_BYTES_MAX: u64 = 64 << 20;

/// The beginning of a tensor, and the file it is in.
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// The first `count` bytes of the tensor `name` in a directory's safetensors files or in a GGUF
/// file.
pub(crate) fn first_bytes(path: &Path, name: &str, count: usize) -> Result<Found, Error> {
    for file in files(path)? {
        let mut open = File::open(&file)?;
        let start = match file.extension().is_some_and(|ending| ending == "safetensors") {
            true => in_safetensors(&mut open, name)?,
            false => in_gguf(&mut open, name)?,
        };
        let Some(start) = start else { continue };
        open.seek(SeekFrom::Start(start))?;
        let mut bytes = vec![0; count];
        open.read_exact(&mut bytes)?;
        let file = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        return Ok(Found { name: file, bytes });
    }
    Err(Error::new(ErrorKind::NotFound, format!("no file has the tensor {name}")))
}

fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in path.read_dir()? {
        let file = entry?.path();
        if file.extension().is_some_and(|ending| ending == "safetensors") {
            files.push(file);
        }
    }
    Ok(files)
}

/// Eight bytes with the header's length, the header, then the tensors, at offsets of their own.
fn in_safetensors(file: &mut File, name: &str) -> Result<Option<u64>, Error> {
    let length = number(file)?;
    let mut header = Vec::new();
    file.take(length.min(HEADER_BYTES_MAX)).read_to_end(&mut header)?;
    let header: serde_json::Value = serde_json::from_slice(&header)?;
    let offset = header[name]["data_offsets"][0].as_u64();
    Ok(offset.map(|offset| 8 + length + offset))
}

/// A tensor's entry is the length of its name, the name, the number of its dimensions, these, its
/// type and its offset. The data begin after the last entry, aligned to 32 bytes.
fn in_gguf(file: &mut File, name: &str) -> Result<Option<u64>, Error> {
    let mut header = Vec::new();
    file.take(HEADER_BYTES_MAX).read_to_end(&mut header)?;
    if !header.starts_with(b"GGUF") {
        return Err(Error::new(ErrorKind::InvalidData, "it does not begin with GGUF"));
    }
    let wanted = [&(name.len() as u64).to_le_bytes(), name.as_bytes()].concat();
    let Some(at) = header.windows(wanted.len()).position(|window| window == wanted) else {
        return Ok(None);
    };
    let Some((mut end, offset)) = entry(&header, at) else { return Ok(None) };
    while let Some((next, _)) = entry(&header, end) {
        end = next;
    }
    Ok(Some(end.next_multiple_of(32) as u64 + offset))
}

/// Where the tensor's entry at `at` ends, and its offset; `None` if there is no entry.
fn entry(header: &[u8], at: usize) -> Option<(usize, u64)> {
    let number = |at: usize| {
        let bytes = header.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let name = number(at).filter(|length| (1..=256).contains(length))? as usize;
    let printable = header.get(at + 8..at + 8 + name)?.iter().all(u8::is_ascii_graphic);
    let dimensions = at + 8 + name;
    let count = header.get(dimensions..dimensions + 4)?;
    let count = u32::from_le_bytes(count.try_into().ok()?);
    if !printable || !(1..=4).contains(&count) {
        return None;
    }
    let offset = dimensions + 4 + 8 * count as usize + 4;
    Some((offset + 8, number(offset)?))
}

fn number(file: &mut File) -> Result<u64, Error> {
    let mut bytes = [0; 8];
    file.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
