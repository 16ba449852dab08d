//! `refrain key`: a new API key.

use std::io::Write;

use serde_json::json;
use server::NewKey;

use crate::cli::KeyArguments;
use crate::failure::Failure;
use crate::terminal::say;

pub(crate) fn run(arguments: &KeyArguments) -> Result<(), Failure> {
    let name = &arguments.name;
    let NewKey { key, line } = NewKey::random(name).map_err(Failure::new)?;
    let mut out = anstream::stdout();
    if arguments.json {
        let name = name.as_str();
        let document = json!({"schema": "refrain.key/1", "name": name, "key": key, "line": line});
        writeln!(out, "{document}")?;
        return Ok(());
    }
    // Said also with --quiet: it cannot be had again. After the line, so that nobody is given a key
    // whose line could not be written.
    writeln!(out, "{line}")?;
    out.flush()?;
    say(format_args!("{key}"));
    Ok(())
}
