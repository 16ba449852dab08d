//! `refrain check article`: the article's checklist on a screen.

use std::io::Write;
use std::sync::Arc;

use anstyle::{AnsiColor, Style};
use article::{ArticleOptions, ArticleReport, Outcome, RowReport, SelfTest, Totals, check_article};
use package::Package;
use unicode_width::UnicodeWidthStr;

use crate::cli::CheckArticleArguments;
use crate::failure::Failure;
use crate::loading;
use crate::screen::Screen;
use crate::terminal::Terminal;

/// Columns before a row's claim: its number, its needs and its outcome.
const MARGIN: usize = 4 + 3 + 9;
/// Columns between a claim and what was found.
const GAP: usize = 2;
/// Least columns in which the beginning of what was found is shown.
const BESIDE_LEAST: usize = 16;

pub(crate) fn run(arguments: &CheckArticleArguments, terminal: &Terminal) -> Result<(), Failure> {
    let package = Arc::new(loading::open(arguments.model.as_deref(), terminal)?);
    let real = arguments.distilgpt2.as_deref().map(Package::open).transpose();
    let options = ArticleOptions {
        real: real.map_err(Failure::new)?.map(Arc::new),
        threads: arguments.threads.map(usize::from),
    };
    let mut progress = |work: &str| terminal.status("Checking", work);
    let report = check_article(&package, &options, &mut progress).map_err(Failure::new)?;
    let mut out = anstream::stdout();
    if arguments.json {
        let document = serde_json::to_string(&report).map_err(Failure::new)?;
        writeln!(out, "{document}")?;
    } else {
        write(&mut out, &report, Screen::detect())?;
    }
    if report.passed { Ok(()) } else { Err(Failure::CheckFailed) }
}

fn write(out: &mut impl Write, report: &ArticleReport, screen: Screen) -> std::io::Result<()> {
    let bold = Style::new().bold();
    for section in &report.sections {
        let rows = || report.rows.iter().filter(|row| row.section == section.letter);
        let counts = counts(Totals::of(rows()));
        writeln!(out, "{bold}{} {}{bold:#}  {counts}", section.letter, section.title)?;
        for row in rows() {
            write_row(out, row, screen)?;
        }
        writeln!(out)?;
    }
    for test in &report.self_tests {
        write_self_test(out, test, screen)?;
    }
    let verdict = if report.passed { "ok" } else { "NOT ok" };
    let (model, counts) = (screen.text(&report.model), counts(report.totals));
    writeln!(out, "{model}: {verdict}; of {} rows {counts}", report.rows.len())
}

/// What the rows noticed of a broken engine.
fn write_self_test(out: &mut impl Write, test: &SelfTest, screen: Screen) -> std::io::Result<()> {
    let caught = if test.caught { "caught" } else { "NOT caught" };
    writeln!(out, "{caught:<10}  {}: {} rows turn to not ok", test.fault, test.turned.len())?;
    let list = |rows: &[u16]| {
        let rows: Vec<String> = rows.iter().map(u16::to_string).collect();
        screen.list(&rows, " ", screen.width.saturating_sub(12 + 22))
    };
    for (rows, what) in
        [(&test.missed, "should have too: "), (&test.unexpected, "should not have: ")]
    {
        if !rows.is_empty() {
            writeln!(out, "{:12}{what}{}", "", list(rows))?;
        }
    }
    Ok(())
}

fn counts(totals: Totals) -> String {
    let Totals { ok, not_ok, not_run } = totals;
    let counts = [(ok, "ok"), (not_ok, "not ok"), (not_run, "not run")];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    counts.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

/// A row in one line; in more where it must say more than fits.
fn write_row(out: &mut impl Write, row: &RowReport, screen: Screen) -> std::io::Result<()> {
    let needs: String = row.needs.iter().map(|need| need.letter()).collect();
    let needs = if needs.is_empty() { "-" } else { &needs };
    let (outcome, color, details) = match &row.outcome {
        Outcome::Ok { found, .. } => ("ok", AnsiColor::Green, vec![found.clone()]),
        Outcome::NotRun { reason } => ("not run", AnsiColor::Yellow, vec![reason.clone()]),
        Outcome::NotOk { what, expected, found } => (
            "not ok",
            AnsiColor::Red,
            vec![format!("{what}: expected {expected}"), format!("found {found}")],
        ),
    };
    let (style, dim) = (Style::new().fg_color(Some(color.into())), Style::new().dimmed());
    let columns = screen.width.saturating_sub(MARGIN);
    let claim = screen.fit(row.claim, columns);
    write!(out, "{:>3} {needs:<3}{style}{outcome:<9}{style:#}{claim}", row.row)?;
    let beside = columns.saturating_sub(claim.width() + GAP);
    let whole = details.len() == 1 && screen.text(&details[0]).width() <= beside;
    if whole || outcome == "ok" && beside >= BESIDE_LEAST {
        let detail = screen.fit(&details[0], beside);
        return writeln!(out, "{:GAP$}{dim}{detail}{dim:#}", "");
    }
    writeln!(out)?;
    for detail in details.iter().filter(|_| outcome != "ok") {
        let detail = screen.fit(detail, columns.saturating_sub(GAP));
        writeln!(out, "{:indent$}{dim}{detail}{dim:#}", "", indent = MARGIN + GAP)?;
    }
    Ok(())
}
