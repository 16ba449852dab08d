//! The model package: everything that comes with a model, and where it comes from.
//!
//! Config, weights (GGUF and safetensors), tokenizer, chat template, licence, and the sources
//! (a path, the hub, pip). It computes nothing: weights are handed on as the file has them.

pub mod gguf;
mod map;
mod tensor;

pub use map::FileBytes;
pub use tensor::{DType, Matrix, RowOrder, Tensor};
