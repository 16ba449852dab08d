//! What a trace holds; its serialized form is the schema `refrain.trace/1`.

use serde::{Serialize, Serializer};

use super::name::TensorName;

/// Everything a trace shows.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// `refrain.trace/1`.
    pub schema: &'static str,
    /// The model's dimensions.
    pub model: ModelShape,
    /// The prompt.
    pub tokens: Vec<Token>,
    /// Every tensor of the prefill, in the order in which it was computed; at the end what the KV
    /// cache holds then.
    pub steps: Vec<Step>,
    /// What one query of one head reads.
    pub attention: Attention,
    /// The likeliest tokens after the prompt.
    pub next: Vec<Candidate>,
    /// The likeliest tokens after each token of the prompt.
    pub rows: Vec<Row>,
    /// The KV cache after the prefill, before the steps of `decode`, each of which says what the
    /// cache is after it.
    pub kv: Kv,
    /// The steps after the prefill, each on the token that the one before made likeliest.
    pub decode: Vec<DecodeStep>,
    /// The tensors that were asked for, whole, in the order in which they were computed.
    #[serde(skip)]
    pub tensors: Vec<(TensorName, Tensor)>,
}

/// A model's dimensions.
#[derive(Clone, Debug, Serialize)]
pub struct ModelShape {
    /// The package's name.
    pub name: String,
    /// Transformer blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Token ids.
    pub vocab: usize,
    /// Positions.
    pub context: usize,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// Its text, with U+FFFD for bytes that are no whole character.
    pub text: String,
    /// The bytes it stands for.
    pub bytes: Vec<u8>,
}

/// One tensor of the prefill.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Its name, as a [`TensorName`] shows itself.
    pub name: String,
    /// The Hugging Face module that the tensor belongs to, or the part of its cache.
    pub alias: String,
    /// Its shape, with the batch of one in front.
    pub shape: Vec<usize>,
    /// Its first numbers, eight at most, in row-major order.
    #[serde(serialize_with = "numbers")]
    pub first: Vec<f32>,
    /// The first numbers, eight at most, of the row and the head that were asked for; after the
    /// layers, of the last row, which the next token is chosen by. None where rows are no tokens.
    #[serde(skip)]
    pub row: Vec<f32>,
    /// Facts about all of its numbers; of attention scores, about those that the mask leaves.
    pub stats: Stats,
}

/// Facts about all numbers of a tensor, taken in double precision.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stats {
    /// The least.
    #[serde(serialize_with = "number")]
    pub min: f32,
    /// The greatest.
    #[serde(serialize_with = "number")]
    pub max: f32,
    /// The mean.
    #[serde(serialize_with = "number")]
    pub mean: f64,
    /// The standard deviation of these numbers themselves: divided by how many there are.
    #[serde(serialize_with = "number")]
    pub std: f64,
    /// The sum.
    #[serde(serialize_with = "number")]
    pub sum: f64,
}

/// What one query of one head reads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attention {
    /// The layer, counted from zero.
    pub layer: usize,
    /// The query head, counted from zero.
    pub head: usize,
    /// The query's row, counted from zero.
    pub query: usize,
    /// How much it reads of each position; exactly zero behind the mask.
    #[serde(serialize_with = "numbers")]
    pub weights: Vec<f32>,
    /// `q . k / sqrt(head_dim)` for each position, also for those that the mask then hides.
    #[serde(skip)]
    pub scores: Vec<f32>,
    /// The first number of each position's value in that head: the first number of what the head
    /// gives is the sum of these by the weights.
    #[serde(skip)]
    pub values: Vec<f32>,
    /// The query, as it meets the keys: rotated, where the model rotates.
    #[serde(skip)]
    pub q: Vec<f32>,
    /// The key of the same row, as the queries meet it.
    #[serde(skip)]
    pub k: Vec<f32>,
}

/// A token that could come next.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// Its id.
    pub id: u32,
    /// Its text, with U+FFFD for bytes that are no whole character.
    pub text: String,
    /// Its score.
    #[serde(serialize_with = "number")]
    pub logit: f32,
    /// Its probability over the whole vocabulary.
    #[serde(serialize_with = "number")]
    pub probability: f32,
}

/// What a row of the prompt predicts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The row's position.
    pub position: usize,
    /// The likeliest tokens for the next position.
    pub next: Vec<Candidate>,
}

/// The KV cache after the prefill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kv {
    /// Layers, each with its own keys and values.
    pub layers: usize,
    /// Shape of one layer's keys.
    pub k_shape: [usize; 4],
    /// Shape of one layer's values.
    pub v_shape: [usize; 4],
    /// Bytes of one token's keys and values, all layers together.
    pub bytes_per_token: usize,
    /// Bytes of the prompt's keys and values.
    pub bytes: usize,
}

/// One step after the prefill.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecodeStep {
    /// Shape of the step's token ids.
    pub input_shape: [usize; 2],
    /// The token that the step processed.
    pub token: Token,
    /// Positions in the KV cache after the step.
    pub cache_len: usize,
    /// Shape of the new token's queries in one layer, heads before rows.
    pub new_q_shape: Vec<usize>,
    /// Shape of its keys.
    pub new_k_shape: Vec<usize>,
    /// Shape of its values.
    pub new_v_shape: Vec<usize>,
    /// Shape of one layer's keys in the KV cache after the step.
    pub k_shape: [usize; 4],
    /// Shape of one layer's values.
    pub v_shape: [usize; 4],
    /// Shape of the attention weights of one layer.
    pub attention_shape: Vec<usize>,
    /// Shape of the logits.
    pub logits_shape: [usize; 3],
    /// The likeliest tokens after it.
    pub next: Vec<Candidate>,
    /// Passes of one token through one layer that the step took.
    pub layer_evaluations: usize,
    /// How many it would have taken without the KV cache.
    pub layer_evaluations_without_cache: usize,
}

/// A whole tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tensor {
    /// Its name, as a [`TensorName`] shows itself.
    pub name: String,
    /// Its shape, with the batch of one in front.
    pub shape: Vec<usize>,
    /// Its numbers, in row-major order.
    #[serde(serialize_with = "numbers")]
    pub values: Vec<f32>,
}

/// A number of a tensor. What is not finite is written as a string: JSON has no numbers for it,
/// and `null` would say that nobody looked.
fn number<S: Serializer, T: Copy + Into<f64> + Serialize>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let wide: f64 = (*value).into();
    match wide {
        x if x.is_finite() => value.serialize(serializer),
        x if x.is_nan() => serializer.serialize_str("NaN"),
        x if x > 0.0 => serializer.serialize_str("Infinity"),
        _ => serializer.serialize_str("-Infinity"),
    }
}

fn numbers<S: Serializer>(values: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
    struct Number(f32);
    impl Serialize for Number {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            number(&self.0, serializer)
        }
    }
    serializer.collect_seq(values.iter().map(|&value| Number(value)))
}
