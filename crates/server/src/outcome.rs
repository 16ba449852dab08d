//! How a prompt went, and what is made of it: its price, the counts by reason, a line of the log.

use std::fmt::Write;
use std::sync::Arc;

use cache::{PAGE_TOKENS, Verdict};
use engine::{Timings, TokenCounts};

use crate::access_log::Record;
use crate::callers::Caller;
use crate::error::ApiError;
use crate::log::Entry;
use crate::price::Price;
use crate::state::{App, id_of_prompt};

/// How one prompt went.
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    pub(crate) timings: Timings,
    pub(crate) tokens: TokenCounts,
    pub(crate) price: Option<Price>,
}

/// Whose request it is that the outcomes are of, counted within its caller's limits as long as this
/// lives.
pub(crate) struct Account {
    app: App,
    caller: Caller,
    id: String,
    prompts: usize,
    /// Tokens that were computed or drawn.
    spent_tokens: usize,
    record: Arc<Record>,
}

impl Account {
    /// For the request `id` of so many prompts.
    ///
    /// # Errors
    /// 429 where the caller has had as much as it may.
    pub(crate) fn open(
        app: &App,
        caller: Caller,
        id: String,
        prompts: usize,
    ) -> Result<Self, ApiError> {
        let app = app.clone();
        if let Some(callers) = &app.options.callers {
            callers.enter(&caller).map_err(ApiError::over_limit)?;
        }
        let record = Record::current();
        record.note_response(&id, prompts);
        Ok(Self { app, caller, id, prompts, spent_tokens: 0, record })
    }

    pub(crate) fn app(&self) -> &App {
        &self.app
    }

    /// Counts tokens that were computed or drawn.
    pub(crate) fn spend(&mut self, tokens: usize) {
        self.spent_tokens += tokens;
    }

    /// Counts how the prompt of this index went, and tells the operator of a miss.
    pub(crate) fn settle(
        &mut self,
        prompt: usize,
        verdict: Verdict,
        timings: Timings,
        tokens: TokenCounts,
    ) -> Outcome {
        let prices = self.app.options.prices.as_ref();
        let price = prices.map(|prices| prices.of(&verdict, &tokens));
        self.spend(tokens.input + tokens.output);
        self.record.note_prompt(verdict.stop.reason.code(), &tokens, timings.ttft_ms);
        self.app.tally.add(&verdict, &timings);
        let mut outcome = Outcome { verdict, timings, tokens, price };
        if is_miss(&outcome.verdict) {
            let id = id_of_prompt(&self.id, prompt, self.prompts);
            let name = self.caller.name.as_deref().unwrap_or("-");
            self.app.options.say(Entry::Miss, &line(&id, name, &outcome));
        }
        // Callers who are told apart are told no time that is finer than what a clock of their own
        // shows: the parts of an answer's time could say what another one has just done.
        if self.app.options.callers.is_some() {
            outcome.timings = outcome.timings.rounded_to_ms();
        }
        outcome
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Some(callers) = &self.app.options.callers {
            callers.leave(&self.caller, self.spent_tokens);
        }
    }
}

/// A miss: at least a page of tokens was computed although the same tokens are held, or were. What
/// is new, what the caller asked not to reuse, and what costs next to nothing is none.
fn is_miss(verdict: &Verdict) -> bool {
    verdict.lost_tokens().is_some_and(|lost| lost >= PAGE_TOKENS)
}

/// A miss as a line of the log; it holds nothing of the prompt's text.
fn line(id: &str, name: &str, outcome: &Outcome) -> String {
    let Outcome { verdict, timings, price, .. } = outcome;
    let mut line = format!(
        "request={id} key={name} reason={} at={} prompt_tokens={} reused_tokens={}",
        verdict.stop.reason.code(),
        verdict.stop.at,
        verdict.prompt_tokens,
        verdict.reused_tokens,
    );
    // Writing to a string does not fail.
    if let Some(lost) = verdict.lost_tokens() {
        let _ = write!(line, " lost_tokens={lost}");
    }
    if let Some(lost_ms) = timings.lost_ms {
        let _ = write!(line, " lost_ms={lost_ms:.1}");
    }
    if let Some(Price { total, if_all_cached: Some(cached), currency }) = price {
        let _ = write!(line, " lost_price={:.9} currency={currency}", total - cached);
    }
    line
}
