//! How a command ends when it does not end well.

use std::fmt::Display;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};

use crate::interrupt;
use crate::quoted::visible;
use crate::terminal::say;

/// What went wrong, and the exit code that says so.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command could not do its work: exit code 1.
    Failed(String),
    /// The command was used wrongly: exit code 2.
    Usage(String),
    /// A check found what it looks for: exit code 3. The report is already written.
    CheckFailed,
    /// The user interrupted it: exit code 130.
    Interrupted,
    /// Whoever read the output has gone, which is no failure.
    OutputClosed,
}

impl Failure {
    pub(crate) fn new(error: impl Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// Prints the error, if there is one to print, and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (message, code) = match self {
            Self::OutputClosed => return ExitCode::SUCCESS,
            Self::CheckFailed => return ExitCode::from(3),
            Self::Interrupted => return ExitCode::from(interrupt::EXIT_CODE),
            Self::Failed(message) => (message, 1),
            Self::Usage(message) => (message, 2),
        };
        let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
        say(format_args!("{red}error{red:#}: {}", visible(&without_numbers(&message))));
        ExitCode::from(code)
    }
}

/// `message` without the numbers that the operating system has for its errors: they stand behind
/// the same in words.
fn without_numbers(message: &str) -> String {
    let mut parts = message.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                plain.push_str(rest);
            }
            _ => plain.extend([" (os error ", part]),
        }
    }
    plain
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::new(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_is_said_in_words() {
        let error = std::io::Error::from_raw_os_error(2).to_string();
        assert!(error.contains("os error 2"), "{error}");
        let said = without_numbers(&format!("a: {error}; b: {error}!"));
        assert_eq!(said, "a: No such file or directory; b: No such file or directory!");
        for other in ["", "a (os error", "a (os error x) b", "a (os error 2"] {
            assert_eq!(without_numbers(other), other);
        }
    }
}
