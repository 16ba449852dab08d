//! A model's weights by what they are for, whatever the file calls them.

mod names;
mod shapes;

pub use names::{LayerPart, Part, Suffix};

use crate::config::{Architecture, Config};
use crate::gguf::{GgufError, GgufFile};
use crate::safetensor_files::{SafeTensorFiles, SafeTensorsError};
use crate::tensor::{DType, Matrix, RowOrder, Tensor};
use half::{bf16, f16};
use names::Naming;
use shapes::{Form, Presence};
use std::path::Path;

/// Why weights were refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The GGUF file is damaged, or has an element type that is not supported.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The safetensors are damaged, or have an element type that is not supported.
    #[error(transparent)]
    SafeTensors(#[from] SafeTensorsError),
    /// A tensor that the configuration asks for is not in the file.
    #[error("the weights have no tensor {0:?}, which the configuration asks for")]
    Missing(String),
    /// A tensor is in the file that the configuration says is not there.
    #[error("the configuration contradicts the weights: tensor {name:?} is there, but {why}")]
    Unexpected {
        /// The tensor.
        name: String,
        /// What the configuration says.
        why: &'static str,
    },
    /// A tensor has another shape than the configuration asks for.
    #[error(
        "the configuration contradicts the weights: tensor {name:?} has shape {found:?}, the \
         configuration asks for {expected:?}"
    )]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape in the file, outermost first.
        found: Vec<usize>,
        /// The shape by the configuration.
        expected: Vec<usize>,
    },
    /// A norm or bias is stored in blocks.
    #[error(
        "tensor {name:?}: a vector of type {dtype} is not supported (F32, F16, BF16 are)",
        dtype = dtype.name()
    )]
    VectorType {
        /// The tensor.
        name: String,
        /// Its element type.
        dtype: DType,
    },
    /// The caller asked for something that the architecture does not have.
    #[error(
        "a {architecture} model has no {suffix:?} of {part:?} of this kind",
        architecture = architecture.name()
    )]
    NoSuchPart {
        /// The model family.
        architecture: Architecture,
        /// What was asked for.
        part: Part,
        /// Weight or bias.
        suffix: Suffix,
    },
}

/// A model's weights, still in their files.
#[derive(Debug)]
pub struct Weights {
    files: Files,
    naming: Naming,
    config: Config,
}

#[derive(Debug)]
enum Files {
    Gguf(GgufFile),
    SafeTensors(SafeTensorFiles),
}

impl Weights {
    /// Weights of a GGUF file. Every tensor that the configuration asks for is checked: that it
    /// is there, its shape, and its element type.
    ///
    /// # Errors
    /// [`WeightsError`] that names the first tensor at fault.
    pub fn from_gguf(file: GgufFile, config: &Config) -> Result<Weights, WeightsError> {
        Weights { files: Files::Gguf(file), naming: Naming::Gguf, config: config.clone() }.checked()
    }

    /// Weights of a directory with `model.safetensors`, or with its index and the files that the
    /// index names; checked like a GGUF file's.
    ///
    /// # Errors
    /// [`WeightsError`] that names the file or the first tensor at fault.
    pub fn from_safetensors(directory: &Path, config: &Config) -> Result<Weights, WeightsError> {
        Weights::with_safetensors(SafeTensorFiles::open(directory)?, config)
    }

    /// Weights of one safetensors file that is in memory already.
    ///
    /// # Errors
    /// [`WeightsError`] that names the first tensor at fault.
    pub fn from_safetensors_bytes(
        bytes: Vec<u8>,
        config: &Config,
    ) -> Result<Weights, WeightsError> {
        Weights::with_safetensors(SafeTensorFiles::from_bytes(bytes)?, config)
    }

    fn with_safetensors(files: SafeTensorFiles, config: &Config) -> Result<Weights, WeightsError> {
        let [usual, other] = names::prefixes(config.architecture);
        let prefix = if files.names().any(|name| name.starts_with(usual)) { usual } else { other };
        let naming = Naming::HuggingFace { prefix };
        Weights { files: Files::SafeTensors(files), naming, config: config.clone() }.checked()
    }

