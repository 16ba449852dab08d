//! `POST /v1/chat/completions`.

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use doctor::Conversation;
use engine::Request;
use package::ChatTemplate;
use serde_json::{Value, json};

use super::job::{Answer, Job, finish_reason};
use super::logprobs;
use super::parameters::Parameters;
use super::stream::{self, Header, Shape};
use crate::body;
use crate::callers::Caller;
use crate::diagnostics::Comparison;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::outcome::Account;
use crate::second_look::Asked;
use crate::state::{App, new_id, now_s};

const TOP_LOGPROBS_MAX: usize = 20;

/// What a chat request asks for.
pub(crate) struct ChatCall {
    conversation: Conversation,
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
    let (streamed, choices) = (call.parameters.stream, call.parameters.choices);
    let template = app.package.chat_template.as_ref();
    let ignored = call.ignored(template.is_some_and(ChatTemplate::uses_tools));
    let id = header.id.clone();
    let account = Account::new(app.clone(), caller.clone(), id.clone(), 1);
    let (request, asked, comparison) =
        app.prepare(move |app| prepare(app, &caller, id, call)).await?;
    let events = app.submit(request, "messages")?;
    let job = Job::new(vec![events], choices, ignored, account).of_conversation(asked, comparison);
    if streamed {
        return Ok(stream::respond(job, header, app.package));
    }
    let answer = job.collect().await?;
    Ok(Json(body_of(&app, &header, answer)).into_response())
}

pub(crate) fn parse(mut fields: Fields) -> Result<ChatCall, ApiError> {
    refuse_unsupported(&mut fields)?;
    let tools = take_tools(&mut fields)?;
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
        let tools = (self.conversation.tools.is_some() && !reads_tools).then(|| "tools".to_owned());
        tools.into_iter().chain(self.ignored.iter().cloned()).collect()
    }
}

/// Takes the tools, which are part of the prompt also where the answer may not call one. Answers
/// that call tools do not work yet, so that the request must say that it wants none.
fn take_tools(fields: &mut Fields) -> Result<Option<Value>, ApiError> {
    let tools = fields.array("tools")?.filter(|tools| !tools.is_empty());
    let choice = fields.value("tool_choice");
    doctor::check_tool_choice(choice.as_ref().unwrap_or(&Value::Null))?;
    let is = |word: &str| choice.as_ref().is_some_and(|choice| choice == word);
    let what = "calling tools does not work yet; with \"tool_choice\": \"none\" the answer is \
                text, and tools are put into the prompt if the model's chat template reads them";
    if tools.is_some() && !is("none") {
        return Err(ApiError::unsupported("tools", what));
    }
    if choice.is_some() && !is("none") && !is("auto") {
        return Err(ApiError::unsupported("tool_choice", what));
    }
    Ok(doctor::check_tools(tools)?)
}

/// Refuses the fields that would change the answer and do not work here. Their values that ask
/// for nothing (no tools, plain text) are taken.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    if fields.array("functions")?.is_some_and(|list| !list.is_empty()) {
        return Err(ApiError::unsupported("functions", "'tools' has taken its place"));
    }
    if fields.value("function_call").is_some_and(|call| call != "none" && call != "auto") {
        return Err(ApiError::unsupported("function_call", "calling tools does not work yet"));
    }
    if let Some(format) = fields.value("response_format")
        && format.get("type").and_then(Value::as_str) != Some("text")
    {
        let what = "only {\"type\": \"text\"} works yet";
        return Err(ApiError::unsupported("response_format", what));
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
    for name in ["grammar", "guided_json", "guided_regex", "guided_choice", "guided_grammar"] {
        fields.refuse(name, "constrained answers do not work yet")?;
    }
    fields.refuse("structured_outputs", "constrained answers do not work yet")?;
    fields.refuse_unless("best_of", &json!(1), "only one answer is computed for each choice")?;
    fields.refuse("suffix", "inserting text does not work yet")?;
    fields.refuse_unless("echo", &json!(false), "a conversation has no one text to echo")?;
    fields.refuse_unless("add_generation_prompt", &json!(true), "an answer always begins")?;
    fields.refuse_unless("continue_final_message", &json!(false), "an answer cannot go on yet")
}

/// The request for the engine; the conversation, where another rendering of it may be held; and
/// what it is to be compared with, if it is.
fn prepare(
    app: &App,
    caller: &Caller,
    id: String,
    call: ChatCall,
) -> Result<(Request, Option<Asked>, Option<Comparison>), ApiError> {
    let ChatCall { conversation, parameters, .. } = call;
    let namespace = app.namespace(caller, parameters.cache_salt.as_deref());
    let maker = app.prompt_maker(parameters.use_cache.then_some(namespace));
    let Conversation { messages, tools, variables } = &conversation;
    let (encoding, map) = maker.chat(messages, tools.as_ref(), variables)?;
    let comparison = parameters.comparison.as_deref().map(|with| {
        let prompt = (encoding.ids.as_slice().into(), Some(map.clone()));
        app.earlier_prompts.comparison(with, namespace, prompt, messages.len())
    });
    if parameters.use_cache {
        let prompt = encoding.ids.as_slice().into();
        app.earlier_prompts.remember(&id, namespace, prompt, messages.len());
    }
    let may_differ = parameters.use_cache && app.renderings.note(namespace, variables);
    let asked = may_differ.then(|| {
        let (prompt, map) = (encoding.ids.clone(), map.clone());
        Asked { conversation, namespace, prompt, map }
    });
    let request = Request {
        id,
        prompt: encoding.ids,
        prompt_map: Some(map),
        namespace,
        choices: parameters.choices,
        max_tokens: call.max_tokens,
        sampling: parameters.sampling,
        stop: parameters.stop,
        stop_ids: parameters.stop_ids,
        ignore_end: parameters.ignore_end,
        logprobs: call.logprobs,
        prompt_logprobs: None,
        use_cache: parameters.use_cache,
        keep_on_disk: parameters.keep_on_disk,
        lifetime: parameters.lifetime.or(app.options.cache_lifetime),
        priority: parameters.priority,
    };
    Ok((request, asked, comparison))
}

fn body_of(app: &App, header: &Header, answer: Answer) -> Value {
    let choice = |(index, choice): (usize, &super::job::Choice)| {
        let logprobs = if header.logprobs {
            logprobs::chat(&choice.tokens, &app.package.tokenizer)
        } else {
            Value::Null
        };
        json!({
            "index": index,
            "message": {"role": "assistant", "content": choice.text, "refusal": null},
            "logprobs": logprobs,
            "finish_reason": choice.reason.map(finish_reason),
        })
    };
    let mut body = json!({
        "id": header.id,
        "object": "chat.completion",
        "created": header.created_s,
        "model": app.package.name,
        "choices": answer.choices.iter().enumerate().map(choice).collect::<Vec<_>>(),
        "usage": answer.outcomes.usage(),
        "refrain": answer.outcomes.refrain(),
    });
    if let Some(diagnostics) = answer.outcomes.diagnostics() {
        body["prompt_cache_diagnostics"] = diagnostics.clone();
    }
    body
}
