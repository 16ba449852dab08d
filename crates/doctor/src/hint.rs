//! What to do about a difference.

use cache::{DifferenceKind, Verdict};
use serde::Serialize;

/// What a client can do something about. Codes are added, never renamed; the difference's own
/// `kind` is finer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Hint {
    /// A number changed: a date, a time, a counter.
    Number,
    /// An id that is drawn anew each time changed.
    RandomId,
    /// The same JSON is written in another order.
    Reordered,
    /// A number changed in what the template adds, which is usually today's date.
    TemplateDate,
    /// Only white space changed.
    WhiteSpace,
    /// The template set the conversations differently: other roles, or more or fewer messages.
    Structure,
    /// Something changed before text that stayed the same.
    Order,
}

impl Hint {
    /// The hint for a verdict; `None` where there is nothing to be done.
    pub fn of(verdict: &Verdict) -> Option<Hint> {
        let stop = &verdict.stop;
        match stop.difference.as_ref()?.kind {
            DifferenceKind::Date | DifferenceKind::Time | DifferenceKind::Counter => {
                Some(Hint::Number)
            }
            DifferenceKind::Uuid | DifferenceKind::RandomId => Some(Hint::RandomId),
            DifferenceKind::ReorderedKeys | DifferenceKind::ReorderedTools => Some(Hint::Reordered),
            DifferenceKind::TemplateDate => Some(Hint::TemplateDate),
            DifferenceKind::WhiteSpace => Some(Hint::WhiteSpace),
            DifferenceKind::Structure
            | DifferenceKind::MessagesInserted
            | DifferenceKind::MessagesRemoved => Some(Hint::Structure),
            DifferenceKind::Other
            | DifferenceKind::MessageShortened
            | DifferenceKind::MessageLengthened => {
                stop.identical_after.filter(|&after| after > 0).map(|_| Hint::Order)
            }
        }
    }
}

/// A verdict with what to do about it: the `verdict` object of the API.
#[derive(Debug, Clone, Serialize)]
pub struct Explained<'a> {
    /// The verdict.
    #[serde(flatten)]
    pub verdict: &'a Verdict,
    /// What can be done something about; `None` where nothing can.
    pub hint: Option<Hint>,
    /// What to do, in a few words.
    pub advice: Option<&'static str>,
}

impl<'a> Explained<'a> {
    /// The verdict and its hint.
    pub fn new(verdict: &'a Verdict) -> Self {
        let hint = Hint::of(verdict);
        let kind = verdict.stop.difference.as_ref().map(|difference| difference.kind);
        Self { verdict, hint, advice: hint.and(kind).map(advice) }
    }
}

fn advice(kind: DifferenceKind) -> &'static str {
    match kind {
        DifferenceKind::Date => "a date: move it behind what stays the same",
        DifferenceKind::Time => "a time: move it behind what stays the same",
        DifferenceKind::Counter => "a number: move it behind what stays the same",
        DifferenceKind::Uuid => "a UUID: leave it out, or move it behind what stays the same",
        DifferenceKind::RandomId => {
            "a random id: leave it out, or move it behind what stays the same"
        }
        DifferenceKind::ReorderedKeys => "the same keys in another order: write JSON in one order",
        DifferenceKind::ReorderedTools => "the same tools in another order: sort them",
        DifferenceKind::TemplateDate => "the template prints a date; --template-date pins it",
        DifferenceKind::WhiteSpace => {
            "white space differs: build the prompt the same way each time"
        }
        DifferenceKind::Structure => {
            "roles or the number of messages differ: append, do not insert"
        }
        DifferenceKind::MessagesInserted => {
            "messages were inserted: append them behind what stays the same"
        }
        DifferenceKind::MessagesRemoved => {
            "messages were removed: what comes after them is computed again"
        }
        DifferenceKind::MessageShortened => "a message is shorter than before: send it as it was",
        DifferenceKind::MessageLengthened => "a message is longer than before: send it as it was",
        DifferenceKind::Other => "move what changes behind what stays the same",
    }
}
