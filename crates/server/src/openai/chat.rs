//! `POST /v1/chat/completions`.

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use doctor::Conversation;
use serde_json::{Value, json};

use super::diagnostics;
use super::logprobs;
use super::message::{finish_reason, message};
use super::parameters::{Parameters, checked_effort};
use super::stream::{self, Header, Shape};
use super::usage::usage;
use crate::body;
use crate::callers::Caller;
use crate::calling::Calling;
use crate::constraint::Wanted;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::job::{Answer, Choice, Job};
use crate::outcome::Account;
use crate::question::{Prepared, Question};
use crate::state::{App, new_id, now_s};

const TOP_LOGPROBS_MAX: usize = 20;
const EFFORT: &str = "reasoning_effort";

/// What a chat request asks for.
pub(crate) struct ChatCall {
    conversation: Conversation,
    calling: Calling,
    wanted: Option<Wanted>,
    effort: Option<String>,
    parameters: Parameters,
    max_tokens: Option<usize>,
    logprobs: Option<usize>,
    ignored: Vec<String>,
}

pub(crate) async fn create(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Response, ApiError> {
    let call = parse(Fields::new(body::json_object(body).await?))?;
    app.check_model(call.parameters.model.as_deref())?;
    let header = Header {
        shape: Shape::Chat,
        id: new_id("chatcmpl-")?,
        created_s: now_s(),
        logprobs: call.logprobs.is_some(),
        include_usage: call.parameters.include_usage,
        echo: None,
    };
    let streamed = call.parameters.stream;
    let ignored = call.ignored(app.reads_tools());
    let account = Account::open(&app, caller.clone(), header.id.clone(), 1)?;
    let id = header.id.clone();
    let prepared = app.prepare(move |app| prepare(app, &caller, id, call)).await?;
    let job = Job::of_conversation(&app, prepared, ignored, account, "messages")?;
    if streamed {
        return Ok(stream::respond(job, header, app.package));
    }
    let answer = job.collect().await?;
    Ok(Json(body_of(&app, &header, answer)?).into_response())
}

/// `POST /v1/chat/completions/render`: the token ids that a chat request's prompt has, without
/// computing it, for routers that choose a server by what it holds.
pub(crate) async fn render(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let mut call = parse(Fields::new(body::json_object(body).await?))?;
    app.check_model(call.parameters.model.as_deref())?;
    // Nothing is remembered of what is not computed.
    call.parameters.use_cache = false;
    let prepared = app.prepare(move |app| prepare(app, &caller, String::new(), call)).await?;
    Ok(Json(json!({"token_ids": prepared.request.prompt})))
}

pub(crate) fn parse(mut fields: Fields) -> Result<ChatCall, ApiError> {
    refuse_unsupported(&mut fields)?;
    let tools = doctor::check_tools(fields.array("tools")?)?;
    let calling = Calling::take_openai(&mut fields, tools.as_ref())?;
    let messages = doctor::check_messages(fields.array("messages")?)?;
    let variables = fields.object("chat_template_kwargs")?.unwrap_or_default();
    let parameters = Parameters::take(&mut fields)?;
    let limit = fields.count("max_completion_tokens", 1, usize::MAX)?;
    let older_limit = fields.count("max_tokens", 1, usize::MAX)?;
    let logprobs = fields.boolean("logprobs")?.unwrap_or(false);
    let top = fields.count("top_logprobs", 0, TOP_LOGPROBS_MAX)?;
    if top.is_some() && !logprobs {
        let message = "'top_logprobs' is only allowed when 'logprobs' is true";
        return Err(ApiError::bad_request("top_logprobs", message));
    }
    Ok(ChatCall {
        conversation: Conversation { messages, tools, variables },
        calling,
        wanted: Wanted::take(&mut fields)?,
        effort: checked_effort(fields.string(EFFORT)?, EFFORT)?,
        parameters,
        max_tokens: limit.or(older_limit),
        logprobs: logprobs.then(|| top.unwrap_or(0)),
        ignored: fields.ignored(),
    })
}

impl ChatCall {
    /// The fields that were accepted and have no effect on a model whose template reads tools or
    /// does not.
    pub(crate) fn ignored(&self, reads_tools: bool) -> Vec<String> {
        let (tools, form) = (self.conversation.tools.is_some(), self.wanted.as_ref());
        let unused = self.calling.without_effect(tools, reads_tools, form.map(|form| form.field));
        unused.chain(self.ignored.iter().cloned()).collect()
    }
}

/// Refuses the fields that would change the answer and do not work here. Their values that ask
/// for nothing (no tools, plain text) are taken.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    if fields.array("functions")?.is_some_and(|list| !list.is_empty()) {
        return Err(ApiError::unsupported("functions", "'tools' has taken its place"));
    }
    if fields.value("function_call").is_some_and(|call| call != "none" && call != "auto") {
        return Err(ApiError::unsupported("function_call", "'tool_choice' has taken its place"));
    }
    if let Some(modalities) = fields.value("modalities")
        && modalities != json!(["text"])
    {
        return Err(ApiError::unsupported("modalities", "the model answers with text only"));
    }
    fields.refuse("audio", "the model answers with text only")?;
    fields.refuse("web_search_options", "there is no web search")?;
    fields.refuse("prediction", "predicted outputs do not work yet")?;
    fields.refuse("chat_template", "the template comes with the model")?;
    for name in ["grammar", "guided_grammar"] {
        fields.refuse(name, "'response_format' takes schemas and regular expressions")?;
    }
    fields.refuse_unless("best_of", &json!(1), "only one answer is computed for each choice")?;
    fields.refuse("suffix", "inserting text does not work yet")?;
    fields.refuse_unless("echo", &json!(false), "a conversation has no one text to echo")?;
    fields.refuse_unless("add_generation_prompt", &json!(true), "an answer always begins")?;
    fields.refuse_unless("continue_final_message", &json!(false), "an answer cannot go on yet")
}

