//! Llama: "LLaMA: Open and Efficient Foundation Language Models" (Touvron et al., 2023): RMS norms,
//! rotary positions (RoFormer), a SwiGLU MLP, and from Llama 2 on grouped-query attention.

use package::{Config, LayerPart, Part};
use rayon::prelude::*;

use crate::error::LoadError;
use crate::ops::{Load, Ops};
use crate::rows::{Heads, Norm, Rows};
use crate::taps::{Site, TapPoint};

pub(crate) struct Llama<M> {
    token_embedding: M,
    blocks: Vec<Block<M>>,
    final_norm: Norm,
    /// The head's own matrix; `None` where it is tied to the token embedding.
    head: Option<M>,
    heads: Heads,
    intermediate: usize,
}

struct Block<M> {
    attention_norm: Norm,
    qkv: M,
    attention_output: M,
    mlp_norm: Norm,
    gate_up: M,
    down: M,
}

impl<M: Send> Llama<M> {
    pub(crate) fn load(
        config: &Config,
        load: &impl Load<Matrix = M>,
    ) -> Result<Llama<M>, LoadError> {
        let block = |layer| {
            let part = |part| Part::Layer(layer, part);
            let qkv = [LayerPart::Q, LayerPart::K, LayerPart::V].map(part);
            Ok::<_, LoadError>(Block {
                attention_norm: load.norm(part(LayerPart::AttentionNorm))?,
                qkv: load.matrix(&qkv)?,
                attention_output: load.matrix(&[part(LayerPart::AttentionOutput)])?,
                mlp_norm: load.norm(part(LayerPart::MlpNorm))?,
                gate_up: load.matrix(&[part(LayerPart::Gate), part(LayerPart::Up)])?,
                down: load.matrix(&[part(LayerPart::Down)])?,
            })
        };
        Ok(Llama {
            token_embedding: load.matrix(&[Part::TokenEmbedding])?,
            blocks: (0..config.layers).into_par_iter().map(block).collect::<Result<_, _>>()?,
            final_norm: load.norm(Part::FinalNorm)?,
            head: if config.tied_head { None } else { Some(load.matrix(&[Part::Head])?) },
            heads: Heads::of(config),
            intermediate: config.intermediate,
        })
    }

    pub(crate) fn forward<O: Ops<Matrix = M>>(&self, ops: &mut O) -> Rows {
        let mut x = ops.embed_tokens(&self.token_embedding);
        ops.tap(Site::Embed, &x);
        for (layer, block) in self.blocks.iter().enumerate() {
            self.block(ops, layer, block, &mut x);
        }
        let last = ops.logit_rows(x);
        let normed = ops.rms_norm(&last, &self.final_norm);
        ops.tap(Site::FinalNorm, &normed);
        let logits = ops.unembed(normed, self.head.as_ref().unwrap_or(&self.token_embedding));
        ops.tap(Site::Logits, &logits);
        logits
    }

    /// `x += attention(norm(x))`, then `x += mlp(norm(x))`.
    fn block<O: Ops<Matrix = M>>(&self, ops: &mut O, layer: usize, block: &Block<M>, x: &mut Rows) {
        let at = |site| TapPoint { layer: Some(layer), site };
        ops.tap(at(Site::ResidualPre), x);
        let normed = ops.rms_norm(x, &block.attention_norm);
        ops.tap(at(Site::AttentionNorm), &normed);
        let mut qkv = ops.linear(normed, &block.qkv);
        let sites = [Some(Site::Query), Some(Site::Key), Some(Site::Value)];
        ops.tap_qkv(layer, sites, &qkv, self.heads);
        ops.rope(&mut qkv, self.heads);
        let sites = [Some(Site::RotatedQuery), Some(Site::RotatedKey), None];
        ops.tap_qkv(layer, sites, &qkv, self.heads);
        ops.keep(layer, &qkv, self.heads);
        if layer + 1 == self.blocks.len() {
            ops.narrow(x, &mut qkv);
        }
        let mixed = ops.attention(layer, qkv, self.heads);
        ops.tap_heads(at(Site::Mixed), &mixed, 0, [self.heads.query, self.heads.dim]);
        let attention_out = ops.linear(mixed, &block.attention_output);
        ops.tap(at(Site::AttentionOut), &attention_out);
        ops.add(x, attention_out);

        ops.tap(at(Site::ResidualMid), x);
        let normed = ops.rms_norm(x, &block.mlp_norm);
        ops.tap(at(Site::MlpNorm), &normed);
        let gate_up = ops.linear(normed, &block.gate_up);
        ops.tap_columns(at(Site::MlpPre), &gate_up, 0..self.intermediate);
        ops.tap_columns(at(Site::MlpPreLinear), &gate_up, self.intermediate..gate_up.width);
        let post = ops.silu_gated(gate_up);
        ops.tap(at(Site::MlpPost), &post);
        let mlp_out = ops.linear(post, &block.down);
        ops.tap(at(Site::MlpOut), &mlp_out);
        ops.add(x, mlp_out);
        ops.tap(at(Site::ResidualPost), x);
    }
}
