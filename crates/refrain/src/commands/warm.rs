//! `refrain serve --warm FILE`: prompts that are computed before anybody asks, and for whom.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Instant;

use cache::Namespace;
use doctor::{PROMPT_BYTES_MAX, Prompt, PromptMaker};
use engine::{Engine, Event, PRIORITY_MAX, Request};
use serde_json::Value;
use server::Callers;

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
    callers: Option<&Callers>,
) -> Result<Vec<WarmPrompt>, Failure> {
    let failed = |problem: String| Failure::new(format!("--warm {}: {problem}", path.display()));
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
        // With this ending, it is a request's body or wrong, and not a text.
        let prompt = Prompt::read(&format!("line {line}.json"), bytes, maker)
            .map_err(|error| failed(format!("line {line}: {}", error.message)))?;
        let namespace = namespace(&prompt, callers)
            .map_err(|problem| failed(format!("line {line}: {problem}")))?;
        prompts.push(WarmPrompt { line, namespace, tokens: prompt.tokens });
    }
    Ok(prompts)
}

/// Whose the prompt of a line is: everybody's with `"public": true`; else that of the API key whose
/// name is in `"key"` where keys are asked for, and where not, of callers without one.
fn namespace(prompt: &Prompt, callers: Option<&Callers>) -> Result<Namespace, String> {
    let field = |name: &str| prompt.body.as_ref().and_then(|body| body.get(name));
    let salt = field("cache_salt").and_then(Value::as_str);
    let is_public = match field("public") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(public)) => *public,
        Some(_) => return Err("'public' must be true or false".to_owned()),
    };
    let key = match field("key") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) => Some(name.as_str()),
        Some(_) => return Err("'key' must be the name of an API key".to_owned()),
    };
    match (is_public, key, callers) {
        (true, None, _) if salt.is_none() => Ok(Namespace::shared()),
        (true, ..) => Err("what is public has neither 'key' nor 'cache_salt'".to_owned()),
        (false, None, None) => Ok(prompt.namespace),
        (false, Some(_), None) => Err("'key' needs --api-keys".to_owned()),
        (false, None, Some(_)) => {
            Err("with --api-keys, say whose it is: \"key\": NAME or \"public\": true".to_owned())
        }
        (false, Some(name), Some(callers)) if callers.knows(name) => {
            Ok(callers.namespace(name, salt))
        }
        (false, Some(name), Some(_)) => Err(format!("no API key has the name {name:?}")),
    }
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
    pinned.map(|pinned| pinned.tokens).map_err(|error| error.to_string())
}
