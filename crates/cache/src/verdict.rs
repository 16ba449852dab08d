//! What was reused, where it stopped, and why: the `verdict` object on the wire.

use serde::Serialize;

use crate::difference::Difference;
use crate::timestamp::Timestamp;

/// Why reuse stopped where it stopped. Codes are added, never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Everything was reused but the last token, which is always computed to get logits.
    EndOfPrompt,
    /// All that was held was reused, and the prompt goes on beyond it.
    EndOfCached,
    /// What is held goes on with another token.
    DifferentToken,
    /// Nothing that begins like this was seen since [`Stop::since`].
    FirstRequest,
    /// It was held further, and made room for another request.
    Evicted,
    /// It was held further, until the end of the life that its users gave it.
    Expired,
    /// It was stored further, and what is stored does not pass its checksum.
    Damaged,
    /// It is on disk, but reading it would take longer than computing it.
    CheaperToCompute,
    /// The same tokens are held under other weights, adapter, K/V type, rope or kernel revision.
    DifferentModel,
    /// The same messages were rendered by another template.
    TemplateChanged,
    /// The same text was held under other token ids.
    Retokenized,
    /// The caller asked for logits of prompt rows, which reuse does not have.
    RowsRequested,
    /// The caller asked not to reuse anything.
    DisabledByRequest,
}

impl Reason {
    /// All codes, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::EndOfPrompt,
        Self::EndOfCached,
        Self::DifferentToken,
        Self::FirstRequest,
        Self::Evicted,
        Self::Expired,
        Self::Damaged,
        Self::CheaperToCompute,
        Self::DifferentModel,
        Self::TemplateChanged,
        Self::Retokenized,
        Self::RowsRequested,
        Self::DisabledByRequest,
    ];

    /// The code as it stands in the API, on the command line and in metrics.
    pub fn code(self) -> &'static str {
        match self {
            Self::EndOfPrompt => "end_of_prompt",
            Self::EndOfCached => "end_of_cached",
            Self::DifferentToken => "different_token",
            Self::FirstRequest => "first_request",
            Self::Evicted => "evicted",
            Self::Expired => "expired",
            Self::Damaged => "damaged",
            Self::CheaperToCompute => "cheaper_to_compute",
            Self::DifferentModel => "different_model",
            Self::TemplateChanged => "template_changed",
            Self::Retokenized => "retokenized",
            Self::RowsRequested => "rows_requested",
            Self::DisabledByRequest => "disabled_by_request",
        }
    }
}

/// How a page that was held came to be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// It made room for another.
    Evicted,
    /// Its life ended.
    Expired,
    /// What was stored of it does not pass its checksum.
    Damaged,
}

impl From<Loss> for Reason {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Evicted => Self::Evicted,
            Loss::Expired => Self::Expired,
            Loss::Damaged => Self::Damaged,
        }
    }
}

/// Tokens reused, by where their K/V lay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReusedFrom {
    /// In the K/V pool.
    pub ram: usize,
    /// In the disk tier.
    pub disk: usize,
    /// Of these, tokens that were taken over from a public prefix for this request.
    #[serde(skip_serializing_if = "is_none")]
    pub public: usize,
}

/// What most requests have none of is left out.
fn is_none(tokens: &usize) -> bool {
    *tokens == 0
}

/// A token, and its text once somebody with a tokenizer has filled it in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenText {
    /// The token's id.
    pub id: u32,
    /// The token's text; the cache itself leaves it out.
    pub text: Option<String>,
}

impl From<u32> for TokenText {
    fn from(id: u32) -> Self {
        Self { id, text: None }
    }
}

