//! What packed weights will weigh, without packing them.

use std::sync::atomic::{AtomicU64, Ordering};

use kernels::{KvType, PackedMatrix};
use package::{Matrix, Part, Suffix, Weights};

use super::kv_choice::KvChoice;
use super::packed::weight_type;
use crate::error::LoadError;
use crate::ops::Load;
use crate::rows::Norm;

/// Goes through a model's weights as loading does, and counts.
pub(crate) struct WeighLoad<'a> {
    weights: &'a Weights,
    bytes: AtomicU64,
    kv_choice: KvChoice,
}

impl<'a> WeighLoad<'a> {
    pub(crate) fn new(weights: &'a Weights) -> WeighLoad<'a> {
        WeighLoad { weights, bytes: AtomicU64::new(0), kv_choice: KvChoice::default() }
    }

    /// Bytes of what was loaded so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The type of K/V that suits the matrices so far.
    pub(crate) fn kv_type(&self) -> KvType {
        self.kv_choice.kv_type()
    }
}

impl Load for WeighLoad<'_> {
    type Matrix = ();

    fn matrix(&self, parts: &[Part]) -> Result<(), LoadError> {
        let matrices: Vec<Matrix> =
            parts.iter().map(|&part| self.weights.matrix(part)).collect::<Result<_, _>>()?;
        let mut parts = parts.iter();
        for alike in matrices.chunk_by(|a, b| a.tensor.dtype == b.tensor.dtype) {
            let mut bytes = 0;
            for &part in parts.by_ref().take(alike.len()) {
                let bias = self.weights.vector(part, Suffix::Bias)?;
                bytes += bias.map_or(0, |bias| bias.len() * size_of::<f32>()) as u64;
            }
            let kind = weight_type(alike[0].tensor.dtype);
            let outputs = alike.iter().map(|matrix| matrix.outputs).sum();
            bytes += PackedMatrix::bytes_of(kind, outputs, alike[0].inputs);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.kv_choice.see(kind);
        }
        Ok(())
    }

    fn norm(&self, part: Part) -> Result<Norm, LoadError> {
        let norm = Norm::load(self.weights, part, 0.0)?;
        let numbers = norm.gain.len() + norm.bias.len();
        self.bytes.fetch_add((numbers * size_of::<f32>()) as u64, Ordering::Relaxed);
        Ok(norm)
    }
}
