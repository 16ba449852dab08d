//! A trace: one prompt's way through the model, with every tensor on it, and some decode steps.

mod collector;
mod document;
mod name;

use kernels::{KvError, KvStore, PAGE_TOKENS, PageId, RowPlace};
use package::{Config, Package, Tokenizer};

use crate::error::ForwardError;
use crate::model::{Batch, Model};
use crate::rows::Heads;
use crate::taps::Taps;

use collector::{Collector, DecodeCollector, Keeper, Spot, summary};
pub use document::{
    Attention, Candidate, DecodeStep, Kv, ModelShape, Row, Stats, Step, Tensor, Token, Trace,
};
pub use name::{CachePart, Subject, TensorName};

/// Longest prompt that is traced, in tokens.
pub const TOKENS_MAX: usize = 1024;
/// Most decode steps that are traced.
pub const DECODE_MAX: usize = 1024;
/// Longest prompt of which the attention scores and weights of all layers are shown; of a longer
/// one only those of the layer that was asked for, and those that are kept.
pub const ALL_PATTERNS_TOKENS_MAX: usize = 128;
/// Bytes of tensors that are kept whole.
pub const KEPT_BYTES_MAX: usize = 1 << 30;

/// What to look at.
pub struct Options<'a> {
    /// The layer whose attention is shown, counted from zero.
    pub layer: usize,
    /// The query head whose attention is shown, counted from zero.
    pub head: usize,
    /// The row whose attention is shown; negative ones count from the end, -1 being the last.
    pub query: i64,
    /// Decode steps after the prefill.
    pub decode: usize,
    /// Candidates listed for each row, one at least.
    pub top: usize,
    /// Whether the tensor of this name is kept whole.
    pub keep: &'a dyn Fn(TensorName) -> bool,
}

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A prompt without tokens.
    #[error("the prompt has no tokens: give some text")]
    Empty,
    /// A longer prompt than is traced.
    #[error("the prompt has {tokens} tokens; a trace shows {TOKENS_MAX} at most")]
    TooLong {
        /// Tokens given.
        tokens: usize,
    },
    /// More positions than the model has, or more steps than are traced.
    #[error(
        "{decode} decode steps do not fit after the prompt's {prompt} tokens, but {most} at most: \
         shorten the prompt or lower --decode"
    )]
    Decode {
        /// Tokens of the prompt.
        prompt: usize,
        /// Steps asked for.
        decode: usize,
        /// Steps possible.
        most: usize,
    },
    /// A layer, head or row that is not there.
    #[error("there is no {what} {asked}; there are {count}, counted from 0")]
    Absent {
        /// What was asked for.
        what: &'static str,
        /// Its number.
        asked: i128,
        /// How many there are.
        count: usize,
    },
    /// More tensors asked for than fit.
    #[error("the tensors take more than {KEPT_BYTES_MAX} bytes: name fewer, or shorten the prompt")]
    TooMuch,
    /// The step could not be run.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// No memory for the KV cache.
    #[error(transparent)]
    Kv(#[from] KvError),
}

/// Runs `prompt` through `model`, which was loaded from `package`, and looks at everything.
///
/// # Errors
/// [`TraceError`] for a prompt that cannot be run and for options that the model does not have.
pub fn trace(
    model: &mut Model,
    package: &Package,
    prompt: &[u32],
    options: &Options,
) -> Result<Trace, TraceError> {
    let spot = check(model.config(), prompt.len(), options)?;
    let mut tracing = Tracing::new(model, &package.tokenizer, prompt.len(), options)?;
    let mut keeper = Keeper::new(options.keep, KEPT_BYTES_MAX);
    let architecture = package.config.architecture;
    let mut collector = Collector {
        architecture,
        spot,
        all_patterns: prompt.len() <= ALL_PATTERNS_TOKENS_MAX,
        keeper: &mut keeper,
        steps: Vec::new(),
        query: Vec::new(),
        key: Vec::new(),
        weights: Vec::new(),
    };
    let rows = tracing.step(prompt, &mut collector)?;
    let Collector { mut steps, query: q, key: k, weights, .. } = collector;
    for (name, shape, values) in tracing.cached(None, &|_| true) {
        keeper.offer(name, &shape, &values);
        steps.push(summary(name, architecture, &shape, &values));
    }
    let scores = tracing.scores(spot, &q);
    let values = tracing.first_values(spot);
    let Spot { layer, head, query, .. } = spot;
    let next = rows.last().cloned().unwrap_or_default();
    let kv = tracing.kv();
    let decode = tracing.decode(layer, &next, options.decode, &mut keeper)?;
    let position = |(position, next)| Row { position, next };
    Ok(Trace {
        schema: "refrain.trace/1",
        model: shape(package),
        tokens: prompt.iter().map(|&id| token(&package.tokenizer, id)).collect(),
        steps,
        attention: Attention { layer, head, query, weights, scores, values, q, k },
        next,
        rows: rows.into_iter().enumerate().map(position).collect(),
        kv,
        decode,
        tensors: keeper.tensors,
    })
}