/// Where reuse stopped, and why. Fields that a reason does not have are `None`; the cache knows
/// ids only and leaves `text`, `message`, `role`, `chars` and `difference` to whoever has the
/// prompt's text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stop {
    /// Why.
    pub reason: Reason,
    /// The position of the first prompt token that was not reused.
    pub at: usize,
    /// `different_token`, `retokenized`: the token that is held at this position.
    /// `template_changed`: the other rendering's token where both part.
    pub cached: Option<TokenText>,
    /// `different_token`, `retokenized`: the prompt's token at this position. `template_changed`:
    /// its token where both renderings part.
    pub request: Option<TokenText>,
    /// Index of the message that the position lies in; of messages that were shortened, put in or
    /// taken out, the one that the difference is said of.
    pub message: Option<usize>,
    /// Role of that message, or `template` for text that the chat template adds.
    pub role: Option<String>,
    /// Characters (Unicode scalars, half-open) of that message's own content.
    pub chars: Option<[usize; 2]>,
    /// With `cached`: how many prompt tokens after the difference were held in the same order:
    /// what moving the difference to the end would have saved.
    pub identical_after: Option<usize>,
    /// `different_token`, `template_changed`: the span that changed, and how.
    #[serde(flatten)]
    pub difference: Option<Difference>,
    /// `first_request`: the cache remembers what it saw from here on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// `evicted`, `expired`, `damaged`, `cheaper_to_compute`, `different_model`: how many of the
    /// prompt's tokens were once held, or are on disk. `retokenized`: up to where its text is held
    /// under other ids. `template_changed`: how many tokens of the other rendering are held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_tokens: Option<usize>,
    /// With `held_tokens`: when the page at this position was last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
    /// `evicted`: when the page at this position was evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evicted_at: Option<Timestamp>,
    /// `expired`: when the life of the page at this position ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expired_at: Option<Timestamp>,
    /// `damaged`: when the damage to the page at this position was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged_at: Option<Timestamp>,
    /// `evicted`: id of the request that it made room for, if that is in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evicted_for: Option<String>,
}

impl Stop {
    /// A stop of which nothing is known but the reason and the position.
    pub fn new(reason: Reason, at: usize) -> Self {
        Self {
            reason,
            at,
            cached: None,
            request: None,
            message: None,
            role: None,
            chars: None,
            identical_after: None,
            difference: None,
            since: None,
            held_tokens: None,
            last_used: None,
            evicted_at: None,
            expired_at: None,
            damaged_at: None,
            evicted_for: None,
        }
    }
}

/// What a request reused, and why not more. Serializes to the `verdict` object of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, tokens whose K/V were reused.
    pub reused_tokens: usize,
    /// The others.
    pub computed_tokens: usize,
    /// Where the reused ones came from.
    pub reused_from: ReusedFrom,
    /// Where reuse stopped.
    pub stop: Stop,
    /// Id of the last request whose tokens contain the page that the prompt was compared with:
    /// with `different_token`, the cached token too.
    pub compared_with: Option<String>,
}

impl Verdict {
    /// The verdict on a prompt of `prompt_tokens`, of which the first `stop.at` are reused: the
    /// first `ram` of them from memory, the rest from disk.
    pub(crate) fn new(
        prompt_tokens: usize,
        ram: usize,
        stop: Stop,
        compared_with: Option<String>,
    ) -> Self {
        let reused_from = ReusedFrom { ram, disk: stop.at - ram, public: 0 };
        Self {
            prompt_tokens,
            reused_tokens: stop.at,
            computed_tokens: prompt_tokens - stop.at,
            reused_from,
            stop,
            compared_with,
        }
    }

    /// Tokens that were computed although they equal what is held after the difference, or was held
    /// before it was lost: what the stop cost. `None` where that is not known; zero where all that
    /// was held was reused.
    pub fn lost_tokens(&self) -> Option<usize> {
        let stop = &self.stop;
        match stop.reason {
            Reason::EndOfPrompt | Reason::EndOfCached => Some(0),
            Reason::DifferentToken => stop.identical_after,
            Reason::Evicted
            | Reason::Expired
            | Reason::Damaged
            | Reason::CheaperToCompute
            | Reason::DifferentModel
            | Reason::TemplateChanged
            | Reason::Retokenized => {
                let held = stop.held_tokens?.min(self.prompt_tokens.saturating_sub(1));
                Some(held.saturating_sub(stop.at))
            }
            Reason::FirstRequest | Reason::RowsRequested | Reason::DisabledByRequest => None,
        }
    }

    /// Nothing reused, because the caller wants logits of prompt rows.
    pub fn rows_requested(prompt_tokens: usize) -> Self {
        Self::new(prompt_tokens, 0, Stop::new(Reason::RowsRequested, 0), None)
    }

    /// Nothing reused, because the caller said so.
    pub fn disabled_by_request(prompt_tokens: usize) -> Self {
        Self::new(prompt_tokens, 0, Stop::new(Reason::DisabledByRequest, 0), None)
    }
}
