//! What a caller asks of the engine, and what comes back.

use std::time::Duration;

use cache::{Namespace, Timestamp, Verdict};
use doctor::{PromptTooLong, check_length};
use grammar::Constraint;
use package::PromptMap;
use serde::{Serialize, Serializer};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Most choices of one request.
pub const CHOICES_MAX: usize = 128;
/// Most alternatives that can be asked for beside a token's log-probability.
pub const TOP_LOGPROBS_MAX: usize = 64;
/// Most stop strings of one request.
pub const STOP_STRINGS_MAX: usize = 64;
/// Longest stop string, in bytes.
pub const STOP_STRING_BYTES_MAX: usize = 4096;
/// Most stop token ids of one request.
pub const STOP_IDS_MAX: usize = 1024;
/// Most biased tokens of one request.
pub const LOGIT_BIAS_MAX: usize = 4096;
/// So many events, each mostly a token, may wait for a caller who does not read them, and some more
/// for each answer.
pub const EVENTS_UNREAD_MAX: usize = 4096;
/// Priorities lie between this and its negative.
pub const PRIORITY_MAX: i32 = 100;
/// Stands for a log-probability that is not a finite number (a token that cannot
/// be drawn), because JSON has no infinity. The value is the one OpenAI uses.
pub const LOGPROB_NEVER: f32 = -9999.0;

/// One request: a prompt as token ids, and how to go on from it.
#[derive(Clone, Debug)]
pub struct Request {
    /// The caller's name for it, for instance `chatcmpl-…`; appears in later verdicts.
    pub id: String,
    /// The prompt's token ids; at least one.
    pub prompt: Vec<u32>,
    /// Which message each prompt token came from, to complete the verdict.
    pub prompt_map: Option<PromptMap>,
    /// Whose prefixes may be reused.
    pub namespace: Namespace,
    /// How many answers to draw from the one prompt; at least one.
    pub choices: usize,
    /// Longest answer in tokens; `None` is [`EngineInfo::answer_tokens`](crate::EngineInfo).
    /// It is cut to what the context leaves, and zero computes the prompt alone.
    pub max_tokens: Option<usize>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// The answer ends before the first of these texts, which may span tokens.
    pub stop: Vec<String>,
    /// The answer ends before the first of these tokens.
    pub stop_ids: Vec<u32>,
    /// Goes on past the model's own end tokens.
    pub ignore_end: bool,
    /// Special tokens that are part of the text, from which they are hidden otherwise.
    pub shown_ids: Vec<u32>,
    /// What the answer may be; `None` is anything. Its end is then always an end.
    pub constraint: Option<Constraint>,
    /// Log-probabilities of the answer's tokens, with so many alternatives.
    pub logprobs: Option<usize>,
    /// Log-probabilities of the prompt's tokens, with so many alternatives. The prompt is
    /// then computed whole, since reuse has no logits: the verdict says `rows_requested`.
    pub prompt_logprobs: Option<usize>,
    /// Asks for [`Event::Progress`].
    pub progress: bool,
    /// `false` neither reads nor feeds the prompt cache.
    pub use_cache: bool,
    /// `false` keeps what it computes in memory only.
    pub keep_on_disk: bool,
    /// How long what it uses of the prompt cache lives from then on, at least; `None` is as long as
    /// there is room.
    pub lifetime: Option<Duration>,
    /// Lower goes first: each step of it is worth ten seconds of waiting, so that nobody waits for
    /// ever. Between -[`PRIORITY_MAX`] and [`PRIORITY_MAX`]; usually 0.
    pub priority: i32,
}

impl Request {
    /// A request for one answer with the defaults of the OpenAI API.
    pub fn new(id: impl Into<String>, prompt: Vec<u32>, namespace: Namespace) -> Self {
        Request {
            id: id.into(),
            prompt,
            prompt_map: None,
            namespace,
            choices: 1,
            max_tokens: None,
            sampling: Sampling::default(),
            stop: Vec::new(),
            stop_ids: Vec::new(),
            ignore_end: false,
            shown_ids: Vec::new(),
            constraint: None,
            logprobs: None,
            prompt_logprobs: None,
            progress: false,
            use_cache: true,
            keep_on_disk: true,
            lifetime: None,
            priority: 0,
        }
    }

