//! How fast a step could be at most: what it has to compute and to read, and how fast this machine
//! does each.

use kernels::{KvType, Operation, Team};
use package::{Config, DType, Package, Part};
use serde::Serialize;

use crate::options::StartError;

/// Reading this much comes from memory, reading [`L3_BYTES`] from a cache that cores share.
const MEMORY_BYTES: usize = 512 << 20;
/// See [`MEMORY_BYTES`].
const L3_BYTES: usize = 8 << 20;

/// Rates of this machine with one number of threads. A multiplication and its addition are two
/// operations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Size of the team.
    pub threads: usize,
    /// Instruction set.
    pub isa: &'static str,
    /// Dot products of bytes, in operations a second.
    pub dot_i8_per_s: f64,
    /// Dot products of 16-bit integers, in operations a second.
    pub dot_i16_per_s: f64,
    /// Dot products of bf16 numbers, in operations a second.
    pub dot_bf16_per_s: f64,
    /// Multiply-adds of f32 numbers, in operations a second.
    pub mul_add_per_s: f64,
    /// Reading what does not fit in any cache, in bytes a second.
    pub memory_bytes_per_s: f64,
    /// Reading 8 MiB, in bytes a second.
    pub l3_bytes_per_s: f64,
    /// Reading as many bytes as the model's weights have, in bytes a second.
    pub weights_bytes_per_s: f64,
}

impl Limits {
    /// Measures each rate for `seconds`, the best of short samples.
    ///
    /// # Errors
    /// A team that cannot be formed, or no memory to read.
    pub fn measure(threads: usize, weights_bytes: u64, seconds: f64) -> Result<Limits, StartError> {
        let team = Team::new(threads)?;
        let operations = |operation| kernels::operations_per_s(&team, operation, seconds);
        let bytes = |bytes: usize| {
            kernels::bytes_per_s(&team, bytes, seconds).map_err(|error| StartError::Option {
                field: "limits",
                message: format!("no memory to read {bytes} bytes: {error}"),
            })
        };
        Ok(Limits {
            threads,
            isa: team.isa().name(),
            dot_i8_per_s: operations(Operation::DotI8),
            dot_i16_per_s: operations(Operation::DotI16),
            dot_bf16_per_s: operations(Operation::DotBf16),
            mul_add_per_s: operations(Operation::MulAdd),
            memory_bytes_per_s: bytes(MEMORY_BYTES)?,
            l3_bytes_per_s: bytes(L3_BYTES)?,
            weights_bytes_per_s: bytes((weights_bytes as usize).max(L3_BYTES))?,
        })
    }

    /// The least time that `work` takes, in seconds: its arithmetic, or its reading if that takes
    /// longer.
    pub fn least_s(&self, work: &Work) -> f64 {
        let arithmetic = work.dot_i8 / self.dot_i8_per_s
            + work.dot_i16 / self.dot_i16_per_s
            + work.dot_bf16 / self.dot_bf16_per_s
            + work.mul_add / self.mul_add_per_s;
        arithmetic.max(work.bytes / self.weights_bytes_per_s)
    }
}

/// What must be done, whoever does it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Operations of products with quantized weights.
    pub dot_i8: f64,
    /// Operations of products with f16 weights.
    pub dot_i16: f64,
    /// Operations of products with bf16 weights, and of attention to K and V in bf16.
    pub dot_bf16: f64,
    /// Operations of products with f32 weights, and of other attention.
    pub mul_add: f64,
    /// Bytes of weights, keys and values that are read.
    pub bytes: f64,
}

impl Work {
    /// Prefill of `tokens` tokens after `depth`, with the logits of the last: each weight meets
    /// each row, a row's query meets the keys up to its own and mixes their values, and weights
    /// are read once.
    pub fn prefill(package: &Package, tokens: usize, depth: usize, kv_type: KvType) -> Work {
        let mut work = Work::weights(package, tokens as f64);
        work.attend(&package.config, tokens, depth, kv_type);
        work
    }

    /// Decoding one token after `depth`: every weight is read, and every key and value, of
    /// `kv_bytes_per_token`.
    pub fn decode(
        package: &Package,
        depth: usize,
        kv_type: KvType,
        kv_bytes_per_token: u64,
    ) -> Work {
        let mut work = Work::weights(package, 1.0);
        work.attend(&package.config, 1, depth, kv_type);
        work.bytes += kv_bytes_per_token as f64 * (depth + 1) as f64;
        work
    }

