//! The architectures, each written once and like its paper.

mod gpt2;
mod llama;

use package::{Architecture, Config};

use crate::error::LoadError;
use crate::ops::{Load, Ops};
use crate::rows::Rows;

/// A model's weights, of whichever architecture it is.
pub(crate) enum Transformer<M> {
    Gpt2(gpt2::Gpt2<M>),
    Llama(llama::Llama<M>),
}

impl<M: Send> Transformer<M> {
    /// Loads the weights that `config` calls for.
    pub(crate) fn load(
        config: &Config,
        load: &impl Load<Matrix = M>,
    ) -> Result<Transformer<M>, LoadError> {
        Ok(match config.architecture {
            Architecture::Gpt2 => Transformer::Gpt2(gpt2::Gpt2::load(config, load)?),
            Architecture::Llama => Transformer::Llama(llama::Llama::load(config, load)?),
        })
    }

    /// Runs a step and gives the logits of its logit rows.
    pub(crate) fn forward<O: Ops<Matrix = M>>(&self, ops: &mut O) -> Rows {
        match self {
            Transformer::Gpt2(model) => model.forward(ops),
            Transformer::Llama(model) => model.forward(ops),
        }
    }
}
