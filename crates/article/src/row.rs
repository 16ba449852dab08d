//! What a row of the checklist is.

use std::sync::Arc;

use package::Package;
use serde::Serialize;

use crate::live::Live;
use crate::subject::Subject;
use crate::tally::{Seen, Tally};

/// What a row needs to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Need {
    /// The trained weights of DistilGPT-2: a number that only they give.
    #[serde(rename = "W")]
    Weights,
    /// GPT-2's vocabulary.
    #[serde(rename = "T")]
    Tokenizer,
    /// A model of DistilGPT-2's shape, whatever its weights.
    #[serde(rename = "C")]
    Config,
    /// Any model.
    #[serde(rename = "R")]
    Random,
    /// A server, on any model.
    #[serde(rename = "S")]
    Server,
    /// A reader: it is in the documents.
    #[serde(rename = "D")]
    Document,
    /// A server; the article's incident, of which the mechanism is shown and not the figures.
    #[serde(rename = "X")]
    Incident,
}

impl Need {
    /// Its letter in the checklist.
    pub fn letter(self) -> char {
        match self {
            Need::Weights => 'W',
            Need::Tokenizer => 'T',
            Need::Config => 'C',
            Need::Random => 'R',
            Need::Server => 'S',
            Need::Document => 'D',
            Need::Incident => 'X',
        }
    }
}

/// The needs by their letters, for the tables of rows.
pub(crate) mod letters {
    use super::Need;

    pub(crate) const W: Need = Need::Weights;
    pub(crate) const T: Need = Need::Tokenizer;
    pub(crate) const C: Need = Need::Config;
    pub(crate) const R: Need = Need::Random;
    pub(crate) const S: Need = Need::Server;
    pub(crate) const D: Need = Need::Document;
    pub(crate) const X: Need = Need::Incident;
}

/// How a row is checked. A check gives what it saw in a few words.
#[derive(Clone, Copy)]
pub(crate) enum Check {
    /// By who reads the documents.
    Read,
    /// By what is in the package.
    Package(fn(&Arc<Package>, &mut Tally) -> Seen),
    /// By what the model computes; checked again on each broken engine.
    Model(fn(&mut Subject, &mut Tally) -> Seen),
    /// By what is drawn from what the model computes; a broken engine changes nothing in that.
    Drawn(fn(&mut Subject, &mut Tally) -> Seen),
    /// By what DistilGPT-2 computes with its real weights.
    Real(fn(&mut Subject, &mut Tally) -> Seen),
    /// By what a server on the model answers.
    Live(fn(&mut Live, &mut Tally) -> Seen),
}

/// A row of the checklist.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// From 1 on.
    pub(crate) number: u16,
    pub(crate) needs: &'static [Need],
    /// What must hold, in one short line.
    pub(crate) claim: &'static str,
    pub(crate) check: Check,
}

/// A row, as the tables write it.
pub(crate) const fn row(
    number: u16,
    needs: &'static [Need],
    claim: &'static str,
    check: Check,
) -> Row {
    Row { number, needs, claim, check }
}
