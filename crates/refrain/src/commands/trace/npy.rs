//! NumPy's file of one array, version 1 of `numpy.lib.format`.

use std::io::Write;

use engine::trace::Tensor;

use super::paper::shape_text;

const MAGIC: &[u8] = b"\x93NUMPY";
/// The header and what is before it fill a multiple of this.
const ALIGNMENT: usize = 64;

/// Writes `tensor` as an array of 32-bit floats.
pub(super) fn write(file: &mut impl Write, tensor: &Tensor) -> std::io::Result<()> {
    let shape = shape_text(&tensor.shape);
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    let before = MAGIC.len() + 4;
    let filled = (before + header.len() + 1).next_multiple_of(ALIGNMENT);
    header.extend(std::iter::repeat_n(' ', filled - before - header.len() - 1));
    header.push('\n');
    file.write_all(MAGIC)?;
    file.write_all(&[1, 0])?;
    file.write_all(&(header.len() as u16).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    for value in &tensor.values {
        file.write_all(&value.to_le_bytes())?;
    }
    Ok(())
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
        let fix = "save it by numpy.save(FILE, numpy.ascontiguousarray(array))";
        return Err(format!("it is in Fortran's order, the first dimension fastest; {fix}"));
    }
    let width = match header {
        header if header.contains("'<f4'") => size_of::<f32>(),
        header if header.contains("'<f8'") => size_of::<f64>(),
        _ => return Err("its numbers are neither float32 nor float64".to_owned()),
    };
    let shape = shape(header).ok_or("it has no shape")?;
    let needed = shape.iter().try_fold(width, |all, &size| all.checked_mul(size));
    if needed != Some(data.len()) {
        let found = data.len();
        return Err(format!(
            "after its header come {found} bytes, not what the shape {shape:?} takes at {width} \
             bytes each"
        ));
    }
    let values = if width == size_of::<f32>() { floats(data) } else { doubles(data) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_too_many_or_too_few_and_another_order_are_refused() {
        let tensor = Tensor { name: "x".to_owned(), shape: vec![2], values: vec![1.0, 2.0] };
        let mut file = Vec::new();
        write(&mut file, &tensor).unwrap();
        assert_eq!(parse(&file, "x").unwrap().values, tensor.values);
        for more in 1..9 {
            assert!(parse(&[&file[..], &vec![0; more]].concat(), "x").is_err(), "{more} more");
            assert!(parse(&file[..file.len() - more], "x").is_err(), "{more} fewer");
        }
        let at = file.windows(5).position(|window| window == b"False").unwrap();
        file[at..at + 5].copy_from_slice(b"True ");
        assert!(parse(&file, "x").unwrap_err().contains("ascontiguousarray"));
    }
}
