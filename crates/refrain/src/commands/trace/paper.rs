//! What a trace is drawn on: numbered lines with a shape at their right end.

use std::io::{Result, Write};

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use crate::screen::Screen;

/// Where what a step says begins.
const DETAIL_COLUMN: usize = 15;
/// Least room for what a step says beside its shape.
const BESIDE_COLUMNS_MIN: usize = 12;
/// Widest bar.
const BAR_COLUMNS: usize = 32;
/// Where the tokens end that have a score.
const SCORED_COLUMN: usize = DETAIL_COLUMN + 5;
/// Where the columns of a token's score, weight and value end.
const VALUED_COLUMN: usize = SCORED_COLUMN + 10 + 8 + 10;

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

    /// Whether steps are explained.
    pub(super) fn explains(&self) -> bool {
        !self.explained.is_empty()
    }

    /// A line of its own, in bold.
    pub(super) fn heading(&mut self, text: &str) -> Result<()> {
        let bold = Style::new().bold();
        let indent = text.len() - text.trim_start().len();
        for line in self.screen.wrap(text.trim_start(), self.screen.width - indent) {
            writeln!(self.out, "{:indent$}{bold}{line}{bold:#}", "")?;
        }
        Ok(())
    }

    /// The next step: its number, its name, what it does, and the shape of its result.
    pub(super) fn step(&mut self, name: &str, detail: &str, shape: &str) -> Result<()> {
        self.steps += 1;
        let bold = Style::new().bold();
        let title = format!("{:>2} {bold}{name:<11}{bold:#} ", self.steps);
        let longer = name.width().saturating_sub(DETAIL_COLUMN - 4);
        let shape = self.screen.text(shape);
        let all = self.columns().saturating_sub(longer);
        // Where a shape leaves little room beside it, it gets a line of its own.
        let beside = all.saturating_sub(shape.width() + 1);
        let alone = beside < BESIDE_COLUMNS_MIN;
        let columns = if alone || shape.is_empty() { all } else { beside };
        let mut lines = self.screen.wrap(detail, columns).into_iter();
        let first = lines.next().unwrap_or_default();
        let cyan = AnsiColor::Cyan.on_default();
        if alone || shape.is_empty() {
            writeln!(self.out, "{title}{first}")?;
        } else {
            let gap = beside + 1 - first.width();
            writeln!(self.out, "{title}{first}{:gap$}{cyan}{shape}{cyan:#}", "")?;
        }
        lines.try_for_each(|line| self.line(&line))?;
        if alone && !shape.is_empty() {
            let shape = self.screen.right(&shape, self.screen.width);
            writeln!(self.out, "{cyan}{shape}{cyan:#}")?;
        }
        let explanation = (self.explain)(name);
        if explanation.is_empty() || self.explained.contains(&explanation) {
            return Ok(());
        }
        self.explained.push(explanation);
        self.more(explanation)
    }

    /// More about the step above.
    pub(super) fn more(&mut self, text: &str) -> Result<()> {
        let lines = self.screen.wrap(text, self.columns());
        lines.iter().try_for_each(|line| self.line(line))
    }

    /// A line below the step above, which is not too long.
    fn line(&mut self, line: &str) -> Result<()> {
        writeln!(self.out, "{:DETAIL_COLUMN$}{line}", "")
    }

    /// `items` below the step above, in at most `most` lines.
    pub(super) fn list(&mut self, items: &[String], most: usize) -> Result<()> {
        let lines = self.screen.lines(items, "  ", self.columns(), most);
        lines.iter().try_for_each(|line| self.line(line))
    }

    /// `items` in columns, with `label` before the first line of them.
    pub(super) fn table(&mut self, label: &str, items: &[String]) -> Result<()> {
        let label = self.screen.right(label, SCORED_COLUMN);
        let columns = self.screen.width - SCORED_COLUMN - 1;
        let lines = self.screen.lines(items, "  ", columns, usize::MAX);
        for (index, line) in lines.iter().enumerate() {
            let label = if index == 0 { label.as_str() } else { "" };
            writeln!(self.out, "{label}{:gap$}{line}", "", gap = columns_left(label))?;
        }
        Ok(())
    }

    /// `text`, filled with spaces to `columns` where it is shorter.
    pub(super) fn padded(&self, text: &str, columns: usize) -> String {
        let text = self.screen.fit(text, columns);
        format!("{text}{:pad$}", "", pad = columns.saturating_sub(text.width()))
    }

    /// The first numbers that a tensor has for a token, with a label where there is more than one
    /// tensor.
    pub(super) fn numbers(&mut self, token: &str, label: &str, first: &[f32]) -> Result<()> {
        let token = self.screen.right(token, DETAIL_COLUMN - 1);
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
        writeln!(self.out, "{token} {dim}{text}{mark}{dim:#}")
    }

    /// What the columns below are called.
    pub(super) fn share_heading(&mut self, score: &str, share: &str, value: &str) -> Result<()> {
        let dim = Style::new().dimmed();
        let value = if self.has_room_for_values() { value } else { "" };
        let line = format!("{:SCORED_COLUMN$} {score:>9} {share:>7} {value:>9}", "");
        writeln!(self.out, "{dim}{}{dim:#}", line.trim_end())
    }

    /// A token, its score, its share of all, the number that is shared, and a bar of the share.
    pub(super) fn share(
        &mut self,
        token: &str,
        score: f32,
        share: f32,
        value: Option<f32>,
    ) -> Result<()> {
        let line = self.scored(token, score);
        let value = value.filter(|_| self.has_room_for_values());
        let value = value.map(|value| format!("{:>9} ", number_text(value))).unwrap_or_default();
        let line = format!("{line}  {share:.4} {value}");
        let columns = self.screen.width.saturating_sub(line.width()).min(BAR_COLUMNS);
        let bar = self.screen.bar(share, columns);
        let green = AnsiColor::Green.on_default();
        match bar.as_str() {
            "" => writeln!(self.out, "{}", line.trim_end()),
            bar => writeln!(self.out, "{line}{green}{bar}{green:#}"),
        }
    }

    fn has_room_for_values(&self) -> bool {
        self.screen.width >= VALUED_COLUMN
    }

    /// One position of an attention row that the mask hides.
    pub(super) fn hidden(&mut self, token: &str, score: f32) -> Result<()> {
        let line = self.scored(token, score) + &self.screen.text("  hidden by the mask: weight 0");
        writeln!(self.out, "{}", self.screen.fit(&line, self.screen.width))
    }

    fn scored(&self, token: &str, score: f32) -> String {
        let token = self.screen.right(token, SCORED_COLUMN);
        format!("{token} {:>9}", number_text(score))
    }

    fn columns(&self) -> usize {
        self.screen.width.saturating_sub(DETAIL_COLUMN)
    }
}

/// What is left between a label, or none, and what stands behind labels.
fn columns_left(label: &str) -> usize {
    (SCORED_COLUMN + 1).saturating_sub(label.width())
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
