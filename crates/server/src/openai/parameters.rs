//! The parameters that chat and text completions share.

use std::time::Duration;

use engine::{PRIORITY_MAX, Request, Sampling};
use package::REASONING_EFFORTS;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::fields::{Fields, wrong_type};
use crate::lifetime::lifetime;

const STOP_IDS_MAX: usize = 16;
const LOGIT_BIAS_MAX: usize = 4096;
const CHOICES_MAX: usize = 128;

/// Sampling, stopping and streaming, as both endpoints take them.
pub(crate) struct Parameters {
    pub(crate) model: Option<String>,
    pub(crate) choices: usize,
    pub(crate) sampling: Sampling,
    pub(crate) stop: Vec<String>,
    pub(crate) stop_ids: Vec<u32>,
    pub(crate) ignore_end: bool,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    /// Whether a stream tells how much of the prompt is computed.
    pub(crate) include_progress: bool,
    pub(crate) use_cache: bool,
    pub(crate) keep_on_disk: bool,
    pub(crate) lifetime: Option<Duration>,
    /// The response whose prompt this one's is to be compared with.
    pub(crate) comparison: Option<String>,
    pub(crate) cache_salt: Option<String>,
    pub(crate) priority: i32,
}

impl Parameters {
    /// Says in `request` how its answers are drawn, streamed and kept; `lifetime` is for requests
    /// that do not say one.
    pub(crate) fn draw(self, request: &mut Request, lifetime: Option<Duration>) {
        request.choices = self.choices;
        request.sampling = self.sampling;
        request.stop = self.stop;
        request.stop_ids = self.stop_ids;
        request.ignore_end = self.ignore_end;
        request.progress = self.include_progress;
        request.keep_on_disk = self.keep_on_disk;
        request.lifetime = self.lifetime.or(lifetime);
        request.priority = self.priority;
    }

    pub(crate) fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        refuse_unsupported(fields)?;
        let stream = fields.boolean("stream")?.unwrap_or(false);
        let [include_usage, include_progress] = take_stream_options(fields, stream)?;
        let (lifetime, comparison) = take_cache_options(fields)?;
        Ok(Self {
            model: fields.string("model")?,
            choices: fields.count("n", 1, CHOICES_MAX)?.unwrap_or(1),
            sampling: take_sampling(fields)?,
            stop: fields.stop_strings("stop")?,
            stop_ids: take_stop_ids(fields)?,
            ignore_end: fields.boolean("ignore_eos")?.unwrap_or(false),
            stream,
            include_usage,
            include_progress,
            use_cache: fields.boolean("cache_prompt")?.unwrap_or(true),
            keep_on_disk: take_keep_on_disk(fields)?,
            lifetime,
            comparison,
            cache_salt: fields.string("cache_salt")?,
            priority: take_priority(fields)?,
        })
    }
}

/// Refuses what other servers take and would change the answer, unless it asks for nothing.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    let sampling = [
        ("min_tokens", json!(0)),
        ("bad_words", json!([])),
        ("allowed_token_ids", json!([])),
        ("typical_p", json!(1.0)),
        ("tfs_z", json!(1.0)),
        ("mirostat", json!(0)),
        ("mirostat_mode", json!(0)),
        ("dynatemp_range", json!(0.0)),
        ("dry_multiplier", json!(0.0)),
        ("xtc_probability", json!(0.0)),
        ("no_repeat_ngram_size", json!(0)),
        ("repeat_penalty", json!(1.0)),
        ("length_penalty", json!(1.0)),
        ("use_beam_search", json!(false)),
        ("skip_special_tokens", json!(true)),
        ("truncate_prompt_tokens", json!(-1)),
        ("guided_decoding_backend", json!("")),
    ];
    for (name, neutral) in sampling {
        fields.refuse_unless(name, &neutral, "this way of drawing tokens does not work here")?;
    }
    Ok(())
}

fn take_sampling(fields: &mut Fields) -> Result<Sampling, ApiError> {
    let defaults = Sampling::default();
    Ok(Sampling {
        temperature: fields.number("temperature", 0.0, 2.0)?.unwrap_or(defaults.temperature),
        top_p: fields.number("top_p", 0.0, 1.0)?.unwrap_or(defaults.top_p),
        // -1 is what vLLM's clients send for "off"; here that is 0.
        top_k: fields.integer("top_k", -1, i64::from(u32::MAX))?.unwrap_or(0).max(0) as usize,
        min_p: fields.number("min_p", 0.0, 1.0)?.unwrap_or(defaults.min_p),
        repetition_penalty: fields
            .number("repetition_penalty", 0.01, 100.0)?
            .unwrap_or(defaults.repetition_penalty),
        presence_penalty: fields.number("presence_penalty", -2.0, 2.0)?.unwrap_or(0.0),
        frequency_penalty: fields.number("frequency_penalty", -2.0, 2.0)?.unwrap_or(0.0),
        seed: fields.seed()?,
        logit_bias: take_logit_bias(fields)?,
    })
}

