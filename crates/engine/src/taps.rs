//! Taps: the named places where a tensor inside a step can be seen.
//!
//! Names are TransformerLens's, with one difference: a norm's `hook_normalized` is the norm's
//! whole output, gain and bias included, so that it equals the output of the Hugging Face module
//! which [`TapPoint::alias`] names.

use std::fmt;

use package::Architecture;

/// What a tensor is, within its layer or within the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Site {
    /// Token embeddings, `rows x hidden`.
    Embed,
    /// Position embeddings, `rows x hidden` (GPT-2).
    PositionEmbed,
    /// The residual stream where a layer begins, `rows x hidden`.
    ResidualPre,
    /// The normalized input of attention, `rows x hidden`.
    AttentionNorm,
    /// Queries before rotation, `rows x heads x head_dim`.
    Query,
    /// Keys before rotation, `rows x kv_heads x head_dim`.
    Key,
    /// Values, `rows x kv_heads x head_dim`.
    Value,
    /// Queries after rotary embedding (Llama).
    RotatedQuery,
    /// Keys after rotary embedding (Llama).
    RotatedKey,
    /// Attention scores, `q . k / sqrt(head_dim)`, `heads x rows x positions`, negative infinity
    /// where a row sees nothing. Derived, as the weights are.
    Scores,
    /// Attention weights, `heads x rows x positions`, zero where a row sees nothing. Derived: they
    /// are computed for the tap, from the same q and K, and are not what the step itself used.
    Pattern,
    /// Each head's mix of values, `rows x heads x head_dim`.
    Mixed,
    /// What attention adds to the residual stream, `rows x hidden`.
    AttentionOut,
    /// The residual stream between attention and MLP, `rows x hidden`.
    ResidualMid,
    /// The normalized input of the MLP, `rows x hidden`.
    MlpNorm,
    /// The MLP before its activation (Llama: the gate), `rows x intermediate`.
    MlpPre,
    /// The MLP's ungated half, `rows x intermediate` (Llama).
    MlpPreLinear,
    /// The MLP after its activation (Llama: gated), `rows x intermediate`.
    MlpPost,
    /// What the MLP adds to the residual stream, `rows x hidden`.
    MlpOut,
    /// The residual stream where a layer ends, `rows x hidden`.
    ResidualPost,
    /// The normalized input of the head, for the rows whose logits are asked for.
    FinalNorm,
    /// Logits, for the rows whose logits are asked for, `rows x vocab`.
    Logits,
}

