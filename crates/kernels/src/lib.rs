//! The arithmetic: kernels on slices, and the memory of the KV cache. Nothing here knows what a
//! model or a request is.
//!
//! Every output element is computed by one fixed sequence of operations that depends on the
//! instruction set and on the element's own inputs alone: never on how many rows a call has, on
//! neighbouring rows, or on the number of threads.
//!
//! A kernel is written once, generically over the vectors of `simd`, and is compiled for each
//! instruction set; [`Isa`] says which one runs. A [`Team`] divides its work over threads.

// This crate is where `unsafe` lives: vector instructions and disjoint writes from a thread team.
#![allow(unsafe_code)]

mod attention;
mod bf16;
mod disjoint;
mod elementary;
mod elementwise;
mod isa;
mod kv_store;
mod kv_write;
mod limits;
mod logits;
mod math;
mod matmul;
mod memory;
mod norm;
mod packed;
mod quantize;
mod rope;
mod rows;
mod simd;
mod team;
mod weight_memory;
mod weights;
mod words;

pub use attention::{
    AttentionScratch, SEGMENT_TOKENS, TILE_TOKENS, attention, attention_pattern, attention_scores,
};
pub use elementwise::{add, gather_rows, gelu, gelu_tanh, silu, silu_mul};
pub use isa::{Isa, IsaError};
pub use kv_store::{
    KvError, KvGeometry, KvStore, KvType, MAX_HEAD_DIM, PAGE_TOKENS, PageId, RowPlace,
};
pub use kv_write::store_kv;
pub use limits::{Operation, bytes_per_s, operations_per_s};
pub use logits::{argmax, log_softmax, log_sum_exp, softmax};
pub use matmul::{matmul, matmul_batch_dependent};
pub use norm::{layer_norm, rms_norm};
pub use packed::{PackError, PackedMatrix};
pub use quantize::ActivationRows;
pub use rope::{RopeError, RopeScaling, RopeTable, rope};
pub use rows::Strided;
pub use team::{Team, TeamError, WeightPlace};
pub use weight_memory::WeightMemory;
pub use weights::{MatrixSource, RowOrder, WeightType};
