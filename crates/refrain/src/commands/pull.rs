//! `refrain pull`: fetch a model into the cache and verify it.

use std::io::Write;

use serde_json::json;

use crate::cli::PullArguments;
use crate::failure::Failure;
use crate::loading;
use crate::terminal::Terminal;

pub(crate) fn run(arguments: &PullArguments, terminal: &Terminal) -> Result<(), Failure> {
    let model = loading::model_or_default(arguments.model.as_deref());
    let path = loading::fetch(model, terminal)?;
    let mut out = anstream::stdout();
    if arguments.json {
        let document = json!({"schema": "refrain.pull/1", "model": model, "path": path});
        writeln!(out, "{document}")?;
    } else {
        writeln!(out, "{}", path.display())?;
    }
    Ok(())
}