    /// All tensors in the files whose element type is supported, sorted by name; also those that
    /// no part uses.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        let boxed: Box<dyn Iterator<Item = Tensor<'_>>> = match &self.files {
            Files::Gguf(file) => Box::new(file.tensors()),
            Files::SafeTensors(files) => Box::new(files.tensors()),
        };
        boxed
    }

    /// A digest of every byte of the files that the weights are in: BLAKE3 over the length and the
    /// bytes of each.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        let mut add = |file: &[u8]| {
            hasher.update(&(file.len() as u64).to_le_bytes()).update(file);
        };
        match &self.files {
            Files::Gguf(file) => add(file.bytes()),
            Files::SafeTensors(files) => files.bytes().for_each(&mut add),
        }
        hasher.finalize().into()
    }

    /// Gives the files' pages back to the operating system, for when the weights have been brought
    /// into another form. They are read again when they are touched again.
    pub fn release_pages(&self) {
        match &self.files {
            Files::Gguf(file) => file.release_pages(),
            Files::SafeTensors(files) => files.release_pages(),
        }
    }

    /// A matrix, checked against the configuration's shapes. The head of a tied model is the
    /// token embedding.
    ///
    /// # Errors
    /// [`WeightsError::NoSuchPart`] for a part that the architecture does not have or that is no
    /// matrix; others cannot happen after `open`.
    pub fn matrix(&self, part: Part) -> Result<Matrix<'_>, WeightsError> {
        let part =
            if part == Part::Head && self.config.tied_head { Part::TokenEmbedding } else { part };
        let (outputs, inputs, linear) = match shapes::form(&self.config, part) {
            Some(Form::Table { outputs, inputs }) => (outputs, inputs, false),
            Some(Form::Linear { outputs, inputs, .. }) => (outputs, inputs, true),
            _ => return Err(self.no_such_part(part, Suffix::Weight)),
        };
        // GPT-2's Conv1D stores its weights the other way round; GGUF's converter turns them.
        let gpt2 = self.config.architecture == Architecture::Gpt2;
        let input_major = gpt2 && linear && self.naming != Naming::Gguf;
        let shape = if input_major { [inputs, outputs] } else { [outputs, inputs] };
        let tensor = self.required(part, Suffix::Weight, &shape)?;
        Ok(Matrix { tensor, outputs, inputs, input_major, row_order: self.row_order(part) })
    }

    /// A norm's gain or bias, or a matrix's bias, in canonical order; `None` for an optional bias
    /// that is not there.
    ///
    /// # Errors
    /// [`WeightsError::NoSuchPart`] for a part that the architecture does not have or that is no
    /// vector; others cannot happen after `open`.
    pub fn vector(&self, part: Part, suffix: Suffix) -> Result<Option<Vec<f32>>, WeightsError> {
        let (length, presence) = match (shapes::form(&self.config, part), suffix) {
            (Some(Form::Norm { length, .. }), Suffix::Weight) => (length, Presence::Required),
            (Some(Form::Norm { length, bias: true }), Suffix::Bias) => (length, Presence::Required),
            (Some(Form::Norm { length, bias: false }), Suffix::Bias) => {
                (length, Presence::Forbidden)
            }
            (Some(Form::Linear { outputs, bias, .. }), Suffix::Bias) => (outputs, bias),
            (Some(Form::Table { outputs, .. }), Suffix::Bias) => (outputs, Presence::Forbidden),
            _ => return Err(self.no_such_part(part, suffix)),
        };
        let name = self.name(part, suffix)?;
        match (self.tensor(&name)?, presence) {
            (None, Presence::Optional | Presence::Forbidden) => Ok(None),
            (None, Presence::Required) => Err(WeightsError::Missing(name)),
            (Some(_), Presence::Forbidden) => {
                let why = "the configuration says that there is no such bias";
                Err(WeightsError::Unexpected { name, why })
            }
            (Some(tensor), _) => {
                check_shape(&tensor, &[length])?;
                let stored = numbers(&tensor)?;
                Ok(Some(match self.row_order(part) {
                    RowOrder::Natural => stored,
                    RowOrder::InterleavedRope { head_dim } => canonical_rows(&stored, head_dim),
                }))
            }
        }
    }

    /// Looks at every part once, so that nothing is missing later.
    fn checked(self) -> Result<Weights, WeightsError> {
        for part in shapes::parts(&self.config) {
            match shapes::form(&self.config, part) {
                Some(Form::Norm { .. }) => {
                    self.vector(part, Suffix::Weight)?;
                    self.vector(part, Suffix::Bias)?;
                }
                Some(Form::Linear { .. }) => {
                    self.matrix(part)?;
                    self.vector(part, Suffix::Bias)?;
                }
                Some(Form::Table { .. }) => {
                    self.matrix(part)?;
                }
                None => {}
            }
        }
        self.check_tied_head()?;
        self.check_layer_count()?;
        Ok(self)
    }

    /// A tied model may have its head in the file too, but then it must be the embedding.
    fn check_tied_head(&self) -> Result<(), WeightsError> {
        if !self.config.tied_head {
            return Ok(());
        }
        let name = self.name(Part::Head, Suffix::Weight)?;
        let embedding = self.matrix(Part::TokenEmbedding)?.tensor;
        match self.tensor(&name)? {
            Some(head) if head.bytes != embedding.bytes || head.dtype != embedding.dtype => {
                let why = "tie_word_embeddings says that it is the token embedding, which differs";
                Err(WeightsError::Unexpected { name, why })
            }
            _ => Ok(()),
        }
    }

    /// More layers in the file than in the configuration would silently be another model.
    fn check_layer_count(&self) -> Result<(), WeightsError> {
        let part = Part::Layer(self.config.layers, LayerPart::AttentionNorm);
        let name = self.name(part, Suffix::Weight)?;
        match self.tensor(&name)? {
            Some(_) => {
                let why = "the configuration has fewer layers";
                Err(WeightsError::Unexpected { name, why })
            }
            None => Ok(()),
        }
    }

    fn row_order(&self, part: Part) -> RowOrder {
        let llama_gguf =
            self.naming == Naming::Gguf && self.config.architecture == Architecture::Llama;
        match part {
            Part::Layer(_, LayerPart::Q | LayerPart::K) if llama_gguf => {
                RowOrder::InterleavedRope { head_dim: self.config.head_dim }
            }
            _ => RowOrder::Natural,
        }
    }

    fn name(&self, part: Part, suffix: Suffix) -> Result<String, WeightsError> {
        names::tensor_name(self.naming, self.config.architecture, part, suffix)
            .ok_or_else(|| self.no_such_part(part, suffix))
    }

    fn tensor(&self, name: &str) -> Result<Option<Tensor<'_>>, WeightsError> {
        Ok(match &self.files {
            Files::Gguf(file) => file.tensor(name)?,
            Files::SafeTensors(files) => files.tensor(name)?,
        })
    }

    fn required(
        &self,
        part: Part,
        suffix: Suffix,
        shape: &[usize],
    ) -> Result<Tensor<'_>, WeightsError> {
        let name = self.name(part, suffix)?;
        let tensor = self.tensor(&name)?.ok_or(WeightsError::Missing(name))?;
        check_shape(&tensor, shape)?;
        Ok(tensor)
    }

    fn no_such_part(&self, part: Part, suffix: Suffix) -> WeightsError {
        WeightsError::NoSuchPart { architecture: self.config.architecture, part, suffix }
    }
}

