//! Questions to the engine from the terminal, and their answers.

use std::io::{IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use engine::{Engine, Event, Events, FinishReason, Request, Sampling, Timings, TokenCounts};
use package::{ChatRequest, Encoding, Package, PromptMap, Rendered};
use serde_json::{Map, Value, json};

use crate::cli::RunArguments;
use crate::failure::Failure;
use crate::interrupt::Handler;
use crate::quoted::answered;
use crate::terminal::Work;
use crate::words::counted;

/// What small chat models answer best with, where the user does not say otherwise.
const TEMPERATURE_DEFAULT: f32 = 0.2;
const TOP_P_DEFAULT: f32 = 0.9;

/// One answer, whole.
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) token_ids: Vec<u32>,
    pub(super) reason: Option<FinishReason>,
    pub(super) interrupted: bool,
    pub(super) done: Option<(cache::Verdict, Timings, TokenCounts)>,
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
    let (rendered, encoding) = conversation(package, messages, "use --raw with -p")?;
    let map = PromptMap::new(&rendered, &encoding);
    Ok(new_request(arguments, encoding.ids, Some(map)))
}

/// The text and the tokens that the model's template makes of `messages`; `otherwise` says what to
/// do where it has none.
pub(super) fn conversation(
    package: &Package,
    messages: &[Value],
    otherwise: &str,
) -> Result<(Rendered, Encoding), Failure> {
    let template = package
        .chat_template
        .as_ref()
        .ok_or_else(|| Failure::Failed(format!("this model has no chat template; {otherwise}")))?;
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
    Ok((rendered, encoding))
}

pub(super) fn new_request(
    arguments: &RunArguments,
    prompt: Vec<u32>,
    map: Option<PromptMap>,
) -> Request {
    Request {
        prompt_map: map,
        // The engine cuts it to what the context leaves.
        max_tokens: Some(arguments.max_tokens.unwrap_or(u32::MAX) as usize),
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

/// Runs one request, streaming its text to stdout unless `work` is to tell how far it is. Ctrl-C
/// stops the answer.
pub(super) async fn answer(
    engine: &Engine,
    request: Request,
    work: Option<&Work>,
) -> Result<Answer, Failure> {
    let mut handler = Handler::new();
    let mut events = engine.submit(request).map_err(Failure::new)?;
    let mut answer = Answer {
        text: String::new(),
        token_ids: Vec::new(),
        reason: None,
        interrupted: false,
        done: None,
    };
    let mut out = anstream::stdout();
    let colored = AutoStream::choice(&std::io::stdout()) == ColorChoice::Always;
    let watched = colored || std::io::stdout().is_terminal();
    while let Some(event) = next(&mut events, &mut handler, &mut answer).await {
        match event {
            Event::Delta { text, tokens, .. } => {
                match work {
                    None => {
                        // What is piped is data; a terminal acts on some of it.
                        let shown = if watched { answered(&text) } else { (&*text).into() };
                        write!(out, "{shown}")?;
                        out.flush()?;
                    }
                    Some(work) => work.tell(|| counted(answer.token_ids.len(), "token")),
                }
                answer.text.push_str(&text);
                answer.token_ids.extend(tokens.iter().map(|token| token.id));
            }
            Event::Finished { reason, .. } => answer.reason = Some(reason),
            Event::Done { verdict, timings, tokens } => {
                answer.done = Some((verdict, timings, tokens));
            }
            Event::Failed(error) => return Err(Failure::new(error)),
            Event::Started { .. } | Event::Progress { .. } | Event::PromptLogprobs(_) => {}
        }
    }
    Ok(answer)
}

/// The next event, or none if the answer ended or was interrupted.
async fn next(events: &mut Events, handler: &mut Handler, answer: &mut Answer) -> Option<Event> {
    tokio::select! {
        event = events.recv() => event,
        () = handler.interrupted() => {
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
        let end = match self.reason {
            Some(FinishReason::Length) => " · stopped at the longest answer or the context's end",
            _ => "",
        };
        format!(
            "reused {} of {} ({}) · prefill {} at {} · decoded {} at {}{end}",
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
