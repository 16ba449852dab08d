//! `refrain man`: the manual.

use std::io::Write;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::ManArguments;
use crate::examples;
use crate::failure::Failure;
use crate::usage;

const EXIT_STATUS: [(&str, &str); 5] = [
    ("0", "Done; also when whoever read the output went away."),
    ("1", "It failed; the error says why, and what to do."),
    ("2", "The command line was wrong."),
    ("3", "A check found what it looks for."),
    ("130", "Interrupted."),
];

pub(crate) fn run(arguments: &ManArguments) -> Result<(), Failure> {
    let mut command = usage::command(false).disable_help_subcommand(true);
    command.build();
    match &arguments.dir {
        None => std::io::stdout().write_all(&page(&command, "")?)?,
        Some(folder) => write_pages(&command, "", folder)?,
    }
    Ok(())
}

/// The page of `command`, and of those below it, as `refrain-check-exact.1`.
fn write_pages(command: &Command, path: &str, folder: &Path) -> Result<(), Failure> {
    let name = format!("refrain {path}").trim().replace(' ', "-");
    let file = folder.join(format!("{name}.1"));
    let failed = |error: std::io::Error| {
        let (file, folder) = (file.display(), folder.display());
        Failure::new(format!("cannot write {file}: {error}; is {folder} a directory of yours?"))
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    std::fs::write(&file, page(command, path)?).map_err(failed)?;
    for below in command.get_subcommands() {
        let path = format!("{path} {}", below.get_name());
        write_pages(below, path.trim(), folder)?;
    }
    Ok(())
}

/// The page of the command at `path`.
fn page(command: &Command, path: &str) -> std::io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    let man = man.source(concat!("refrain ", env!("CARGO_PKG_VERSION"))).manual("Refrain");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if let Some(examples) = examples::of(path) {
        let mut roff = Roff::new();
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []).to_writer(&mut page)?;
    }
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT_STATUS {
        roff.control("TP", []).text([roman(code)]).text([roman(meaning)]);
    }
    roff.to_writer(&mut page)?;
    Ok(page)
}
