//! `refrain check article`: the article's checklist on a screen.

use std::io::{Result, Write};
use std::sync::Arc;

use anstyle::{AnsiColor, Style};
use article::{
    ArticleOptions, ArticleReport, Outcome, Progress, RowReport, SectionTitle, SelfTest, Totals,
    check_article,
};
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
/// What the letters and words of a row mean.
const LEGEND: [(&str, &str); 10] = [
    ("C", "needs a model of DistilGPT-2's shape, whatever its weights"),
    ("T", "needs GPT-2's vocabulary"),
    ("R", "needs any model"),
    ("S", "needs a server on the model, which is started here"),
    ("X", "the same, for the article's incident: its mechanism, not its figures"),
    ("W", "needs DistilGPT-2's real weights: --distilgpt2 FOLDER"),
    ("D", "needs a reader: of docs/article.md in Refrain's repository"),
    ("-", "needs nothing"),
    ("ok here:", "this model does it otherwise than the article's, and as is said"),
    ("not run", "what the row needs is not there; it is not ok and not wrong"),
];
/// Columns of the legend's words.
const LEGEND_LABEL: usize = 9;

pub(crate) fn run(
    arguments: &CheckArticleArguments,
    terminal: &Terminal,
) -> std::result::Result<(), Failure> {
    let package = Arc::new(loading::open(arguments.model.as_deref(), terminal)?);
    let real = arguments.distilgpt2.as_deref().map(Package::open).transpose();
    let options = ArticleOptions {
        real: real.map_err(Failure::new)?.map(Arc::new),
        threads: arguments.threads.map(usize::from),
    };
    let mut out = anstream::stdout();
    if arguments.json {
        let mut progress = |progress: Progress<'_>| {
            if let Progress::Work(work) = progress {
                terminal.status("Checking", work);
            }
        };
        let report = check_article(&package, &options, &mut progress).map_err(Failure::new)?;
        writeln!(out, "{}", serde_json::to_string(&report).map_err(Failure::new)?)?;
        return verdict(&report);
    }
    let mut page = Page { out, screen: Screen::detect(), self_tests: 0 };
    let (mut written, mut begun) = (Ok(()), false);
    let mut progress = |progress: Progress<'_>| {
        // Not before, since a check that is refused has nothing to show.
        if !std::mem::replace(&mut begun, true) {
            written = page.legend();
        }
        if written.is_ok() {
            written = match progress {
                // The sections and the self-tests are the progress, once they are written.
                Progress::Work(work) if !work.starts_with("a broken engine") => {
                    terminal.status("Checking", work);
                    Ok(())
                }
                Progress::Work(_) => Ok(()),
                Progress::Section(title, rows) => page.section(title, rows),
                Progress::SelfTest(test) => page.self_test(test),
            };
        }
    };
    let report = check_article(&package, &options, &mut progress).map_err(Failure::new)?;
    written?;
    page.totals(&report)?;
    verdict(&report)
}

fn verdict(report: &ArticleReport) -> std::result::Result<(), Failure> {
    if report.passed { Ok(()) } else { Err(Failure::CheckFailed) }
}

/// What the report is written on, piece by piece as the pieces come.
struct Page<W> {
    out: W,
    screen: Screen,
    /// How many self-tests are written.
    self_tests: usize,
}

impl<W: Write> Page<W> {
    fn legend(&mut self) -> Result<()> {
        for (label, meaning) in LEGEND {
            writeln!(self.out, "{}", self.screen.labelled(label, LEGEND_LABEL, meaning))?;
        }
        writeln!(self.out)?;
        self.out.flush()
    }

    fn section(&mut self, section: &SectionTitle, rows: &[RowReport]) -> Result<()> {
        let bold = Style::new().bold();
        let counts = counts(Totals::of(rows));
        let title = format!("{} {}  {counts}", section.letter, section.title);
        for line in self.screen.wrap(&title, self.screen.width) {
            writeln!(self.out, "{bold}{line}{bold:#}")?;
        }
        rows.iter().try_for_each(|row| self.row(row))?;
        self.reasons(rows)?;
        writeln!(self.out)?;
        self.out.flush()
    }

