//! From a conversation, whichever API it came by, to a prompt, and to how its answer is read.

use std::sync::Arc;

use cache::Namespace;
use doctor::{Computed, Conversation};
use engine::Request;
use grammar::Constraint;
use serde_json::{Map, Value};

use crate::calling::Calling;
use crate::constraint::Wanted;
use crate::diagnostics::Comparison;
use crate::error::ApiError;
use crate::reading::Reading;
use crate::second_look::Asked;
use crate::state::App;

/// A conversation that is to be answered.
pub(crate) struct Question {
    pub(crate) id: String,
    pub(crate) conversation: Conversation,
    pub(crate) calling: Calling,
    /// What the answer's text is to be.
    pub(crate) wanted: Option<Wanted>,
    /// How much the model is to reason, in OpenAI's words; what the conversation's own variables
    /// say is stronger.
    pub(crate) effort: Option<String>,
    /// The id of an earlier request that it wants to be compared with.
    pub(crate) compare_with: Option<String>,
    /// What it goes on from, where that was kept.
    pub(crate) computed: Option<Arc<Computed>>,
    pub(crate) namespace: Namespace,
    pub(crate) use_cache: bool,
}

/// Its prompt.
pub(crate) struct Prepared {
    /// Prompt, map and constraint; how to draw is not said yet.
    pub(crate) request: Request,
    pub(crate) context: AnswerContext,
}

/// What its answer needs of it.
pub(crate) struct AnswerContext {
    /// How the answer is read.
    pub(crate) reading: Reading,
    /// Where another rendering of the conversation may be held.
    pub(crate) asked: Option<Asked>,
    /// Where it is to be compared with an earlier one.
    pub(crate) comparison: Option<Comparison>,
}

impl Question {
    /// Renders and tokenizes it.
    pub(crate) fn prepare(self, app: &App) -> Result<Prepared, ApiError> {
        let Question { id, mut conversation, calling, namespace, use_cache, .. } = self;
        let maker = app.prompt_maker(use_cache.then_some(namespace));
        let constraint = constraint(self.wanted, &calling, conversation.tools.as_ref(), app)?;
        let is_constrained = constraint.is_some();
        // Reasoning is no part of what was asked for.
        let effort = self.effort.or_else(|| is_constrained.then(|| "none".to_owned()));
        conversation.tools.take_if(|_| !maker.shows_tools(&calling.choice));
        let mut variables = match (maker.chat_template, &effort) {
            (Some(template), Some(effort)) => template.reasoning_variables(effort),
            _ => Map::new(),
        };
        variables.append(&mut conversation.variables);
        conversation.variables = variables;
        let Conversation { messages, tools, variables } = &conversation;
        let after = self
            .computed
            .as_deref()
            .map(|computed| maker.chat_after(computed, messages, tools.as_ref(), variables));
        let (prompt, map) = match after.transpose()?.flatten() {
            Some(after) => after,
            None => {
                let (encoding, map) = maker.chat(messages, tools.as_ref(), variables)?;
                (encoding.ids, map)
            }
        };
        let (tools, choice) = (tools.as_ref(), &calling.choice);
        let format = &app.answer_format;
        let reading = format.reading(&app.package, &prompt, tools, choice, is_constrained);
        let shared: Arc<[u32]> = prompt.as_slice().into();
        let comparison = self.compare_with.as_deref().map(|with| {
            let prompt = (Arc::clone(&shared), Some(map.clone()));
            app.earlier_prompts.comparison(with, namespace, prompt, messages.len())
        });
        if use_cache {
            app.earlier_prompts.remember(&id, namespace, shared, messages.len());
        }
        let may_differ = use_cache && app.renderings.note(namespace, variables);
        let asked = may_differ.then(|| {
            let (prompt, map) = (prompt.clone(), map.clone());
            Asked { conversation, namespace, prompt, map }
        });
        let request = Request {
            prompt_map: Some(map),
            constraint,
            shown_ids: format.marker_ids.clone(),
            use_cache,
            ..Request::new(id, prompt, namespace)
        };
        Ok(Prepared { request, context: AnswerContext { reading, asked, comparison } })
    }
}

/// What an answer is held to: the calls that it must make, or the form of its text, or either
/// where it may call as well.
fn constraint(
    text: Option<Wanted>,
    calling: &Calling,
    tools: Option<&Value>,
    app: &App,
) -> Result<Option<Constraint>, ApiError> {
    let choice = &calling.choice;
    let text = text.filter(|_| !choice.must_call());
    let may_call = tools.is_some() && choice.may_call() && text.is_some();
    let calls = (choice.must_call() || may_call)
        .then(|| Wanted::calls(calling, tools, app.answer_format.call_shape()));
    let compiled = |wanted: Option<Wanted>| wanted.map(|one| app.constraint(&one)).transpose();
    Ok(match (compiled(calls)?, compiled(text)?) {
        (Some(calls), Some(text)) => Some(calls.or(text)),
        (calls, text) => calls.or(text),
    })
}