/// The request for the engine, and what else its answer needs.
fn prepare(app: &App, caller: &Caller, id: String, call: ChatCall) -> Result<Prepared, ApiError> {
    let ChatCall { conversation, calling, wanted, effort, mut parameters, .. } = call;
    let question = Question {
        id,
        conversation,
        calling,
        wanted,
        effort,
        compare_with: parameters.comparison.take(),
        computed: None,
        namespace: app.namespace(caller, parameters.cache_salt.as_deref()),
        use_cache: parameters.use_cache,
    };
    let mut prepared = question.prepare(app)?;
    parameters.draw(&mut prepared.request, app.options.cache_lifetime);
    prepared.request.max_tokens = call.max_tokens;
    prepared.request.logprobs = call.logprobs;
    Ok(prepared)
}

fn body_of(app: &App, header: &Header, answer: Answer) -> Result<Value, ApiError> {
    let choice = |(index, choice): (usize, &Choice)| {
        let logprobs = if header.logprobs {
            logprobs::chat(&choice.tokens, &app.package.tokenizer)
        } else {
            Value::Null
        };
        let has_calls = !choice.reply.calls.is_empty();
        Ok(json!({
            "index": index,
            "message": message(&choice.reply)?,
            "logprobs": logprobs,
            "finish_reason": choice.reason.map(|reason| finish_reason(reason, has_calls)),
        }))
    };
    let choices = answer.choices.iter().enumerate().map(choice);
    let mut body = json!({
        "id": header.id,
        "object": "chat.completion",
        "created": header.created_s,
        "model": app.package.name,
        "choices": choices.collect::<Result<Vec<Value>, ApiError>>()?,
        "usage": usage(answer.outcomes.tokens()),
        "refrain": answer.outcomes.refrain(),
    });
    if let Some(diagnosis) = answer.outcomes.diagnosis() {
        body["prompt_cache_diagnostics"] = diagnostics::in_their_words(diagnosis);
    }
    Ok(body)
}
