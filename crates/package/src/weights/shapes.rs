//! What each part must look like, by the configuration.

use super::names::{LayerPart, Part};
use crate::config::{Architecture, Biases, Config};

/// What one part consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A matrix without a bias.
    Table { outputs: usize, inputs: usize },
    /// A matrix that may have a bias.
    Linear { outputs: usize, inputs: usize, bias: Presence },
    /// A norm's gain, and for LayerNorm its bias.
    Norm { length: usize, bias: bool },
}

/// Whether a tensor has to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Required,
    Optional,
    Forbidden,
}

/// What the architecture has at `part`; `None` when it has nothing there.
pub(super) fn form(config: &Config, part: Part) -> Option<Form> {
    let Config { hidden, vocab, context, .. } = *config;
    let gpt2 = config.architecture == Architecture::Gpt2;
    let norm = Form::Norm { length: hidden, bias: gpt2 };
    match part {
        Part::TokenEmbedding | Part::Head => Some(Form::Table { outputs: vocab, inputs: hidden }),
        Part::PositionEmbedding => gpt2.then_some(Form::Table { outputs: context, inputs: hidden }),
        Part::FinalNorm => Some(norm),
        Part::Layer(layer, _) if layer >= config.layers => None,
        Part::Layer(_, LayerPart::AttentionNorm | LayerPart::MlpNorm) => Some(norm),
        Part::Layer(_, part) => linear(config, part),
    }
}

fn linear(config: &Config, part: LayerPart) -> Option<Form> {
    let Config { hidden, heads, kv_heads, head_dim, intermediate, .. } = *config;
    let gpt2 = config.architecture == Architecture::Gpt2;
    let (query_width, kv_width) = (heads * head_dim, kv_heads * head_dim);
    let (outputs, inputs) = match part {
        LayerPart::Qkv if gpt2 => (query_width + 2 * kv_width, hidden),
        LayerPart::Q if !gpt2 => (query_width, hidden),
        LayerPart::K | LayerPart::V if !gpt2 => (kv_width, hidden),
        LayerPart::AttentionOutput => (hidden, query_width),
        LayerPart::Gate if !gpt2 => (intermediate, hidden),
        LayerPart::Up => (intermediate, hidden),
        LayerPart::Down => (hidden, intermediate),
        _ => return None,
    };
    let in_mlp = matches!(part, LayerPart::Gate | LayerPart::Up | LayerPart::Down);
    let bias = match config.biases {
        Biases::Unstated if gpt2 => Presence::Required,
        Biases::Unstated => Presence::Optional,
        Biases::Stated { attention, mlp } if if in_mlp { mlp } else { attention } => {
            Presence::Required
        }
        Biases::Stated { .. } => Presence::Forbidden,
    };
    Some(Form::Linear { outputs, inputs, bias })
}

/// Every part that the architecture has.
pub(super) fn parts(config: &Config) -> impl Iterator<Item = Part> {
    const LAYER_PARTS: [LayerPart; 10] = [
        LayerPart::AttentionNorm,
        LayerPart::Qkv,
        LayerPart::Q,
        LayerPart::K,
        LayerPart::V,
        LayerPart::AttentionOutput,
        LayerPart::MlpNorm,
        LayerPart::Gate,
        LayerPart::Up,
        LayerPart::Down,
    ];
    let layers = (0..config.layers)
        .flat_map(|layer| LAYER_PARTS.into_iter().map(move |part| Part::Layer(layer, part)));
    [Part::TokenEmbedding, Part::PositionEmbedding, Part::FinalNorm, Part::Head]
        .into_iter()
        .chain(layers)
        .filter(|part| form(config, *part).is_some())
}
