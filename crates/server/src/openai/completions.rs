//! `POST /v1/completions`: text, token ids, and arrays of either.

use std::time::Duration;

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use cache::Namespace;
use doctor::TextPrompt;
use engine::Request;
use grammar::Constraint;
use serde_json::{Value, json};

use super::logprobs::{TextLogprobs, characters};
use super::message::finish_reason;
use super::parameters::Parameters;
use super::stream::{self, Echo, Header, Shape};
use super::usage::usage;
use crate::body;
use crate::callers::Caller;
use crate::constraint::Wanted;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::job::{Answer, Choice, Job};
use crate::outcome::Account;
use crate::state::{App, id_of_prompt, new_id, now_s};

const LOGPROBS_MAX: usize = 20;
/// OpenAI's default for this endpoint.
const MAX_TOKENS_DEFAULT: usize = 16;

pub(crate) struct TextCall {
    prompts: Vec<TextPrompt>,
    wanted: Option<Wanted>,
    parameters: Parameters,
    max_tokens: usize,
    logprobs: Option<usize>,
    echo: bool,
    pub(crate) ignored: Vec<String>,
}

pub(crate) async fn create(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Response, ApiError> {
    let call = parse(Fields::new(body::json_object(body).await?))?;
    app.check_model(call.parameters.model.as_deref())?;
    let id = new_id("cmpl-")?;
    let namespace = app.namespace(&caller, call.parameters.cache_salt.as_deref());
    let (call, prompts, constraint) = app
        .prepare(move |app| {
            let constraint = call.wanted.as_ref().map(|wanted| app.constraint(wanted));
            let prompts = tokenize(app, namespace, &call)?;
            Ok((call, prompts, constraint.transpose()?))
        })
        .await?;
    let lifetime = call.parameters.lifetime.or(app.options.cache_lifetime);
    let requests = requests_of(&id, (namespace, lifetime), &call, constraint.as_ref(), &prompts);
    let account = Account::open(&app, caller, id.clone(), prompts.len())?;
    let header = Header {
        shape: Shape::Text,
        id,
        created_s: now_s(),
        logprobs: call.logprobs.is_some(),
        include_usage: call.parameters.include_usage,
        echo: call.echo.then(|| prompts.iter().map(|ids| echo_of(&app, ids)).collect()),
    };
    let (streamed, choices) = (call.parameters.stream, call.parameters.choices);
    let events = app.engine.submit_all(requests);
    let events = events.map_err(|error| ApiError::from_submit(error, "prompt"))?;
    let job = Job::new(events, choices, call.ignored, account);
    if streamed {
        return Ok(stream::respond(job, header, app.package));
    }
    let answer = job.collect().await?;
    Ok(Json(body_of(&app, &header, choices, answer)).into_response())
}

/// `POST /v1/completions/render`: the token ids of each prompt, without computing it.
pub(crate) async fn render(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let call = parse(Fields::new(body::json_object(body).await?))?;
    app.check_model(call.parameters.model.as_deref())?;
    let namespace = app.namespace(&caller, call.parameters.cache_salt.as_deref());
    let prompts = app.prepare(move |app| tokenize(app, namespace, &call)).await?;
    let rendered: Vec<Value> = prompts.iter().map(|ids| json!({"token_ids": ids})).collect();
    Ok(Json(Value::from(rendered)))
}

pub(crate) fn parse(mut fields: Fields) -> Result<TextCall, ApiError> {
    fields.refuse("suffix", "inserting text does not work yet")?;
    for name in ["grammar", "guided_grammar"] {
        fields.refuse(name, "'response_format' takes schemas and regular expressions")?;
    }
    let wanted = Wanted::take(&mut fields)?;
    let prompts = TextPrompt::parse(fields.value("prompt"))?;
    let parameters = Parameters::take(&mut fields)?;
    if let Some(best_of) = fields.count("best_of", 1, usize::MAX)?
        && best_of != parameters.choices
    {
        let what = "it works only when it equals 'n'";
        return Err(ApiError::unsupported("best_of", what));
    }
    let echo = fields.boolean("echo")?.unwrap_or(false);
    // Nothing but the prompt's own log-probabilities can be asked for with `echo`.
    let least = usize::from(!echo);
    let max_tokens = fields.count("max_tokens", least, usize::MAX)?.unwrap_or(MAX_TOKENS_DEFAULT);
    let logprobs = fields.count("logprobs", 0, LOGPROBS_MAX)?;
    let mut ignored = fields.ignored();
    if parameters.comparison.is_some() {
        ignored.push("prompt_cache_options.comparison_response_id".to_owned());
    }
    Ok(TextCall { prompts, wanted, parameters, max_tokens, logprobs, echo, ignored })
}

fn tokenize(app: &App, namespace: Namespace, call: &TextCall) -> Result<Vec<Vec<u32>>, ApiError> {
    let maker = app.prompt_maker(call.parameters.use_cache.then_some(namespace));
    call.prompts.iter().map(|prompt| Ok(prompt.encode(maker)?)).collect()
}

fn echo_of(app: &App, ids: &[u32]) -> Echo {
    Echo { text: app.package.tokenizer.decode(ids, true), ids: ids.to_vec() }
}

fn requests_of(
    id: &str,
    (namespace, lifetime): (Namespace, Option<Duration>),
    call: &TextCall,
    constraint: Option<&Constraint>,
    prompts: &[Vec<u32>],
) -> Vec<Request> {
    let parameters = &call.parameters;
    let one = |(index, prompt): (usize, &Vec<u32>)| Request {
        id: id_of_prompt(id, index, prompts.len()),
        prompt: prompt.clone(),
        prompt_map: None,
        namespace,
        choices: parameters.choices,
        max_tokens: Some(call.max_tokens),
        sampling: parameters.sampling.clone(),
        stop: parameters.stop.clone(),
        stop_ids: parameters.stop_ids.clone(),
        ignore_end: parameters.ignore_end,
        shown_ids: Vec::new(),
        constraint: constraint.cloned(),
        logprobs: call.logprobs,
        prompt_logprobs: call.logprobs.filter(|_| call.echo),
        progress: parameters.include_progress,
        use_cache: parameters.use_cache,
        keep_on_disk: parameters.keep_on_disk,
        lifetime,
        priority: parameters.priority,
    };
    prompts.iter().enumerate().map(one).collect()
}

fn body_of(app: &App, header: &Header, choices: usize, answer: Answer) -> Value {
    let choice = |(index, choice): (usize, Choice)| {
        let prompt = index / choices;
        let echo = header.echo.as_ref().map(|prompts| &prompts[prompt]);
        let tokenizer = &app.package.tokenizer;
        let rows = answer.prompt_logprobs[prompt].as_deref();
        let logprobs = header.logprobs.then(|| {
            let (mut logprobs, mut offset) = match (echo, rows) {
                (Some(echo), Some(rows)) => echo.logprobs(rows, tokenizer),
                _ => (TextLogprobs::default(), 0),
            };
            for token in &choice.tokens {
                logprobs.push(&token.bytes, token.logprob, &token.top, offset, tokenizer);
                offset += characters(&token.bytes);
            }
            logprobs.into_json()
        });
        json!({
            "index": index,
            "text": format!("{}{}", echo.map_or("", |echo| &echo.text), choice.text),
            "logprobs": logprobs,
            "finish_reason": choice.reason.map(|reason| finish_reason(reason, false)),
        })
    };
    json!({
        "id": header.id,
        "object": "text_completion",
        "created": header.created_s,
        "model": app.package.name,
        "choices": answer.choices.into_iter().enumerate().map(choice).collect::<Vec<_>>(),
        "usage": usage(answer.outcomes.tokens()),
        "refrain": answer.outcomes.refrain(),
    })
}
