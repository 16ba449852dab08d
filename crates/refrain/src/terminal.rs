//! Status lines, progress bars and where each is wanted. Data goes to stdout and nothing else
//! does; this is for stderr.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::bytes;
use crate::cli::{OutputArguments, When};
use crate::quoted::visible;

/// Without a bar, long work says every ten seconds how far it is.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What this run of the program writes to stderr.
#[derive(Clone)]
pub(crate) struct Terminal {
    quiet: bool,
    bars: bool,
}

impl Terminal {
    pub(crate) fn new(arguments: &OutputArguments) -> Self {
        let wanted = match arguments.progress {
            When::Auto => !is_set(std::env::var("CI").ok().as_deref()),
            When::Always => true,
            When::Never => false,
        };
        let bars = wanted && !arguments.quiet && std::io::stderr().is_terminal();
        Self { quiet: arguments.quiet, bars }
    }

    /// A line like cargo's: a bold verb, right-aligned, and what it is about.
    pub(crate) fn status(&self, verb: &str, text: &str) {
        if !self.quiet {
            let green = Style::new().bold().fg_color(Some(AnsiColor::Green.into()));
            say(format_args!("{green}{verb:>12}{green:#} {}", visible(text)));
        }
    }

    /// A dim line, as after each answer of a chat.
    pub(crate) fn dim(&self, text: &str) {
        if !self.quiet {
            let dim = Style::new().dimmed();
            say(format_args!("{dim}{}{dim:#}", visible(text)));
        }
    }

    /// Work whose amount is counted in bytes.
    pub(crate) fn work(&self, verb: &'static str) -> Work {
        let columns =
            rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_col);
        // What is beside the bar takes about 56 columns; a line that wraps cannot be overwritten.
        let bar = columns.saturating_sub(56).clamp(4, 28);
        let amounts = format!("{{prefix}} [{{bar:{bar}}}] {{bytes}}/{{total_bytes}} {{eta}}");
        self.begin(verb, &format!("{amounts} {{wide_msg}}"))
    }

    /// Work of steps that tell what they are, and not how many there are.
    pub(crate) fn steps(&self, verb: &'static str) -> Work {
        self.begin(verb, "{prefix} {wide_msg}")
    }

    fn begin(&self, verb: &'static str, template: &str) -> Work {
        let bar = self.bars.then(|| {
            // Drawn once there is something to show: most work turns out to be none.
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            // Coloured here, by the rules of all other lines, and not by the bar's own.
            let cyan = match AutoStream::choice(&std::io::stderr()) {
                ColorChoice::Never => Style::new(),
                _ => Style::new().bold().fg_color(Some(AnsiColor::Cyan.into())),
            };
            bar.set_prefix(format!("{cyan}{verb:>12}{cyan:#}"));
            bar
        });
        Work { verb, quiet: self.quiet, bar, drawn: Once::new(), said: Mutex::new(Instant::now()) }
    }
}

/// Whether streams are coloured: by the value of `--color`, else by the variables that are usual;
/// `Auto` leaves it to whether a stream is a terminal. `terminals` says whether both are.
pub(crate) fn color_choice(
    flag: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
    terminals: bool,
) -> ColorChoice {
    let said = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let set = |name: &str| is_set(variable(name).as_deref());
    match flag {
        Some("always") => ColorChoice::Always,
        Some("never") => ColorChoice::Never,
        _ if said("NO_COLOR") => ColorChoice::Never,
        _ if set("CLICOLOR_FORCE") || set("FORCE_COLOR") => ColorChoice::Always,
        _ if variable("TERM").as_deref() == Some("dumb") => ColorChoice::Never,
        // `Auto` colours whatever the variable's value is, also where it says no.
        _ if said("CLICOLOR_FORCE") => match variable("CLICOLOR").as_deref() {
            Some("0") => ColorChoice::Never,
            _ if terminals => ColorChoice::Always,
            _ => ColorChoice::Never,
        },
        _ => ColorChoice::Auto,
    }
}

/// Whether a variable says yes.
fn is_set(value: Option<&str>) -> bool {
    !matches!(value, None | Some("" | "0" | "false"))
}

/// Writes a line to stderr. A stderr that has gone is no reason to stop, nor to panic.
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    let stderr = std::io::stderr();
    let coloured = AutoStream::choice(&stderr) != ColorChoice::Never;
    write_line(&mut stderr.lock(), text, coloured);
}

/// Writes `text` as a line in one piece: whoever reads a log while it grows sees whole lines.
fn write_line(out: &mut impl Write, text: std::fmt::Arguments<'_>, coloured: bool) {
    let mut line = format!("{text}\n");
    if !coloured {
        line = strip_str(&line).to_string();
    }
    let _ = out.write_all(line.as_bytes());
}

