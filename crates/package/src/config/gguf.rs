//! The configuration in a GGUF file's metadata, as llama.cpp's converter writes it.

use super::{Activation, Architecture, Biases, Config, ConfigError, Rope, RopeScaling};
use crate::gguf::{GgufFile, Metadata};
use crate::tensor::DType;

impl Config {
    /// Reads a GGUF file's metadata, and the two things that only its tensors say: the
    /// vocabulary size and whether there is a head of its own.
    ///
    /// # Errors
    /// [`ConfigError`] that names the key.
    pub fn from_gguf(file: &GgufFile) -> Result<Config, ConfigError> {
        let metadata = file.metadata();
        let name = metadata.string("general.architecture")?;
        let name = name.ok_or_else(|| ConfigError::Missing("general.architecture".into()))?;
        let architecture = Architecture::from_name(name)?;
        let keys = Keys { metadata, prefix: architecture.name() };
        if metadata.u64("split.count")?.unwrap_or(1) > 1 {
            let hint = "; join the parts with llama-gguf-split --merge";
            return Err(ConfigError::unsupported("split.count", "more than one file", hint));
        }
        let hidden = keys.required("embedding_length")?;
        let heads = keys.required("attention.head_count")?;
        let head_dim = head_dim(keys, hidden, heads)?;
        let context = keys.required("context_length")?;
        let (epsilon_key, rope, activation) = match architecture {
            Architecture::Gpt2 => ("attention.layer_norm_epsilon", None, Activation::GeluTanh),
            Architecture::Llama => {
                refuse_llama_variants(keys)?;
                let rope = rope(file, keys, head_dim)?;
                ("attention.layer_norm_rms_epsilon", Some(rope), Activation::Silu)
            }
        };
        Config {
            architecture,
            layers: keys.required("block_count")?,
            hidden,
            heads,
            kv_heads: keys.integer("attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            intermediate: keys.required("feed_forward_length")?,
            vocab: vocab(file, keys)?,
            context,
            norm_epsilon: keys.required_number(epsilon_key)? as f32,
            activation,
            rope,
            tied_head: !file.names().any(|name| name == "output.weight"),
            biases: Biases::Unstated,
        }
        .checked()
    }
}

/// `attention.key_length` where the file has it, else `hidden / heads`.
fn head_dim(keys: Keys<'_>, hidden: usize, heads: usize) -> Result<usize, ConfigError> {
    let key_length = keys.integer("attention.key_length")?;
    let value_length = keys.integer("attention.value_length")?;
    let default = match heads {
        0 => None,
        heads if hidden.is_multiple_of(heads) => Some(hidden / heads),
        _ => None,
    };
    let head_dim = key_length.or(default).ok_or_else(|| {
        let problem = format!("{heads} heads do not divide embedding_length {hidden}");
        ConfigError::field(&keys.full("attention.head_count"), problem)
    })?;
    match value_length {
        Some(length) if length != head_dim => {
            let field = keys.full("attention.value_length");
            Err(ConfigError::unsupported(&field, length, "; K and V must have one head size"))
        }
        _ => Ok(head_dim),
    }
}

/// The vocabulary size: of the embedding's rows. Where the metadata states it too, it must agree.
fn vocab(file: &GgufFile, keys: Keys<'_>) -> Result<usize, ConfigError> {
    let missing = || ConfigError::Missing("token_embd.weight".into());
    let embedding = file.tensor("token_embd.weight")?.ok_or_else(missing)?;
    let vocab = embedding.shape[0];
    let stated = keys.integer("vocab_size")?;
    let listed = file.metadata().array_length("tokenizer.ggml.tokens");
    for (key, other) in
        [(keys.full("vocab_size"), stated), ("tokenizer.ggml.tokens".into(), listed)]
    {
        if let Some(other) = other.filter(|other| *other != vocab) {
            let problem = format!("{other} tokens, but token_embd.weight has {vocab} rows");
            return Err(ConfigError::field(&key, problem));
        }
    }
    Ok(vocab)
}

/// The `llama` architecture name also stands for models that compute something else.
fn refuse_llama_variants(keys: Keys<'_>) -> Result<(), ConfigError> {
    for key in ["expert_count", "attention.sliding_window"] {
        if let Some(value) = keys.integer(key)?.filter(|value| *value > 0) {
            return Err(ConfigError::unsupported(&keys.full(key), value, ""));
        }
    }
    for key in ["logit_scale", "residual_scale", "embedding_scale", "attention.scale"] {
        if let Some(value) = keys.number(key)?.filter(|value| *value != 0.0) {
            return Err(ConfigError::unsupported(&keys.full(key), value, ""));
        }
    }
    Ok(())
}

fn rope(file: &GgufFile, keys: Keys<'_>, head_dim: usize) -> Result<Rope, ConfigError> {
    let factor = match keys.number("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => keys.number("rope.scale_linear")?,
    };
    let kind = keys.metadata.string(&keys.full("rope.scaling.type"))?;
    // Older files have `rope.scale_linear` alone.
    let scaling = match (kind, factor) {
        (Some("none"), _) | (None | Some("linear"), None) => RopeScaling::None,
        (None | Some("linear"), Some(factor)) if factor == 1.0 || factor == 0.0 => {
            RopeScaling::None
        }
        (None | Some("linear"), Some(factor)) => RopeScaling::Linear { factor },
        (Some(other), _) => {
            let hint = " (none and linear are)";
            return Err(ConfigError::unsupported(&keys.full("rope.scaling.type"), other, hint));
        }
    };
    if let Some(factor) = keys.number("rope.scaling.attn_factor")?.filter(|factor| *factor != 1.0) {
        return Err(ConfigError::unsupported(&keys.full("rope.scaling.attn_factor"), factor, ""));
    }
    Ok(Rope {
        base: keys.number("rope.freq_base")?.unwrap_or(10_000.0),
        dims: keys.integer("rope.dimension_count")?.unwrap_or(head_dim),
        scaling,
        frequency_factors: frequency_factors(file)?,
    })
}

/// Llama 3's scaling, which the converter has worked out into a tensor.
fn frequency_factors(file: &GgufFile) -> Result<Option<Vec<f32>>, ConfigError> {
    let name = "rope_freqs.weight";
    let Some(tensor) = file.tensor(name)? else { return Ok(None) };
    if tensor.dtype != DType::F32 || tensor.shape.len() != 1 {
        return Err(ConfigError::field(name, "must be one row of F32"));
    }
    let numbers = tensor.bytes.chunks_exact(4);
    Ok(Some(numbers.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()))
}

/// Typed look-ups of the keys that begin with the architecture's name.
#[derive(Clone, Copy)]
struct Keys<'a> {
    metadata: &'a Metadata,
    prefix: &'static str,
}

