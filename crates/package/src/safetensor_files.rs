//! safetensors weights: one file, or several with an index.

use crate::map::FileBytes;
use crate::tensor::{DType, Tensor};
use crate::text_file;
use safetensors::{Dtype, SafeTensors};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest index file accepted.
const INDEX_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Most files that one index may name.
const FILES_MAX: usize = 1024;

/// Why safetensors weights were refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SafeTensorsError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", name(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        error: std::io::Error,
    },
    /// A file is not sound safetensors.
    #[error("{} is not a sound safetensors file: {problem}", name(path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// `model.safetensors.index.json` is not usable.
    #[error("model.safetensors.index.json: {0}")]
    Index(String),
    /// An element type that the project does not compute with.
    #[error(
        "tensor {name:?} has element type {dtype}, which is not supported (F32, F16, BF16 are)"
    )]
    DType {
        /// The tensor.
        name: String,
        /// Its element type.
        dtype: String,
    },
    /// No weights in the directory.
    #[error("it has no model.safetensors{hint}")]
    NotFound {
        /// What to do about it, where that is known.
        hint: &'static str,
    },
}

/// A file without its directory, which whoever opens the package names.
fn name(path: &Path) -> std::path::Display<'_> {
    Path::new(path.file_name().unwrap_or(path.as_os_str())).display()
}

/// All tensors of a model that is stored as safetensors.
#[derive(Debug)]
pub(crate) struct SafeTensorFiles {
    files: Vec<Arc<FileBytes>>,
    tensors: BTreeMap<String, Place>,
}

#[derive(Debug)]
struct Place {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    range: Range<usize>,
}

impl SafeTensorFiles {
    /// Opens `model.safetensors`, or the files that `model.safetensors.index.json` names.
    pub(crate) fn open(directory: &Path) -> Result<SafeTensorFiles, SafeTensorsError> {
        let single = directory.join("model.safetensors");
        if single.is_file() {
            let mut files = SafeTensorFiles::empty();
            files.add(&single, Arc::new(map(&single)?))?;
            return Ok(files);
        }
        let index = directory.join("model.safetensors.index.json");
        if index.is_file() {
            return SafeTensorFiles::open_sharded(directory, &index);
        }
        let hint = if directory.join("pytorch_model.bin").is_file() {
            "; pytorch_model.bin cannot be read, convert it with save_pretrained"
        } else {
            ""
        };
        Err(SafeTensorsError::NotFound { hint })
    }

    /// Parses one file that is in memory already; for tests and fuzzing.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<SafeTensorFiles, SafeTensorsError> {
        let mut files = SafeTensorFiles::empty();
        files.add(Path::new("model.safetensors"), Arc::new(FileBytes::from(bytes)))?;
        Ok(files)
    }

    fn empty() -> SafeTensorFiles {
        SafeTensorFiles { files: Vec::new(), tensors: BTreeMap::new() }
    }

    fn open_sharded(directory: &Path, index: &Path) -> Result<SafeTensorFiles, SafeTensorsError> {
        let weight_map = read_index(index)?;
        let names: BTreeSet<&String> = weight_map.values().collect();
        if names.len() > FILES_MAX {
            let problem = format!("names {} files, over the limit of {FILES_MAX}", names.len());
            return Err(SafeTensorsError::Index(problem));
        }
        let mut files = SafeTensorFiles::empty();
        for name in names {
            // A plain file name, so that an index cannot reach out of its directory.
            if Path::new(name).file_name() != Some(name.as_ref()) {
                return Err(SafeTensorsError::Index(format!("{name:?} is not a file name")));
            }
            let path = directory.join(name);
            files.add(&path, Arc::new(map(&path)?))?;
        }
        match weight_map.keys().find(|tensor| !files.tensors.contains_key(*tensor)) {
            Some(tensor) => {
                Err(SafeTensorsError::Index(format!("tensor {tensor:?} is in none of the files")))
            }
            None => Ok(files),
        }
    }

    /// The files, each whole.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.files.iter().map(|file| &***file)
    }

    /// Gives the files' pages back to the operating system.
    pub(crate) fn release_pages(&self) {
        self.files.iter().for_each(|file| file.release_pages());
    }

    /// Adds a file's tensors. The `safetensors` crate checks the header: shapes against byte
    /// ranges, ranges against each other and against the length of the file.
    fn add(&mut self, path: &Path, bytes: Arc<FileBytes>) -> Result<(), SafeTensorsError> {
        let damaged =
            |problem: String| SafeTensorsError::Damaged { path: path.to_owned(), problem };
        let (header_bytes, metadata) =
            SafeTensors::read_metadata(&bytes).map_err(|error| damaged(error.to_string()))?;
        let data_start = 8 + header_bytes;
        for (name, info) in metadata.tensors() {
            let (start, end) = info.data_offsets;
            let range = data_start + start..data_start + end;
            if range.end > bytes.len() || start > end {
                return Err(damaged(format!("tensor {name:?} goes past the end of the file")));
            }
            let place = Place {
                file: self.files.len(),
                dtype: info.dtype,
                shape: info.shape.clone(),
                range,
            };
            if self.tensors.insert(name.clone(), place).is_some() {
                return Err(damaged(format!("tensor {name:?} occurs twice")));
            }
        }
        self.files.push(bytes);
        Ok(())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub(crate) fn tensor(&self, name: &str) -> Result<Option<Tensor<'_>>, SafeTensorsError> {
        let Some((name, place)) = self.tensors.get_key_value(name) else { return Ok(None) };
        let dtype = dtype(place.dtype).ok_or_else(|| SafeTensorsError::DType {
            name: name.clone(),
            dtype: format!("{:?}", place.dtype),
        })?;
        Ok(Some(self.at(name, dtype, place)))
    }

    /// All tensors whose element type is supported, sorted by name.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.tensors
            .iter()
            .filter_map(|(name, place)| Some(self.at(name, dtype(place.dtype)?, place)))
    }

    fn at<'a>(&'a self, name: &'a str, dtype: DType, place: &Place) -> Tensor<'a> {
        let bytes = &self.files[place.file][place.range.clone()];
        Tensor { name, dtype, shape: place.shape.clone(), bytes }
    }
}

fn dtype(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        _ => None,
    }
}

fn map(path: &Path) -> Result<FileBytes, SafeTensorsError> {
    FileBytes::map(path).map_err(|error| SafeTensorsError::Io { path: path.to_owned(), error })
}

/// Tensor name to file name.
fn read_index(path: &Path) -> Result<BTreeMap<String, String>, SafeTensorsError> {
    let io = |error| SafeTensorsError::Io { path: path.to_owned(), error };
    let text = text_file::read(path, INDEX_BYTES_MAX).map_err(io)?.unwrap_or_default();
    let index: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| SafeTensorsError::Index(error.to_string()))?;
    let weight_map = index
        .get("weight_map")
        .and_then(|map| map.as_object())
        .ok_or_else(|| SafeTensorsError::Index("has no object weight_map".to_owned()))?;
    let pairs = weight_map.iter().map(|(tensor, file)| {
        let file = file.as_str().ok_or_else(|| {
            SafeTensorsError::Index(format!("the file of {tensor:?} is not a string"))
        })?;
        Ok((tensor.clone(), file.to_owned()))
    });
    pairs.collect()
}
