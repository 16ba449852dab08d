//! `refrain tokenize`: the tokens of a text.

use std::io::Write;

use package::Package;
use serde_json::json;

use crate::cli::TokenizeArguments;
use crate::failure::Failure;
use crate::loading;
use crate::quoted::quoted;
use crate::terminal::{Terminal, say};

pub(crate) fn run(arguments: &TokenizeArguments, terminal: &Terminal) -> Result<(), Failure> {
    let (model, text) = match arguments.words.as_slice() {
        [text] => (None, text),
        [model, text] => (Some(model.as_str()), text),
        words => {
            let text = words.join(" ");
            let message = format!(
                "{} words: put the text in quotes, as refrain tokenize {}; a MODEL comes before it",
                words.len(),
                in_quotes(&text)
            );
            return Err(Failure::Usage(message));
        }
    };
    let found = loading::find(loading::model_or_default(model), terminal);
    let path = found.map_err(|failure| match (failure, model) {
        (Failure::Failed(message), Some(model)) => {
            let whole = in_quotes(&format!("{model} {text}"));
            let hint = format!("if it is no model but text: refrain tokenize {whole}");
            Failure::Failed(format!("{message}; {hint}"))
        }
        (failure, _) => failure,
    })?;
    let package = Package::open_text(&path).map_err(Failure::new)?;
    let tokenizer = &package.tokenizer;
    let ids = tokenizer.encode(text, false).map_err(Failure::new)?.ids;
    let mut out = anstream::stdout();
    if arguments.json {
        let tokens = ids.iter().map(|&id| {
            let bytes = tokenizer.bytes(id).unwrap_or_default();
            json!({"id": id, "text": String::from_utf8_lossy(bytes), "bytes": bytes})
        });
        let tokens = tokens.collect::<Vec<_>>();
        let document = json!({"schema": "refrain.tokenize/1", "ids": ids, "tokens": tokens});
        writeln!(out, "{document}")?;
        return Ok(());
    }
    if ids.is_empty() {
        say(format_args!("no tokens: the text is empty"));
    }
    for &id in &ids {
        writeln!(out, "{id:>8}  {}", quoted(tokenizer.bytes(id).unwrap_or_default()))?;
    }
    Ok(())
}

/// A text as a shell takes it for one word.
fn in_quotes(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::in_quotes;

    #[test]
    fn a_quoted_text_is_one_word() {
        assert_eq!(in_quotes("The cat's"), r"'The cat'\''s'");
    }
}