    /// Products of `rows` rows with the layers' weights, and of one with the head's.
    fn weights(package: &Package, rows: f64) -> Work {
        let mut work = Work::default();
        let tied = package.config.tied_head;
        let head = package.weights.matrix(Part::Head).ok();
        let head = head.map(|head| head.tensor.name.to_owned());
        for tensor in package.weights.tensors().filter(|tensor| tensor.shape.len() == 2) {
            let is_head = Some(tensor.name) == head.as_deref();
            let is_table = [Part::TokenEmbedding, Part::PositionEmbedding]
                .into_iter()
                .filter_map(|part| package.weights.matrix(part).ok())
                .any(|table| table.tensor.name == tensor.name);
            if is_table && !(is_head && tied) {
                continue;
            }
            let numbers = tensor.shape.iter().product::<usize>() as f64;
            let operations = 2.0 * numbers * if is_head { 1.0 } else { rows };
            match tensor.dtype {
                DType::BF16 => work.dot_bf16 += operations,
                DType::F16 => work.dot_i16 += operations,
                DType::F32 => work.mul_add += operations,
                _ => work.dot_i8 += operations,
            }
            work.bytes += tensor.bytes.len() as f64;
        }
        work
    }

    /// Adds the attention of `tokens` rows that come after `depth` others.
    fn attend(&mut self, config: &Config, tokens: usize, depth: usize, kv_type: KvType) {
        // Row r of the tokens sees depth + r + 1 keys.
        let pairs = tokens * depth + tokens * (tokens + 1) / 2;
        let per_pair = 2 * 2 * config.layers * config.heads * config.head_dim;
        let operations = pairs as f64 * per_pair as f64;
        match kv_type {
            KvType::BF16 => self.dot_bf16 += operations,
            KvType::F32 | KvType::F16 | KvType::Q8_0 => self.mul_add += operations,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn package(name: &str) -> Package {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name);
        Package::open(&path).unwrap()
    }

    #[test]
    fn work_is_counted_from_the_shapes() {
        let package = package("llama-mha-untied");
        let config = &package.config;
        let attention = 4 * config.hidden * config.heads * config.head_dim;
        let layer = attention + 3 * config.hidden * config.intermediate;
        let head = config.vocab * config.hidden;
        let expected = 2 * (5 * config.layers * layer + head);
        // Five rows see 1 + 2 + 3 + 4 + 5 keys, and ten more each.
        let pairs = 15 + 50;
        let mixing = 4 * pairs * config.layers * config.heads * config.head_dim;
        let work = Work::prefill(&package, 5, 10, KvType::F32);
        assert_eq!(work.mul_add, (expected + mixing) as f64);
        assert_eq!((work.dot_i8, work.dot_i16, work.dot_bf16), (0.0, 0.0, 0.0));
        assert_eq!(work.bytes, (4 * (config.layers * layer + head)) as f64);
        let kv = 4 * 2 * config.layers * config.kv_heads * config.head_dim;
        let decode = Work::decode(&package, 10, KvType::F32, kv as u64);
        assert_eq!(decode.bytes, work.bytes + (11 * kv) as f64);
        let in_bf16 = Work::prefill(&package, 5, 10, KvType::BF16);
        assert_eq!((in_bf16.mul_add, in_bf16.dot_bf16), (expected as f64, mixing as f64));
    }

    #[test]
    fn the_slower_of_arithmetic_and_reading_bounds() {
        let limits = Limits {
            threads: 1,
            isa: "scalar",
            dot_i8_per_s: 100.0,
            dot_i16_per_s: 40.0,
            dot_bf16_per_s: 50.0,
            mul_add_per_s: 10.0,
            memory_bytes_per_s: 1.0,
            l3_bytes_per_s: 4.0,
            weights_bytes_per_s: 2.0,
        };
        let work = Work { dot_i8: 100.0, dot_i16: 40.0, dot_bf16: 50.0, mul_add: 10.0, bytes: 4.0 };
        assert_eq!(limits.least_s(&work), 4.0);
        assert_eq!(limits.least_s(&Work { bytes: 10.0, ..work }), 5.0);
    }
}