/// A piece of long work: a bar, or now and then a line. The bar is gone when this is dropped.
pub(crate) struct Work {
    verb: &'static str,
    quiet: bool,
    bar: Option<ProgressBar>,
    drawn: Once,
    said: Mutex<Instant>,
}

impl Work {
    /// `done` of `total` bytes; `total` is 0 where it is not known.
    pub(crate) fn set(&self, done: u64, total: u64) {
        if let Some(bar) = self.bar() {
            if total > 0 {
                bar.set_length(total);
            }
            bar.set_position(done);
        }
        self.line(|| match total {
            0 => bytes::show(done),
            total => format!("{} of {}", bytes::show(done), bytes::show(total)),
        });
    }

    /// How far the work is, often: a bar shows it at once, a line every ten seconds.
    pub(crate) fn tell(&self, text: impl Fn() -> String) {
        if let Some(bar) = self.bar() {
            bar.set_message(visible(&text()).into_owned());
        }
        self.line(text);
    }

    /// The bar, on the screen.
    fn bar(&self) -> Option<&ProgressBar> {
        let bar = self.bar.as_ref()?;
        self.drawn.call_once(|| bar.set_draw_target(ProgressDrawTarget::stderr()));
        Some(bar)
    }

    fn line(&self, text: impl Fn() -> String) {
        if self.bar.is_none()
            && !self.quiet
            && let Ok(mut said) = self.said.lock()
            && said.elapsed() >= LINE_EVERY
        {
            *said = Instant::now();
            say(format_args!("{:>12} {}", self.verb, visible(&text())));
        }
    }

    /// What is being done now, with a verb of its own: "verifying the checksum".
    pub(crate) fn stage(&self, text: &str) {
        match self.bar() {
            Some(bar) => bar.set_message(visible(text).into_owned()),
            None if self.quiet => {}
            None => {
                let text = visible(text);
                let (verb, rest) = text.split_once(' ').unwrap_or((self.verb, &text));
                let mut letters = verb.chars();
                let first = letters.next().map(|letter| letter.to_ascii_uppercase());
                let verb: String = first.into_iter().chain(letters).collect();
                say(format_args!("{verb:>12} {rest}"));
            }
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the pieces in which it is written to.
    #[derive(Default)]
    struct Pieces(Vec<Vec<u8>>);

    impl Write for Pieces {
        fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
            self.0.push(piece.to_vec());
            Ok(piece.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_written_in_one_piece() {
        let green = AnsiColor::Green.on_default();
        for (coloured, whole) in [(true, "\x1b[32ma\x1b[0m b 1\n"), (false, "a b 1\n")] {
            let mut out = Pieces::default();
            write_line(&mut out, format_args!("{green}a{green:#} {} {}", "b", 1), coloured);
            assert_eq!(out.0, [whole.as_bytes()]);
        }
    }

    #[test]
    fn the_strongest_word_on_colours_counts() {
        let shown = |flag, variables: &[(&str, &str)], terminals| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            color_choice(flag, variable, terminals)
        };
        let choice = |flag, variables: &[(&str, &str)]| shown(flag, variables, true);
        let (auto, always, never) = (ColorChoice::Auto, ColorChoice::Always, ColorChoice::Never);
        assert_eq!(choice(None, &[]), auto);
        assert_eq!(choice(Some("auto"), &[("TERM", "xterm")]), auto);
        assert_eq!(choice(None, &[("TERM", "dumb")]), never);
        assert_eq!(choice(None, &[("NO_COLOR", "1")]), never);
        assert_eq!(choice(None, &[("NO_COLOR", "")]), auto);
        assert_eq!(choice(None, &[("FORCE_COLOR", "1"), ("TERM", "dumb")]), always);
        assert_eq!(choice(None, &[("CLICOLOR_FORCE", "1")]), always);
        assert_eq!(choice(None, &[("CLICOLOR_FORCE", ""), ("FORCE_COLOR", "")]), auto);
        for no in ["0", "false"] {
            let no = [("CLICOLOR_FORCE", no)];
            assert_eq!((shown(None, &no, false), shown(None, &no, true)), (never, always));
            assert_eq!(shown(None, &[no[0], ("CLICOLOR", "0")], true), never);
        }
        assert_eq!(choice(None, &[("NO_COLOR", "1"), ("FORCE_COLOR", "1")]), never);
        assert_eq!(choice(Some("always"), &[("NO_COLOR", "1"), ("TERM", "dumb")]), always);
        assert_eq!(choice(Some("never"), &[("FORCE_COLOR", "1")]), never);
    }
}
