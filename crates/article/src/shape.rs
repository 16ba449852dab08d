//! Whether a model has the shape or the vocabulary that a row speaks of.

use package::{Architecture, Config, Tokenizer};

use crate::lack::Lack;
use crate::tally::Stop;

/// The model must have DistilGPT-2's shape.
pub(crate) fn has_the_shape(config: &Config) -> Result<(), Stop> {
    if config.architecture != Architecture::Gpt2 {
        let name = config.architecture.name();
        return Err(Stop::lacks(
            Lack::Shape,
            format!("the model is a {name}, not of DistilGPT-2's shape"),
        ));
    }
    let wanted = [
        ("layers", 6, config.layers),
        ("heads", 12, config.heads),
        ("hidden numbers", 768, config.hidden),
        ("tokens", 50257, config.vocab),
        ("positions", 1024, config.context),
    ];
    match wanted.iter().find(|(_, wanted, found)| wanted != found) {
        None => Ok(()),
        Some((what, wanted, found)) => {
            Err(Stop::lacks(Lack::Shape, format!("the model has {found} {what}, not {wanted}")))
        }
    }
}

/// The tokenizer must be GPT-2's, by its size and its one special token.
pub(crate) fn has_the_vocabulary(tokenizer: &Tokenizer) -> Result<(), Stop> {
    let size = tokenizer.vocab_size();
    if size == 50257 && tokenizer.id_of("<|endoftext|>") == Some(50256) {
        return Ok(());
    }
    Err(Stop::lacks(Lack::Shape, format!("the vocabulary, of {size} tokens, is not GPT-2's")))
}
