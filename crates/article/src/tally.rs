//! Comparisons: each is counted, so that a check that made none is seen.

use std::fmt::{Debug, Display};

use crate::lack::Lack;

/// What a check saw, in a few words with the numbers; or why it is not ok or was not run.
pub(crate) type Seen = Result<String, Stop>;

/// Why a check ended before its end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stop {
    /// A comparison failed.
    Different { what: String, expected: String, found: String },
    /// What the check needs is not there.
    NotRun { lacks: Lack, reason: String },
}

impl Stop {
    /// A step that should have worked did not.
    pub(crate) fn failed(what: impl Display, error: impl Display) -> Stop {
        let (what, found) = (what.to_string(), error.to_string());
        Stop::Different { what, expected: "no error".to_owned(), found }
    }

    /// The check needs what is not there.
    pub(crate) fn not_run(reason: impl Into<String>) -> Stop {
        Stop::lacks(Lack::Other, reason)
    }

    /// The check needs `lacks`, which is not there.
    pub(crate) fn lacks(lacks: Lack, reason: impl Into<String>) -> Stop {
        Stop::NotRun { lacks, reason: reason.into() }
    }
}

/// Counts the comparisons of one check.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) comparisons: u64,
    /// Whether the model does something else than the row's words say, as [`Tally::otherwise`] was
    /// told.
    pub(crate) otherwise: bool,
}

impl Tally {
    /// What the check saw, of a model that is built otherwise than the article's: the row's words
    /// are not true of it, but what they are about is, in the way that `found` says.
    pub(crate) fn otherwise(&mut self, found: impl Into<String>) -> Seen {
        self.otherwise = true;
        Ok(found.into())
    }

    /// `found` must be `expected`.
    pub(crate) fn equal<T: PartialEq + Debug + ?Sized>(
        &mut self,
        what: impl Display,
        expected: &T,
        found: &T,
    ) -> Result<(), Stop> {
        let (shown, holds) = (format!("{expected:?}"), expected == found);
        self.holds(what, shown, holds, format!("{found:?}"))
    }

    /// `holds` must be true; `expected` and `found` say what it means.
    pub(crate) fn holds(
        &mut self,
        what: impl Display,
        expected: impl Display,
        holds: bool,
        found: impl Display,
    ) -> Result<(), Stop> {
        self.comparisons += 1;
        if holds {
            return Ok(());
        }
        Err(Stop::Different {
            what: what.to_string(),
            expected: expected.to_string(),
            found: found.to_string(),
        })
    }

    /// The numbers must be the same bits. No numbers are no comparison.
    pub(crate) fn same_bits(
        &mut self,
        what: impl Display,
        expected: &[f32],
        found: &[f32],
    ) -> Result<(), Stop> {
        self.same_length(&what, expected.len(), found.len())?;
        self.comparisons += expected.len() as u64;
        let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
        match expected.iter().zip(found).position(differs) {
            None => Ok(()),
            Some(at) => Err(Stop::Different {
                what: format!("{what}, number {at}"),
                expected: expected[at].to_string(),
                found: found[at].to_string(),
            }),
        }
    }

    /// The numbers must not be the same.
    pub(crate) fn differ(
        &mut self,
        what: impl Display,
        one: &[f32],
        other: &[f32],
    ) -> Result<(), Stop> {
        self.same_length(&what, one.len(), other.len())?;
        self.holds(what, "other numbers", one != other, "the same numbers")
    }

    /// No number may be further from its expectation than `bound` times the largest expectation.
    pub(crate) fn close(
        &mut self,
        what: impl Display,
        expected: &[f64],
        found: &[f32],
        bound: f64,
    ) -> Result<(), Stop> {
        self.same_length(&what, expected.len(), found.len())?;
        self.comparisons += expected.len() as u64;
        let largest = expected.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
        let near = |(a, b): (&f64, &f32)| (a - f64::from(*b)).abs() <= bound * largest;
        match expected.iter().zip(found).position(|pair| !near(pair)) {
            None => Ok(()),
            Some(at) => Err(Stop::Different {
                what: format!("{what}, number {at}"),
                expected: format!("{:.6}", expected[at]),
                found: format!("{:.6}", found[at]),
            }),
        }
    }

    fn same_length(&self, what: &impl Display, one: usize, other: usize) -> Result<(), Stop> {
        if one == other {
            return Ok(());
        }
        Err(Stop::Different {
            what: what.to_string(),
            expected: format!("{one} numbers"),
            found: format!("{other} numbers"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_different_is_found_and_comparisons_are_counted() {
        let mut tally = Tally::default();
        tally.equal("a", &[1, 2], &[1, 2]).unwrap();
        tally.same_bits("b", &[1.0, -0.0], &[1.0, -0.0]).unwrap();
        tally.close("c", &[100.0, 1.0], &[100.5, 1.5], 0.01).unwrap();
        assert_eq!(tally.comparisons, 5);
        assert!(tally.equal("a", &4, &5).is_err());
        assert!(tally.same_bits("b", &[0.0], &[-0.0]).is_err());
        assert!(tally.same_bits("b", &[0.0], &[]).is_err());
        assert!(tally.close("c", &[1.0], &[f32::NAN], 0.1).is_err());
        assert!(tally.close("c", &[100.0, 1.0], &[100.0, 2.1], 0.01).is_err());
        assert!(tally.differ("d", &[1.0], &[1.0]).is_err());
    }

    #[test]
    fn comparing_nothing_counts_nothing() {
        let mut tally = Tally::default();
        tally.same_bits("b", &[], &[]).unwrap();
        tally.close("c", &[], &[], 0.1).unwrap();
        assert_eq!(tally.comparisons, 0);
    }
}
