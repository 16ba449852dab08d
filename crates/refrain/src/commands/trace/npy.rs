//! NumPy's file of one array, version 1 of `numpy.lib.format`.

use std::io::Write;
use std::path::Path;

use engine::trace::Tensor;

use super::paper::shape_text;

const MAGIC: &[u8] = b"\x93NUMPY";
/// The header and what is before it fill a multiple of this.
const ALIGNMENT: usize = 64;

pub(super) fn save(path: &Path, tensor: &Tensor) -> std::io::Result<()> {
    let shape = shape_text(&tensor.shape);
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    let before = MAGIC.len() + 4;
    let filled = (before + header.len() + 1).next_multiple_of(ALIGNMENT);
    header.extend(std::iter::repeat_n(' ', filled - before - header.len() - 1));
    header.push('\n');
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    file.write_all(MAGIC)?;
    file.write_all(&[1, 0])?;
    file.write_all(&(header.len() as u16).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    for value in &tensor.values {
        file.write_all(&value.to_le_bytes())?;
    }
    file.flush()
}

/// Reads an array of 32- or 64-bit floats in C order.
pub(super) fn parse(bytes: &[u8], name: &str) -> Result<Tensor, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it is no .npy file")?;
    let (length, rest) = match rest {
        [1, _, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
        [2 | 3, _, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        _ => return Err("its version of .npy is not known".to_owned()),
    };
    let (header, data) = rest.split_at_checked(length).ok_or("it ends inside its header")?;
    let header = std::str::from_utf8(header).map_err(|error| error.to_string())?;
    if !header.replace(' ', "").contains("'fortran_order':False") {
        return Err("it is not in C order".to_owned());
    }
    let values = match header {
        header if header.contains("'<f4'") => floats(data),
        header if header.contains("'<f8'") => doubles(data),
        _ => return Err("its numbers are neither float32 nor float64".to_owned()),
    };
    let shape = shape(header).ok_or("it has no shape")?;
    let count = shape.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
    if count != Some(values.len()) {
        return Err(format!("it has {} numbers for the shape {shape:?}", values.len()));
    }
    Ok(Tensor { name: name.to_owned(), shape, values })
}

fn shape(header: &str) -> Option<Vec<usize>> {
    let (_, rest) = header.split_once("'shape':")?;
    let (inside, _) = rest.trim_start().strip_prefix('(')?.split_once(')')?;
    let sizes = inside.split(',').map(str::trim).filter(|size| !size.is_empty());
    sizes.map(|size| size.parse().ok()).collect()
}

pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().copied().map(f32::from_le_bytes).collect()
}

/// 64-bit floats, rounded to 32.
pub(super) fn doubles(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().copied().map(|eight| f64::from_le_bytes(eight) as f32).collect()
}
