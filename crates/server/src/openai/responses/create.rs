//! `POST /v1/responses`, and `POST /v1/responses/input_tokens`.

use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use doctor::{Computed, Conversation};
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::call::{ResponseCall, parse};
use super::input::listed;
use super::items::Items;
use super::stream;
use super::writer::{Header, Keeping, Writer};
use crate::body;
use crate::callers::Caller;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::job::Job;
use crate::outcome::Account;
use crate::question::{Prepared, Question};
use crate::state::{App, new_id, now_s};
use crate::stored_responses::Owner;

pub(crate) async fn create(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Response, ApiError> {
    let call = parse(Fields::new(body::json_object(body).await?))?;
    app.check_model(call.parameters.model.as_deref())?;
    let header = Header {
        id: new_id("resp_")?,
        created_s: now_s(),
        echo: call.echo.clone(),
        use_cache: call.parameters.use_cache,
        logprobs: call.logprobs.is_some(),
    };
    let streamed = call.parameters.stream;
    let ignored = call.ignored(app.reads_tools());
    let account = Account::open(&app, caller.clone(), header.id.clone(), 1)?;
    let id = header.id.clone();
    let prepared = app.prepare(move |app| prepare(app, &caller, id, call));
    let (prepared, keeping) = prepared.await?;
    let items = Items::new(prepared.context.reading.reader());
    let job = Job::of_conversation(&app, prepared, ignored, account, "input")?;
    let (events, outcomes) = job.run();
    let mut writer = Writer::new(app, header, items, outcomes, keeping);
    if streamed {
        return Ok(stream::respond(events, writer));
    }
    let mut events = std::pin::pin!(events);
    while !writer.is_over() {
        let event = events.next().await.map(|(_, event)| event);
        writer.take(event, &mut Vec::new())?;
    }
    Ok(Json(writer.whole()).into_response())
}

/// `POST /v1/responses/input_tokens`: how many tokens a request's prompt has, without computing it.
pub(crate) async fn count(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let mut call = parse(Fields::new(body::json_object(body).await?))?;
    app.check_model(call.parameters.model.as_deref())?;
    // Nothing is remembered of what is only counted.
    call.parameters.use_cache = false;
    let prepared = app.prepare(move |app| prepare(app, &caller, String::new(), call));
    let (Prepared { request, .. }, _) = prepared.await?;
    Ok(Json(json!({"object": "response.input_tokens", "input_tokens": request.prompt.len()})))
}

/// The request for the engine with what else its answer needs, and what is kept of it, if anything
/// is.
fn prepare(
    app: &App,
    caller: &Caller,
    id: String,
    call: ResponseCall,
) -> Result<(Prepared, Option<Keeping>), ApiError> {
    let mut parameters = call.parameters;
    let salt = parameters.cache_salt.as_deref();
    let namespace = app.namespace(caller, salt);
    let owner = Owner { caller: app.namespace(caller, None), namespace };
    let (mut messages, computed) = earlier(app, call.previous.as_deref(), owner)?;
    let system = call.instructions.map(|text| json!({"role": "system", "content": text}));
    // A template may write for no instructions just what others wrote: the messages would then be
    // counted wrong.
    let earlier_count = messages.len() + usize::from(system.is_some());
    let computed = computed.filter(|computed| computed.message_count() == earlier_count);
    messages.extend(call.messages);
    let conversation = Conversation {
        messages: system.into_iter().chain(messages.iter().cloned()).collect(),
        tools: call.tools,
        variables: call.variables,
    };
    let count = conversation.messages.len();
    let question = Question {
        id,
        conversation,
        calling: call.calling,
        wanted: call.wanted,
        effort: call.effort,
        compare_with: parameters.comparison.take(),
        computed,
        namespace,
        use_cache: parameters.use_cache,
    };
    let prepared = question.prepare(app);
    let mut prepared = prepared.map_err(|error| error.in_field("messages", "input"))?;
    let request = &mut prepared.request;
    parameters.draw(request, app.options.cache_lifetime);
    request.max_tokens = call.max_tokens;
    request.logprobs = call.logprobs;
    let map = request.prompt_map.clone().filter(|_| call.store);
    let keeping = map.map(|map| {
        let (input, prompt) = (listed(call.input)?, request.prompt.clone());
        Ok::<_, ApiError>(Keeping { owner, input, messages, count, prompt, map })
    });
    Ok((prepared, keeping.transpose()?))
}

/// The conversation that a request goes on from: its messages without instructions, and what was
/// computed of it.
fn earlier(
    app: &App,
    id: Option<&str>,
    owner: Owner,
) -> Result<(Vec<Value>, Option<Arc<Computed>>), ApiError> {
    let Some(id) = id else { return Ok((Vec::new(), None)) };
    let stored = app.stored_responses.find(id, owner.namespace);
    let stored = stored.ok_or_else(|| ApiError::previous_not_found(id))?;
    let messages = serde_json::from_str(&stored.messages)
        .map_err(|error| ApiError::internal(format!("a stored response is no JSON: {error}")))?;
    Ok((messages, stored.computed.clone()))
}
