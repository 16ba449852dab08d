//! What each part of a model is called, in each architecture and file format.

use crate::config::Architecture;

/// A part of a model that has weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// One row per token.
    TokenEmbedding,
    /// One row per position (GPT-2).
    PositionEmbedding,
    /// The norm before the head.
    FinalNorm,
    /// The matrix that makes logits; of a tied model, the token embedding.
    Head,
    /// A part of one transformer block, counted from 0.
    Layer(usize, LayerPart),
}

/// A part of one transformer block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LayerPart {
    /// The norm before the attention.
    AttentionNorm,
    /// GPT-2's fused matrix: all queries, then all keys, then all values.
    Qkv,
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// From the heads back to the residual stream.
    AttentionOutput,
    /// The norm before the MLP.
    MlpNorm,
    /// The gated MLP's matrix before the activation.
    Gate,
    /// From the residual stream into the MLP.
    Up,
    /// From the MLP back to the residual stream.
    Down,
}

/// Weight or bias of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Suffix {
    /// `….weight`
    Weight,
    /// `….bias`
    Bias,
}

impl Suffix {
    fn text(self) -> &'static str {
        match self {
            Suffix::Weight => "weight",
            Suffix::Bias => "bias",
        }
    }
}

/// Which names a file uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// `blk.0.attn_q.weight`
    Gguf,
    /// `transformer.h.0.…` and `model.layers.0.…`, or without that prefix where the base model
    /// was saved alone.
    HuggingFace {
        /// `"transformer."`, `"model."` or `""`.
        prefix: &'static str,
    },
}

/// The prefixes that Hugging Face names may have, the usual one first.
pub(super) fn prefixes(architecture: Architecture) -> [&'static str; 2] {
    match architecture {
        Architecture::Gpt2 => ["transformer.", ""],
        Architecture::Llama => ["model.", ""],
    }
}

/// The full tensor name, or `None` for a part that the architecture does not have.
pub(super) fn tensor_name(
    naming: Naming,
    architecture: Architecture,
    part: Part,
    suffix: Suffix,
) -> Option<String> {
    let suffix = suffix.text();
    Some(match naming {
        Naming::Gguf => match part {
            Part::Layer(layer, part) => {
                format!("blk.{layer}.{}.{suffix}", gguf_layer(architecture, part)?)
            }
            _ => format!("{}.{suffix}", gguf_whole(architecture, part)?),
        },
        Naming::HuggingFace { prefix } => match (architecture, part) {
            // The head is beside the base model, so it never has its prefix.
            (_, Part::Head) => format!("lm_head.{suffix}"),
            (Architecture::Gpt2, Part::Layer(layer, part)) => {
                format!("{prefix}h.{layer}.{}.{suffix}", gpt2_layer(part)?)
            }
            (Architecture::Llama, Part::Layer(layer, part)) => {
                format!("{prefix}layers.{layer}.{}.{suffix}", llama_layer(part)?)
            }
            _ => format!("{prefix}{}.{suffix}", hugging_face_whole(architecture, part)?),
        },
    })
}

fn hugging_face_whole(architecture: Architecture, part: Part) -> Option<&'static str> {
    match (architecture, part) {
        (Architecture::Gpt2, Part::TokenEmbedding) => Some("wte"),
        (Architecture::Gpt2, Part::PositionEmbedding) => Some("wpe"),
        (Architecture::Gpt2, Part::FinalNorm) => Some("ln_f"),
        (Architecture::Llama, Part::TokenEmbedding) => Some("embed_tokens"),
        (Architecture::Llama, Part::FinalNorm) => Some("norm"),
        _ => None,
    }
}

fn gpt2_layer(part: LayerPart) -> Option<&'static str> {
    match part {
        LayerPart::AttentionNorm => Some("ln_1"),
        LayerPart::Qkv => Some("attn.c_attn"),
        LayerPart::AttentionOutput => Some("attn.c_proj"),
        LayerPart::MlpNorm => Some("ln_2"),
        LayerPart::Up => Some("mlp.c_fc"),
        LayerPart::Down => Some("mlp.c_proj"),
        LayerPart::Q | LayerPart::K | LayerPart::V | LayerPart::Gate => None,
    }
}

fn llama_layer(part: LayerPart) -> Option<&'static str> {
    match part {
        LayerPart::AttentionNorm => Some("input_layernorm"),
        LayerPart::Q => Some("self_attn.q_proj"),
        LayerPart::K => Some("self_attn.k_proj"),
        LayerPart::V => Some("self_attn.v_proj"),
        LayerPart::AttentionOutput => Some("self_attn.o_proj"),
        LayerPart::MlpNorm => Some("post_attention_layernorm"),
        LayerPart::Gate => Some("mlp.gate_proj"),
        LayerPart::Up => Some("mlp.up_proj"),
        LayerPart::Down => Some("mlp.down_proj"),
        LayerPart::Qkv => None,
    }
}

fn gguf_whole(architecture: Architecture, part: Part) -> Option<&'static str> {
    match part {
        Part::TokenEmbedding => Some("token_embd"),
        Part::PositionEmbedding if architecture == Architecture::Gpt2 => Some("position_embd"),
        Part::FinalNorm => Some("output_norm"),
        Part::Head => Some("output"),
        Part::PositionEmbedding | Part::Layer(..) => None,
    }
}

fn gguf_layer(architecture: Architecture, part: LayerPart) -> Option<&'static str> {
    let fused = architecture == Architecture::Gpt2;
    match part {
        LayerPart::AttentionNorm => Some("attn_norm"),
        LayerPart::Qkv if fused => Some("attn_qkv"),
        LayerPart::Q if !fused => Some("attn_q"),
        LayerPart::K if !fused => Some("attn_k"),
        LayerPart::V if !fused => Some("attn_v"),
        LayerPart::AttentionOutput => Some("attn_output"),
        LayerPart::MlpNorm => Some("ffn_norm"),
        LayerPart::Gate if !fused => Some("ffn_gate"),
        LayerPart::Up => Some("ffn_up"),
        LayerPart::Down => Some("ffn_down"),
        LayerPart::Qkv | LayerPart::Q | LayerPart::K | LayerPart::V | LayerPart::Gate => None,
    }
}