/// Checks the options and finds the row that is meant.
fn check(config: &Config, tokens: usize, options: &Options) -> Result<Spot, TraceError> {
    match tokens {
        0 => return Err(TraceError::Empty),
        1..=TOKENS_MAX => {}
        _ => return Err(TraceError::TooLong { tokens }),
    }
    let most = config.context.saturating_sub(tokens).min(DECODE_MAX);
    if options.decode > most {
        return Err(TraceError::Decode { prompt: tokens, decode: options.decode, most });
    }
    let present = |what, asked: i128, count: usize| match usize::try_from(asked) {
        Ok(index) if index < count => Ok(index),
        _ => Err(TraceError::Absent { what, asked, count }),
    };
    let query = match (i128::from(options.query), tokens as i128) {
        (asked, tokens) if asked < 0 && tokens + asked >= 0 => tokens + asked,
        (asked, _) => asked,
    };
    let layer = present("layer", options.layer as i128, config.layers)?;
    let head = present("head", options.head as i128, config.heads)?;
    let kv_head = head / (config.heads / config.kv_heads);
    Ok(Spot { layer, head, kv_head, query: present("token", query, tokens)? })
}

fn shape(package: &Package) -> ModelShape {
    let config = &package.config;
    ModelShape {
        name: package.name.clone(),
        layers: config.layers,
        heads: config.heads,
        kv_heads: config.kv_heads,
        hidden: config.hidden,
        head_dim: config.head_dim,
        vocab: config.vocab,
        context: config.context,
    }
}

fn token(tokenizer: &Tokenizer, id: u32) -> Token {
    let bytes = tokenizer.bytes(id).unwrap_or_default().to_vec();
    Token { id, text: String::from_utf8_lossy(&bytes).into_owned(), bytes }
}

/// One sequence that is being traced, with its own KV cache.
struct Tracing<'a> {
    model: &'a mut Model,
    tokenizer: &'a Tokenizer,
    store: KvStore,
    pages: Vec<PageId>,
    /// Positions in the KV cache.
    length: usize,
    top: usize,
}

impl<'a> Tracing<'a> {
    fn new(
        model: &'a mut Model,
        tokenizer: &'a Tokenizer,
        tokens: usize,
        options: &Options,
    ) -> Result<Self, TraceError> {
        let pages = (tokens + options.decode).div_ceil(PAGE_TOKENS);
        let store = KvStore::new(model.kv_geometry(), pages)?;
        let pages = (0..pages as PageId).collect();
        Ok(Tracing { model, tokenizer, store, pages, length: 0, top: options.top.max(1) })
    }

    /// Appends `tokens` in one step; gives the candidates after each of them.
    fn step(
        &mut self,
        tokens: &[u32],
        taps: &mut dyn Taps,
    ) -> Result<Vec<Vec<Candidate>>, TraceError> {
        let place = |row| RowPlace { pages: &self.pages, position: self.length + row };
        let places: Vec<RowPlace> = (0..tokens.len()).map(place).collect();
        let logit_rows: Vec<usize> = (0..tokens.len()).collect();
        let batch = Batch { tokens, places: &places, logit_rows: &logit_rows };
        let logits = self.model.forward(&mut self.store, &batch, taps)?.to_vec();
        self.length += tokens.len();
        let rows = logits.chunks_exact(self.model.config().vocab);
        Ok(rows.map(|row| self.candidates(row)).collect())
    }

    /// The likeliest tokens by one row of logits; the lower id first of equals.
    fn candidates(&self, logits: &[f32]) -> Vec<Candidate> {
        let mut probabilities = vec![0.0; logits.len()];
        kernels::softmax(self.model.team(), logits, &mut probabilities);
        // Adding zero makes a negative zero equal to a positive one.
        let logit = |id: &usize| logits[*id] + 0.0;
        let order = |a: &usize, b: &usize| logit(b).total_cmp(&logit(a)).then(a.cmp(b));
        let mut ids: Vec<usize> = (0..logits.len()).collect();
        if self.top < ids.len() {
            ids.select_nth_unstable_by(self.top, order);
            ids.truncate(self.top);
        }
        ids.sort_unstable_by(order);
        let candidate = |id: usize| Candidate {
            id: id as u32,
            text: token(self.tokenizer, id as u32).text,
            logit: logits[id],
            probability: probabilities[id],
        };
        ids.into_iter().map(candidate).collect()
    }