    /// When the life of what it uses at `now` is over.
    pub(crate) fn expires_at(&self, now: Timestamp) -> Option<Timestamp> {
        let ms = |lifetime: Duration| u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        self.lifetime.map(|lifetime| Timestamp(now.0.saturating_add(ms(lifetime))))
    }
}

/// How the next token is drawn from a row of logits. Applied in this order: penalties,
/// `logit_bias`, `temperature`, `top_k`, `top_p`, `min_p`, then one draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; zero always takes the highest (ties: the lowest id).
    pub temperature: f32,
    /// Keeps the so many likeliest tokens; zero keeps all.
    pub top_k: usize,
    /// Keeps the likeliest tokens that together reach this probability, in [0, 1]; zero keeps
    /// only the likeliest.
    pub top_p: f32,
    /// Keeps tokens at least this probable relative to the likeliest, in [0, 1].
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens in the prompt or the
    /// answer (Keskar et al. 2019, arXiv:1909.05858, with the sign handled as everywhere
    /// since); 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted once from the logits of tokens in the answer.
    pub presence_penalty: f32,
    /// Subtracted from the logits of tokens in the answer, once per occurrence.
    pub frequency_penalty: f32,
    /// Makes the draws repeatable; `None` takes a fresh one.
    pub seed: Option<u64>,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: None,
            logit_bias: Vec::new(),
        }
    }
}

impl Sampling {
    /// Always the likeliest token.
    pub fn greedy() -> Self {
        Sampling { temperature: 0.0, ..Sampling::default() }
    }
}

/// The stream of one request's [`Event`]s. It ends with [`Event::Done`] or
/// [`Event::Failed`]; dropping it cancels the request at the next step.
///
/// It holds a bounded number of events: a request whose caller does not read them fails with
/// [`EngineError::Unread`], which comes after those that it holds.
pub type Events = Receiver<Event>;

/// Most events of one answer in one step.
pub(crate) const EVENTS_OF_A_STEP_MAX: usize = 32;

/// Where a request's events go, and where they come from.
pub(crate) fn events_of(request: &Request) -> (Sender<Event>, Events) {
    // One more is for the last.
    channel(EVENTS_UNREAD_MAX + (2 * EVENTS_OF_A_STEP_MAX * request.choices) + 1)
}

/// Something that happened to a request.
// `Done` is by far the largest, and comes once in hundreds of events.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum Event {
    /// The first event: the request's turn has come, and what is reused is known.
    Started {
        /// What is reused and why not more.
        verdict: Verdict,
    },
    /// While the prompt is computed, if [`Request::progress`] asked: once a step.
    Progress {
        /// Tokens of the prompt that are computed by now, or reused.
        tokens: usize,
    },
    /// Once, before any answer, if [`Request::prompt_logprobs`] asked: one entry for each
    /// prompt token, `None` for the first, which nothing precedes.
    PromptLogprobs(Vec<Option<TokenLogprobs>>),
    /// More of an answer. Texts of one choice join to the whole answer.
    Delta {
        /// Which answer, from 0.
        choice: usize,
        /// Whole characters; what may yet become a stop string is held back.
        text: String,
        /// The tokens whose text begins in `text` (or that have none).
        tokens: Vec<TokenInfo>,
    },
    /// An answer ended.
    Finished {
        /// Which answer, from 0.
        choice: usize,
        /// Why it ended.
        reason: FinishReason,
        /// Which of [`Request::stop`] ended it, if one did.
        stop: Option<usize>,
    },
    /// All answers ended: the last event.
    Done {
        /// What was reused and why not more.
        verdict: Verdict,
        /// Where the time went.
        timings: Timings,
        /// What was counted.
        tokens: TokenCounts,
    },
    /// The request failed, and nothing follows.
    Failed(EngineError),
}

