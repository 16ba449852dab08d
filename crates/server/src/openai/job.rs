//! A request at work: its prompts in the engine, and their events in one stream.

use cache::Verdict;
use engine::{Event, Events, FinishReason, Timings, TokenCounts, TokenInfo, TokenLogprobs};
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::{Value, json};

use crate::diagnostics::Comparison;
use crate::error::ApiError;
use crate::log::Entry;
use crate::outcome::{Account, Outcome};
use crate::second_look::Asked;
use crate::state::App;

/// The prompts of one HTTP request, each with the same number of choices. Dropping it cancels
/// what still runs.
pub(crate) struct Job {
    pub(crate) prompts: Vec<Events>,
    pub(crate) choices: usize,
    pub(crate) outcomes: Outcomes,
    asked: Option<Asked>,
}

/// One finished answer.
#[derive(Default)]
pub(crate) struct Choice {
    pub(crate) text: String,
    pub(crate) tokens: Vec<TokenInfo>,
    pub(crate) reason: Option<FinishReason>,
}

/// Everything that a request produced: choices in the order of prompts, then of choices.
pub(crate) struct Answer {
    pub(crate) choices: Vec<Choice>,
    pub(crate) prompt_logprobs: Vec<Option<Vec<Option<TokenLogprobs>>>>,
    pub(crate) outcomes: Outcomes,
}

/// The outcomes of a request's prompts as they come in.
pub(crate) struct Outcomes {
    account: Account,
    done: Vec<(usize, Outcome)>,
    ignored: Vec<String>,
    comparison: Option<Comparison>,
    diagnostics: Option<Value>,
}

impl Job {
    pub(crate) fn new(
        prompts: Vec<Events>,
        choices: usize,
        ignored: Vec<String>,
        account: Account,
    ) -> Self {
        let (done, comparison, diagnostics) = (Vec::new(), None, None);
        let outcomes = Outcomes { account, done, ignored, comparison, diagnostics };
        Self { prompts, choices, outcomes, asked: None }
    }

    /// Its only prompt is of this conversation, which may have been rendered otherwise before, and
    /// which is to be compared with an earlier one.
    pub(crate) fn of_conversation(
        self,
        asked: Option<Asked>,
        comparison: Option<Comparison>,
    ) -> Self {
        let outcomes = Outcomes { comparison, ..self.outcomes };
        Self { asked, outcomes, ..self }
    }

    /// The events of all prompts, with the prompt's index, as they come; and what becomes of them.
    pub(crate) fn run(self) -> (impl Stream<Item = (usize, Event)> + Send, Outcomes) {
        let Self { prompts, outcomes, asked, .. } = self;
        let (app, mut asked) = (outcomes.account.app().clone(), asked);
        let events = events_of(prompts).then(move |(prompt, event)| {
            let (app, asked) =
                (app.clone(), asked.take_if(|_| matches!(event, Event::Done { .. })));
            async move { (prompt, look_again(&app, asked, event).await) }
        });
        (events, outcomes)
    }

    /// Waits for everything.
    pub(crate) async fn collect(self) -> Result<Answer, ApiError> {
        let (prompts, choices) = (self.prompts.len(), self.choices);
        let (events, outcomes) = self.run();
        let mut answer = Answer {
            choices: (0..prompts * choices).map(|_| Choice::default()).collect(),
            prompt_logprobs: (0..prompts).map(|_| None).collect(),
            outcomes,
        };
        let mut events = std::pin::pin!(events);
        while let Some((prompt, event)) = events.next().await {
            match event {
                Event::PromptLogprobs(rows) => answer.prompt_logprobs[prompt] = Some(rows),
                Event::Delta { choice, text, tokens } => {
                    let choice = &mut answer.choices[prompt * choices + choice];
                    choice.text.push_str(&text);
                    choice.tokens.extend(tokens);
                }
                Event::Finished { choice, reason } => {
                    answer.choices[prompt * choices + choice].reason = Some(reason);
                }
                Event::Done { verdict, timings, tokens } => {
                    answer.outcomes.push(prompt, verdict, timings, tokens);
                }
                Event::Failed(error) => return Err(error.into()),
            }
        }
        if answer.outcomes.len() < prompts {
            return Err(ApiError::internal("the engine stopped before the answer was complete"));
        }
        Ok(answer)
    }
}

/// The event as it is told: the last one of a conversation with what a second look has found.
async fn look_again(app: &App, asked: Option<Asked>, mut event: Event) -> Event {
    if let (Some(asked), Event::Done { verdict, timings, .. }) = (asked, &mut event)
        && let Err(error) = asked.look(app, verdict, timings).await
    {
        let what = format!("no second look at a verdict: {}", error.message());
        app.options.say(Entry::Warning, &what);
    }
    event
}

fn events_of(prompts: Vec<Events>) -> impl Stream<Item = (usize, Event)> + Send {
    let one = |(index, events): (usize, Events)| {
        stream::unfold(events, |mut events| async {
            events.recv().await.map(|event| (event, events))
        })
        .map(move |event| (index, event))
        .boxed()
    };
    stream::select_all(prompts.into_iter().enumerate().map(one))
}

impl Outcomes {
    /// Takes how the prompt of this index went.
    pub(crate) fn push(
        &mut self,
        prompt: usize,
        verdict: Verdict,
        timings: Timings,
        tokens: TokenCounts,
    ) {
        let tokenizer = &self.account.app().package.tokenizer;
        let diagnose = |comparison: Comparison| comparison.diagnose(&verdict, tokenizer);
        self.diagnostics = self.comparison.take().map(diagnose).or(self.diagnostics.take());
        let outcome = self.account.settle(prompt, verdict, timings, tokens);
        self.done.push((prompt, outcome));
        self.done.sort_by_key(|(prompt, _)| *prompt);
    }

    pub(crate) fn len(&self) -> usize {
        self.done.len()
    }

    /// OpenAI's `usage`: `prompt_tokens` includes the cached ones.
    pub(crate) fn usage(&self) -> Value {
        let sum = |count: fn(&TokenCounts) -> usize| -> usize {
            self.done.iter().map(|(_, outcome)| count(&outcome.tokens)).sum()
        };
        let prompt = sum(|tokens| tokens.input + tokens.cached_input);
        let completion = sum(|tokens| tokens.output);
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(|tokens| tokens.cached_input)},
        })
    }

    /// OpenAI's `prompt_cache_diagnostics`, where they were asked for.
    pub(crate) fn diagnostics(&self) -> Option<&Value> {
        self.diagnostics.as_ref()
    }

    /// The `refrain` object. A request of several prompts has one entry for each in `prompts`.
    pub(crate) fn refrain(&self) -> Value {
        let one = |outcome: &Outcome| {
            json!({
                "verdict": doctor::Explained::new(&outcome.verdict),
                "timings": outcome.timings,
                "tokens": outcome.tokens,
                "price": outcome.price,
            })
        };
        let mut refrain = match self.done.as_slice() {
            [(_, outcome)] => one(outcome),
            several => {
                json!({"prompts": several.iter().map(|(_, o)| one(o)).collect::<Vec<_>>()})
            }
        };
        refrain["ignored"] = json!(self.ignored);
        refrain
    }
}

/// OpenAI's word for why an answer ended.
pub(crate) fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}
