//! `refrain completions`: what a shell needs to complete a command line.

use std::io::Write;

use crate::cli::CompletionsArguments;
use crate::failure::Failure;
use crate::usage;

pub(crate) fn run(arguments: &CompletionsArguments) -> Result<(), Failure> {
    // Into memory first: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut usage::command(false), "refrain", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}
