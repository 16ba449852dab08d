//! Status lines, progress bars and where each is wanted. Data goes to stdout and nothing else
//! does; this is for stderr.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};

use crate::bytes;
use crate::cli::{OutputArguments, When};

/// Without a bar, long work says every ten seconds how far it is.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What this run of the program writes to stderr.
pub(crate) struct Terminal {
    quiet: bool,
    bars: bool,
}

impl Terminal {
    pub(crate) fn new(arguments: &OutputArguments) -> Self {
        match arguments.color {
            When::Auto => {}
            When::Always => ColorChoice::Always.write_global(),
            When::Never => ColorChoice::Never.write_global(),
        }
        let bars = match arguments.progress {
            When::Auto => std::io::stderr().is_terminal() && std::env::var_os("CI").is_none(),
            When::Always => true,
            When::Never => false,
        };
        Self { quiet: arguments.quiet, bars: bars && !arguments.quiet }
    }

    /// A line like cargo's: a bold verb, right-aligned, and what it is about.
    pub(crate) fn status(&self, verb: &str, text: &str) {
        if !self.quiet {
            let green = Style::new().bold().fg_color(Some(AnsiColor::Green.into()));
            anstream::eprintln!("{green}{verb:>12}{green:#} {text}");
        }
    }

    /// A dim line, as after each answer of a chat.
    pub(crate) fn dim(&self, text: &str) {
        if !self.quiet {
            let dim = Style::new().dimmed();
            anstream::eprintln!("{dim}{text}{dim:#}");
        }
    }

    /// Work whose amount is counted in bytes.
    pub(crate) fn work(&self, verb: &'static str) -> Work {
        let bar = self.bars.then(|| {
            let bar = ProgressBar::no_length();
            let template = "{prefix:>12.bold.cyan} [{bar:28}] {bytes}/{total_bytes} {eta} {msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(verb);
            bar
        });
        Work { verb, quiet: self.quiet, bar, said: Mutex::new(Instant::now()) }
    }
}

/// A piece of long work: a bar, or now and then a line. The bar is gone when this is dropped.
pub(crate) struct Work {
    verb: &'static str,
    quiet: bool,
    bar: Option<ProgressBar>,
    said: Mutex<Instant>,
}

impl Work {
    /// `done` of `total` bytes; `total` is 0 where it is not known.
    pub(crate) fn set(&self, done: u64, total: u64) {
        if let Some(bar) = &self.bar {
            if total > 0 {
                bar.set_length(total);
            }
            bar.set_position(done);
        } else if !self.quiet
            && let Ok(mut said) = self.said.lock()
            && said.elapsed() >= LINE_EVERY
        {
            *said = Instant::now();
            let (done, total) = (bytes::show(done), bytes::show(total));
            anstream::eprintln!("{:>12} {done} of {total}", self.verb);
        }
    }

    /// What is being worked on.
    pub(crate) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None if self.quiet => {}
            None => anstream::eprintln!("{:>12} {text}", self.verb),
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