    /// A row: in one line if it fits, else in as many as it takes.
    fn row(&mut self, row: &RowReport) -> Result<()> {
        let (outcome, color, claim, details) = match &row.outcome {
            // What the model does comes first: the claim is not true of it as it stands.
            Outcome::Ok { found, otherwise: true, .. } => {
                let article = format!("the article's model: {}", row.claim);
                ("ok here:", AnsiColor::Green, found.clone(), vec![article])
            }
            Outcome::Ok { found, .. } => {
                ("ok", AnsiColor::Green, row.claim.to_owned(), vec![found.clone()])
            }
            Outcome::NotRun { .. } => {
                ("not run", AnsiColor::Yellow, row.claim.to_owned(), Vec::new())
            }
            Outcome::NotOk { what, expected, found } => {
                let details =
                    vec![format!("{what}: expected {expected}"), format!("found {found}")];
                ("not ok", AnsiColor::Red, row.claim.to_owned(), details)
            }
        };
        let needs: String = row.needs.iter().map(|need| need.letter()).collect();
        let needs = if needs.is_empty() { "-" } else { &needs };
        let (style, dim) = (Style::new().fg_color(Some(color.into())), Style::new().dimmed());
        let columns = self.screen.width.saturating_sub(MARGIN);
        let mut claim = self.screen.wrap_whole(&claim, columns).into_iter();
        let first = claim.next().unwrap_or_default();
        write!(self.out, "{:>3} {needs:<3}{style}{outcome:<9}{style:#}{first}", row.row)?;
        if let ([detail], 0) = (details.as_slice(), claim.len()) {
            let detail = self.screen.text(detail);
            if first.width() + GAP + detail.width() <= columns {
                return writeln!(self.out, "{:GAP$}{dim}{detail}{dim:#}", "");
            }
        }
        writeln!(self.out)?;
        claim.try_for_each(|line| writeln!(self.out, "{:MARGIN$}{line}", ""))?;
        let indent = MARGIN + GAP;
        let lines = details.iter();
        let mut lines =
            lines.flat_map(|detail| self.screen.wrap_whole(detail, columns.saturating_sub(GAP)));
        lines.try_for_each(|line| writeln!(self.out, "{:indent$}{dim}{line}{dim:#}", ""))
    }

    /// Why rows were not run: each reason once, with its rows.
    fn reasons(&mut self, rows: &[RowReport]) -> Result<()> {
        let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
        for row in rows {
            let Outcome::NotRun { reason, .. } = &row.outcome else { continue };
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, numbers)) => numbers.push(row.row.to_string()),
                None => reasons.push((reason, vec![row.row.to_string()])),
            }
        }
        let dim = Style::new().dimmed();
        for (reason, numbers) in reasons {
            let text = format!("not run: {reason} ({})", numbers.join(", "));
            for line in self.screen.wrap_whole(&text, self.screen.width.saturating_sub(GAP + 2)) {
                writeln!(self.out, "{:indent$}{dim}{line}{dim:#}", "", indent = GAP + 2)?;
            }
        }
        Ok(())
    }

    /// What the rows noticed of a broken engine.
    fn self_test(&mut self, test: &SelfTest) -> Result<()> {
        if self.self_tests == 0 {
            let bold = Style::new().bold();
            let title = "Self-test: engines broken on purpose, each must be noticed";
            for line in self.screen.wrap(title, self.screen.width) {
                writeln!(self.out, "{bold}{line}{bold:#}")?;
            }
        }
        self.self_tests += 1;
        let list = |rows: &[u16]| rows.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let (label, color) =
            if test.caught { ("noticed", AnsiColor::Green) } else { ("NOT ok", AnsiColor::Red) };
        let mut text = format!("{}: by rows {}", test.fault, list(&test.turned));
        for (rows, what) in [(&test.missed, "not by"), (&test.unexpected, "wrongly by")] {
            if !rows.is_empty() {
                text = format!("{text}; {what} {}", list(rows));
            }
        }
        let style = Style::new().fg_color(Some(color.into()));
        let columns = self.screen.width.saturating_sub(LEGEND_LABEL);
        for (index, line) in self.screen.wrap_whole(&text, columns).iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            writeln!(self.out, "{style}{label:<LEGEND_LABEL$}{style:#}{line}")?;
        }
        self.out.flush()
    }

    fn totals(&mut self, report: &ArticleReport) -> Result<()> {
        let verdict = if report.passed { "ok" } else { "NOT ok" };
        let (count, totals) = (report.rows.len(), report.totals);
        let counts = counts(totals);
        writeln!(self.out)?;
        let text = format!("{}: {verdict}; of {count} rows {counts}", report.model);
        let needs = [
            (totals.need_reader, "a reader"),
            (totals.need_shape, "a model of DistilGPT-2's shape and vocabulary"),
            (totals.need_real_weights, "DistilGPT-2's real weights"),
        ];
        let needs = needs.iter().filter(|(count, _)| *count > 0);
        let needs = needs.map(|(count, what)| format!("{count} need {what}"));
        let needs = needs.collect::<Vec<_>>().join(", ");
        let text = if needs.is_empty() { text } else { format!("{text}: {needs}") };
        for line in self.screen.wrap_whole(&text, self.screen.width) {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }
}