fn check_shape(tensor: &Tensor<'_>, expected: &[usize]) -> Result<(), WeightsError> {
    if tensor.shape == expected {
        return Ok(());
    }
    Err(WeightsError::Shape {
        name: tensor.name.to_owned(),
        found: tensor.shape.clone(),
        expected: expected.to_vec(),
    })
}

/// A vector as f32. All three types convert exactly.
fn numbers(tensor: &Tensor<'_>) -> Result<Vec<f32>, WeightsError> {
    let pairs = tensor.bytes.chunks_exact(2).map(|bytes| [bytes[0], bytes[1]]);
    match tensor.dtype {
        DType::F32 => Ok(tensor
            .bytes
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .collect()),
        DType::F16 => Ok(pairs.map(|bytes| f16::from_le_bytes(bytes).to_f32()).collect()),
        DType::BF16 => Ok(pairs.map(|bytes| bf16::from_le_bytes(bytes).to_f32()).collect()),
        dtype => Err(WeightsError::VectorType { name: tensor.name.to_owned(), dtype }),
    }
}

/// Undoes [`RowOrder::InterleavedRope`] for a bias.
fn canonical_rows(stored: &[f32], head_dim: usize) -> Vec<f32> {
    let half = head_dim / 2;
    let of_head = |head: &[f32]| -> Vec<f32> {
        (0..head_dim).map(|row| head[2 * (row % half) + row / half]).collect()
    };
    stored.chunks_exact(head_dim).flat_map(of_head).collect()
}
