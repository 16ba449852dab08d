//! What a model's configuration says, in one form for both file formats.

mod gguf;
mod hugging_face;

use crate::gguf::GgufError;

/// Largest value accepted for each dimension; far above any real model, and small enough that
/// products of two of them cannot overflow.
const DIMENSION_MAX: usize = 1 << 24;
/// Most layers accepted.
const LAYERS_MAX: usize = 4096;

/// The model families that can be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Learned positions, LayerNorm, one fused QKV matrix, biases everywhere.
    Gpt2,
    /// Rotary positions, RMSNorm, grouped-query attention, gated MLP.
    Llama,
}

impl Architecture {
    /// The name in `config.json` and in `general.architecture`.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Gpt2 => "gpt2",
            Architecture::Llama => "llama",
        }
    }

    fn from_name(name: &str) -> Result<Architecture, ConfigError> {
        match name {
            "gpt2" => Ok(Architecture::Gpt2),
            "llama" => Ok(Architecture::Llama),
            _ => Err(ConfigError::Architecture(name.to_owned())),
        }
    }
}

/// The non-linearity of the MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x Φ(x)` by the error function.
    Gelu,
    /// GELU's tanh approximation, `gelu_new` in GPT-2's configuration.
    GeluTanh,
    /// `x σ(x)`, multiplied by the other half of a gated MLP.
    Silu,
}

/// How the rotary embedding's frequencies are changed for long contexts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Every position is divided by `factor`.
    Linear {
        /// The divisor of positions.
        factor: f64,
    },
    /// Llama 3.1's: low frequencies are divided by `factor`, high ones kept, those between
    /// interpolated.
    Llama3 {
        /// The divisor of the low frequencies.
        factor: f64,
        /// Wavelengths above `original_context / low_frequency_factor` are scaled.
        low_frequency_factor: f64,
        /// Wavelengths below `original_context / high_frequency_factor` are kept.
        high_frequency_factor: f64,
        /// The context that the model was first trained with.
        original_context: usize,
    },
}

/// Rotary position embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// θ: pair `i` turns by `base^(-2 i / dims)` per position.
    pub base: f64,
    /// Dimensions of a head that are rotated (all of them in the supported models).
    pub dims: usize,
    /// Change of the frequencies.
    pub scaling: RopeScaling,
    /// GGUF's `rope_freqs`: pair `i`'s frequency is divided by entry `i`; `dims / 2` entries.
    pub frequency_factors: Option<Vec<f32>>,
}

/// Which matrices the configuration says have a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Biases {
    /// The format does not say; what the file has counts.
    Unstated,
    /// The configuration says; the file must agree.
    Stated {
        /// Q, K, V and the attention output.
        attention: bool,
        /// The MLP's matrices.
        mlp: bool,
    },
}

/// A model's dimensions and options; every field is checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The model family.
    pub architecture: Architecture,
    /// Transformer blocks.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head; not always `hidden / heads`.
    pub head_dim: usize,
    /// Width inside the MLP.
    pub intermediate: usize,
    /// Rows of the token embedding.
    pub vocab: usize,
    /// Positions that the model was made for.
    pub context: usize,
    /// ε of the norms.
    pub norm_epsilon: f32,
    /// Non-linearity of the MLP.
    pub activation: Activation,
    /// Rotary embedding; `None` for learned positions.
    pub rope: Option<Rope>,
    /// The head is the token embedding.
    pub tied_head: bool,
    /// Which matrices must have a bias.
    pub biases: Biases,
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not JSON, or not an object.
    #[error("config.json is not usable: {0}")]
    Json(String),
    /// A model family that cannot be run.
    #[error("architecture {0:?} is not supported (gpt2 and llama are)")]
    Architecture(String),
    /// An option that would change the numbers and is not implemented.
    #[error("{field} = {value} is not supported{hint}")]
    Unsupported {
        /// The option as the file names it.
        field: String,
        /// Its value.
        value: String,
        /// What is supported instead; empty or begins with punctuation.
        hint: &'static str,
    },
    /// A field that must be there is not.
    #[error("the configuration has no {0}")]
    Missing(String),
    /// A field has a value that cannot be.
    #[error("{field}: {problem}")]
    Field {
        /// The field as the file names it.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// The GGUF metadata is damaged.
    #[error(transparent)]
    Gguf(#[from] GgufError),
}

impl ConfigError {
    fn field(field: &str, problem: impl Into<String>) -> ConfigError {
        ConfigError::Field { field: field.to_owned(), problem: problem.into() }
    }

    fn unsupported(field: &str, value: impl ToString, hint: &'static str) -> ConfigError {
        ConfigError::Unsupported { field: field.to_owned(), value: value.to_string(), hint }
    }
}

impl Config {
    /// Checks what both formats must satisfy; the readers call it last.
    fn checked(self) -> Result<Config, ConfigError> {
        let dimensions = [
            ("layers", self.layers, LAYERS_MAX),
            ("hidden size", self.hidden, DIMENSION_MAX),
            ("heads", self.heads, DIMENSION_MAX),
            ("key-value heads", self.kv_heads, DIMENSION_MAX),
            ("head size", self.head_dim, DIMENSION_MAX),
            ("intermediate size", self.intermediate, DIMENSION_MAX),
            ("vocabulary size", self.vocab, DIMENSION_MAX),
            ("context length", self.context, DIMENSION_MAX),
        ];
        for (name, value, limit) in dimensions {
            if value == 0 || value > limit {
                let problem = format!("{value} is outside 1 to {limit}");
                return Err(ConfigError::field(name, problem));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let problem = format!("{} do not divide {} heads", self.kv_heads, self.heads);
            return Err(ConfigError::field("key-value heads", problem));
        }
        if self.heads * self.head_dim > DIMENSION_MAX {
            return Err(ConfigError::field("head size", "heads × head size is too large"));
        }
        if !(self.norm_epsilon.is_finite() && self.norm_epsilon >= 0.0) {
            return Err(ConfigError::field("norm epsilon", format!("{}", self.norm_epsilon)));
        }
        if let Some(rope) = &self.rope {
            rope.check(self.head_dim)?;
        }
        Ok(self)
    }
}

impl Rope {
    fn check(&self, head_dim: usize) -> Result<(), ConfigError> {
        if self.dims != head_dim {
            let hint = "; only whole heads can be rotated";
            return Err(ConfigError::unsupported("rotary dimensions", self.dims, hint));
        }
        if !self.dims.is_multiple_of(2) {
            return Err(ConfigError::field("head size", "must be even for rotary positions"));
        }
        let positive = |field: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(ConfigError::field(field, format!("{value} is not a positive number")))
            }
        };
        positive("rope base", self.base)?;
        match self.scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } => positive("rope scaling factor", factor)?,
            RopeScaling::Llama3 {
                factor,
                low_frequency_factor: low,
                high_frequency_factor: high,
                original_context,
            } => {
                positive("rope scaling factor", factor)?;
                positive("low_freq_factor", low)?;
                positive("high_freq_factor", high)?;
                positive("original_max_position_embeddings", original_context as f64)?;
                if low >= high {
                    let problem = format!("{high} must be above low_freq_factor {low}");
                    return Err(ConfigError::field("high_freq_factor", problem));
                }
            }
        }
        let Some(factors) = &self.frequency_factors else { return Ok(()) };
        if factors.len() != self.dims / 2 {
            let problem = format!("{} entries for {} pairs", factors.len(), self.dims / 2);
            return Err(ConfigError::field("rope_freqs.weight", problem));
        }
        factors.iter().try_for_each(|factor| positive("rope_freqs.weight", f64::from(*factor)))
    }
}
