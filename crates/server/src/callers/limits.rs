//! How much the holders of a name may ask for.

/// A larger limit is written as none.
const LIMIT_MAX: u32 = 1_000_000_000;

/// The limits of a name; `None` is as much as the server has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyLimits {
    /// Requests in a minute.
    pub(crate) requests: Option<u32>,
    /// Tokens in a minute that are computed or drawn. Reused ones do not count: they cost nothing.
    pub(crate) tokens: Option<u32>,
    /// Requests at the same time.
    pub(crate) running: Option<u32>,
}

impl KeyLimits {
    /// What a limit must be, in words.
    pub(super) const WANTED: &str =
        "a limit is requests=N or tokens=N (in a minute) or running=N, each once and above 0";

    /// Takes a word of a line like `requests=60`.
    pub(super) fn take(&mut self, word: &str) -> Result<(), &'static str> {
        let (name, number) = word.split_once('=').ok_or(Self::WANTED)?;
        let limit = match name {
            "requests" => &mut self.requests,
            "tokens" => &mut self.tokens,
            "running" => &mut self.running,
            _ => return Err(Self::WANTED),
        };
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|number| is_number && *number <= LIMIT_MAX);
        match (number, &limit) {
            (Some(number), None) if number > 0 => *limit = Some(number),
            _ => return Err(Self::WANTED),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named_numbers() {
        let mut limits = KeyLimits::default();
        for word in ["requests=60", "tokens=100000", "running=4"] {
            assert_eq!(limits.take(word), Ok(()), "{word}");
            assert!(limits.take(word).is_err(), "{word} twice");
        }
        let wanted = KeyLimits { requests: Some(60), tokens: Some(100_000), running: Some(4) };
        assert_eq!(limits, wanted);
        for word in [
            "",
            "requests",
            "requests=",
            "requests=0",
            "requests=-1",
            "requests=+1",
            "requests=1.5",
            "requests=2000000000",
            "rpm=1",
            "=1",
        ] {
            assert!(KeyLimits::default().take(word).is_err(), "{word}");
        }
    }
}
