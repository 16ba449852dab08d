//! The flags of commands that compute with a model.

use clap::Args;
use engine::KvType;

use crate::bytes;
use crate::values::{ANY, kv_type, whole};

#[derive(Args)]
pub(crate) struct EngineArguments {
    /// Threads that compute [default: the physical cores]
    ///
    /// By default as many as there are physical cores that this process may use.
    #[arg(
        short, long, env = "REFRAIN_THREADS", value_name = "N",
        value_parser = whole::<u16, 1, 1024>
    )]
    pub(crate) threads: Option<u16>,
    /// Prompt and answer together [default: the model's]
    ///
    /// At most so many tokens. By default what the model has, or what the memory for K/V holds if
    /// that is less.
    #[arg(
        long, env = "REFRAIN_CONTEXT", value_name = "TOKENS",
        value_parser = whole::<u32, 16, ANY>
    )]
    pub(crate) context: Option<u32>,
    /// Memory for K/V [default: a quarter of all]
    ///
    /// Of running requests and of the prompt cache together, as 512MiB or 2GiB. By default a
    /// quarter of the memory that the machine has or the cgroup allows; it is committed as it is
    /// used.
    #[arg(long, env = "REFRAIN_KV_BUDGET", value_name = "SIZE", value_parser = bytes::parse)]
    pub(crate) kv_budget: Option<u64>,
    #[command(flatten)]
    pub(crate) kv: KvArguments,
    /// Prompt tokens computed in one step [default: 256]
    #[arg(
        long, env = "REFRAIN_CHUNK", value_name = "TOKENS",
        value_parser = whole::<u32, 1, 65536>
    )]
    pub(crate) chunk: Option<u32>,
}

/// How K and V are stored.
#[derive(Args)]
pub(crate) struct KvArguments {
    /// K/V in f32, f16, bf16 or q8_0 [default: by the weights]
    ///
    /// By default bf16 for a model with quantized weights, f32 for one whose weights are all f32,
    /// and f16 for others. bf16 takes as much memory as f16, rounds more, and prefills long prompts
    /// faster where the processor multiplies it; q8_0 takes little more than half of it (a byte a
    /// number, and a scale for each 32), is faster on long contexts, and a little less precise.
    #[arg(
        long, env = "REFRAIN_KV_TYPE", value_name = "TYPE", value_parser = kv_type(),
        hide_possible_values = true
    )]
    pub(crate) kv_type: Option<KvType>,
}
