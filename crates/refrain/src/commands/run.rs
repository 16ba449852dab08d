//! `refrain run`: one prompt, or a chat.

use std::io::{IsTerminal, Read, Write};

use engine::whole_nanoseconds;
use serde_json::{Value, json};

use super::answer::{Answer, answer, chat_request, new_request, opening};
use super::chat;
use crate::cli::RunArguments;
use crate::failure::Failure;
use crate::loading::{self, Loaded};
use crate::terminal::Terminal;

/// Longest prompt read from a pipe.
const INPUT_BYTES_MAX: u64 = 16 << 20;
pub(crate) fn run(arguments: &RunArguments, terminal: &Terminal) -> Result<(), Failure> {
    let chat = arguments.prompt.is_none() && !arguments.json && std::io::stdin().is_terminal();
    if chat && arguments.raw {
        let message = "--raw continues one text: give it with -p, or pipe it in";
        return Err(Failure::Usage(message.to_owned()));
    }
    let prompt = match &arguments.prompt {
        // White space is a text that can be continued, but nothing that can be answered.
        Some(prompt) if prompt.is_empty() || !arguments.raw && prompt.trim().is_empty() => {
            return Err(Failure::Usage("the prompt is empty: give some text".to_owned()));
        }
        Some(prompt) => Some(prompt.clone()),
        None if chat => None,
        None => Some(read_input()?),
    };
    let options = loading::options(&arguments.engine);
    let loaded = loading::load(arguments.model.as_deref(), options, terminal)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match prompt {
        Some(prompt) => runtime.block_on(one_shot(arguments, &loaded, prompt, terminal)),
        None => chat::run(arguments, &loaded, &runtime, terminal),
    }
}

fn read_input() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin().take(INPUT_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > INPUT_BYTES_MAX {
        return Err(Failure::new(format!("the input is longer than {INPUT_BYTES_MAX} bytes")));
    }
    if text.trim().is_empty() {
        return Err(Failure::Usage("the input is empty; give a prompt with -p".to_owned()));
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
    let work = arguments.json.then(|| terminal.steps("Answering"));
    let answer = answer(&loaded.engine, request, work.as_ref()).await?;
    drop(work);
    if arguments.json {
        let document = document(&answer, loaded);
        writeln!(anstream::stdout(), "{document}")?;
    } else {
        writeln!(anstream::stdout())?;
        terminal.dim(&answer.summary());
    }
    if answer.interrupted { Err(Failure::Interrupted) } else { Ok(()) }
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
            "load_ms": whole_nanoseconds(loaded.load_ms),
            "prefill_ms": prefill_ms.map(whole_nanoseconds),
            "decode_ms": decode_ms.map(whole_nanoseconds),
            "ttft_ms": timings.and_then(|timings| timings.ttft_ms).map(whole_nanoseconds),
            "prefill_tokens_per_s": rate(tokens.map(|tokens| tokens.input), prefill_ms),
            "decode_tokens_per_s":
                rate(tokens.map(|tokens| tokens.output.saturating_sub(1)), decode_ms),
        },
    })
}
