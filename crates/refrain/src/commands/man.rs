//! `refrain man`: the manual.

use std::io::Write;
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

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
        None => {
            let path = arguments.command.join(" ");
            let found = below(&command, &arguments.command)?;
            std::io::stdout().write_all(&page(found, &path)?)?;
        }
        Some(folder) => write_pages(&command, "", folder)?,
    }
    Ok(())
}

/// The command that `words` name; all of them together, as `check exact`.
fn below<'a>(command: &'a Command, words: &[String]) -> Result<&'a Command, Failure> {
    words.iter().try_fold(command, |command, word| {
        command.find_subcommand(word).ok_or_else(|| {
            let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            let message = match names.as_slice() {
                [] => format!("{} has no command below it, and so no {word:?}", command.get_name()),
                names => format!("there is no page of {word:?}; there are {}", names.join(", ")),
            };
            Failure::Usage(message)
        })
    })
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

/// The usage with the value of every flag; those that all commands have stand last, by themselves.
fn synopsis(command: &Command, path: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    let name = format!("refrain {path}");
    let mut own = vec![bold(name.trim())];
    let spaced = |arg: &&Arg| [vec![roman(" ")], usage_of(arg)].concat();
    let (flags, words): (Vec<&Arg>, Vec<&Arg>) = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set())
        .filter(|arg| !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version))
        .partition(|arg| !arg.is_positional());
    let (global, flags): (Vec<&Arg>, Vec<&Arg>) =
        flags.into_iter().partition(|arg| arg.is_global_set());
    flags.iter().chain(&words).for_each(|arg| own.extend(spaced(arg)));
    if command.has_subcommands() {
        own.extend([roman(" "), italic("COMMAND")]);
    }
    roff.text(own).control("br", []);
    roff.text(global.iter().flat_map(spaced).skip(1).collect::<Vec<_>>());
    roff
}

/// `[--flag VALUE]`, without the brackets where it is required.
fn usage_of(arg: &Arg) -> Vec<Inline> {
    let required = arg.is_required_set();
    let mut parts = vec![roman(if required { "" } else { "[" })];
    if let Some(long) = arg.get_long() {
        parts.push(bold(format!("--{long}")));
    }
    if arg.get_action().takes_values() {
        let names = arg.get_value_names().unwrap_or_default();
        let names = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ");
        if arg.get_long().is_some() {
            parts.push(roman(" "));
        }
        parts.push(italic(names));
    }
    parts.push(roman(match (arg.get_action(), required) {
        (ArgAction::Append, true) => "...",
        (ArgAction::Append, false) => "]...",
        (_, true) => "",
        (_, false) => "]",
    }));
    parts
}

/// The page of the command at `path`.
fn page(command: &Command, path: &str) -> std::io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    let man = man.source(concat!("refrain ", env!("CARGO_PKG_VERSION"))).manual("Refrain");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis(command, path).to_writer(&mut page)?;
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
