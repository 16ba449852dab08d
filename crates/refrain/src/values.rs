//! The values of flags: what is taken, and what is said of what is not.

use std::ffi::OsStr;
use std::fmt;

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};
use engine::KvType;

use crate::words::grouped;

/// No bound but the type's own.
pub(crate) const ANY: u64 = u64::MAX;

/// A whole number from `LOW` to `HIGH`, or to whatever the type holds.
pub(crate) fn whole<T: TryFrom<u64>, const LOW: u64, const HIGH: u64>(
    text: &str,
) -> Result<T, String> {
    let number = text.parse::<u64>().ok().filter(|number| (LOW..=HIGH).contains(number));
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| match HIGH {
        ANY => format!("must be a whole number, {LOW} or more"),
        _ => format!("must be a whole number from {LOW} to {HIGH}"),
    })
}

/// A place in a row of tokens.
pub(crate) fn position(text: &str) -> Result<i64, String> {
    let wanted = "must be the number of a token: 0 is the first, -1 the last";
    text.parse().map_err(|_| wanted.to_owned())
}

/// What a comparison lets pass.
pub(crate) fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number >= 0.0 => Ok(number),
        _ => Err("must be a number, zero or more".to_owned()),
    }
}

/// A number between `LOW` and `HIGH`.
pub(crate) fn number<const LOW: i32, const HIGH: i32>(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(number) if (LOW as f32..=HIGH as f32).contains(&number) => Ok(number),
        _ => Err(format!("must be a number between {LOW} and {HIGH}")),
    }
}

/// Tokens that a prompt cache holds at most; `None` is without a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity(pub(crate) Option<u64>);

/// What is written for a capacity without a bound.
const UNBOUNDED: &str = "unbounded";
/// The letters behind a number of tokens, and what they stand for.
const TOKEN_UNITS: [(&str, u64); 6] = [
    ("gi", 1 << 30),
    ("mi", 1 << 20),
    ("ki", 1 << 10),
    ("g", 1_000_000_000),
    ("m", 1_000_000),
    ("k", 1_000),
];

/// A number of tokens as people write it, or "unbounded".
pub(crate) fn capacity(text: &str) -> Result<Capacity, String> {
    let text = text.trim().to_ascii_lowercase();
    if text == UNBOUNDED {
        return Ok(Capacity(None));
    }
    let wrong = || "must be a number of tokens, as 65536, 4Mi or 2M, or unbounded".to_owned();
    let unit = TOKEN_UNITS.iter().find(|(unit, _)| text.ends_with(unit));
    let (number, factor) = match unit {
        Some((unit, factor)) => (text.trim_end_matches(unit).trim_end(), *factor),
        None => (text.as_str(), 1),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let tokens = number * factor as f64;
    if (1.0..2_f64.powi(53)).contains(&tokens) {
        Ok(Capacity(Some(tokens as u64)))
    } else {
        Err(wrong())
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(tokens) = self.0 else { return formatter.write_str(UNBOUNDED) };
        let whole = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
        match whole.iter().find(|(_, factor)| tokens.is_multiple_of(*factor) && tokens > 0) {
            Some((unit, factor)) => write!(formatter, "{}{unit}", tokens / factor),
            None => formatter.write_str(&grouped(tokens)),
        }
    }
}

/// How K and V are stored, by its name.
pub(crate) fn kv_type() -> impl TypedValueParser<Value = KvType> {
    PossibleValuesParser::new(KvType::ALL.map(KvType::name))
        .try_map(|name| KvType::of_name(&name).ok_or("no such type"))
}

/// A model, in any of the ways that one is named. Shells complete the aliases.
#[derive(Clone)]
pub(crate) struct ModelParser;

impl TypedValueParser for ModelParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(package::ALIASES.into_iter().map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_number_is_told_what_is_wanted() {
        assert_eq!(whole::<u16, 1, 9>("9"), Ok(9));
        for wrong in ["abc", "-1", "0", "10", "1.5", ""] {
            let said = whole::<u16, 1, 9>(wrong).unwrap_err();
            assert_eq!(said, "must be a whole number from 1 to 9", "{wrong}");
        }
        let said = whole::<u16, 2, ANY>("70000").unwrap_err();
        assert_eq!(said, "must be a whole number, 2 or more");
        assert_eq!(position("-3"), Ok(-3));
        let wanted = "must be a number of tokens, as 65536, 4Mi or 2M, or unbounded";
        for wrong in ["", "Mi", "4MiB", "-1", "0", "1e300", "inf", "nan", "0.5"] {
            assert_eq!(capacity(wrong).unwrap_err(), wanted, "{wrong}");
        }
        assert!(position("on").unwrap_err().contains("0 is the first"));
    }

    #[test]
    fn capacities_are_read_and_written_as_people_write_them() {
        for (text, tokens, shown) in [
            ("65536", 65_536, "64Ki"),
            ("1.5Mi", 3 << 19, "1536Ki"),
            ("16mi", 16 << 20, "16Mi"),
            ("2M", 2_000_000, "2,000,000"),
            ("1 Gi", 1 << 30, "1Gi"),
        ] {
            let read = capacity(text).unwrap();
            assert_eq!((read, read.to_string().as_str()), (Capacity(Some(tokens)), shown));
            assert_eq!(capacity(&shown.replace(',', "")), Ok(read));
        }
        assert_eq!(capacity("Unbounded").unwrap().to_string(), "unbounded");
    }
}
