//! A request at work: its prompts in the engine, and their events in one stream.

use cache::Verdict;
use engine::{Event, Events, FinishReason, Timings, TokenCounts, TokenInfo, TokenLogprobs};
use futures_util::stream::{self, Stream, StreamExt};
use reply::Reply;
use serde_json::{Value, json};

use crate::diagnostics::{Comparison, Diagnosis};
use crate::error::ApiError;
use crate::log::Entry;
use crate::outcome::{Account, Outcome};
use crate::question::{AnswerContext, Prepared};
use crate::reading::Reading;
use crate::second_look::Asked;
use crate::state::App;

/// The prompts of one HTTP request, each with the same number of choices. Dropping it cancels
/// what still runs.
pub(crate) struct Job {
    pub(crate) prompts: Vec<Events>,
    pub(crate) choices: usize,
    pub(crate) outcomes: Outcomes,
    /// How the answers of a conversation are read; those of a text are text.
    pub(crate) reading: Option<Reading>,
    asked: Option<Asked>,
}

/// One finished answer.
#[derive(Default)]
pub(crate) struct Choice {
    /// All of it, as it was generated.
    pub(crate) text: String,
    /// The text of a conversation's answer, read.
    pub(crate) reply: Reply,
    pub(crate) tokens: Vec<TokenInfo>,
    pub(crate) reason: Option<FinishReason>,
    /// Which of the request's stop strings ended it.
    pub(crate) stop: Option<usize>,
}

impl Choice {
    fn read(&mut self, reading: &Reading) {
        let mut reader = reading.reader();
        self.reply.extend(reader.push(&self.text));
        self.reply.extend(reader.finish());
    }
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
    diagnosis: Option<Diagnosis>,
}

impl Job {
    pub(crate) fn new(
        prompts: Vec<Events>,
        choices: usize,
        ignored: Vec<String>,
        account: Account,
    ) -> Self {
        let (done, comparison, diagnosis) = (Vec::new(), None, None);
        let outcomes = Outcomes { account, done, ignored, comparison, diagnosis };
        Self { prompts, choices, outcomes, reading: None, asked: None }
    }

    /// Asks the engine what a conversation has become, which came in `field`.
    pub(crate) fn of_conversation(
        app: &App,
        prepared: Prepared,
        ignored: Vec<String>,
        account: Account,
        field: &str,
    ) -> Result<Self, ApiError> {
        let Prepared { request, context } = prepared;
        let AnswerContext { reading, asked, comparison } = context;
        let choices = request.choices;
        let events = app.submit(request, field)?;
        let job = Self::new(vec![events], choices, ignored, account);
        let outcomes = Outcomes { comparison, ..job.outcomes };
        Ok(Self { reading: Some(reading), asked, outcomes, ..job })
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
        let reading = self.reading.clone();
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
                Event::Started { .. } | Event::Progress { .. } => {}
                Event::Finished { choice, reason, stop } => {
                    let choice = &mut answer.choices[prompt * choices + choice];
                    (choice.reason, choice.stop) = (Some(reason), stop);
                }
                Event::Done { verdict, timings, tokens } => {
                    answer.outcomes.push(prompt, verdict, timings, tokens);
                }
                Event::Failed(error) => return Err(error.into()),
            }
        }
        if answer.outcomes.len() < prompts {
            return Err(ApiError::broken_off());
        }
        if let Some(reading) = reading {
            answer.choices.iter_mut().for_each(|choice| choice.read(&reading));
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
        self.diagnosis = self.diagnose(&verdict).or(self.diagnosis);
        let outcome = self.account.settle(prompt, verdict, timings, tokens);
        self.done.push((prompt, outcome));
        self.done.sort_by_key(|(prompt, _)| *prompt);
    }

    /// The verdict on the first prompt that is done.
    pub(crate) fn verdict(&self) -> Option<&Verdict> {
        self.done.first().map(|(_, outcome)| &outcome.verdict)
    }

    pub(crate) fn len(&self) -> usize {
        self.done.len()
    }

    /// What was counted, over all prompts.
    pub(crate) fn tokens(&self) -> TokenCounts {
        let mut sum = TokenCounts::default();
        for (_, Outcome { tokens, .. }) in &self.done {
            sum.input += tokens.input;
            sum.cached_input += tokens.cached_input;
            sum.output += tokens.output;
            sum.proposed += tokens.proposed;
            sum.accepted += tokens.accepted;
        }
        sum
    }

    /// What became of the prefix in common with an earlier request, where that was asked, for a
    /// prompt with this verdict.
    pub(crate) fn diagnose(&self, verdict: &Verdict) -> Option<Diagnosis> {
        let tokenizer = &self.account.app().package.tokenizer;
        Some(self.comparison.as_ref()?.diagnose(verdict, tokenizer))
    }

    /// The same, once the answer is there.
    pub(crate) fn diagnosis(&self) -> Option<Diagnosis> {
        self.diagnosis
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
