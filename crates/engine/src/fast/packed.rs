//! Weights in the kernels' form.

use std::sync::atomic::{AtomicU64, Ordering};

use kernels::{Isa, KvType, MatrixSource, PackedMatrix, WeightMemory, WeightType};
use package::{DType, Matrix, Part, Suffix, Weights};

use super::kv_choice::KvChoice;
use crate::error::LoadError;
use crate::ops::Load;
use crate::rows::Norm;

/// One or more matrices that read the same input, their outputs side by side. Matrices of one
/// weight type are packed as one, so that they cost one pass over the input.
pub(crate) struct Packed {
    pub(crate) blocks: Vec<PackedMatrix>,
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
}

/// Packs weights, and says how far it is.
pub(crate) struct PackLoad<'a> {
    weights: &'a Weights,
    epsilon: f32,
    isa: Isa,
    memory: WeightMemory,
    progress: &'a (dyn Fn(u64, u64) + Sync),
    done_bytes: AtomicU64,
    total_bytes: u64,
    kv_choice: KvChoice,
}

impl<'a> PackLoad<'a> {
    pub(crate) fn new(
        weights: &'a Weights,
        epsilon: f32,
        isa: Isa,
        progress: &'a (dyn Fn(u64, u64) + Sync),
    ) -> PackLoad<'a> {
        let total_bytes = weights.tensors().map(|tensor| tensor.bytes.len() as u64).sum();
        PackLoad {
            weights,
            epsilon,
            isa,
            memory: WeightMemory::default(),
            progress,
            done_bytes: AtomicU64::new(0),
            total_bytes,
            kv_choice: KvChoice::default(),
        }
    }

    /// The type of K/V that suits the matrices so far.
    pub(crate) fn kv_type(&self) -> KvType {
        self.kv_choice.kv_type()
    }

    /// Says that everything is done: the file may hold tensors that no model needs.
    pub(crate) fn finish(&self) {
        (self.progress)(self.total_bytes, self.total_bytes);
    }

    fn pack(&self, parts: &[Part], matrices: &[Matrix]) -> Result<PackedMatrix, LoadError> {
        let sources: Vec<MatrixSource> = matrices.iter().map(source).collect();
        let bias = self.bias(parts, matrices)?;
        let packed = PackedMatrix::pack(self.isa, &self.memory, &sources, bias.as_deref())
            .map_err(|source| LoadError::Pack { part: format!("{parts:?}"), source })?;
        // At once, so that a model is never in memory twice while it loads. Other threads that are
        // still reading pages of the file find them in the system's cache.
        self.weights.release_pages();
        let bytes: u64 = matrices.iter().map(|matrix| matrix.tensor.bytes.len() as u64).sum();
        let done = self.done_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.progress)(done.min(self.total_bytes), self.total_bytes);
        self.kv_choice.see(packed.weight_type());
        Ok(packed)
    }

    /// The biases of all parts, zeros for a part that has none; `None` if no part has one.
    fn bias(&self, parts: &[Part], matrices: &[Matrix]) -> Result<Option<Vec<f32>>, LoadError> {
        let (mut all, mut any) = (Vec::new(), false);
        for (&part, matrix) in parts.iter().zip(matrices) {
            let bias = self.weights.vector(part, Suffix::Bias)?;
            any |= bias.is_some();
            all.extend(bias.unwrap_or_else(|| vec![0.0; matrix.outputs]));
        }
        Ok(any.then_some(all))
    }
}

impl Load for PackLoad<'_> {
    type Matrix = Packed;

    fn matrix(&self, parts: &[Part]) -> Result<Packed, LoadError> {
        let matrices: Vec<Matrix> =
            parts.iter().map(|&part| self.weights.matrix(part)).collect::<Result<_, _>>()?;
        let outputs = matrices.iter().map(|matrix| matrix.outputs).sum();
        let inputs = matrices.first().map_or(0, |matrix| matrix.inputs);
        if matrices.iter().any(|matrix| matrix.inputs != inputs) {
            return Err(LoadError::Inputs(format!("{parts:?}")));
        }
        let mut blocks = Vec::new();
        let mut start = 0;
        for alike in matrices.chunk_by(|a, b| a.tensor.dtype == b.tensor.dtype) {
            blocks.push(self.pack(&parts[start..start + alike.len()], alike)?);
            start += alike.len();
        }
        Ok(Packed { blocks, outputs, inputs })
    }

    fn norm(&self, part: Part) -> Result<Norm, LoadError> {
        Norm::load(self.weights, part, self.epsilon)
    }
}

/// The matrix as the kernels take it.
fn source<'a>(matrix: &Matrix<'a>) -> MatrixSource<'a> {
    MatrixSource {
        weight_type: weight_type(matrix.tensor.dtype),
        bytes: matrix.tensor.bytes,
        outputs: matrix.outputs,
        inputs: matrix.inputs,
        input_major: matrix.input_major,
        row_order: match matrix.row_order {
            package::RowOrder::Natural => kernels::RowOrder::Natural,
            package::RowOrder::InterleavedRope { head_dim } => {
                kernels::RowOrder::InterleavedRope { head_dim }
            }
        },
    }
}

/// The type as the kernels name it.
pub(crate) fn weight_type(dtype: DType) -> WeightType {
    match dtype {
        DType::F32 => WeightType::F32,
        DType::F16 => WeightType::F16,
        DType::BF16 => WeightType::BF16,
        DType::Q8_0 => WeightType::Q8_0,
        DType::Q4_0 => WeightType::Q4_0,
        DType::Q4_1 => WeightType::Q4_1,
        DType::Q5_0 => WeightType::Q5_0,
        DType::Q5_1 => WeightType::Q5_1,
        DType::Q4_K => WeightType::Q4_K,
        DType::Q5_K => WeightType::Q5_K,
        DType::Q6_K => WeightType::Q6_K,
    }
}
