//! `config.json`, as transformers 4 and 5 write it.

use super::{Activation, Architecture, Biases, Config, ConfigError, Rope, RopeScaling};
use serde_json::{Map, Value};

impl Config {
    /// Reads the text of a `config.json`.
    ///
    /// Fields that are absent have the default that transformers gives them. Options that would
    /// change the numbers and are not implemented are refused by name.
    ///
    /// # Errors
    /// [`ConfigError`] that names the field.
    pub fn from_json(text: &str) -> Result<Config, ConfigError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| ConfigError::Json(error.to_string()))?;
        let Value::Object(map) = value else {
            return Err(ConfigError::Json("it is not a JSON object".to_owned()));
        };
        let fields = Fields(&map);
        if fields.present("quantization_config") {
            let hint = "; use GGUF for quantized weights";
            return Err(ConfigError::unsupported("quantization_config", "…", hint));
        }
        let model_type = fields.string("model_type")?;
        let model_type = model_type.ok_or_else(|| ConfigError::Missing("model_type".into()))?;
        match Architecture::from_name(model_type)? {
            Architecture::Gpt2 => gpt2(fields)?.checked(),
            Architecture::Llama => llama(fields)?.checked(),
        }
    }
}

/// `GPT2Config`. `reorder_and_upcast_attn` only changes the precision of half-precision
/// inference, and dropout only training: both are passed over.
fn gpt2(fields: Fields<'_>) -> Result<Config, ConfigError> {
    fields.refuse_unless("scale_attn_weights", true, true)?;
    fields.refuse_unless("scale_attn_by_inverse_layer_idx", false, false)?;
    fields.refuse_unless("add_cross_attention", false, false)?;
    let hidden = fields.required("n_embd")?;
    let heads = fields.required("n_head")?;
    if heads == 0 || hidden % heads != 0 {
        let problem = format!("{heads} heads do not divide n_embd = {hidden}");
        return Err(ConfigError::field("n_head", problem));
    }
    Ok(Config {
        architecture: Architecture::Gpt2,
        layers: fields.required("n_layer")?,
        hidden,
        heads,
        kv_heads: heads,
        head_dim: hidden / heads,
        intermediate: fields.integer("n_inner")?.unwrap_or(hidden.saturating_mul(4)),
        vocab: fields.required("vocab_size")?,
        context: fields.required("n_positions")?,
        norm_epsilon: fields.number("layer_norm_epsilon")?.unwrap_or(1e-5) as f32,
        activation: activation(fields, "activation_function", "gelu_new")?,
        rope: None,
        tied_head: fields.bool("tie_word_embeddings")?.unwrap_or(true),
        biases: Biases::Stated { attention: true, mlp: true },
    })
}

/// `LlamaConfig`. `pretraining_tp` splits the same sums differently and was dropped by
/// transformers itself: it is passed over.
fn llama(fields: Fields<'_>) -> Result<Config, ConfigError> {
    fields.refuse_unless("rope_interleaved", false, false)?;
    let hidden = fields.required("hidden_size")?;
    let heads = fields.required("num_attention_heads")?;
    let head_dim = match fields.integer("head_dim")? {
        Some(head_dim) => head_dim,
        None if heads > 0 && hidden % heads == 0 => hidden / heads,
        None => {
            let problem = format!("{heads} heads do not divide hidden_size = {hidden}");
            return Err(ConfigError::field("num_attention_heads", problem));
        }
    };
    let context = fields.required("max_position_embeddings")?;
    let activation = activation(fields, "hidden_act", "silu")?;
    Ok(Config {
        architecture: Architecture::Llama,
        layers: fields.required("num_hidden_layers")?,
        hidden,
        heads,
        kv_heads: fields.integer("num_key_value_heads")?.unwrap_or(heads),
        head_dim,
        intermediate: fields.required("intermediate_size")?,
        vocab: fields.required("vocab_size")?,
        context,
        norm_epsilon: fields.number("rms_norm_eps")?.unwrap_or(1e-6) as f32,
        activation,
        rope: Some(rope(fields, head_dim, context)?),
        tied_head: fields.bool("tie_word_embeddings")?.unwrap_or(false),
        biases: Biases::Stated {
            attention: fields.bool("attention_bias")?.unwrap_or(false),
            mlp: fields.bool("mlp_bias")?.unwrap_or(false),
        },
    })
}