impl Keys<'_> {
    fn full(self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    /// A whole number; an array with one per layer is accepted where all are equal.
    fn integer(self, key: &str) -> Result<Option<usize>, ConfigError> {
        let full = self.full(key);
        let value = match self.metadata.array_length(&full) {
            None => self.metadata.u64(&full)?,
            Some(_) => {
                let values = self.metadata.integers(&full)?.unwrap_or_default();
                let first = values.first().copied().and_then(|first| u64::try_from(first).ok());
                if first.is_none() || values.windows(2).any(|pair| pair[0] != pair[1]) {
                    let hint = "; all layers must be alike";
                    return Err(ConfigError::unsupported(&full, "an array", hint));
                }
                first
            }
        };
        let Some(value) = value else { return Ok(None) };
        usize::try_from(value).map(Some).map_err(|_| ConfigError::field(&full, "too large"))
    }

    fn number(self, key: &str) -> Result<Option<f64>, ConfigError> {
        Ok(self.metadata.f64(&self.full(key))?)
    }

    fn required(self, key: &str) -> Result<usize, ConfigError> {
        self.integer(key)?.ok_or_else(|| ConfigError::Missing(self.full(key)))
    }

    fn required_number(self, key: &str) -> Result<f64, ConfigError> {
        self.number(key)?.ok_or_else(|| ConfigError::Missing(self.full(key)))
    }
}
