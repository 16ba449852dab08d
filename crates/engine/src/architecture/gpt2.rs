//! GPT-2: "Language Models are Unsupervised Multitask Learners" (Radford et al., 2019).

use package::{Activation, Config, LayerPart, Part};
use rayon::prelude::*;

use crate::error::LoadError;
use crate::ops::{Load, Ops};
use crate::rows::{Heads, Norm, Rows};
use crate::taps::{Site, TapPoint};

pub(crate) struct Gpt2<M> {
    token_embedding: M,
    position_embedding: M,
    blocks: Vec<Block<M>>,
    final_norm: Norm,
    /// The head's own matrix; `None` where it is tied to the token embedding.
    head: Option<M>,
    heads: Heads,
    tanh: bool,
}

struct Block<M> {
    attention_norm: Norm,
    qkv: M,
    attention_output: M,
    mlp_norm: Norm,
    up: M,
    down: M,
}

impl<M: Send> Gpt2<M> {
    pub(crate) fn load(
        config: &Config,
        load: &impl Load<Matrix = M>,
    ) -> Result<Gpt2<M>, LoadError> {
        let block = |layer| {
            let part = |part| Part::Layer(layer, part);
            Ok::<_, LoadError>(Block {
                attention_norm: load.norm(part(LayerPart::AttentionNorm))?,
                qkv: load.matrix(&[part(LayerPart::Qkv)])?,
                attention_output: load.matrix(&[part(LayerPart::AttentionOutput)])?,
                mlp_norm: load.norm(part(LayerPart::MlpNorm))?,
                up: load.matrix(&[part(LayerPart::Up)])?,
                down: load.matrix(&[part(LayerPart::Down)])?,
            })
        };
        Ok(Gpt2 {
            token_embedding: load.matrix(&[Part::TokenEmbedding])?,
            position_embedding: load.matrix(&[Part::PositionEmbedding])?,
            blocks: (0..config.layers).into_par_iter().map(block).collect::<Result<_, _>>()?,
            final_norm: load.norm(Part::FinalNorm)?,
            head: if config.tied_head { None } else { Some(load.matrix(&[Part::Head])?) },
            heads: Heads::of(config),
            tanh: config.activation != Activation::Gelu,
        })
    }

    pub(crate) fn forward<O: Ops<Matrix = M>>(&self, ops: &mut O) -> Rows {
        let mut x = ops.embed_tokens(&self.token_embedding);
        ops.tap(Site::Embed, &x);
        let positions = ops.embed_positions(&self.position_embedding);
        ops.tap(Site::PositionEmbed, &positions);
        ops.add(&mut x, positions);
        for (layer, block) in self.blocks.iter().enumerate() {
            self.block(ops, layer, block, &mut x);
        }
        let last = ops.logit_rows(x);
        let normed = ops.layer_norm(&last, &self.final_norm);
        ops.tap(Site::FinalNorm, &normed);
        let logits = ops.unembed(normed, self.head.as_ref().unwrap_or(&self.token_embedding));
        ops.tap(Site::Logits, &logits);
        logits
    }

    /// `x += attention(norm(x))`, then `x += mlp(norm(x))`.
    fn block<O: Ops<Matrix = M>>(&self, ops: &mut O, layer: usize, block: &Block<M>, x: &mut Rows) {
        let at = |site| TapPoint { layer: Some(layer), site };
        ops.tap(at(Site::ResidualPre), x);
        let normed = ops.layer_norm(x, &block.attention_norm);
        ops.tap(at(Site::AttentionNorm), &normed);
        let mut qkv = ops.linear(normed, &block.qkv);
        let sites = [Some(Site::Query), Some(Site::Key), Some(Site::Value)];
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
        let normed = ops.layer_norm(x, &block.mlp_norm);
        ops.tap(at(Site::MlpNorm), &normed);
        let pre = ops.linear(normed, &block.up);
        ops.tap(at(Site::MlpPre), &pre);
        let post = ops.gelu(pre, self.tanh);
        ops.tap(at(Site::MlpPost), &post);
        let mlp_out = ops.linear(post, &block.down);
        ops.tap(at(Site::MlpOut), &mlp_out);
        ops.add(x, mlp_out);
        ops.tap(at(Site::ResidualPost), x);
    }
}
