//! `refrain run`: one prompt, or a chat.

use std::io::{IsTerminal, Read, Write};

use engine::{Engine, Event, Events, FinishReason, Request, Sampling, Timings, TokenCounts};
use package::{ChatRequest, Package, PromptMap};
use serde_json::{Map, Value, json};

use crate::cli::RunArguments;
use crate::failure::Failure;
use crate::loading::{self, Loaded};
use crate::terminal::Terminal;

/// Longest prompt read from a pipe.
const INPUT_BYTES_MAX: u64 = 16 << 20;
/// What small chat models answer best with, where the user does not say otherwise.
const TEMPERATURE_DEFAULT: f32 = 0.2;
const TOP_P_DEFAULT: f32 = 0.9;

/// One answer, whole.
pub(super) struct Answer {
    pub(super) text: String,
    token_ids: Vec<u32>,
    reason: Option<FinishReason>,
    pub(super) interrupted: bool,
    done: Option<(cache::Verdict, Timings, TokenCounts)>,
}

pub(crate) fn run(arguments: &RunArguments, terminal: &Terminal) -> Result<(), Failure> {
    let chat = arguments.prompt.is_none() && !arguments.json && std::io::stdin().is_terminal();
    if chat && arguments.raw {
        let message = "--raw continues one text: give it with -p, or pipe it in";
        return Err(Failure::Usage(message.to_owned()));
    }
    let prompt = match &arguments.prompt {
        Some(prompt) => Some(prompt.clone()),
        None if chat => None,
        None => Some(read_input()?),
    };
    let options = loading::options(&arguments.engine);
    let loaded = loading::load(arguments.model.as_deref(), options, terminal)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match prompt {
        Some(prompt) => runtime.block_on(one_shot(arguments, &loaded, prompt, terminal)),
        None => super::chat::run(arguments, &loaded, &runtime, terminal),
    }
}

fn read_input() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin().take(INPUT_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > INPUT_BYTES_MAX {
        return Err(Failure::new(format!("the input is longer than {INPUT_BYTES_MAX} bytes")));
    }
    Ok(text)
}

async fn one_shot(
    arguments: &RunArguments,
    loaded: &Loaded,
    prompt: String,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let request = if arguments.raw {
        let encoding = loaded.package.tokenizer.encode(&prompt, true).map_err(Failure::new)?;
        new_request(arguments, encoding.ids, None)
    } else {
        let mut messages = opening(arguments);
        messages.push(json!({"role": "user", "content": prompt}));
        chat_request(arguments, &loaded.package, &messages)?
    };
    let answer = answer(&loaded.engine, request, !arguments.json).await?;
    if arguments.json {
        let document = document(&answer, loaded);
        writeln!(anstream::stdout(), "{document}")?;
    } else {
        writeln!(anstream::stdout())?;
        terminal.dim(&answer.summary());
    }
    if answer.interrupted { Err(Failure::Interrupted) } else { Ok(()) }
}

/// The messages before the user's first.
pub(super) fn opening(arguments: &RunArguments) -> Vec<Value> {
    let system = arguments.system.as_ref();
    system.map(|text| json!({"role": "system", "content": text})).into_iter().collect()
}

pub(super) fn chat_request(
    arguments: &RunArguments,
    package: &Package,
    messages: &[Value],
) -> Result<Request, Failure> {
    let template = package.chat_template.as_ref().ok_or_else(|| {
        Failure::Failed("this model has no chat template; use --raw with -p".to_owned())
    })?;
    let rendered = template
        .render(&ChatRequest {
            messages,
            tools: None,
            add_generation_prompt: true,
            date: None,
            variables: &Map::new(),
        })
        .map_err(Failure::new)?;
    let encoding = package.tokenizer.encode(&rendered.text, false).map_err(Failure::new)?;
    let map = PromptMap::new(&rendered, &encoding);
    Ok(new_request(arguments, encoding.ids, Some(map)))
}