/// How many rows ended how, in words.
fn counts(totals: Totals) -> String {
    let Totals { ok, otherwise, not_ok, not_run, .. } = totals;
    let here = if otherwise > 0 { format!(" ({otherwise} here)") } else { String::new() };
    let counts =
        [(ok, format!("ok{here}")), (not_ok, "not ok".into()), (not_run, "not run".into())];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    counts.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use article::{Lack, Need};

    use super::*;

    fn rows() -> Vec<RowReport> {
        let row =
            |row, needs, claim, outcome| RowReport { row, section: 'E', needs, claim, outcome };
        let ok = |found: &str, otherwise| Outcome::Ok {
            found: found.to_owned(),
            comparisons: 1,
            otherwise,
        };
        let lacks = || Outcome::NotRun {
            lacks: Lack::Shape,
            reason: "the model is a llama, not of DistilGPT-2's shape".to_owned(),
        };
        let numbers = "[0.123456789, 0.234567891, 0.345678912, 0.456789123, 0.567891234]";
        vec![
            row(47, &[Need::Random], "each layer normalizes before it attends", ok(numbers, false)),
            row(48, &[Need::Random], "(h - mean) / sqrt(variance), gain, bias", ok("RMS", true)),
            row(49, &[Need::Config], "gain and bias are 768 numbers each", lacks()),
            row(50, &[Need::Config], "a norm keeps the shape", lacks()),
            row(
                51,
                &[],
                "what is wrong is said",
                Outcome::NotOk {
                    what: "x".repeat(130),
                    expected: "1".to_owned(),
                    found: "2".to_owned(),
                },
            ),
        ]
    }

    fn written(width: usize) -> String {
        let screen = Screen { width, unicode: true };
        let mut page = Page { out: Vec::new(), screen, self_tests: 0 };
        page.legend().unwrap();
        page.section(&SectionTitle { letter: 'E', title: "The norm" }, &rows()).unwrap();
        page.self_test(&SelfTest {
            fault: "the mask lets later tokens through",
            turned: (1..=40).collect(),
            missed: vec![],
            unexpected: vec![],
            caught: true,
        })
        .unwrap();
        anstream::adapter::strip_str(&String::from_utf8(page.out).unwrap()).to_string()
    }

    #[test]
    fn nothing_is_wider_than_the_page_and_nothing_is_cut() {
        for width in [40, 60, 80, 120] {
            let text = written(width);
            assert!(text.lines().all(|line| line.width() <= width), "{text}");
            assert!(!text.contains('…'), "{text}");
            let joined: String = text.split_whitespace().collect();
            assert!(joined.contains(&"x".repeat(130)), "{text}");
            assert!(joined.contains("0.567891234]"), "{text}");
        }
    }

    #[test]
    fn what_holds_in_another_way_comes_before_the_claim_and_a_reason_comes_once() {
        let text = written(80);
        assert!(text.contains(" 48 R  ok here: RMS\n"), "{text}");
        assert!(text.contains("the article's model: (h - mean) / sqrt(variance), gain, bias"));
        assert_eq!(text.matches("a llama").count(), 1, "{text}");
        assert!(text.contains("shape (49, 50)\n"), "{text}");
        assert!(text.contains("noticed  the mask"), "{text}");
    }

    #[test]
    fn the_legend_has_every_letter() {
        for need in [
            Need::Weights,
            Need::Tokenizer,
            Need::Config,
            Need::Random,
            Need::Server,
            Need::Document,
            Need::Incident,
        ] {
            let letter = need.letter().to_string();
            assert!(LEGEND.iter().any(|(label, _)| *label == letter), "{letter}");
        }
    }
}
