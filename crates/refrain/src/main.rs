//! The `refrain` binary: flags, terminal output and exit codes. Everything else is a library's.

mod bytes;
mod cli;
mod commands;
mod explain;
mod failure;
mod loading;
mod quoted;
mod screen;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let terminal = terminal::Terminal::new(&cli.output);
    let result = match cli.command {
        Command::Serve(arguments) => commands::serve::run(&arguments, &terminal),
        Command::Run(arguments) => commands::run::run(&arguments, &terminal),
        Command::Trace(arguments) => commands::trace::run(&arguments, &terminal),
        Command::Pull(arguments) => commands::pull::run(&arguments, &terminal),
        Command::Info(arguments) => commands::info::run(&arguments, &terminal),
        Command::Tokenize(arguments) => commands::tokenize::run(&arguments, &terminal),
        Command::Why(arguments) => commands::why::run(&arguments, &terminal),
        Command::Bench(arguments) => commands::bench::run(&arguments, &terminal),
        Command::Check(arguments) => commands::check::run(&arguments, &terminal),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
