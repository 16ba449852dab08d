//! `strftime_now`, which templates use to tell the model the date.

use super::error::ChatError;
use jiff::Zoned;
use jiff::civil::DateTime;
use jiff::fmt::strtime::BrokenDownTime;

/// Longest format: a template writes a date, not a page.
const FORMAT_BYTES_MAX: usize = 256;

/// The moment that a rendering happens at.
#[derive(Debug)]
pub(super) struct Moment(BrokenDownTime);

impl Moment {
    /// The pinned date, or else this machine's local time.
    pub(super) fn new(pinned: Option<&str>) -> Result<Moment, ChatError> {
        match pinned {
            None => Ok(Moment(BrokenDownTime::from(&Zoned::now()))),
            Some(text) => text
                .parse::<DateTime>()
                .map(|date| Moment(BrokenDownTime::from(date)))
                .map_err(|_| ChatError::Date(text.to_owned())),
        }
    }

    /// Formats as C's `strftime` does.
    pub(super) fn format(&self, format: &str) -> Result<String, String> {
        // A width (`%999d`) would let a format of a few bytes ask for a page.
        let has_width = format.as_bytes().windows(2).any(|pair| {
            pair[0] == b'%' && (pair[1].is_ascii_digit() || b"_^#+".contains(&pair[1]))
        });
        if format.len() > FORMAT_BYTES_MAX || has_width {
            return Err(format!("the date format {format:?} is not supported"));
        }
        self.0.to_string(format).map_err(|error| format!("the date format {format:?}: {error}"))
    }
}
