//! What stdout can show: how wide it is, and which characters.

use std::io::IsTerminal;

use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::quoted::visible;

/// Columns where the output is no terminal.
const WIDTH_PIPED: usize = 80;
/// Narrower and wider terminals are written to as if they were so.
const WIDTH_RANGE: std::ops::RangeInclusive<usize> = 40..=120;
/// How the characters that Refrain writes are written where only ASCII can be shown.
const ASCII: [(char, &str); 15] = [
    ('…', "..."),
    ('⏎', "\\n"),
    ('×', "x"),
    ('·', "*"),
    ('−', "-"),
    ('√', "sqrt"),
    ('→', "->"),
    ('–', "-"),
    ('∞', "inf"),
    ('Σ', "sum"),
    ('Δ', "difference"),
    ('²', "^2"),
    ('μ', "mean"),
    ('σ', "std"),
    ('≤', "<="),
];
/// A cell of a bar, filled by eighths.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// What the output can show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    pub(crate) width: usize,
    pub(crate) unicode: bool,
}

impl Screen {
    /// The screen behind stdout.
    pub(crate) fn detect() -> Self {
        let columns = || rustix::termios::tcgetwinsize(std::io::stdout()).ok();
        let columns = columns().map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0);
        let width = match columns {
            Some(columns) if std::io::stdout().is_terminal() => columns,
            _ => WIDTH_PIPED,
        };
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(|name| std::env::var(name).ok());
        Self::new(width, is_utf8(locale))
    }

    fn new(width: usize, unicode: bool) -> Self {
        Self { width: width.clamp(*WIDTH_RANGE.start(), *WIDTH_RANGE.end()), unicode }
    }

    /// `text`, wherever it is from, in the characters that can be shown. It holds no colours.
    pub(crate) fn text(&self, text: &str) -> String {
        let text = visible(text);
        if self.unicode {
            return text.into_owned();
        }
        let mut plain = String::with_capacity(text.len());
        for character in text.chars() {
            match ASCII.iter().find(|(from, _)| *from == character) {
                Some((_, to)) => plain.push_str(to),
                None if character.is_ascii() => plain.push(character),
                None => plain.extend(character.escape_unicode()),
            }
        }
        plain
    }

    /// `text`, cut to `columns` if it is wider; what is missing is marked.
    pub(crate) fn fit(&self, text: &str, columns: usize) -> String {
        let mut text = self.text(text);
        if text.width() <= columns {
            return text;
        }
        let mark = self.text("…");
        let (mut used, mut end) = (mark.width(), 0);
        for (at, character) in text.char_indices() {
            used += character.width().unwrap_or(0);
            if used > columns {
                break;
            }
            end = at + character.len_utf8();
        }
        text.truncate(end);
        text + &mark
    }

    /// `label`, filled to `columns`, and `text` beside it, on as many lines as it takes.
    pub(crate) fn labelled(&self, label: &str, columns: usize, text: &str) -> String {
        let lines = self.wrap(text, self.width.saturating_sub(columns).max(1));
        let indent = format!("\n{:columns$}", "");
        let dim = Style::new().dimmed();
        format!("{dim}{label:<columns$}{dim:#}{}", lines.join(&indent))
    }

    /// `text`, cut or filled to exactly `columns`, to the right side.
    pub(crate) fn right(&self, text: &str, columns: usize) -> String {
        let text = self.fit(text, columns);
        format!("{:pad$}{text}", "", pad = columns.saturating_sub(text.width()))
    }

    /// As many of `items` as fit into `columns` in one line, then how many more there are.
    pub(crate) fn list(&self, items: &[String], separator: &str, columns: usize) -> String {
        let whole = self.text(&items.join(separator));
        if whole.width() <= columns {
            return whole;
        }
        let mut line = String::new();
        for (count, item) in items.iter().enumerate() {
            let rest = format!("… {} more", items.len() - count);
            let longer = format!("{line}{item}{separator}");
            let next = format!("{longer}… {} more", items.len() - count - 1);
            if self.text(&next).width() > columns {
                return self.fit(&format!("{line}{rest}"), columns);
            }
            line = longer;
        }
        self.fit(&line, columns)
    }

    /// `text` in lines of at most `columns`: broken at spaces, and beside wide characters, which
    /// are written without spaces; punctuation stays with what it follows, and what is quoted, as a
    /// token is, stays whole.
    pub(crate) fn wrap(&self, text: &str, columns: usize) -> Vec<String> {
        let mut lines = vec![String::new()];
        for unit in units(&self.text(text)) {
            match lines.last_mut() {
                Some(line) if line.width() + unit.width() <= columns => line.push_str(&unit),
                _ => lines.push(self.fit(unit.trim_start(), columns)),
            }
        }
        lines
            .iter()
            .map(|line| line.trim_end().to_owned())
            .filter(|line| !line.is_empty())
            .collect()
    }

    /// As [`Screen::wrap`]; but a part that is wider than `columns` is broken, and nothing is cut.
    pub(crate) fn wrap_whole(&self, text: &str, columns: usize) -> Vec<String> {
        let mut lines = vec![String::new()];
        for unit in units(&self.text(text)) {
            let used = lines.last().map_or(0, |line| line.width());
            if used + unit.trim_end().width() <= columns {
                lines.last_mut().into_iter().for_each(|line| line.push_str(&unit));
                continue;
            }
            let mut line = String::new();
            for character in unit.trim_start().chars() {
                if line.width() + character.width().unwrap_or(0) > columns {
                    lines.push(std::mem::take(&mut line));
                }
                line.push(character);
            }
            lines.push(line);
        }
        let lines = lines.iter().map(|line| line.trim_end().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    }

    /// `items` in at most `lines` lines of at most `columns`; the last says how many are left.
    pub(crate) fn lines(
        &self,
        mut items: &[String],
        separator: &str,
        columns: usize,
        lines: usize,
    ) -> Vec<String> {
        let mut filled: Vec<String> = Vec::new();
        while !items.is_empty() && filled.len() + 1 < lines {
            let fits = |count: &usize| {
                self.text(&items[..*count].join(separator)).trim_end().width() <= columns
            };
            let count = (1..=items.len()).take_while(fits).last().unwrap_or(1);
            let line = items[..count].join(separator);
            filled.push(self.fit(line.trim_end(), columns));
            items = &items[count..];
        }
        if !items.is_empty() {
            filled.push(self.list(items, separator, columns));
        }
        filled
    }

    /// A bar of `share` of `columns`.
    pub(crate) fn bar(&self, share: f32, columns: usize) -> String {
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        let eighths = (share * columns as f32 * 8.0).round() as usize;
        if self.unicode {
            "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
        } else {
            "#".repeat((eighths + 4) / 8)
        }
    }
}