fn take_logit_bias(fields: &mut Fields) -> Result<Vec<(u32, f32)>, ApiError> {
    let Some(map) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    if map.len() > LOGIT_BIAS_MAX {
        let message = format!("'logit_bias' may hold at most {LOGIT_BIAS_MAX} tokens");
        return Err(ApiError::bad_request("logit_bias", message));
    }
    let entry = |(key, value): (String, Value)| {
        let id = key.parse::<u32>().map_err(|_| {
            let message = format!("'logit_bias' has a key that is not a token id: {key:?}");
            ApiError::bad_request("logit_bias", message)
        })?;
        match value.as_f64() {
            Some(bias) if (-100.0..=100.0).contains(&bias) => Ok((id, bias as f32)),
            _ => Err(ApiError::bad_request(
                "logit_bias",
                format!("'logit_bias' of token {id} must be a number between -100 and 100"),
            )),
        }
    };
    map.into_iter().map(entry).collect()
}

/// `store: false` keeps a request off the disk, and so does a retention in memory. Without either
/// the prompt cache keeps it there as long as there is room.
fn take_keep_on_disk(fields: &mut Fields) -> Result<bool, ApiError> {
    let store = fields.boolean("store")?.unwrap_or(true);
    let retention = fields.string("prompt_cache_retention")?;
    match retention.as_deref() {
        None | Some("24h") => Ok(store),
        Some("in_memory" | "in-memory") => Ok(false),
        Some(other) => {
            let message =
                format!("'prompt_cache_retention' is {other:?}; it must be in_memory or 24h");
            Err(ApiError::bad_request("prompt_cache_retention", message))
        }
    }
}

/// OpenAI's `prompt_cache_options`, of which the time to live and the response to compare with work
/// here.
fn take_cache_options(fields: &mut Fields) -> Result<(Option<Duration>, Option<String>), ApiError> {
    const COMPARISON: &str = "prompt_cache_options.comparison_response_id";
    let Some(options) = fields.object("prompt_cache_options")? else { return Ok((None, None)) };
    let mut options = Fields::new(options);
    let ttl = options.value("ttl");
    let comparison = match options.value("comparison_response_id") {
        None => None,
        Some(Value::String(id)) => Some(id),
        Some(other) => return Err(wrong_type(COMPARISON, "a string", &other)),
    };
    fields.put_back("prompt_cache_options", options);
    Ok((lifetime_of(ttl)?, comparison))
}

/// How long what is used of the prompt cache lives. Without a word, the server's configuration
/// decides.
fn lifetime_of(ttl: Option<Value>) -> Result<Option<Duration>, ApiError> {
    const FIELD: &str = "prompt_cache_options.ttl";
    let ttl = match ttl {
        None => return Ok(None),
        Some(Value::String(ttl)) => ttl,
        Some(other) => return Err(wrong_type(FIELD, "a string like \"30m\"", &other)),
    };
    let lifetime = lifetime(&ttl).map_err(|wanted| {
        ApiError::bad_request(FIELD, format!("'{FIELD}' is {:?}; it {wanted}", doctor::shown(&ttl)))
    })?;
    Ok(Some(lifetime))
}

/// How much the model is to reason, as `field` says it in OpenAI's words.
pub(super) fn checked_effort(
    effort: Option<String>,
    field: &str,
) -> Result<Option<String>, ApiError> {
    match effort.as_deref() {
        Some(word) if !REASONING_EFFORTS.contains(&word) => {
            let (word, known) = (doctor::shown(&word), REASONING_EFFORTS.join(", "));
            let message = format!("'{field}' is {word}; it must be one of {known}");
            Err(ApiError::bad_request(field, message))
        }
        _ => Ok(effort),
    }
}

/// As in vLLM: lower goes first.
fn take_priority(fields: &mut Fields) -> Result<i32, ApiError> {
    let most = i64::from(PRIORITY_MAX);
    Ok(fields.integer("priority", -most, most)?.unwrap_or(0) as i32)
}

fn take_stop_ids(fields: &mut Fields) -> Result<Vec<u32>, ApiError> {
    let Some(values) = fields.array("stop_token_ids")? else { return Ok(Vec::new()) };
    if values.len() > STOP_IDS_MAX {
        let message = format!("'stop_token_ids' may hold at most {STOP_IDS_MAX} ids");
        return Err(ApiError::bad_request("stop_token_ids", message));
    }
    Ok(doctor::token_ids("stop_token_ids", &values, u32::MAX as usize)?)
}

/// `include_usage` and `include_progress`.
fn take_stream_options(fields: &mut Fields, stream: bool) -> Result<[bool; 2], ApiError> {
    let Some(options) = fields.object("stream_options")? else { return Ok([false; 2]) };
    if !stream {
        let message = "'stream_options' is only allowed when 'stream' is true";
        return Err(ApiError::bad_request("stream_options", message));
    }
    let mut options = Fields::new(options);
    let mut take = |name: &str| {
        options.boolean(name).map(|value| value.unwrap_or(false)).map_err(|_| {
            let field = format!("stream_options.{name}");
            ApiError::bad_request(&field, format!("'{field}' must be true or false"))
        })
    };
    let taken = [take("include_usage")?, take("include_progress")?];
    fields.put_back("stream_options", options);
    Ok(taken)
}
