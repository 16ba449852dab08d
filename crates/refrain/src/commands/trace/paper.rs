//! What a trace is drawn on: numbered lines with a shape at their right end.

use std::io::{Result, Write};

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use crate::screen::Screen;

/// Where what a step says begins.
const DETAIL_COLUMN: usize = 15;
/// Widest bar.
const BAR_COLUMNS: usize = 32;

pub(super) struct Paper<'a, W> {
    out: W,
    screen: Screen,
    steps: usize,
    /// What a step is for, by its name.
    explain: &'a dyn Fn(&str) -> &'static str,
    /// The explanations that were given: each is given once.
    explained: Vec<&'static str>,
}

impl<'a, W: Write> Paper<'a, W> {
    pub(super) fn new(out: W, screen: Screen, explain: &'a dyn Fn(&str) -> &'static str) -> Self {
        Self { out, screen, steps: 0, explain, explained: Vec::new() }
    }

    /// A line of its own, in bold.
    pub(super) fn heading(&mut self, text: &str) -> Result<()> {
        let bold = Style::new().bold();
        let text = self.screen.fit(text, self.screen.width);
        writeln!(self.out, "{bold}{text}{bold:#}")
    }

    /// The next step: its number, its name, what it does, and the shape of its result.
    pub(super) fn step(&mut self, name: &str, detail: &str, shape: &str) -> Result<()> {
        self.steps += 1;
        let shape = self.screen.text(shape);
        let columns = self.columns().saturating_sub(shape.width() + usize::from(!shape.is_empty()));
        let detail = self.screen.fit(detail, columns);
        let gap = columns.saturating_sub(detail.width()) + usize::from(!shape.is_empty());
        let bold = Style::new().bold();
        let line = format!("{:>2} {bold}{name:<11}{bold:#} {detail}", self.steps);
        match shape.as_str() {
            "" => writeln!(self.out, "{}", line.trim_end())?,
            shape => writeln!(self.out, "{line}{:gap$}{shape}", "")?,
        }
        let explanation = (self.explain)(name);
        if explanation.is_empty() || self.explained.contains(&explanation) {
            return Ok(());
        }
        self.explained.push(explanation);
        let lines = self.screen.wrap(explanation, self.columns());
        lines.iter().try_for_each(|line| self.more(line))
    }

    /// More about the step above.
    pub(super) fn more(&mut self, text: &str) -> Result<()> {
        let text = self.screen.fit(text, self.columns());
        writeln!(self.out, "{:DETAIL_COLUMN$}{text}", "")
    }

    /// As many of `items` as fit into a line, below the step above.
    pub(super) fn list(&mut self, items: &[String]) -> Result<()> {
        let text = self.screen.list(items, "  ", self.columns());
        self.more(&text)
    }

    /// The first numbers of a tensor, with a label where there is more than one tensor.
    pub(super) fn numbers(&mut self, label: &str, first: &[f32]) -> Result<()> {
        let label = if label.is_empty() { String::new() } else { format!("{label:<5}") };
        let mark = self.screen.text(" …");
        let room = self.columns().saturating_sub(label.width() + mark.width());
        let mut text = label;
        let mut used = 0;
        for &number in first {
            let shown = format!("{:>9}", number_text(number));
            used += shown.width();
            if used > room {
                break;
            }
            text.push_str(&shown);
        }
        let dim = Style::new().dimmed();
        writeln!(self.out, "{:DETAIL_COLUMN$}{dim}{text}{mark}{dim:#}", "")
    }

    /// One position of an attention row: its token, score, weight, and a bar of the weight.
    pub(super) fn weight(&mut self, token: &str, score: f32, weight: f32) -> Result<()> {
        let line = self.scored(token, score);
        let line = format!("{line}  {weight:.4} ");
        let columns = self.screen.width.saturating_sub(line.width()).min(BAR_COLUMNS);
        writeln!(self.out, "{line}{}", self.screen.bar(weight, columns))
    }

    /// One position of an attention row that the mask hides.
    pub(super) fn hidden(&mut self, token: &str, score: f32) -> Result<()> {
        let line = self.scored(token, score) + &self.screen.text("  −∞ by the mask: weight 0");
        writeln!(self.out, "{}", self.screen.fit(&line, self.screen.width))
    }

    fn scored(&self, token: &str, score: f32) -> String {
        let token = self.screen.right(token, DETAIL_COLUMN + 5);
        format!("{token} {:>9}", number_text(score))
    }

    fn columns(&self) -> usize {
        self.screen.width.saturating_sub(DETAIL_COLUMN)
    }
}

/// A number in eight characters at most, as exactly as they allow.
pub(super) fn number_text(number: f32) -> String {
    let magnitude = number.abs();
    if magnitude < 1000.0 && (magnitude >= 0.001 || number == 0.0) {
        format!("{number:.*}", if magnitude < 100.0 { 4 } else { 3 })
    } else {
        format!("{number:.1e}")
    }
}

/// A shape as Python writes it.
pub(super) fn shape_text(shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    match sizes.as_slice() {
        [one] => format!("({one},)"),
        sizes => format!("({})", sizes.join(", ")),
    }
}
