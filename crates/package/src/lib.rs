//! The model package: everything that comes with a model, and where it comes from.
//!
//! Config, weights (GGUF and safetensors), tokenizer, chat template, licence, and the sources
//! (a path, the hub, pip). It computes nothing: weights are handed on as the file has them.

mod chat;
mod config;
pub mod gguf;
mod map;
mod package;
mod prompt_map;
mod safetensor_files;
mod source;
mod stream;
mod tensor;
mod text;
mod text_file;
mod tokenizer;
mod weights;

pub use chat::{
    ChatError, ChatRequest, ChatTemplate, REASONING_EFFORTS, Rendered, Span, TEMPLATE_BYTES_MAX,
};
pub use config::{Activation, Architecture, Biases, Config, ConfigError, Rope, RopeScaling};
pub use map::FileBytes;
pub use package::{Package, PackageError};
pub use prompt_map::{Location, PromptMap};
pub use safetensor_files::SafeTensorsError;
pub use source::{
    ALIASES, DEFAULT_MODEL, Progress, SourceError, Sources, StoredModel, pull, resolve,
};
pub use stream::StreamDecoder;
pub use tensor::{DType, Matrix, RowOrder, Tensor};
pub use text::{TextError, TextPackage};
pub use tokenizer::{Encoding, TEXT_BYTES_MAX, Tokenizer, TokenizerError};
pub use weights::{LayerPart, Part, Suffix, Weights, WeightsError};
