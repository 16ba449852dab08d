//! The names of the tensors that a trace can keep.

use std::fmt;

use package::Architecture;

use crate::taps::TapPoint;

/// What a tensor of a trace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// What passed a tap.
    Tap(TapPoint),
    /// What the KV cache holds of a layer after the step, as stored,
    /// `kv_heads x positions x head_dim`.
    Cached {
        /// The layer, counted from zero.
        layer: usize,
        /// Keys or values.
        part: CachePart,
    },
}

/// A half of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CachePart {
    /// Keys, as queries meet them: rotated, where the model rotates.
    Keys,
    /// Values.
    Values,
}

impl CachePart {
    fn name(self) -> &'static str {
        match self {
            CachePart::Keys => "keys",
            CachePart::Values => "values",
        }
    }
}

/// One tensor of a trace: of which step, and what. Its `Display` is its name: the tap's name, or
/// `kv_cache.LAYER.keys` or `.values`; before it `decode.STEP.` for those of a decode step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorName {
    /// The decode step, counted from zero; nothing for the prefill.
    pub decode: Option<usize>,
    /// What the tensor is.
    pub subject: Subject,
}

impl TensorName {
    /// The layer that the tensor is in, counted from zero, where it is in one.
    pub fn layer(&self) -> Option<usize> {
        match self.subject {
            Subject::Tap(point) => point.layer,
            Subject::Cached { layer, .. } => Some(layer),
        }
    }

    /// What Hugging Face's transformers calls the module that the tensor belongs to, or the part
    /// of its cache; with the same beginning for a decode step.
    pub fn alias(&self, architecture: Architecture) -> String {
        let alias = match self.subject {
            Subject::Tap(point) => point.alias(architecture),
            Subject::Cached { layer, part } => {
                format!("past_key_values.layers.{layer}.{}", part.name())
            }
        };
        match self.decode {
            Some(step) => format!("decode.{step}.{alias}"),
            None => alias,
        }
    }
}

impl fmt::Display for TensorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(step) = self.decode {
            write!(f, "decode.{step}.")?;
        }
        match self.subject {
            Subject::Tap(point) => point.fmt(f),
            Subject::Cached { layer, part } => write!(f, "kv_cache.{layer}.{}", part.name()),
        }
    }
}
