//! The command line as clap is told it: its help, its colours, and what is said of a wrong value.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anstream::ColorChoice;
use clap::error::{ContextKind, ContextValue, Error};
use clap::{Arg, Command, CommandFactory, FromArgMatches};

use crate::cli::Cli;
use crate::examples;
use crate::failure::Failure;
use crate::screen::Screen;
use crate::terminal;

/// Help is not written wider than this.
const WIDTH_MAX: usize = 100;
/// What stands before a usage.
const USAGE: &str = "Usage: ";
/// What a command is, then its examples (`--help` alone has them), then its flags.
const TEMPLATE: &str = "\
{about-with-newline}
{before-help}{usage-heading} {usage}

{all-args}{after-help}";

/// The flags of this run; or, once help or a usage error is printed, the exit code.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let color = terminal::color_choice(
        color_flag(&words),
        |name| std::env::var(name).ok(),
        std::io::stdout().is_terminal() && std::io::stderr().is_terminal(),
    );
    color.write_global();
    let short = words.iter().any(|word| word == "-h");
    let mut command = command_to_show(short).color(match color {
        ColorChoice::Always | ColorChoice::AlwaysAnsi => clap::ColorChoice::Always,
        ColorChoice::Never => clap::ColorChoice::Never,
        ColorChoice::Auto => clap::ColorChoice::Auto,
    });
    let parsed = command
        .clone()
        .try_get_matches_from(&words)
        .and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    parsed.map_err(|error| {
        command.build();
        print(&name_the_variable(error, &command, &words))
    })
}

/// Prints help or an error. Help that could not be written is no success.
fn print(error: &Error) -> ExitCode {
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    match printed {
        Err(problem) if !error.use_stderr() => Failure::from(problem).report(),
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1)),
    }
}

/// The whole command line; `short` leaves out what only `--help` has room for.
pub(crate) fn command(short: bool) -> Command {
    let width = Screen::detect().width.min(WIDTH_MAX);
    complete(Cli::command().term_width(width), "", short)
}

/// The same with usages that keep to the screen's width, which clap does not break.
fn command_to_show(short: bool) -> Command {
    let mut command = command(short);
    command.build();
    with_short_usage(command, Screen::detect().width)
}