fn activation(
    fields: Fields<'_>,
    field: &str,
    default: &'static str,
) -> Result<Activation, ConfigError> {
    match fields.string(field)?.unwrap_or(default) {
        "gelu" => Ok(Activation::Gelu),
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Ok(Activation::GeluTanh),
        "silu" | "swish" => Ok(Activation::Silu),
        other => Err(ConfigError::unsupported(field, other, " (gelu, gelu_new and silu are)")),
    }
}

/// Transformers 4 writes `rope_theta` and `rope_scaling` (whose kind is `rope_type`, before 4.43
/// `type`); transformers 5 writes everything into `rope_parameters`.
fn rope(fields: Fields<'_>, head_dim: usize, context: usize) -> Result<Rope, ConfigError> {
    let parameters = match fields.object("rope_parameters")? {
        Some(parameters) => Some(parameters),
        None => fields.object("rope_scaling")?,
    };
    let empty = Map::new();
    let parameters = Fields(parameters.unwrap_or(&empty));
    for partial in [fields, parameters] {
        let factor = partial.number("partial_rotary_factor")?.unwrap_or(1.0);
        if factor != 1.0 {
            let hint = "; only whole heads can be rotated";
            return Err(ConfigError::unsupported("partial_rotary_factor", factor, hint));
        }
    }
    let base = match parameters.number("rope_theta")? {
        Some(base) => base,
        None => fields.number("rope_theta")?.unwrap_or(10_000.0),
    };
    let kind = match parameters.string("rope_type")? {
        Some(kind) => kind,
        None => parameters.string("type")?.unwrap_or("default"),
    };
    let scaling = match kind {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: parameters.required_number("factor")? },
        "llama3" => RopeScaling::Llama3 {
            factor: parameters.required_number("factor")?,
            low_frequency_factor: parameters.required_number("low_freq_factor")?,
            high_frequency_factor: parameters.required_number("high_freq_factor")?,
            original_context: parameters
                .integer("original_max_position_embeddings")?
                .unwrap_or(context),
        },
        // Dynamic NTK depends on the current length, so a cached K would not be the K of a
        // longer prompt.
        other => {
            let hint = " (default, linear and llama3 are)";
            return Err(ConfigError::unsupported("rope_type", other, hint));
        }
    };
    Ok(Rope { base, dims: head_dim, scaling, frequency_factors: None })
}

/// Typed look-ups in a JSON object; `null` counts as absent, as in transformers.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    fn get(self, field: &str) -> Option<&'a Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    fn present(self, field: &str) -> bool {
        self.get(field).is_some()
    }

    fn typed<T>(
        self,
        field: &str,
        expected: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        convert(value)
            .map(Some)
            .ok_or_else(|| ConfigError::field(field, format!("must be {expected}")))
    }

    fn string(self, field: &str) -> Result<Option<&'a str>, ConfigError> {
        self.typed(field, "a string", Value::as_str)
    }

    fn bool(self, field: &str) -> Result<Option<bool>, ConfigError> {
        self.typed(field, "true or false", Value::as_bool)
    }

    fn number(self, field: &str) -> Result<Option<f64>, ConfigError> {
        self.typed(field, "a number", Value::as_f64)
    }

    fn integer(self, field: &str) -> Result<Option<usize>, ConfigError> {
        let convert = |value: &Value| value.as_u64().and_then(|value| usize::try_from(value).ok());
        self.typed(field, "a whole number", convert)
    }

    fn object(self, field: &str) -> Result<Option<&'a Map<String, Value>>, ConfigError> {
        self.typed(field, "an object", Value::as_object)
    }

    fn required(self, field: &str) -> Result<usize, ConfigError> {
        self.integer(field)?.ok_or_else(|| ConfigError::Missing(field.to_owned()))
    }

    fn required_number(self, field: &str) -> Result<f64, ConfigError> {
        self.number(field)?.ok_or_else(|| ConfigError::Missing(field.to_owned()))
    }

    /// Refuses an option that is implemented for one value only.
    fn refuse_unless(self, field: &str, only: bool, default: bool) -> Result<(), ConfigError> {
        match self.bool(field)?.unwrap_or(default) {
            value if value == only => Ok(()),
            value => Err(ConfigError::unsupported(field, value, "")),
        }
    }
}
