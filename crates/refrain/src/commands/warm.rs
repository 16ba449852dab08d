//! `refrain serve --warm FILE`: prompts that are computed before anybody asks.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Instant;

use cache::Namespace;
use doctor::{PROMPT_BYTES_MAX, Prompt, PromptMaker};
use engine::{Engine, Event, PRIORITY_MAX, Request};

use crate::failure::Failure;
use crate::loading::Loaded;
use crate::terminal::Terminal;
use crate::words::{counted, grouped};

/// Lines that a file may have: there are no more pins.
const LINES_MAX: usize = 1_000;

/// A prompt to be computed and pinned.
pub(crate) struct WarmPrompt {
    line: usize,
    namespace: Namespace,
    tokens: Vec<u32>,
}

/// Reads the prompts of a file, a request's body a line.
pub(crate) fn read(
    path: &Path,
    loaded: &Loaded,
    date: Option<&str>,
) -> Result<Vec<WarmPrompt>, Failure> {
    let failed = |problem: String| Failure::new(format!("{}: {problem}", path.display()));
    let maker = PromptMaker {
        tokenizer: &loaded.package.tokenizer,
        chat_template: loaded.package.chat_template.as_ref(),
        date,
        context: Some(loaded.engine.info().context),
        known: None,
    };
    let mut reader = BufReader::new(File::open(path).map_err(|error| failed(error.to_string()))?);
    let mut prompts = Vec::new();
    for line in 1.. {
        let mut bytes = Vec::new();
        // One byte more than is accepted, so that a longer line is seen to be one.
        let mut limited = reader.by_ref().take(PROMPT_BYTES_MAX as u64 + 1);
        let read = limited.read_until(b'\n', &mut bytes);
        if read.map_err(|error| failed(error.to_string()))? == 0 {
            break;
        }
        let bytes = bytes.trim_ascii();
        if bytes.len() > PROMPT_BYTES_MAX {
            return Err(failed(format!("line {line} is longer than {PROMPT_BYTES_MAX} bytes")));
        }
        if bytes.is_empty() {
            continue;
        }
        if prompts.len() >= LINES_MAX {
            return Err(failed(format!("line {line} is one too many: at most {LINES_MAX}")));
        }
        let prompt = Prompt::read(&format!("line {line}"), bytes, maker)
            .map_err(|error| failed(format!("line {line}: {}", error.message)))?;
        prompts.push(WarmPrompt { line, namespace: prompt.namespace, tokens: prompt.tokens });
    }
    Ok(prompts)
}

/// Computes the prompts one after the other, behind all requests, and pins each; until `ending`.
pub(crate) async fn compute(
    prompts: Vec<WarmPrompt>,
    engine: Engine,
    ending: &Cell<bool>,
    terminal: &Terminal,
) {
    let begun = Instant::now();
    let (count, mut kept, mut tokens) = (prompts.len(), 0, 0);
    terminal.status("Warming", &counted(count, "prompt"));
    for WarmPrompt { line, namespace, tokens: prompt } in prompts {
        if ending.get() {
            return;
        }
        match compute_one(&engine, line, namespace, prompt).await {
            Ok(pinned) => {
                kept += 1;
                tokens += pinned;
            }
            Err(problem) => {
                let text = format!("line {line} of the prompts to warm is not kept: {problem}");
                terminal.status("Warning", &text);
            }
        }
    }
    let tokens = grouped(tokens as u64);
    let seconds = begun.elapsed().as_secs_f64();
    let text = format!("{kept} of {count} prompts, {tokens} tokens, in {seconds:.1} s");
    terminal.status("Warmed", &text);
}

async fn compute_one(
    engine: &Engine,
    line: usize,
    namespace: Namespace,
    tokens: Vec<u32>,
) -> Result<usize, String> {
    let name = format!("warm-{line}");
    let request = Request {
        max_tokens: Some(0),
        priority: PRIORITY_MAX,
        ..Request::new(name.clone(), tokens.clone(), namespace)
    };
    let mut events = engine.submit(request).map_err(|error| error.to_string())?;
    while let Some(event) = events.recv().await {
        if let Event::Failed(error) = event {
            return Err(error.to_string());
        }
    }
    let pinned = engine.pin_prefix(namespace, name, tokens).await;
    pinned.map_err(|error| error.to_string())?.map_err(|refused| refused.to_string())
}
