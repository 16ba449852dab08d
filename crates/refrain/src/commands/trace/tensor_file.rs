//! Files of tensors: `.safetensors`, `.npy` and `.json`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

use engine::trace::Tensor;
use safetensors::tensor::{Dtype, SafeTensors, View};
use serde::Serialize;
use serde_json::Value;

use super::npy;
use super::selection::Selection;
use crate::bytes;
use crate::failure::Failure;
use crate::quoted::brief;
use crate::whole_file;

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 8 << 30;

/// What a file's name says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    SafeTensors,
    /// One tensor, without a name.
    Npy,
    Json,
}

impl Format {
    pub(super) fn of(path: &Path) -> Result<Format, Failure> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let (start, ending) = name.rsplit_once('.').unwrap_or((&name, ""));
        let format = match ending.to_ascii_lowercase().as_str() {
            "safetensors" => Format::SafeTensors,
            "npy" => Format::Npy,
            "json" => Format::Json,
            _ => {
                let path = brief(&path.to_string_lossy());
                let message = format!("{path} must end in .safetensors, .npy or .json");
                return Err(Failure::Usage(message));
            }
        };
        if start.is_empty() {
            let message = format!("{name} is an ending alone: put a name before it, as a{name}");
            return Err(Failure::Usage(message));
        }
        Ok(format)
    }
}

/// A document of tensors.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    pub(super) schema: &'static str,
    pub(super) tensors: &'a [Tensor],
}

impl<'a> Document<'a> {
    pub(super) fn new(tensors: &'a [Tensor]) -> Self {
        Self { schema: "refrain.tensors/1", tensors }
    }
}

/// What tensors are of; a `.safetensors` file says it under `refrain.trace`.
#[derive(Default, Serialize)]
pub(super) struct Origin<'a> {
    pub(super) model: &'a str,
    /// The prompt's token ids.
    pub(super) tokens: Vec<u32>,
    /// Those of the decode steps.
    pub(super) decoded: Vec<u32>,
}

/// Whether `path` can take what is selected, as far as its name says.
pub(super) fn check(path: &Path, selections: &[Selection]) -> Result<(), Failure> {
    if Format::of(path)? == Format::Npy && selections.len() != 1 {
        let (path, count) = (path.display(), selections.len());
        let message = format!(
            "{path}: a .npy file holds one tensor, and --tensor names {count}; name one, or save \
             to a .safetensors file"
        );
        return Err(Failure::Usage(message));
    }
    Ok(())
}

/// Writes `tensors` to `path`, in the format of its name; what was there stays if that fails.
pub(super) fn save(path: &Path, tensors: &[Tensor], origin: &Origin) -> Result<(), Failure> {
    let names: HashSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    if names.len() < tensors.len() {
        let message = "a file holds one part of a tensor: name each tensor once";
        return Err(Failure::Usage(message.to_owned()));
    }
    let written = match (Format::of(path)?, tensors) {
        (Format::SafeTensors, _) => {
            let bytes = safetensors_bytes(tensors, origin).map_err(Failure::new)?;
            whole_file::write(path, |out| out.write_all(&bytes))
        }
        (Format::Json, _) => whole_file::write(path, |out| {
            serde_json::to_writer(out, &Document::new(tensors)).map_err(Into::into)
        }),
        (Format::Npy, [one]) => whole_file::write(path, |out| npy::write(out, one)),
        (Format::Npy, _) => {
            let count = tensors.len();
            let message = format!("a .npy file holds one tensor, not {count}: name it by --tensor");
            return Err(Failure::Usage(message));
        }
    };
    let failed = |error| Failure::Failed(format!("cannot write {}: {error}", path.display()));
    written.map_err(failed)
}

fn safetensors_bytes(
    tensors: &[Tensor],
    origin: &Origin,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    // One entry, since the order of several would differ from file to file.
    let origin = [("refrain.trace".to_owned(), serde_json::to_string(origin)?)];
    let views = tensors.iter().map(|tensor| (tensor.name.as_str(), Floats(tensor)));
    Ok(safetensors::serialize(views, Some(origin.into()))?)
}

/// A tensor whose bytes are made when they are written.
struct Floats<'a>(&'a Tensor);

impl View for Floats<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.0.values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn data_len(&self) -> usize {
        self.0.values.len() * size_of::<f32>()
    }
}

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) tensors: Vec<Tensor>,
    /// Names of tensors that are no floating-point numbers, and their types.
    pub(super) others: Vec<(String, String)>,
}