fn with_short_usage(mut command: Command, width: usize) -> Command {
    let usage = command.render_usage().to_string();
    let words = usage.strip_prefix(USAGE).unwrap_or(&usage).trim();
    if USAGE.len() + words.len() > width {
        let mut lines = vec![String::new()];
        // What belongs to a flag stays with it.
        for word in words.replace(" <", "\u{a0}<").split(' ') {
            match lines.last_mut() {
                Some(line) if USAGE.len() + line.len() + 1 + word.len() <= width => {
                    line.push_str(if line.is_empty() { "" } else { " " });
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        let indent = format!("\n{:indent$}", "", indent = USAGE.len());
        command = command.override_usage(lines.join(&indent).replace('\u{a0}', " "));
    }
    let below: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in below {
        command = command.mut_subcommand(name, |below| with_short_usage(below, width));
    }
    command
}

/// A line of examples in lines of at most `width` where it can be broken: its explanation goes
/// below it, and a command goes on behind a backslash, before a flag or a redirection.
fn fitted(line: &str, width: usize) -> Vec<String> {
    if line.len() <= width {
        return vec![line.to_owned()];
    }
    let (command, explanation) = match line.trim_start().split_once("  ") {
        Some((command, explanation)) => (command, explanation.trim()),
        None if line.starts_with("   ") => ("", line.trim()),
        None => (line, ""),
    };
    let (mut lines, mut quoted) = (Vec::new(), false);
    let mut current = String::new();
    for word in command.split_inclusive(' ') {
        let breaks = !quoted && (word.starts_with(['-', '>', '|', '\'', '~']));
        if breaks && current.len() + word.trim_end().len() + 2 > width && !current.is_empty() {
            lines.push(format!("{}\\", std::mem::take(&mut current)));
            current.push_str("    ");
        }
        current.push_str(word);
        quoted ^= word.matches('\'').count() % 2 == 1;
    }
    lines.push(current.trim_end().to_owned());
    if !explanation.is_empty() {
        lines.push(format!("    # {explanation}"));
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// Adds what the derive macro cannot say to `command` and to the commands below it.
fn complete(command: Command, path: &str, short: bool) -> Command {
    let below: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let mut command = command.help_template(TEMPLATE);
    if let Some(examples) = examples::of(path) {
        let width = Screen::detect().width;
        let lines = examples.lines().flat_map(|line| fitted(line, width.saturating_sub(2)));
        let indented = lines.map(|line| format!("  {line}\n")).collect::<String>();
        command = command.before_long_help(format!("Examples:\n{indented}"));
    }
    if short {
        command = command.mut_args(|arg| arg.hide_env(true).hide_possible_values(true));
    }
    command = command.mut_args(|arg| {
        // A negative number is a value, and a wrong one is told from a flag that is not there.
        let takes_values = arg.get_action().takes_values();
        let is_model = arg.get_id() == "model";
        let arg = arg.hide_env_values(true).allow_negative_numbers(takes_values);
        if is_model { arg.hide_possible_values(true) } else { arg }
    });
    for name in below {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(name, |below| complete(below, path.trim(), short));
    }
    command
}

/// The last value of `--color`, also where the rest of the command line is wrong.
fn color_flag(words: &[OsString]) -> Option<&str> {
    let words = words.iter().map(|word| word.to_str().unwrap_or_default());
    let words: Vec<&str> = words.take_while(|word| *word != "--").collect();
    let value = |at: usize| match words[at].strip_prefix("--color")? {
        "" => words.get(at + 1).copied(),
        value => value.strip_prefix('='),
    };
    (0..words.len()).rev().find_map(value)
}

/// Where a wrong value came from the environment, the error says from which variable.
fn name_the_variable(mut error: Error, command: &Command, words: &[OsString]) -> Error {
    let (Some(ContextValue::String(flag)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    else {
        return error;
    };
    let from_variable = |arg: &&Arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let given = words.iter().filter_map(|word| word.to_str()).any(|word| {
            let name = word.split_once('=').map_or(word, |(name, _)| name);
            long.as_deref() == Some(name)
        });
        let set = arg.get_env().and_then(|name| std::env::var(name).ok());
        arg.to_string() == *flag && !given && set.as_ref() == Some(value)
    };
    let found = command.get_subcommands().flat_map(Command::get_arguments).find(from_variable);
    if let Some(name) = found.and_then(Arg::get_env) {
        let tip = format!("the value is that of the variable {}", name.display());
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands below `command`, with their paths.
    fn all(command: &Command, path: &str) -> Vec<(String, Command)> {
        let below = command.get_subcommands().flat_map(|below| {
            let path = format!("{path} {}", below.get_name());
            all(below, path.trim())
        });
        let below: Vec<_> = below.collect();
        [vec![(path.to_owned(), command.clone())], below].concat()
    }

    #[test]
    fn the_command_line_is_sound() {
        command(false).debug_assert();
        command(true).debug_assert();
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let command = command(false);
        for (path, _) in all(&command, "") {
            let examples = examples::of(&path);
            let examples = examples.unwrap_or_else(|| panic!("{path:?} has no examples"));
            assert!(examples.contains("refrain"), "{path:?}");
        }
        for (path, text) in examples::EXAMPLES {
            for line in text.lines().filter(|line| line.contains("refrain ")) {
                let words = words_of(line);
                let parsed = command.clone().try_get_matches_from(&words);
                let parsed = parsed.map(drop).map_err(|error| error.to_string());
                assert_eq!(parsed, Ok(()), "{path:?}: {words:?}");
            }
            assert!(text.lines().all(|line| line.len() <= 78), "{path:?} is too wide");
        }
    }

    /// The words of an example as a shell splits them, up to its explanation or redirection.
    fn words_of(line: &str) -> Vec<String> {
        let line = &line[line.find("refrain ").unwrap_or(0)..];
        let line = line.split("  ").next().unwrap_or(line);
        let line = line.split([';', '|', '<', '>', ')']).next().unwrap_or(line);
        let mut words = vec![String::new()];
        let mut quoted = false;
        for character in line.trim_end().chars() {
            match character {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                other => words.last_mut().expect("one is there").push(other),
            }
        }
        words
    }

    #[test]
    fn the_last_color_counts() {
        let flag = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            color_flag(&words).map(str::to_owned)
        };
        let found = |value: &str| Some(value.to_owned());
        assert_eq!(flag(&["refrain", "info"]), None);
        assert_eq!(flag(&["refrain", "--color", "never", "info"]), found("never"));
        assert_eq!(flag(&["refrain", "--color=never", "info", "--color=always"]), found("always"));
        assert_eq!(flag(&["refrain", "tokenize", "--", "--color=always"]), None);
    }
}
