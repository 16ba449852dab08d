//! The `refrain` binary: flags, terminal output and exit codes. Everything else is a library's.

mod access_arguments;
mod bytes;
mod cli;
mod commands;
mod engine_arguments;
mod examples;
mod explain;
mod failure;
mod interrupt;
mod loading;
mod plot;
mod quoted;
mod screen;
mod server_arguments;
mod server_client;
mod terminal;
mod usage;
mod values;
mod whole_file;
mod words;

use std::process::ExitCode;

use cli::Command;

fn main() -> ExitCode {
    let cli = match usage::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    interrupt::watch();
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
        Command::Cache(arguments) => commands::cache::run(&arguments, &terminal),
        Command::Check(arguments) => commands::check::run(&arguments, &terminal),
        Command::Key(arguments) => commands::key::run(&arguments),
        Command::Completions(arguments) => commands::completions::run(&arguments),
        Command::Man(arguments) => commands::man::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
