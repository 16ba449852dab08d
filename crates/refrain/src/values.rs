//! The values of flags: what is taken, and what is said of what is not.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};
use engine::KvType;

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
        assert!(position("on").unwrap_err().contains("0 is the first"));
    }
}