/// Reads the tensors of `path`; that of a `.npy` file gets the name `unnamed`.
pub(super) fn read(path: &Path, unnamed: &str) -> Result<Contents, Failure> {
    let format = Format::of(path)?;
    let shown = path.display();
    let failed = |problem: String| Failure::Failed(format!("cannot read {shown}: {problem}"));
    let size = path.metadata().map_err(|error| failed(error.to_string()))?.len();
    if size > FILE_BYTES_MAX {
        return Err(failed(format!("it has more than {}", bytes::show(FILE_BYTES_MAX))));
    }
    let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let contents = match format {
        Format::SafeTensors => read_safetensors(&bytes),
        Format::Npy => npy::parse(&bytes, unnamed)
            .map(|tensor| Contents { tensors: vec![tensor], ..Contents::default() }),
        Format::Json => read_json(&bytes),
    };
    contents.map_err(failed)
}

fn read_safetensors(bytes: &[u8]) -> Result<Contents, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let mut contents = Contents::default();
    for (name, view) in file.iter() {
        let values = match view.dtype() {
            Dtype::F32 => npy::floats(view.data()),
            Dtype::F64 => npy::doubles(view.data()),
            other => {
                contents.others.push((name.to_owned(), format!("{other:?}")));
                continue;
            }
        };
        let (name, shape) = (name.to_owned(), view.shape().to_vec());
        contents.tensors.push(Tensor { name, shape, values });
    }
    contents.tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(contents)
}

fn read_json(bytes: &[u8]) -> Result<Contents, String> {
    let document: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let tensors = document["tensors"].as_array().ok_or("it has no array \"tensors\"")?;
    let tensor = |value: &Value| {
        let name = value["name"].as_str()?.to_owned();
        let size = |size: &Value| usize::try_from(size.as_u64()?).ok();
        let shape: Vec<usize> =
            value["shape"].as_array()?.iter().map(size).collect::<Option<_>>()?;
        let values: Vec<f32> =
            value["values"].as_array()?.iter().map(json_number).collect::<Option<_>>()?;
        let count = shape.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
        (count == Some(values.len())).then_some(Tensor { name, shape, values })
    };
    let tensors = tensors.iter().map(tensor).collect::<Option<Vec<_>>>();
    let tensors = tensors.ok_or("a tensor needs name, shape and as many values")?;
    Ok(Contents { tensors, ..Contents::default() })
}

/// A number, or one of the three words for what is none.
fn json_number(value: &Value) -> Option<f32> {
    match value.as_str() {
        Some("NaN") => Some(f32::NAN),
        Some("Infinity") => Some(f32::INFINITY),
        Some("-Infinity") => Some(f32::NEG_INFINITY),
        Some(_) => None,
        None => value.as_f64().map(|number| number as f32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_saved_is_read_bit_by_bit(
            values in prop::collection::vec(any::<f32>(), 6),
            wide in any::<bool>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let shape = if wide { vec![1, 6] } else { vec![1, 2, 3] };
            let tensor = Tensor { name: "blocks.0.hook_z".to_owned(), shape, values };
            for name in ["a.safetensors", "a.npy", "a.json"] {
                let path = folder.path().join(name);
                save(&path, std::slice::from_ref(&tensor), &Origin::default()).unwrap();
                let read = read(&path, "blocks.0.hook_z").unwrap().tensors;
                prop_assert_eq!(read.len(), 1);
                prop_assert_eq!((&read[0].name, &read[0].shape), (&tensor.name, &tensor.shape));
                for (a, b) in read[0].values.iter().zip(&tensor.values) {
                    prop_assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan());
                }
            }
        }

        #[test]
        fn a_broken_file_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let folder = tempfile::tempdir().unwrap();
            for name in ["a.safetensors", "a.npy", "a.json"] {
                let path = folder.path().join(name);
                std::fs::write(&path, &bytes).unwrap();
                prop_assert!(read(&path, "x").is_err());
            }
        }
    }

    #[test]
    fn a_npy_file_holds_one_tensor_and_other_names_are_refused() {
        let tensor = Tensor { name: "x".to_owned(), shape: vec![1], values: vec![1.0] };
        let folder = tempfile::tempdir().unwrap();
        let other = Tensor { name: "y".to_owned(), ..tensor.clone() };
        let twice = [tensor.clone(), tensor.clone()];
        let save = |name: &str, tensors: &[Tensor]| {
            save(&folder.path().join(name), tensors, &Origin::default())
        };
        assert!(matches!(save("a.json", &twice), Err(Failure::Usage(_))));
        assert!(matches!(save("a.npy", &[tensor, other]), Err(Failure::Usage(_))));
        assert!(matches!(Format::of(Path::new("a.npz")), Err(Failure::Usage(_))));
        assert!(matches!(Format::of(Path::new("safetensors")), Err(Failure::Usage(_))));
        assert!(matches!(Format::of(Path::new("a/.npy")), Err(Failure::Usage(_))));
        assert_eq!(Format::of(Path::new("a.b.NPY")).unwrap(), Format::Npy);
        assert_eq!(Format::of(Path::new("A.SafeTensors")).unwrap(), Format::SafeTensors);
    }
}
