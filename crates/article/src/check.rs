//! Goes through the rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{EngineOptions, Fault};
use package::Package;

use crate::broken::{BROKEN, judge};
use crate::error::ArticleError;
use crate::lack::Lack;
use crate::live::{Live, Setup};
use crate::real;
use crate::report::{ArticleReport, Outcome, RowReport, SectionTitle, SelfTest, Totals};
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

/// What [`check_article`] tells of its work while it works.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// What is being worked on.
    Work(&'a str),
    /// A section all rows of which are checked, and these rows.
    Section(&'a SectionTitle, &'a [RowReport]),
    /// What the rows noticed of a broken engine.
    SelfTest(&'a SelfTest),
}

/// Checks all rows on `package`, and what is checked of the model also on broken engines;
/// `progress` is told of each section, in order, as soon as it is done.
///
/// # Errors
/// A model that cannot be loaded or served, or real weights that are another model's; whatever the
/// rows find is in the report.
pub fn check_article(
    package: &Arc<Package>,
    options: &ArticleOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<ArticleReport, ArticleError> {
    if let Some(real) = &options.real {
        has_the_shape(&real.config)
            .and_then(|()| has_the_vocabulary(&real.tokenizer))
            .map_err(|stop| not_distilgpt2(real, stop))?;
    }
    progress(Progress::Work("the package, and what the model computes"));
    let mut known = model_rows(package, options)?;
    progress(Progress::Work("a server on the model"));
    let engine = EngineOptions { threads: options.threads, ..EngineOptions::default() };
    let mut live = Live::start(package, Setup { engine, ..Setup::default() })?;
    let (mut rows, mut sections) = (Vec::new(), Vec::new());
    for section in &SECTIONS {
        let from = rows.len();
        for row in section.rows {
            let seen = known.remove(&row.number).or_else(|| look_live(section, row, &mut live));
            rows.extend(seen);
        }
        let title = SectionTitle { letter: section.letter, title: section.title };
        progress(Progress::Section(&title, &rows[from..]));
        sections.push(title);
    }
    drop(live);
    let mut subject = Subject::load(package, options.threads)?;
    let mut self_tests = Vec::new();
    for broken in &BROKEN {
        progress(Progress::Work(&format!("a broken engine: {}", broken.name)));
        let on_broken = on_broken(&mut subject, broken.fault);
        let test = judge(broken, &package.config, &rows, &on_broken);
        progress(Progress::SelfTest(&test));
        self_tests.push(test);
    }
    let totals = Totals::of(&rows);
    Ok(ArticleReport {
        schema: "refrain.article/1",
        model: package.name.clone(),
        sections,
        passed: totals.not_ok == 0 && self_tests.iter().all(|test| test.caught),
        rows,
        totals,
        self_tests,
    })
}

/// The rows that need no server. The model is dropped after them, since a server loads its own.
fn model_rows(
    package: &Arc<Package>,
    options: &ArticleOptions,
) -> Result<BTreeMap<u16, RowReport>, ArticleError> {
    let mut subject = Subject::load(package, options.threads)?;
    let mut real = match &options.real {
        Some(real) => Real::Other(Box::new(Subject::load(real, options.threads)?)),
        None if has_the_shape(&package.config).is_ok() && real::is_meant_to_be(package) => {
            Real::TheModel
        }
        None => Real::Absent,
    };
    let mut rows = BTreeMap::new();
    for (section, row) in rows_in_order() {
        let mut tally = Tally::default();
        if let Some(seen) = look(section, row, &mut subject, &mut real, &mut tally) {
            rows.insert(row.number, report(section, row, seen, &tally));
        }
    }
    Ok(rows)
}

fn not_distilgpt2(package: &Package, stop: Stop) -> ArticleError {
    let problem = match stop {
        Stop::NotRun { reason, .. } => reason,
        Stop::Different { what, expected, found } => format!("{what}: {found}, not {expected}"),
    };
    ArticleError::NotDistilGpt2 { path: package.path.clone(), problem }
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
    let lacks = |lack, reason: String| Some(Err(Stop::lacks(lack, reason)));
    match row.check {
        Check::Live(_) => None,
        Check::Read => {
            let Section { letter, title, .. } = section;
            let place = format!("\"{letter}. {title}\" of docs/article.md in Refrain's repository");
            lacks(Lack::Reader, format!("for a reader: {place}"))
        }
        Check::Real(check) => match real {
            Real::Other(real) => Some(check(real, tally)),
            Real::TheModel => Some(check(subject, tally)),
            Real::Absent => lacks(Lack::RealWeights, NO_REAL_WEIGHTS.to_owned()),
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

/// The row, if it is one that needs a server, on this one.
fn look_live(section: &Section, row: &Row, live: &mut Live) -> Option<RowReport> {
    let Check::Live(check) = row.check else { return None };
    let mut tally = Tally::default();
    let seen = live.has_room().and_then(|()| check(live, &mut tally));
    Some(report(section, row, seen, &tally))
}

/// The rows that need a server, on this one.
#[cfg(test)]
pub(crate) fn look_at(live: &mut Live) -> Vec<RowReport> {
    rows_in_order().filter_map(|(section, row)| look_live(section, row, live)).collect()
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
        Ok(found) => {
            let Tally { comparisons, otherwise } = *tally;
            Outcome::Ok { found, comparisons, otherwise }
        }
        Err(Stop::Different { what, expected, found }) => Outcome::NotOk { what, expected, found },
        Err(Stop::NotRun { lacks, reason }) => Outcome::NotRun { lacks, reason },
    };
    let Row { number, needs, claim, .. } = *row;
    RowReport { row: number, section: section.letter, needs, claim, outcome }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The rows that hold in another way than they say, on a model of the engine's tests.
    fn otherwise(model: &str) -> Vec<u16> {
        let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/goldens");
        let package = Arc::new(Package::open(&goldens.join(model)).unwrap());
        let options = ArticleOptions { threads: Some(1), ..ArticleOptions::default() };
        let rows = model_rows(&package, &options).unwrap();
        let differs = |row: &&RowReport| matches!(row.outcome, Outcome::Ok { otherwise: true, .. });
        rows.values().filter(differs).map(|row| row.row).collect()
    }

    #[test]
    fn what_a_llama_does_in_another_way_is_not_plainly_ok() {
        assert_eq!(otherwise("llama-gqa2-biased"), [11, 36, 37, 48, 58, 60]);
        assert_eq!(otherwise("gpt2-plain"), [0; 0]);
    }
}
