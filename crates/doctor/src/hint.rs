//! What to do about a difference.

use cache::{Reason, Verdict};
use serde::Serialize;

use crate::excerpt::Excerpt;

/// What kind of difference it was. Codes are added, never renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Hint {
    /// A number changed: a date, a time, a counter.
    Number,
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
    pub fn of(verdict: &Verdict, excerpt: Option<&Excerpt>) -> Option<Hint> {
        let stop = &verdict.stop;
        if stop.reason != Reason::DifferentToken {
            return None;
        }
        let cached = stop.cached.as_ref()?.text.as_deref()?;
        let request = stop.request.as_ref()?.text.as_deref()?;
        let template = stop.role.as_deref() == Some("template");
        let digits = |text: &str| text.contains(|c: char| c.is_ascii_digit());
        // The end of a number may be missing on one side, but not its beginning.
        let follows =
            excerpt.is_some_and(|excerpt| excerpt.before.ends_with(|c: char| c.is_ascii_digit()));
        if (digits(cached) && digits(request)) || (follows && (digits(cached) || digits(request))) {
            return Some(if template { Hint::TemplateDate } else { Hint::Number });
        }
        let blank = |text: &str| text.trim().is_empty();
        if cached.trim() == request.trim() || blank(cached) != blank(request) {
            return Some(Hint::WhiteSpace);
        }
        if template {
            return Some(Hint::Structure);
        }
        stop.identical_after.filter(|&after| after > 0).map(|_| Hint::Order)
    }

    /// What to do, in a few words.
    pub fn advice(self) -> &'static str {
        match self {
            Hint::Number => "a date, a time or a counter? move it behind what stays the same",
            Hint::TemplateDate => "the template prints a date; --template-date pins it",
            Hint::WhiteSpace => "white space differs: build the prompt the same way each time",
            Hint::Structure => "roles or the number of messages differ: append, do not insert",
            Hint::Order => "move what changes behind what stays the same",
        }
    }
}
