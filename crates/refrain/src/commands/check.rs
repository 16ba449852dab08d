//! `refrain check`: hold a model to a promise.

use std::io::Write;
use std::sync::Arc;

use engine::{Cell, ExactOptions, ExactProgress, ExactReport, Outcome, check_exact};

use super::article;
use crate::cli::{Check, CheckArguments, CheckExactArguments};
use crate::failure::Failure;
use crate::loading;
use crate::terminal::Terminal;

pub(crate) fn run(arguments: &CheckArguments, terminal: &Terminal) -> Result<(), Failure> {
    match &arguments.check {
        Check::Exact(arguments) => exact(arguments, terminal),
        Check::Article(arguments) => article::run(arguments, terminal),
    }
}

fn exact(arguments: &CheckExactArguments, terminal: &Terminal) -> Result<(), Failure> {
    let package = Arc::new(loading::open(arguments.model.as_deref(), terminal)?);
    let mut out = anstream::stdout();
    let mut written = Ok(());
    if !arguments.json {
        writeln!(
            out,
            "isa       K/V   threads chunk  prefix    beside  served  reused  shared steps  \
             preempted  guessed right  bits"
        )?;
    }
    // The cells themselves are the progress, where they are written.
    let work = arguments.json.then(|| terminal.steps("Checking"));
    let (mut cells, mut steps) = (0, 0);
    let mut progress = |progress: ExactProgress<'_>| {
        match progress {
            ExactProgress::Step => steps += 1,
            ExactProgress::Cell(cell) => {
                cells += 1;
                if !arguments.json && written.is_ok() {
                    written = writeln!(out, "{}", line(cell));
                }
            }
        }
        if let Some(work) = &work {
            work.tell(|| format!("{cells} cells and {steps} steps done"));
        }
    };
    let options = ExactOptions { kv_type: arguments.kv_type, ..ExactOptions::default() };
    let report = check_exact(&package, &options, &mut progress).map_err(Failure::new)?;
    written?;
    if arguments.json {
        let document = serde_json::to_string(&report).map_err(Failure::new)?;
        writeln!(out, "{document}")?;
    } else {
        summarize(&mut out, &report)?;
    }
    if report.passed { Ok(()) } else { Err(Failure::CheckFailed) }
}

fn line(cell: &Cell) -> String {
    let chunk = cell.chunk.map_or("all".to_owned(), |rows| rows.to_string());
    let prefix = if cell.cached { "reused" } else { "computed" };
    let outcome = match &cell.outcome {
        Outcome::Equal => format!("equal in {} rows of {} requests", cell.rows, cell.requests),
        Outcome::Different(difference) => format!("DIFFERENT: {difference:?}"),
        Outcome::ConditionMissed { condition } => format!("NOT TESTED: {condition}"),
        Outcome::Failed { error } => format!("FAILED: {error}"),
    };
    format!(
        "{:<10}{:<6}{:>6}{chunk:>7}  {prefix:<8}{:>8}{:>8}{:>8}{:>14}{:>11}{:>9}{:>6}  {outcome}",
        cell.isa,
        cell.kv_type,
        cell.threads,
        cell.neighbours_beside,
        cell.neighbours_served,
        cell.reused_tokens,
        cell.shared_steps,
        cell.preemptions,
        cell.proposed,
        cell.accepted,
    )
}

fn summarize(out: &mut impl Write, report: &ExactReport) -> std::io::Result<()> {
    for test in &report.self_tests {
        let caught = if test.caught { "caught" } else { "NOT CAUGHT" };
        writeln!(out, "{:<10}a kernel whose bits depend on the batch is {caught}", test.isa)?;
    }
    let equal = report.cells.iter().filter(|cell| cell.outcome == Outcome::Equal).count();
    let verdict = if report.passed { "exact" } else { "NOT exact" };
    writeln!(out, "{}: {verdict}; {equal} of {} cells equal", report.model, report.cells.len())
}
