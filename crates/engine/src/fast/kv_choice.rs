//! Which type of K/V suits a model's weights.

use std::sync::atomic::{AtomicBool, Ordering};

use kernels::{KvType, WeightType};

/// Sees a model's matrices, from several threads, and says how exact its K/V should be. Where
/// weights are rounded, K and V may be: f16 keeps as many bits as any 16-bit weight has, bf16 as
/// many as the bytes that quantized weights are multiplied with.
#[derive(Debug, Default)]
pub(crate) struct KvChoice {
    short_floats: AtomicBool,
    quantized: AtomicBool,
}

impl KvChoice {
    /// Takes a matrix of `weight_type` into account.
    pub(crate) fn see(&self, weight_type: WeightType) {
        match weight_type {
            WeightType::F32 => {}
            WeightType::F16 | WeightType::BF16 => self.short_floats.store(true, Ordering::Relaxed),
            _ => self.quantized.store(true, Ordering::Relaxed),
        }
    }

    /// The type that suits what was seen.
    pub(crate) fn kv_type(&self) -> KvType {
        if self.quantized.load(Ordering::Relaxed) {
            KvType::BF16
        } else if self.short_floats.load(Ordering::Relaxed) {
            KvType::F16
        } else {
            KvType::F32
        }
    }
}
