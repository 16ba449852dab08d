//! `refrain trace`: every step of one prompt's way through the model.

mod layer;
mod paper;
mod walk;

use std::io::Write;

use engine::EngineOptions;
use engine::trace::{Options, trace};
use package::Package;
use serde_json::json;

use super::answer::conversation;
use crate::cli::TraceArguments;
use crate::failure::Failure;
use crate::loading;
use crate::screen::Screen;
use crate::terminal::Terminal;

pub(crate) fn run(arguments: &TraceArguments, terminal: &Terminal) -> Result<(), Failure> {
    let package = loading::open(arguments.model.as_deref(), terminal)?;
    let prompt = prompt(arguments, &package)?;
    let options =
        EngineOptions { threads: arguments.threads.map(usize::from), ..EngineOptions::default() };
    let work = terminal.work("Loading");
    let progress = |done, total| work.set(done, total);
    let mut model = options.load(&package, &progress).map_err(Failure::new)?;
    drop(work);
    let options = Options {
        layer: arguments.layer,
        head: arguments.head,
        query: arguments.query,
        decode: arguments.decode,
        top: usize::from(arguments.top),
        keep: &|_| false,
    };
    let trace = trace(&mut model, &package, &prompt, &options).map_err(Failure::new)?;
    if arguments.json {
        let document = serde_json::to_string(&trace).map_err(Failure::new)?;
        writeln!(anstream::stdout(), "{document}")?;
        return Ok(());
    }
    walk::draw(Screen::detect(), &trace, &package, arguments.rows)?;
    Ok(())
}

/// The prompt's token ids.
fn prompt(arguments: &TraceArguments, package: &Package) -> Result<Vec<u32>, Failure> {
    if arguments.chat {
        let message = json!({"role": "user", "content": arguments.prompt});
        let (_, encoding) = conversation(package, &[message], "leave --chat out")?;
        return Ok(encoding.ids);
    }
    Ok(package.tokenizer.encode(&arguments.prompt, true).map_err(Failure::new)?.ids)
}
