//! What was found: the document of `refrain check article --json`.

use serde::Serialize;

use crate::lack::Lack;
use crate::row::Need;

/// What became of the rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArticleReport {
    /// `refrain.article/1`.
    pub schema: &'static str,
    /// The package's name.
    pub model: String,
    /// The checklist's sections, in order.
    pub sections: Vec<SectionTitle>,
    /// One entry for each row, in order.
    pub rows: Vec<RowReport>,
    /// How many rows ended how.
    pub totals: Totals,
    /// What the rows noticed on deliberately broken engines.
    pub self_tests: Vec<SelfTest>,
    /// Whether no row is `not ok`, and each broken engine was noticed.
    pub passed: bool,
}

/// A section of the checklist.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SectionTitle {
    /// Its letter, from A on.
    pub letter: char,
    /// Its title, which is also that of the section of the tour in `docs/article.md`.
    pub title: &'static str,
}

/// One row of the checklist.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowReport {
    /// Its number, from 1 on.
    pub row: u16,
    /// The letter of its section.
    pub section: char,
    /// What it needs to be checked.
    pub needs: &'static [Need],
    /// What must hold.
    pub claim: &'static str,
    /// What was found.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What became of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It holds.
    Ok {
        /// What was seen.
        found: String,
        /// Numbers and facts compared; one at least.
        comparisons: u64,
        /// Whether it holds in another way than the row says: the model is built otherwise than
        /// the article's, and what was seen says how.
        otherwise: bool,
    },
    /// It does not hold.
    NotOk {
        /// Of what.
        what: String,
        /// What should have been seen.
        expected: String,
        /// What was seen.
        found: String,
    },
    /// It was not checked.
    NotRun {
        /// What is missing.
        lacks: Lack,
        /// Why, in a few words.
        reason: String,
    },
}

/// What became of the rows on a broken engine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SelfTest {
    /// What was broken.
    pub fault: &'static str,
    /// Rows that turned to `not ok`.
    pub turned: Vec<u16>,
    /// Rows that should have turned and did not.
    pub missed: Vec<u16>,
    /// Rows that turned and should not have.
    pub unexpected: Vec<u16>,
    /// Whether the rows noticed as they should.
    pub caught: bool,
}

/// Numbers of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// That hold.
    pub ok: usize,
    /// Those of them that hold in another way than the row says.
    pub otherwise: usize,
    /// That do not hold.
    pub not_ok: usize,
    /// That were not checked.
    pub not_run: usize,
    /// Those of them that need a reader.
    pub need_reader: usize,
    /// Those of them that need a model of DistilGPT-2's shape, or its vocabulary.
    pub need_shape: usize,
    /// Those of them that need DistilGPT-2's real weights.
    pub need_real_weights: usize,
}

impl Totals {
    /// Counts the outcomes of `rows`.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a RowReport>) -> Totals {
        let mut totals = Totals::default();
        for row in rows {
            match row.outcome {
                Outcome::Ok { otherwise, .. } => {
                    totals.ok += 1;
                    totals.otherwise += usize::from(otherwise);
                }
                Outcome::NotOk { .. } => totals.not_ok += 1,
                Outcome::NotRun { lacks, .. } => {
                    totals.not_run += 1;
                    match lacks {
                        Lack::Reader => totals.need_reader += 1,
                        Lack::Shape => totals.need_shape += 1,
                        Lack::RealWeights => totals.need_real_weights += 1,
                        Lack::Other => {}
                    }
                }
            }
        }
        totals
    }
}
