//! Goes through the rows.

use std::sync::Arc;

use engine::{EngineOptions, Fault};
use package::Package;

use crate::broken::{BROKEN, judge};
use crate::error::ArticleError;
use crate::live::{Live, Setup};
use crate::real;
use crate::report::{ArticleReport, Outcome, RowReport, SectionTitle, Totals};
use crate::row::{Check, Need, Row};
use crate::rows::{SECTIONS, Section};
use crate::shape::{has_the_shape, has_the_vocabulary};
use crate::subject::Subject;
use crate::tally::{Seen, Stop, Tally};

const NO_REAL_WEIGHTS: &str = "needs DistilGPT-2's real weights: --distilgpt2 FOLDER";

/// What else is there than the model.
#[derive(Clone, Debug, Default)]
pub struct ArticleOptions {
    /// DistilGPT-2 with its real weights, for the rows that need them.
    pub real: Option<Arc<Package>>,
    /// Threads that compute; `None` is as many as there are cores.
    pub threads: Option<usize>,
}

/// Checks all rows on `package`, and what is checked of the model also on broken engines;
/// `progress` is told what is being worked on.
///
/// # Errors
/// A model that cannot be loaded or served; whatever the rows find is in the report.
pub fn check_article(
    package: &Arc<Package>,
    options: &ArticleOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<ArticleReport, ArticleError> {
    progress("the package, and what the model computes");
    let mut subject = Subject::load(package, options.threads)?;
    let mut real = match &options.real {
        Some(real) => Real::Other(Box::new(Subject::load(real, options.threads)?)),
        None if real::is_meant_to_be(package) => Real::TheModel,
        None => Real::Absent,
    };
    let mut rows = Vec::new();
    for (section, row) in rows_in_order() {
        let mut tally = Tally::default();
        if let Some(seen) = look(section, row, &mut subject, &mut real, &mut tally) {
            rows.push(report(section, row, seen, &tally));
        }
    }
    drop(real);
    let mut self_tests = Vec::new();
    for broken in &BROKEN {
        progress(&format!("a broken engine: {}", broken.name));
        let on_broken = on_broken(&mut subject, broken.fault);
        self_tests.push(judge(broken, &package.config, &rows, &on_broken));
    }
    drop(subject);
    progress("a server on the model");
    rows.extend(live_rows(package, options.threads)?);
    rows.sort_by_key(|row| row.row);
    let totals = Totals::of(&rows);
    let title = |section: &Section| SectionTitle { letter: section.letter, title: section.title };
    Ok(ArticleReport {
        schema: "refrain.article/1",
        model: package.name.clone(),
        sections: SECTIONS.iter().map(title).collect(),
        passed: totals.not_ok == 0 && self_tests.iter().all(|test| test.caught),
        rows,
        totals,
        self_tests,
    })
}

/// Where DistilGPT-2's real weights are.
enum Real {
    Absent,
    /// They are the model's that everything else is checked on.
    TheModel,
    Other(Box<Subject>),
}

/// What a row sees; `None` for those that need a server.
fn look(
    section: &Section,
    row: &Row,
    subject: &mut Subject,
    real: &mut Real,
    tally: &mut Tally,
) -> Option<Seen> {
    let not_run = |reason: String| Some(Err(Stop::not_run(reason)));
    match row.check {
        Check::Live(_) => None,
        Check::Read => not_run(format!("to be read in docs/article.md, \"{}\"", section.title)),
        Check::Real(check) => match real {
            Real::Other(real) => Some(check(real, tally)),
            Real::TheModel => Some(check(subject, tally)),
            Real::Absent => not_run(NO_REAL_WEIGHTS.to_owned()),
        },
        Check::Package(check) => {
            let package = subject.package.clone();
            Some(suits(row, &package).and_then(|()| check(&package, tally)))
        }
        Check::Model(check) | Check::Drawn(check) => {
            let package = subject.package.clone();
            Some(suits(row, &package).and_then(|()| check(subject, tally)))
        }
    }
}

/// The rows about what the model computes, with a deliberate error in it.
fn on_broken(subject: &mut Subject, fault: Fault) -> Vec<RowReport> {
    subject.set_fault(Some(fault));
    let mut rows = Vec::new();
    for (section, row) in rows_in_order() {
        let Check::Model(check) = row.check else { continue };
        let mut tally = Tally::default();
        let seen = suits(row, &subject.package).and_then(|()| check(subject, &mut tally));
        rows.push(report(section, row, seen, &tally));
    }
    subject.set_fault(None);
    rows
}

/// The rows that need a server.
fn live_rows(
    package: &Arc<Package>,
    threads: Option<usize>,
) -> Result<Vec<RowReport>, ArticleError> {
    let engine = EngineOptions { threads, ..EngineOptions::default() };
    let setup = Setup { engine, ..Setup::default() };
    Ok(look_at(&mut Live::start(package, setup)?))
}

/// The rows that need a server, on this one.
pub(crate) fn look_at(live: &mut Live) -> Vec<RowReport> {
    let mut reports = Vec::new();
    for (section, row) in rows_in_order() {
        let Check::Live(check) = row.check else { continue };
        let mut tally = Tally::default();
        let seen = live.has_room().and_then(|()| check(live, &mut tally));
        reports.push(report(section, row, seen, &tally));
    }
    reports
}

fn rows_in_order() -> impl Iterator<Item = (&'static Section, &'static Row)> {
    SECTIONS.iter().flat_map(|section| section.rows.iter().map(move |row| (section, row)))
}

/// What a row says about one shape or one vocabulary is checked where that is the model's.
fn suits(row: &Row, package: &Package) -> Result<(), Stop> {
    if row.needs.contains(&Need::Config) {
        has_the_shape(&package.config)?;
    }
    if row.needs.contains(&Need::Tokenizer) {
        has_the_vocabulary(&package.tokenizer)?;
    }
    Ok(())
}

/// The row's outcome. A check that compared nothing has checked nothing, whatever it says.
fn report(section: &Section, row: &Row, seen: Seen, tally: &Tally) -> RowReport {
    let outcome = match seen {
        Ok(_) if tally.comparisons == 0 => Outcome::NotOk {
            what: "the check itself".to_owned(),
            expected: "a comparison".to_owned(),
            found: "it compared nothing".to_owned(),
        },
        Ok(found) => Outcome::Ok { found, comparisons: tally.comparisons },
        Err(Stop::Different { what, expected, found }) => Outcome::NotOk { what, expected, found },
        Err(Stop::NotRun(reason)) => Outcome::NotRun { reason },
    };
    let Row { number, needs, claim, .. } = *row;
    RowReport { row: number, section: section.letter, needs, claim, outcome }
}