/// A token of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenInfo {
    /// Its id.
    pub id: u32,
    /// Its bytes; empty for special tokens, which are hidden from the text.
    pub bytes: Vec<u8>,
    /// The natural logarithm of its probability in the raw logits, before penalties,
    /// bias and temperature, if asked for.
    pub logprob: Option<f32>,
    /// The likeliest tokens of that row with their log-probabilities, best first.
    pub top: Vec<(u32, f32)>,
}

/// Log-probabilities of a prompt token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// The token's own.
    pub logprob: f32,
    /// The likeliest tokens in its place, best first.
    pub top: Vec<(u32, f32)>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended it, or a stop string or token did.
    Stop,
    /// The longest answer or the context's end was reached.
    Length,
}

/// Where a request's time went; what is not known is `None`, never zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timings {
    /// From submission to admission, with the time in which another request computed the same
    /// prefix.
    #[serde(serialize_with = "rounded")]
    pub queue_ms: Option<f64>,
    /// Finding the prefix, sharing its pages and copying the partial one.
    #[serde(serialize_with = "rounded")]
    pub lookup_ms: Option<f64>,
    /// Reading pages back from a lower tier.
    #[serde(serialize_with = "rounded")]
    pub restore_ms: Option<f64>,
    /// From admission to the last prompt row, less the lookup.
    #[serde(serialize_with = "rounded")]
    pub prefill_ms: Option<f64>,
    /// From submission to the first token.
    #[serde(serialize_with = "rounded")]
    pub ttft_ms: Option<f64>,
    /// From the first token to the last.
    #[serde(serialize_with = "rounded")]
    pub decode_ms: Option<f64>,
    /// An estimate of what the verdict's stop cost: tokens that were computed although they
    /// are identical to what is or was held, times this server's measured prefill time per
    /// token.
    #[serde(serialize_with = "rounded")]
    pub lost_ms: Option<f64>,
}

impl Timings {
    /// In whole milliseconds.
    #[must_use]
    pub fn rounded_to_ms(&self) -> Self {
        let whole = |ms: Option<f64>| ms.map(f64::round);
        Self {
            queue_ms: whole(self.queue_ms),
            lookup_ms: whole(self.lookup_ms),
            restore_ms: whole(self.restore_ms),
            prefill_ms: whole(self.prefill_ms),
            ttft_ms: whole(self.ttft_ms),
            decode_ms: whole(self.decode_ms),
            lost_ms: whole(self.lost_ms),
        }
    }
}

/// `ms` without the digits that only binary fractions have: 0.004186, and not
/// 0.0041860000000000005.
pub fn whole_nanoseconds(ms: f64) -> f64 {
    (ms * 1e6).round() / 1e6
}

