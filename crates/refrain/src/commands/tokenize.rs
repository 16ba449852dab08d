//! `refrain tokenize`: the tokens of a text.

use std::io::Write;

use package::Package;
use serde_json::json;

use crate::cli::TokenizeArguments;
use crate::failure::Failure;
use crate::loading;
use crate::quoted::quoted;
use crate::terminal::Terminal;

pub(crate) fn run(arguments: &TokenizeArguments, terminal: &Terminal) -> Result<(), Failure> {
    let (model, text) = match arguments.words.as_slice() {
        [text] => (None, text),
        [model, text] => (Some(model.as_str()), text),
        _ => return Err(Failure::Usage("give a text, or a model and a text".to_owned())),
    };
    let path = loading::find(loading::model_or_default(model), terminal)?;
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
    for &id in &ids {
        writeln!(out, "{id:>8}  {}", quoted(tokenizer.bytes(id).unwrap_or_default()))?;
    }
    Ok(())
}
