//! A second look at a verdict: whether the same messages are held as rendered in another way.
//!
//! Rendering takes time, so that this is looked into once the answer is there, and only where
//! reuse stopped early and something was rendered otherwise before.

use cache::{Namespace, Reason, Verdict};
use doctor::{Compared, Conversation, note_rendering};
use engine::Timings;
use package::PromptMap;

use crate::error::ApiError;
use crate::state::App;

/// A conversation that was asked, as the engine got it.
pub(crate) struct Asked {
    pub(crate) conversation: Conversation,
    pub(crate) namespace: Namespace,
    pub(crate) prompt: Vec<u32>,
    pub(crate) map: PromptMap,
}

impl Asked {
    /// Changes the verdict, and the lost time with it, where another rendering is the reason.
    pub(crate) async fn look(
        self,
        app: &App,
        verdict: &mut Verdict,
        timings: &mut Timings,
    ) -> Result<(), ApiError> {
        let stopped_early = matches!(
            verdict.stop.reason,
            Reason::FirstRequest
                | Reason::EndOfCached
                | Reason::DifferentToken
                | Reason::Retokenized
        );
        if !stopped_early {
            return Ok(());
        }
        let namespace = self.namespace;
        let rendering = move |app: &App| {
            let maker = app.prompt_maker(Some(namespace));
            let others = app.renderings.others(namespace, &self.conversation, maker);
            Ok((self, others))
        };
        let (asked, others) = app.prepare(rendering).await?;
        let sequences = others.iter().map(|other| other.tokens.clone()).collect();
        let held = app.engine.held_tokens(namespace, sequences).await?;
        let compared = Compared { prompt: &asked.prompt, map: Some(&asked.map), cached: &[] };
        for (other, held) in others.iter().zip(held) {
            note_rendering(verdict, compared, other, held, &app.package.tokenizer);
        }
        if verdict.stop.reason == Reason::TemplateChanged {
            let token_ms = timings.prefill_ms.map(|ms| ms / verdict.computed_tokens.max(1) as f64);
            let lost = verdict.lost_tokens();
            timings.lost_ms = token_ms.zip(lost).map(|(ms, tokens)| ms * tokens as f64);
        }
        Ok(())
    }
}
