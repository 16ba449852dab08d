//! `POST /v1/messages`.

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use doctor::Conversation;
use engine::Sampling;
use package::PromptMap;
use serde_json::{Map, Value};

use super::breakpoints::Breakpoints;
use super::error;
use super::header::Header;
use super::stream;
use super::usage::Counting;
use crate::body;
use crate::callers::Caller;
use crate::calling::Calling;
use crate::constraint::{Wanted, schema};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::job::Job;
use crate::outcome::Account;
use crate::question::{Prepared, Question};
use crate::state::{App, new_id};

/// What a request asks for.
pub(crate) struct MessagesCall {
    conversation: Conversation,
    calling: Calling,
    wanted: Option<Wanted>,
    effort: Option<String>,
    /// The id of an earlier message that this one is to be compared with.
    compare_with: Option<String>,
    breakpoints: Breakpoints,
    /// How many of the conversation's messages the last breakpoint ends.
    marked: Option<usize>,
    model: Option<String>,
    max_tokens: usize,
    sampling: Sampling,
    stop: Vec<String>,
    stream: bool,
    use_cache: bool,
    cache_salt: Option<String>,
    ignored: Vec<String>,
}

pub(crate) async fn create(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Response {
    answer(app, caller, body).await.unwrap_or_else(error::respond)
}

async fn answer(app: App, caller: Caller, body: Body) -> Result<Response, ApiError> {
    let call = parse(Fields::new(body::json_object(body).await?))?;
    app.check_model(call.model.as_deref())?;
    let id = new_id("msg_")?;
    let ignored = call.ignored(app.reads_tools());
    let (model, stop) = (app.package.name.clone(), call.stop.clone());
    let account = Account::open(&app, caller.clone(), id.clone(), 1)?;
    let (streamed, request_id) = (call.stream, id.clone());
    let prepared = app.prepare(move |app| prepare(app, &caller, request_id, call)).await?;
    let (prepared, counting) = prepared;
    let header = Header { id, model, stop, counting };
    let job = Job::of_conversation(&app, prepared, ignored, account, "messages")?;
    if streamed {
        return Ok(stream::respond(job, header));
    }
    let answer = job.collect().await?;
    Ok(Json(header.message(&answer)?).into_response())
}

pub(crate) fn parse(mut fields: Fields) -> Result<MessagesCall, ApiError> {
    refuse_unsupported(&fields)?;
    let (conversation, breakpoints, marked) = take_conversation(&mut fields)?;
    let calling = Calling::take_anthropic(&mut fields, conversation.tools.as_ref())?;
    let (wanted, effort) = take_output(&mut fields)?;
    let effort = take_thinking(&mut fields)?.or(effort);
    let max_tokens = fields.count("max_tokens", 0, usize::MAX)?;
    let max_tokens =
        max_tokens.ok_or_else(|| ApiError::bad_request("max_tokens", "'max_tokens' is missing"))?;
    let defaults = Sampling::default();
    let sampling = Sampling {
        temperature: fields.number("temperature", 0.0, 2.0)?.unwrap_or(defaults.temperature),
        top_p: fields.number("top_p", 0.0, 1.0)?.unwrap_or(defaults.top_p),
        top_k: fields.count("top_k", 0, u32::MAX as usize)?.unwrap_or(defaults.top_k),
        seed: fields.seed()?,
        ..defaults
    };
    Ok(MessagesCall {
        conversation,
        calling,
        wanted,
        effort,
        compare_with: take_diagnostics(&mut fields)?,
        breakpoints,
        marked,
        model: fields.string("model")?,
        max_tokens,
        sampling,
        stop: fields.stop_strings("stop_sequences")?,
        stream: fields.boolean("stream")?.unwrap_or(false),
        use_cache: fields.boolean("cache_prompt")?.unwrap_or(true),
        cache_salt: fields.string("cache_salt")?,
        ignored: fields.ignored(),
    })
}

impl MessagesCall {
    /// The fields that were accepted and have no effect on a model whose template reads tools or
    /// does not.
    pub(crate) fn ignored(&self, reads_tools: bool) -> Vec<String> {
        let (tools, form) = (self.conversation.tools.is_some(), self.wanted.as_ref());
        let unused = self.calling.without_effect(tools, reads_tools, form.map(|form| form.field));
        unused.chain(self.ignored.iter().cloned()).collect()
    }
}

/// Takes the conversation, what it says to the prompt cache, and how many of its messages the last
/// breakpoint ends.
pub(super) fn take_conversation(
    fields: &mut Fields,
) -> Result<(Conversation, Breakpoints, Option<usize>), ApiError> {
    let names = ["system", "messages", "tools", "cache_control"];
    let taken = names.map(|name| Some((name.to_owned(), fields.value(name)?)));
    let body: Map<String, Value> = taken.into_iter().flatten().collect();
    let breakpoints = Breakpoints::of(&body)?;
    let marked = breakpoints.messages.map(|count| messages_of(&body, count)).transpose()?;
    let mut body = Fields::new(doctor::from_anthropic(body)?);
    let messages = doctor::check_messages(body.array("messages")?)?;
    let tools = doctor::check_tools(body.array("tools")?)?;
    if messages.last().is_some_and(|message| message["role"] == "assistant") {
        let message = "the last message is the assistant's: beginning an answer for the model \
                       does not work here; end with a message of the user";
        return Err(ApiError::bad_request("messages", message));
    }
    let variables = fields.object("chat_template_kwargs")?.unwrap_or_default();
    Ok((Conversation { messages, tools, variables }, breakpoints, marked))
}

/// How many messages of a chat template the first `count` messages of a body make, its system
/// prompt included.
fn messages_of(body: &Map<String, Value>, count: usize) -> Result<usize, ApiError> {
    let mut head = body.clone();
    if let Some(Value::Array(messages)) = head.get_mut("messages") {
        messages.truncate(count);
    }
    let head = doctor::from_anthropic(head)?;
    Ok(head.get("messages").and_then(Value::as_array).map_or(0, Vec::len))
}

/// Refuses the fields that would change the answer and do not work here.
fn refuse_unsupported(fields: &Fields) -> Result<(), ApiError> {
    fields.refuse("mcp_servers", "this server calls no other")?;
    fields.refuse("container", "there is nothing to run code in")?;
    fields.refuse("context_management", "the conversation is taken as it is")?;
    Ok(())
}

/// The request for the engine with what else its answer needs, and how its tokens are counted.
fn prepare(
    app: &App,
    caller: &Caller,
    id: String,
    call: MessagesCall,
) -> Result<(Prepared, Counting), ApiError> {
    let MessagesCall { conversation, calling, wanted, effort, compare_with, use_cache, .. } = call;
    let namespace = app.namespace(caller, call.cache_salt.as_deref());
    let question = Question {
        id,
        conversation,
        calling,
        wanted,
        effort,
        compare_with,
        computed: None,
        namespace,
        use_cache,
    };
    let mut prepared = question.prepare(app)?;
    let request = &mut prepared.request;
    let lifetime = call.breakpoints.lifetime;
    let marked = call.marked.zip(request.prompt_map.as_ref());
    let marked_tokens = marked.map(|(count, map)| end_of(map, count));
    request.max_tokens = Some(call.max_tokens);
    request.sampling = call.sampling;
    request.stop = call.stop;
    request.lifetime = lifetime.or(app.options.cache_lifetime);
    Ok((prepared, Counting { marked_tokens, lifetime }))
}

/// `diagnostics.previous_message_id`.
fn take_diagnostics(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    match fields.object("diagnostics")? {
        Some(diagnostics) => Fields::new(diagnostics).string("previous_message_id"),
        None => Ok(None),
    }
}

/// `output_config`, and `output_format` as it was called before: the schema that the answer is to
/// have, and how much the model is to reason.
fn take_output(fields: &mut Fields) -> Result<(Option<Wanted>, Option<String>), ApiError> {
    let mut config = Fields::new(fields.object("output_config")?.unwrap_or_default());
    let earlier = fields.object("output_format")?;
    let format = config.object("format")?.or(earlier);
    let wanted = format.map(|format| match format.get("type").and_then(Value::as_str) {
        Some("json_schema") => {
            let grammar = schema(format.get("schema"), "output_config.format.schema")?;
            Ok(Wanted { grammar, field: "output_config" })
        }
        _ => {
            let message = "'output_config.format.type' must be \"json_schema\"";
            Err(ApiError::bad_request("output_config", message))
        }
    });
    let effort = config.string("effort")?.map(|effort| match effort.as_str() {
        "max" => "xhigh".to_owned(),
        _ => effort,
    });
    fields.put_back("output_config", config);
    Ok((wanted.transpose()?, effort))
}

/// `thinking`, as OpenAI's word for how much the model is to reason.
pub(super) fn take_thinking(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let Some(thinking) = fields.object("thinking")? else { return Ok(None) };
    let effort = match thinking.get("type").and_then(Value::as_str) {
        Some("disabled") => "none",
        Some("enabled") => "high",
        Some("adaptive") => return Ok(None),
        _ => {
            let message = "'thinking.type' must be \"enabled\", \"disabled\" or \"adaptive\"";
            return Err(ApiError::bad_request("thinking.type", message));
        }
    };
    Ok(Some(effort.to_owned()))
}

/// Tokens up to the end of the first `messages` messages.
fn end_of(map: &PromptMap, messages: usize) -> usize {
    messages.checked_sub(1).map_or(0, |last| map.end_of(last))
}