fn rounded<S: Serializer>(ms: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    ms.map(whole_nanoseconds).serialize(serializer)
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenCounts {
    /// Prompt tokens that were computed.
    pub input: usize,
    /// Prompt tokens that were reused.
    pub cached_input: usize,
    /// Tokens drawn over all choices, the hidden end tokens included.
    pub output: usize,
    /// Tokens that were guessed and computed before they were drawn, or not.
    pub proposed: usize,
    /// Of these, tokens that were drawn, and so came without a step of their own.
    pub accepted: usize,
}

/// Why a running request failed. The engine itself goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The model could not compute the request's rows.
    #[error("the step failed: {0}")]
    Step(String),
    /// A row of logits has a NaN, or no finite number, so that no token can be drawn.
    #[error("the model's logits are not numbers; the weights are damaged")]
    NotNumbers,
    /// The answer could not go on within its constraint.
    #[error("the answer cannot go on as it was asked for: {0}")]
    Constraint(#[from] grammar::Failure),
    /// Its caller did not read its events, and no more of them are kept.
    #[error("the answer was not read: {EVENTS_UNREAD_MAX} pieces of it wait already")]
    Unread,
    /// Its turn did not come in time.
    #[error("the server is busy: the request waited for {waited_s} s, and no longer may")]
    WaitedTooLong {
        /// How long it waited, in whole seconds.
        waited_s: u64,
    },
    /// The engine was shut down before the request's turn came.
    #[error("the engine is shutting down")]
    ShuttingDown,
}

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SubmitError {
    /// Too many requests wait.
    #[error("the queue is full; try again in {retry_after_s} s")]
    QueueFull {
        /// An estimate of when half of the queue will have drained, from the throughput of
        /// the last requests; in whole seconds, from 1 to 60.
        retry_after_s: u64,
    },
    /// The prompt leaves no room for an answer.
    #[error(transparent)]
    PromptTooLong(#[from] PromptTooLong),
    /// The prompt is longer than [`EngineOptions::max_prompt`](crate::EngineOptions) allows.
    #[error("the prompt has {tokens} tokens, and this server takes at most {limit}")]
    PromptOverLimit {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens that it may have.
        limit: usize,
    },
    /// The prompt has no token.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// A parameter is out of range.
    #[error("{field}: {message}")]
    BadParameter {
        /// The field of [`Request`] or [`Sampling`], by the OpenAI API's name.
        field: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// The engine no longer accepts requests.
    #[error("the engine is shutting down")]
    ShuttingDown,
}

/// What requests are checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    pub(crate) context: usize,
    /// Longest prompt.
    pub(crate) prompt: usize,
    pub(crate) vocab: usize,
    pub(crate) answer_tokens: usize,
    pub(crate) pages: usize,
}

impl RequestLimits {
    /// Checks a request before it is queued, so that nothing later can refuse it.
    pub(crate) fn check(&self, request: &Request) -> Result<(), SubmitError> {
        let tokens = request.prompt.len();
        if tokens == 0 {
            return Err(SubmitError::EmptyPrompt);
        }
        let answer = usize::from(request.max_tokens != Some(0));
        check_length(tokens, answer, self.context)?;
        if tokens > self.prompt {
            return Err(SubmitError::PromptOverLimit { tokens, limit: self.prompt });
        }
        self.check_ids("prompt", request.prompt.iter().copied())?;
        let choices = request.choices;
        range("n", (1..=CHOICES_MAX).contains(&choices), || {
            format!("{choices} is not between 1 and {CHOICES_MAX}")
        })?;
        range("n", self.pages_needed(request) <= self.pages, || {
            let fit = self.choices_that_fit(request);
            format!("{choices} answers of this length do not fit the KV memory; {fit} would")
        })?;
        range("priority", request.priority.unsigned_abs() <= PRIORITY_MAX as u32, || {
            format!("{} is not between -{PRIORITY_MAX} and {PRIORITY_MAX}", request.priority)
        })?;
        self.check_stops(request)?;
        for (field, top) in
            [("logprobs", request.logprobs), ("prompt_logprobs", request.prompt_logprobs)]
        {
            range(field, top.is_none_or(|top| top <= TOP_LOGPROBS_MAX), || {
                format!("at most {TOP_LOGPROBS_MAX} alternatives")
            })?;
        }
        self.check_sampling(&request.sampling)
    }

    /// The longest answer of a request, cut to what the context leaves.
    pub(crate) fn answer_tokens(&self, request: &Request) -> usize {
        let asked = request.max_tokens.unwrap_or(self.answer_tokens);
        asked.min(self.context.saturating_sub(request.prompt.len()))
    }

    /// Pages that a request may hold at most: each choice's own, the prompt's full pages
    /// once, and one for the page that its first copied.
    pub(crate) fn pages_needed(&self, request: &Request) -> usize {
        let (shared, own) = self.pages_shared_and_own(request);
        shared + request.choices * own
    }

    /// How many choices of this length the KV memory would hold.
    fn choices_that_fit(&self, request: &Request) -> usize {
        let (shared, own) = self.pages_shared_and_own(request);
        let fit = self.pages.saturating_sub(shared).checked_div(own).unwrap_or(CHOICES_MAX);
        fit.min(CHOICES_MAX)
    }

    /// The pages that a request's choices hold together, and those that each adds.
    fn pages_shared_and_own(&self, request: &Request) -> (usize, usize) {
        let prompt = request.prompt.len();
        let full = prompt / cache::PAGE_TOKENS;
        // The last token of an answer is drawn but never computed.
        let rows = prompt + self.answer_tokens(request).saturating_sub(1);
        (full + 1, rows.div_ceil(cache::PAGE_TOKENS) - full)
    }

    fn check_ids(
        &self,
        field: &'static str,
        mut ids: impl Iterator<Item = u32>,
    ) -> Result<(), SubmitError> {
        match ids.find(|&id| id as usize >= self.vocab) {
            Some(id) => Err(SubmitError::BadParameter {
                field,
                message: format!("the model has no token {id}"),
            }),
            None => Ok(()),
        }
    }

    fn check_stops(&self, request: &Request) -> Result<(), SubmitError> {
        let stop = &request.stop;
        range("stop", stop.len() <= STOP_STRINGS_MAX, || {
            format!("at most {STOP_STRINGS_MAX} strings")
        })?;
        range("stop", stop.iter().all(|text| !text.is_empty()), || {
            "a stop string is empty".to_string()
        })?;
        range("stop", stop.iter().all(|text| text.len() <= STOP_STRING_BYTES_MAX), || {
            format!("a stop string has at most {STOP_STRING_BYTES_MAX} bytes")
        })?;
        range("stop_token_ids", request.stop_ids.len() <= STOP_IDS_MAX, || {
            format!("at most {STOP_IDS_MAX} tokens")
        })?;
        self.check_ids("stop_token_ids", request.stop_ids.iter().copied())
    }

    fn check_sampling(&self, sampling: &Sampling) -> Result<(), SubmitError> {
        let Sampling { temperature, top_p, min_p, repetition_penalty, .. } = *sampling;
        range("temperature", temperature.is_finite() && temperature >= 0.0, || {
            format!("{temperature} is not a number from 0 up")
        })?;
        range("top_p", (0.0..=1.0).contains(&top_p), || format!("{top_p} is not in [0, 1]"))?;
        range("min_p", (0.0..=1.0).contains(&min_p), || format!("{min_p} is not in [0, 1]"))?;
        range(
            "repetition_penalty",
            repetition_penalty.is_finite() && repetition_penalty > 0.0,
            || format!("{repetition_penalty} is not a positive number"),
        )?;
        for (field, penalty) in [
            ("presence_penalty", sampling.presence_penalty),
            ("frequency_penalty", sampling.frequency_penalty),
        ] {
            range(field, penalty.is_finite(), || format!("{penalty} is not a number"))?;
        }
        let bias = &sampling.logit_bias;
        range("logit_bias", bias.len() <= LOGIT_BIAS_MAX, || {
            format!("at most {LOGIT_BIAS_MAX} tokens")
        })?;
        range("logit_bias", bias.iter().all(|(_, value)| !value.is_nan()), || {
            "a bias is not a number".to_string()
        })?;
        self.check_ids("logit_bias", bias.iter().map(|&(id, _)| id))
    }
}

fn range(
    field: &'static str,
    holds: bool,
    message: impl FnOnce() -> String,
) -> Result<(), SubmitError> {
    if holds { Ok(()) } else { Err(SubmitError::BadParameter { field, message: message() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_without_the_digits_of_binary_fractions() {
        let timings = Timings {
            lookup_ms: Some(0.004_186_000_000_000_000_5),
            prefill_ms: Some(9.1),
            restore_ms: Some(0.0),
            ..Timings::default()
        };
        let text = serde_json::to_string(&timings).unwrap();
        assert!(text.contains("\"lookup_ms\":0.004186,"), "{text}");
        assert!(text.contains("\"prefill_ms\":9.1,"), "{text}");
        assert!(text.contains("\"restore_ms\":0.0,"), "{text}");
        assert!(text.contains("\"ttft_ms\":null"), "{text}");
    }
}
