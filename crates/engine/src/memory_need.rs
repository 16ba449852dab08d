//! What serving a model will take of memory, known before any is taken.

use kernels::{KvGeometry, PAGE_TOKENS};
use package::Package;
use serde::Serialize;

use crate::architecture::Transformer;
use crate::fast::WeighLoad;
use crate::machine::Machine;
use crate::options::{EngineOptions, StartError, context_within};

/// Memory that an engine takes for a model by default. Its activations come on top: some MiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryNeed {
    /// Bytes of the packed weights. The file's pages are given back once they are packed.
    pub weights_bytes: u64,
    /// The type of K and V: `f32` or `f16`.
    pub kv_type: &'static str,
    /// Bytes of K and V of one token: `2 * layers * kv_heads * head_dim` numbers.
    pub kv_bytes_per_token: u64,
    /// Bytes of the pages that hold one sequence as long as the model's context.
    pub kv_bytes_at_context: u64,
    /// Bytes that K and V of all requests and of the prompt cache may take together on this
    /// machine, unless another budget is set. Committed as they are used.
    pub kv_budget_bytes: u64,
    /// Longest prompt and answer together that the budget allows; at most the model's context.
    pub context: usize,
}

impl MemoryNeed {
    /// Goes through the weights' shapes; nothing is packed.
    ///
    /// # Errors
    /// As for starting an engine with default options: weights that are missing, or a machine
    /// whose memory holds no K and V.
    pub fn of(package: &Package) -> Result<MemoryNeed, StartError> {
        let config = &package.config;
        let load = WeighLoad::new(&package.weights);
        Transformer::load(config, &load)?;
        let geometry = KvGeometry {
            layers: config.layers,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            kv_type: load.kv_type(),
        };
        let page_bytes = geometry.page_bytes() as u64;
        let pages = EngineOptions::default().pages(geometry, Machine::detect().memory_bytes)?;
        Ok(MemoryNeed {
            weights_bytes: load.bytes(),
            kv_type: geometry.kv_type.name(),
            kv_bytes_per_token: geometry.token_bytes() as u64,
            kv_bytes_at_context: config.context.div_ceil(PAGE_TOKENS) as u64 * page_bytes,
            kv_budget_bytes: pages as u64 * page_bytes,
            context: context_within(config.context, pages),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use kernels::Isa;
    use package::Part;

    use super::*;
    use crate::engine::Engine;
    use crate::error::LoadError;
    use crate::fast::{PackLoad, Packed};
    use crate::ops::Load;
    use crate::rows::Norm;

    /// Packs, and sums up what the packed matrices and the norms really take.
    struct Summed<'a> {
        load: PackLoad<'a>,
        bytes: AtomicU64,
    }

    impl Load for Summed<'_> {
        type Matrix = Packed;

        fn matrix(&self, parts: &[Part]) -> Result<Packed, LoadError> {
            let packed = self.load.matrix(parts)?;
            let bytes: usize = packed.blocks.iter().map(|block| block.bytes()).sum();
            self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            Ok(packed)
        }

        fn norm(&self, part: Part) -> Result<Norm, LoadError> {
            let norm = self.load.norm(part)?;
            let bytes = 4 * (norm.gain.len() + norm.bias.len());
            self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            Ok(norm)
        }
    }

    #[test]
    fn it_is_what_loading_and_starting_take() {
        // Without biases, of which the packed matrices do not tell.
        for name in ["llama-mha-untied", "gguf-llama-mixed/model.gguf"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name);
            let package = Arc::new(Package::open(&path).unwrap());
            let need = MemoryNeed::of(&package).unwrap();
            let load = PackLoad::new(&package.weights, 0.0, Isa::Scalar, &|_, _| {});
            let summed = Summed { load, bytes: AtomicU64::new(0) };
            Transformer::load(&package.config, &summed).unwrap();
            assert_eq!(need.weights_bytes, summed.bytes.into_inner(), "{name}");
            let options = EngineOptions { threads: Some(1), ..EngineOptions::default() };
            let engine = Engine::start(package, options, &|_, _| {}).unwrap();
            let info = engine.info();
            assert_eq!((need.kv_type, need.context), (info.kv_type, info.context), "{name}");
            assert_eq!(need.kv_budget_bytes, info.kv_budget_bytes, "{name}");
        }
    }
}