impl Site {
    /// TransformerLens's name, without the layer.
    pub fn name(self) -> &'static str {
        match self {
            Site::Embed => "hook_embed",
            Site::PositionEmbed => "hook_pos_embed",
            Site::ResidualPre => "hook_resid_pre",
            Site::AttentionNorm => "ln1.hook_normalized",
            Site::Query => "attn.hook_q",
            Site::Key => "attn.hook_k",
            Site::Value => "attn.hook_v",
            Site::RotatedQuery => "attn.hook_rot_q",
            Site::RotatedKey => "attn.hook_rot_k",
            Site::Scores => "attn.hook_attn_scores",
            Site::Pattern => "attn.hook_pattern",
            Site::Mixed => "attn.hook_z",
            Site::AttentionOut => "hook_attn_out",
            Site::ResidualMid => "hook_resid_mid",
            Site::MlpNorm => "ln2.hook_normalized",
            Site::MlpPre => "mlp.hook_pre",
            Site::MlpPreLinear => "mlp.hook_pre_linear",
            Site::MlpPost => "mlp.hook_post",
            Site::MlpOut => "hook_mlp_out",
            Site::ResidualPost => "hook_resid_post",
            Site::FinalNorm => "ln_final.hook_normalized",
            Site::Logits => "logits",
        }
    }

    /// The Hugging Face module of GPT-2 whose output (or, as said, input) the tensor is.
    fn gpt2_module(self) -> &'static str {
        match self {
            Site::Embed => "wte",
            Site::PositionEmbed => "wpe",
            Site::ResidualPre | Site::ResidualPost => "",
            Site::AttentionNorm => "ln_1",
            Site::Query | Site::Key | Site::Value => "attn.c_attn",
            Site::RotatedQuery | Site::RotatedKey => "attn",
            Site::Scores | Site::Pattern | Site::Mixed => "attn",
            Site::AttentionOut => "attn.c_proj",
            Site::ResidualMid | Site::MlpNorm => "ln_2",
            Site::MlpPre | Site::MlpPreLinear => "mlp.c_fc",
            Site::MlpPost => "mlp.act",
            Site::MlpOut => "mlp.c_proj",
            Site::FinalNorm => "ln_f",
            Site::Logits => "lm_head",
        }
    }

    /// The same for Llama.
    fn llama_module(self) -> &'static str {
        match self {
            Site::Embed | Site::PositionEmbed => "embed_tokens",
            Site::ResidualPre | Site::ResidualPost => "",
            Site::AttentionNorm => "input_layernorm",
            Site::Query => "self_attn.q_proj",
            Site::Key => "self_attn.k_proj",
            Site::Value => "self_attn.v_proj",
            Site::RotatedQuery | Site::RotatedKey => "self_attn",
            Site::Scores | Site::Pattern | Site::Mixed => "self_attn",
            Site::AttentionOut => "self_attn.o_proj",
            Site::ResidualMid | Site::MlpNorm => "post_attention_layernorm",
            Site::MlpPre => "mlp.gate_proj",
            Site::MlpPreLinear => "mlp.up_proj",
            Site::MlpPost => "mlp.act_fn",
            Site::MlpOut => "mlp.down_proj",
            Site::FinalNorm => "norm",
            Site::Logits => "lm_head",
        }
    }
}

/// One tap: a site, and the layer it is in where it is in one. Its `Display` is its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TapPoint {
    /// The layer, counted from zero.
    pub layer: Option<usize>,
    /// What the tensor is.
    pub site: Site,
}

impl TapPoint {
    /// The path of the Hugging Face module that the tensor belongs to, as
    /// `transformer.h.0.attn.c_attn`. Several taps may share one.
    pub fn alias(&self, architecture: Architecture) -> String {
        let (body, layers, module) = match architecture {
            Architecture::Gpt2 => ("transformer", "h", self.site.gpt2_module()),
            Architecture::Llama => ("model", "layers", self.site.llama_module()),
        };
        let path = match self.layer {
            Some(layer) => format!("{body}.{layers}.{layer}.{module}"),
            None if self.site == Site::Logits => module.to_owned(),
            None => format!("{body}.{module}"),
        };
        path.trim_end_matches('.').to_owned()
    }
}

impl From<Site> for TapPoint {
    fn from(site: Site) -> TapPoint {
        TapPoint { layer: None, site }
    }
}

impl fmt::Display for TapPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(layer) = self.layer {
            write!(f, "blocks.{layer}.")?;
        }
        f.write_str(self.site.name())
    }
}

/// Who looks at a step's tensors.
pub trait Taps {
    /// Whether any tap is wanted. Asked once a step; if not, the step does nothing for taps.
    fn any(&self) -> bool {
        true
    }

    /// Whether the tensor at `point` is wanted.
    fn wants(&self, point: TapPoint) -> bool;

    /// Receives the tensor at `point`: `values` in row-major order of `shape`.
    fn record(&mut self, point: TapPoint, shape: &[usize], values: &[f32]);
}

/// Looks at nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTaps;

impl Taps for NoTaps {
    fn any(&self) -> bool {
        false
    }

    fn wants(&self, _point: TapPoint) -> bool {
        false
    }

    fn record(&mut self, _point: TapPoint, _shape: &[usize], _values: &[f32]) {}
}
