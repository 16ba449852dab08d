//! The chat of `refrain run` on a terminal.

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use serde_json::json;
use std::io::Write;
use tokio::runtime::Runtime;

use super::answer::{answer, chat_request, opening};
use crate::cli::RunArguments;
use crate::failure::Failure;
use crate::loading::Loaded;
use crate::terminal::{Terminal, say};

const HELP: &str = "\
/new      begin another conversation
/exit     leave
/help     this
Ctrl-C    stops the answer
Ctrl-D    leaves";

/// Asks, answers, and keeps the conversation, until the input ends.
pub(super) fn run(
    arguments: &RunArguments,
    loaded: &Loaded,
    runtime: &Runtime,
    terminal: &Terminal,
) -> Result<(), Failure> {
    terminal.dim("Ask away; /help shows the commands, Ctrl-D leaves.");
    let mut editor = DefaultEditor::new().map_err(Failure::new)?;
    let mut messages = opening(arguments);
    loop {
        let line = match editor.readline("> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                terminal.dim("Ctrl-D leaves.");
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(Failure::new(error)),
        };
        match line.trim() {
            "" => continue,
            "/help" => terminal.dim(HELP),
            "/exit" | "/quit" => return Ok(()),
            "/new" => {
                messages = opening(arguments);
                terminal.dim("A new conversation.");
            }
            command if command.starts_with('/') && !command.contains(char::is_whitespace) => {
                terminal.dim(&format!("There is no command {command}; /help shows them."));
            }
            text => {
                // Typing it again is a matter of an arrow key; a full history is no reason to stop.
                let _ = editor.add_history_entry(text);
                messages.push(json!({"role": "user", "content": text}));
                turn(arguments, loaded, runtime, terminal, &mut messages)?;
            }
        }
    }
}

/// One answer. If it cannot be given, the conversation is as it was before the question.
fn turn(
    arguments: &RunArguments,
    loaded: &Loaded,
    runtime: &Runtime,
    terminal: &Terminal,
    messages: &mut Vec<serde_json::Value>,
) -> Result<(), Failure> {
    let result = chat_request(arguments, &loaded.package, messages)
        .and_then(|request| runtime.block_on(answer(&loaded.engine, request, None)));
    match result {
        Ok(answer) => {
            writeln!(anstream::stdout())?;
            terminal.dim(&answer.summary());
            messages.push(json!({"role": "assistant", "content": answer.text}));
            Ok(())
        }
        Err(Failure::Failed(message)) => {
            messages.pop();
            say(format_args!("{message}; /new begins another conversation"));
            Ok(())
        }
        Err(other) => Err(other),
    }
}