fn new_request(arguments: &RunArguments, prompt: Vec<u32>, map: Option<PromptMap>) -> Request {
    Request {
        prompt_map: map,
        max_tokens: arguments.max_tokens.map(|tokens| tokens as usize),
        sampling: Sampling {
            temperature: arguments.temperature.unwrap_or(TEMPERATURE_DEFAULT),
            top_k: arguments.top_k.unwrap_or(0) as usize,
            top_p: arguments.top_p.unwrap_or(TOP_P_DEFAULT),
            min_p: arguments.min_p.unwrap_or(0.0),
            seed: arguments.seed,
            ..Sampling::default()
        },
        ..Request::new("run", prompt, cache::Namespace::default())
    }
}

/// Runs one request, streaming its text to stdout if `stream`. Ctrl-C stops the answer.
pub(super) async fn answer(
    engine: &Engine,
    request: Request,
    stream: bool,
) -> Result<Answer, Failure> {
    let mut events = engine.submit(request).map_err(Failure::new)?;
    let mut answer = Answer {
        text: String::new(),
        token_ids: Vec::new(),
        reason: None,
        interrupted: false,
        done: None,
    };
    let mut out = anstream::stdout();
    while let Some(event) = next(&mut events, &mut answer).await {
        match event {
            Event::Delta { text, tokens, .. } => {
                if stream {
                    write!(out, "{text}")?;
                    out.flush()?;
                }
                answer.text.push_str(&text);
                answer.token_ids.extend(tokens.iter().map(|token| token.id));
            }
            Event::Finished { reason, .. } => answer.reason = Some(reason),
            Event::Done { verdict, timings, tokens } => {
                answer.done = Some((verdict, timings, tokens));
            }
            Event::Failed(error) => return Err(Failure::new(error)),
            Event::PromptLogprobs(_) => {}
        }
    }
    Ok(answer)
}

/// The next event, or none if the answer ended or was interrupted.
async fn next(events: &mut Events, answer: &mut Answer) -> Option<Event> {
    tokio::select! {
        event = events.recv() => event,
        _ = tokio::signal::ctrl_c() => {
            answer.interrupted = true;
            None
        }
    }
}

impl Answer {
    /// One line: what was reused, why not more, and the speeds.
    pub(super) fn summary(&self) -> String {
        let Some((verdict, timings, tokens)) = &self.done else {
            return "interrupted".to_owned();
        };
        let rate = |count: usize, ms: Option<f64>| match ms {
            Some(ms) if ms > 0.0 && count > 0 => format!("{:.0} tok/s", count as f64 * 1e3 / ms),
            _ => "–".to_owned(),
        };
        format!(
            "reused {} of {} ({}) · prefill {} at {} · decoded {} at {}",
            verdict.reused_tokens,
            verdict.prompt_tokens,
            verdict.stop.reason.code(),
            tokens.input,
            rate(tokens.input, timings.prefill_ms),
            tokens.output,
            rate(tokens.output.saturating_sub(1), timings.decode_ms),
        )
    }
}

fn document(answer: &Answer, loaded: &Loaded) -> Value {
    let done = answer.done.as_ref();
    let timings = done.map(|(_, timings, _)| timings);
    let tokens = done.map(|(_, _, tokens)| *tokens);
    let rate = |count: Option<usize>, ms: Option<f64>| match (count, ms) {
        (Some(count), Some(ms)) if ms > 0.0 => Some(count as f64 * 1e3 / ms),
        _ => None,
    };
    let prefill_ms = timings.and_then(|timings| timings.prefill_ms);
    let decode_ms = timings.and_then(|timings| timings.decode_ms);
    json!({
        "schema": "refrain.run/1",
        "model": loaded.package.name,
        "text": answer.text,
        "token_ids": answer.token_ids,
        "prompt_tokens": tokens.map(|tokens| tokens.input + tokens.cached_input),
        "reused_tokens": tokens.map(|tokens| tokens.cached_input),
        "completion_tokens": tokens.map(|tokens| tokens.output),
        "finish_reason": answer.reason,
        "timings": {
            "load_ms": loaded.load_ms,
            "prefill_ms": prefill_ms,
            "decode_ms": decode_ms,
            "ttft_ms": timings.and_then(|timings| timings.ttft_ms),
            "prefill_tokens_per_s": rate(tokens.map(|tokens| tokens.input), prefill_ms),
            "decode_tokens_per_s":
                rate(tokens.map(|tokens| tokens.output.saturating_sub(1)), decode_ms),
        },
    })
}
