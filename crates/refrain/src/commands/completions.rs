//! `refrain completions`: what a shell needs to complete a command line.

use std::io::Write;

use clap_complete::Shell;

use crate::cli::CompletionsArguments;
use crate::failure::Failure;
use crate::usage;

pub(crate) fn run(arguments: &CompletionsArguments) -> Result<(), Failure> {
    // Into memory first: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut usage::command(false), "refrain", &mut script);
    let mut script = String::from_utf8(script).map_err(Failure::new)?;
    if arguments.shell == Shell::Zsh {
        script = with_files(&script);
    }
    std::io::stdout().write_all(script.as_bytes())?;
    Ok(())
}

/// Zsh completes either the words that it is told or files: a model is one or the other. (Bash and
/// fish take files where no word fits.)
fn with_files(script: &str) -> String {
    let aliases = package::ALIASES.join(" ");
    let models = format!(
        "\n\n_refrain_models() {{\n    _alternative 'aliases:alias:({aliases})' \
         'files:file:_files'\n}}\n"
    );
    let script = script.replace(&format!(":({aliases})'"), ":_refrain_models'");
    script.replacen('\n', &models, 1)
}