    /// The scores of `query` against every key that the cache holds, from the keys as stored.
    fn scores(&self, spot: Spot, query: &[f32]) -> Vec<f32> {
        let heads = Heads::of(self.model.config());
        let score = |position: usize| {
            let (key, _) = self.read(spot.layer, spot.kv_head, position);
            let dot: f64 = query.iter().zip(&key).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
            (dot * f64::from(heads.scale())) as f32
        };
        (0..self.length).map(score).collect()
    }

    /// The first number of each position's value, as stored.
    fn first_values(&self, spot: Spot) -> Vec<f32> {
        let value = |position| self.read(spot.layer, spot.kv_head, position).1;
        (0..self.length).filter_map(|position| value(position).first().copied()).collect()
    }

    /// What the KV cache holds of one position, in one layer and head: a key and a value.
    fn read(&self, layer: usize, kv_head: usize, position: usize) -> (Vec<f32>, Vec<f32>) {
        let page = self.pages[position / PAGE_TOKENS];
        self.store.read(page, layer, kv_head, position % PAGE_TOKENS)
    }

    /// What the KV cache holds after a step: name, shape and numbers of each tensor that `wanted`
    /// names.
    fn cached(
        &self,
        decode: Option<usize>,
        wanted: &dyn Fn(TensorName) -> bool,
    ) -> Vec<(TensorName, [usize; 3], Vec<f32>)> {
        let [_, kv_heads, positions, head_dim] = self.kv_shape();
        let mut tensors = Vec::new();
        for layer in 0..self.store.geometry().layers {
            for part in [CachePart::Keys, CachePart::Values] {
                let name = TensorName { decode, subject: Subject::Cached { layer, part } };
                if !wanted(name) {
                    continue;
                }
                let mut numbers = Vec::with_capacity(kv_heads * positions * head_dim);
                for kv_head in 0..kv_heads {
                    for position in 0..positions {
                        let (key, value) = self.read(layer, kv_head, position);
                        numbers.extend(if part == CachePart::Keys { key } else { value });
                    }
                }
                tensors.push((name, [kv_heads, positions, head_dim], numbers));
            }
        }
        tensors
    }

    /// Shape of one layer's keys, and of its values.
    fn kv_shape(&self) -> [usize; 4] {
        let geometry = self.store.geometry();
        [1, geometry.kv_heads, self.length, geometry.head_dim]
    }

    fn kv(&self) -> Kv {
        let geometry = self.store.geometry();
        let bytes_per_token = geometry.token_bytes();
        Kv {
            layers: geometry.layers,
            k_shape: self.kv_shape(),
            v_shape: self.kv_shape(),
            bytes_per_token,
            bytes: bytes_per_token * self.length,
        }
    }

    /// Goes on greedily from the candidates `next`; shapes are those of `layer`.
    fn decode(
        &mut self,
        layer: usize,
        next: &[Candidate],
        steps: usize,
        keeper: &mut Keeper,
    ) -> Result<Vec<DecodeStep>, TraceError> {
        let mut decoded = Vec::with_capacity(steps);
        let mut chosen = next.first().map(|candidate| candidate.id);
        while let Some(id) = chosen.filter(|_| decoded.len() < steps && !keeper.overflowed) {
            let index = decoded.len();
            let mut taps = DecodeCollector::new(index, layer, keeper);
            let next = self.step(&[id], &mut taps)?.pop().unwrap_or_default();
            let DecodeCollector { query, key, value, pattern, .. } = taps;
            for (name, shape, values) in self.cached(Some(index), &|name| keeper.wants(name)) {
                keeper.offer(name, &shape, &values);
            }
            chosen = next.first().map(|candidate| candidate.id);
            let config = self.model.config();
            decoded.push(DecodeStep {
                input_shape: [1, 1],
                token: token(self.tokenizer, id),
                cache_len: self.length,
                new_q_shape: query,
                new_k_shape: key,
                new_v_shape: value,
                k_shape: self.kv_shape(),
                v_shape: self.kv_shape(),
                attention_shape: pattern,
                logits_shape: [1, 1, config.vocab],
                next,
                layer_evaluations: config.layers,
                layer_evaluations_without_cache: config.layers * self.length,
            });
        }
        if keeper.overflowed { Err(TraceError::TooMuch) } else { Ok(decoded) }
    }
}