/// The parts of `text` that a line may end after.
fn units(text: &str) -> Vec<String> {
    let mut units = vec![String::new()];
    let (mut before, mut quoted) = (' ', false);
    for character in text.chars() {
        let wide = |character: char| character.width() == Some(2);
        let sticks = "，。、；：？！）".contains(character) || before == '（';
        let breaks = character == ' ' || (wide(character) || wide(before)) && !sticks;
        match units.last_mut() {
            Some(unit) if !breaks || quoted => unit.push(character),
            _ => units.push(character.to_string()),
        }
        // An apostrophe that no letter precedes begins a quotation.
        if character == '\'' {
            quoted = if quoted { before == '\\' } else { matches!(before, ' ' | '(') };
        }
        // A backslash that is escaped escapes nothing.
        before = if (before, character) == ('\\', '\\') { ' ' } else { character };
    }
    units
}

/// Whether the locale writes UTF-8, by the first of its variables that is set.
fn is_utf8(variables: [Option<String>; 3]) -> bool {
    let name = variables.into_iter().flatten().find(|value| !value.is_empty());
    let name = name.unwrap_or_default().to_ascii_lowercase();
    name.contains("utf-8") || name.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_wider_than_it_may_be() {
        let items: Vec<String> = ["'猫'", "' sat'", "'坐在垫子上'", "'x'"].map(String::from).into();
        for unicode in [true, false] {
            let screen = Screen::new(80, unicode);
            for columns in 8..60 {
                for item in &items {
                    assert!(screen.fit(item, columns).width() <= columns);
                    assert_eq!(screen.right(item, columns).width(), columns);
                }
                let line = screen.list(&items, " ", columns);
                assert!(line.width() <= columns, "{line:?} in {columns}");
                assert!(screen.bar(0.99, columns).width() <= columns);
            }
        }
        let screen = Screen::new(80, true);
        assert_eq!(screen.list(&items, " ", 80), "'猫' ' sat' '坐在垫子上' 'x'");
        assert_eq!(screen.list(&items, " ", 22), "'猫' ' sat' … 2 more");
        assert_eq!(screen.fit("猫猫猫", 5), "猫猫…");
        assert_eq!(screen.lines(&items, " ", 11, 9), ["'猫' ' sat'", "'坐在垫子…", "'x'"]);
        assert_eq!(screen.lines(&items, " ", 20, 2), ["'猫' ' sat'", "'坐在垫子上' 'x'"]);
        assert_eq!(screen.lines(&items, " ", 22, 1), ["'猫' ' sat' … 2 more"]);
    }

    #[test]
    fn text_is_wrapped_at_spaces_and_beside_wide_characters() {
        let screen = Screen::new(80, true);
        assert_eq!(screen.wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(screen.wrap("一二三四，五六", 8), ["一二三", "四，五六"]);
        assert_eq!(screen.wrap("一二三（四）", 8), ["一二三", "（四）"]);
        assert_eq!(screen.wrap("每个 ID 从表里取", 9), ["每个 ID", "从表里取"]);
        assert_eq!(screen.wrap("a layer's q of ' on' is", 12), ["a layer's q", "of ' on' is"]);
        assert_eq!(screen.wrap("q of ' on'", 7), ["q of", "' on'"]);
        assert_eq!(screen.wrap("of '\\' on'", 7), ["of", "'\\' on'"]);
        assert_eq!(screen.wrap("' a very long token'", 8), ["' a ver…"]);
        assert_eq!(screen.wrap("", 8), [""; 0]);
        assert_eq!(screen.wrap_whole("' a very long token'", 8), ["' a very", " long to", "ken'"]);
        assert_eq!(screen.wrap_whole("one 猫猫猫 two", 5), ["one", "猫猫", "猫", "two"]);
    }

    #[test]
    fn without_utf8_everything_is_ascii() {
        let screen = Screen::new(80, false);
        assert_eq!(screen.text("4→5 × 猫"), "4->5 x \\u{732b}");
        assert_eq!(screen.bar(0.5, 10), "#####");
        assert_eq!(Screen::new(80, true).bar(0.55, 10), "█████▌");
        let set = |value: &str| Some(value.to_owned());
        assert!(is_utf8([None, None, set("en_US.UTF-8")]));
        assert!(is_utf8([None, set(""), set("C.utf8")]));
        assert!(!is_utf8([set("C"), None, set("en_US.UTF-8")]));
        assert!(!is_utf8([None, None, None]));
    }
}
