//! The project's own chores, run as `cargo xtask CHORE`.

mod clients;
mod kl;
mod performance;
mod pictures;
mod soak;
mod stages;
mod test;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use workspace::Workspace;

const USAGE: &str = "\
Usage: cargo xtask CHORE

  test [STAGE...]   everything that must hold before a change lands, or only these stages:
                    format tidy tools spelling python dependencies lints binary
                    model tests loom doctests e2e clients
  tidy              the rules that rustfmt and clippy do not know
  e2e [ARGUMENT...] the end-to-end tests alone; the arguments go to pytest
  goldens           records the small random models of the parity tests, and what transformers
                    computes on them, anew
  docs              runs the commands in the documents and writes what they print into them
  performance [--check]
                    makes the table of crates/kernels/PERFORMANCE.md from the raw runs beside it
  pictures [--check]
                    draws the documentation's pictures of terminals anew, or says which are old
  random-distilgpt2 FOLDER
                    writes a random model of DistilGPT-2's shape, with GPT-2's vocabulary
  kl [--kv-type TYPE] [--peer-logits FILE | --peer PROGRAM]
                    mean KL divergence of the engine (and of a peer) from a float forward
  soak clients [--minutes 10] [--clients 64] | vanish [--requests 1000] | scheduler |
       crash [--kills 200]
                    long runs that look whether memory leaks: of the server under many clients,
                    under clients that go away, and of random operations on the scheduler";

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Vec<String>) -> Result<()> {
    let workspace = Workspace::find()?;
    let (chore, rest) = match arguments.split_first() {
        Some((chore, rest)) => (chore.as_str(), rest),
        None => bail!("no chore named\n\n{USAGE}"),
    };
    match chore {
        "test" => test::run(&workspace, rest),
        "tidy" => tidy::run(&workspace),
        "e2e" => test::end_to_end(&workspace, rest),
        "goldens" => tools::record_goldens(&workspace),
        "kl" => kl::run(&workspace, rest),
        "docs" => test::write_documents(&workspace),
        "performance" => performance::run(&workspace, rest),
        "pictures" => pictures::run(&workspace, rest),
        "soak" => soak::run(&workspace, rest),
        "random-distilgpt2" => tools::random_distilgpt2(&workspace, rest),
        "help" | "-h" | "--help" => {
            println!("{USAGE}");
            Ok(())
        }
        other => bail!("no chore is called {other:?}\n\n{USAGE}"),
    }
}
