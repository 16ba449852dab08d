//! Patterns of JSON Schema, which are ECMAScript's, as regular expressions that `llguidance` reads.
//!
//! The two notations share most of their characters, but not what they mean: `[[]` and `[a&&b]`
//! are other sets, `.` and `\d` stand for other characters, `\Z` is a letter or an assertion. So
//! each construct is read here as ECMA-262 does (section 22.2.1, with what appendix B.1.2 allows
//! as literals), and written in a form that has one meaning.

use std::fmt::Write;

/// Longest pattern, in bytes.
pub(crate) const PATTERN_BYTES_MAX: usize = 4096;
/// Deepest groups.
const GROUPS_MAX: usize = 32;
/// Highest count in a quantifier.
const COUNT_MAX: u32 = 10_000;
/// Highest product of the counts of nested quantifiers.
const COUNTS_MAX: u64 = 100_000;

const DIGIT: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
/// White space and line ends: ECMA-262, tables 34 and 35, and the category Zs.
const SPACE: &str = concat!(
    r"\x{9}-\x{D}\x{20}\x{A0}\x{1680}\x{2000}-\x{200A}",
    r"\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}",
);
const ANY_BUT_LINE_END: &str = r"[^\x{A}\x{D}\x{2028}\x{2029}]";
const ANY: &str = r"[\x{0}-\x{10FFFF}]";
const NONE: &str = r"[^\x{0}-\x{10FFFF}]";

/// Why a pattern cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PatternError {
    /// Regular expressions in the strict sense have no such thing, or its meaning is disputed.
    Unsupported(&'static str),
    Invalid(&'static str),
    TooLarge(&'static str, usize),
}

/// The pattern in Rust's notation. `^` and `$` stay; where they are neither at the beginning nor
/// at the end, `llguidance` refuses them.
pub(crate) fn translate(pattern: &str) -> Result<String, PatternError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(PatternError::TooLarge("the length of a pattern", PATTERN_BYTES_MAX));
    }
    let mut reader = Reader { chars: pattern.chars().collect(), at: 0, out: String::new() };
    reader.alternatives(0)?;
    match reader.peek() {
        None => Ok(reader.out),
        Some(_) => Err(PatternError::Invalid("a pattern has an unmatched `)`")),
    }
}

/// One item of a class: a character, or a set that cannot be the end of a range.
enum Item {
    Char(char),
    Set(String),
}

struct Reader {
    chars: Vec<char>,
    at: usize,
    out: String,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn looks_at(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(index, char)| self.chars.get(self.at + index) == Some(&char))
    }

    fn eat(&mut self, text: &str) -> bool {
        let is_there = self.looks_at(text);
        self.at += if is_there { text.chars().count() } else { 0 };
        is_there
    }

    /// Reads `a|b|c`, up to a `)` or the end. Gives the product of counts of its quantifiers.
    fn alternatives(&mut self, depth: usize) -> Result<u64, PatternError> {
        if depth > GROUPS_MAX {
            return Err(PatternError::TooLarge("the depth of a pattern's groups", GROUPS_MAX));
        }
        let mut counts = 1;
        loop {
            counts = counts.max(self.terms(depth)?);
            if !self.eat("|") {
                return Ok(counts);
            }
            self.out.push('|');
        }
    }

    fn terms(&mut self, depth: usize) -> Result<u64, PatternError> {
        let mut counts = 1;
        while let Some(char) = self.peek() {
            let inner = match char {
                '|' | ')' => break,
                '^' | '$' => {
                    self.at += 1;
                    self.out.push(char);
                    if self.quantifier()?.is_some() {
                        return Err(PatternError::Invalid("a pattern repeats an assertion"));
                    }
                    continue;
                }
                '(' => self.group(depth)?,
                _ => {
                    self.atom(char)?;
                    1
                }
            };
            let repeated = match self.quantifier()? {
                Some((written, count)) => {
                    self.out.push_str(&written);
                    inner.saturating_mul(u64::from(count.max(1)))
                }
                None => inner,
            };
            if repeated > COUNTS_MAX {
                let limit = COUNTS_MAX as usize;
                return Err(PatternError::TooLarge("what a pattern repeats", limit));
            }
            counts = counts.max(repeated);
        }
        Ok(counts)
    }

    fn group(&mut self, depth: usize) -> Result<u64, PatternError> {
        for look in ["(?=", "(?!", "(?<=", "(?<!"] {
            if self.looks_at(look) {
                return Err(PatternError::Unsupported("a lookaround in a pattern"));
            }
        }
        if self.eat("(?<") {
            while self.peek().is_some_and(|char| char != '>') {
                self.at += 1;
            }
            self.at += 1;
        } else if !self.eat("(?:") {
            self.at += 1;
            if self.looks_at("?") {
                return Err(PatternError::Invalid("a pattern has an unknown kind of group"));
            }
        }
        self.out.push_str("(?:");
        let counts = self.alternatives(depth + 1)?;
        if !self.eat(")") {
            return Err(PatternError::Invalid("a pattern has an unmatched `(`"));
        }
        self.out.push(')');
        Ok(counts)
    }

    fn atom(&mut self, char: char) -> Result<(), PatternError> {
        self.at += 1;
        match char {
            '.' => self.out.push_str(ANY_BUT_LINE_END),
            '[' => self.class()?,
            '*' | '+' | '?' => return Err(PatternError::Invalid("a pattern repeats nothing")),
            '{' => {
                self.at -= 1;
                if self.quantifier()?.is_some() {
                    return Err(PatternError::Invalid("a pattern repeats nothing"));
                }
                self.at += 1;
                write_char(&mut self.out, '{');
            }
            '\\' => match self.escape(false)? {
                Item::Char(char) => write_char(&mut self.out, char),
                Item::Set(set) => self.out.push_str(&set),
            },
            char => write_char(&mut self.out, char),
        }
        Ok(())
    }

    /// Reads a quantifier, if one is here, and what says that it is lazy, which makes no
    /// difference to what matches. Gives it in Rust's notation, with its highest finite count.
    fn quantifier(&mut self) -> Result<Option<(String, u32)>, PatternError> {
        let start = self.at;
        let found = match self.peek() {
            Some(char @ ('*' | '+' | '?')) => {
                self.at += 1;
                Some((char.to_string(), 1))
            }
            Some('{') => {
                self.at += 1;
                self.counts()?
            }
            _ => None,
        };
        if found.is_none() {
            self.at = start;
            return Ok(None);
        }
        self.eat("?");
        Ok(found)
    }

    /// What follows the brace of `{2}`, `{2,}` and `{2,3}`; `None` where it is none of these, and
    /// so the brace a character.
    fn counts(&mut self) -> Result<Option<(String, u32)>, PatternError> {
        let Some(least) = self.number()? else { return Ok(None) };
        if self.eat("}") {
            return Ok(Some((format!("{{{least}}}"), least)));
        }
        if !self.eat(",") {
            return Ok(None);
        }
        let most = self.number()?;
        if !self.eat("}") {
            return Ok(None);
        }
        match most {
            Some(most) if most < least => {
                Err(PatternError::Invalid("a pattern's numbers are out of order"))
            }
            Some(most) => Ok(Some((format!("{{{least},{most}}}"), most))),
            None => Ok(Some((format!("{{{least},}}"), least))),
        }
    }

    fn number(&mut self) -> Result<Option<u32>, PatternError> {
        let start = self.at;
        let mut number: u32 = 0;
        while let Some(digit) = self.peek().and_then(|char| char.to_digit(10)) {
            number = number.saturating_mul(10).saturating_add(digit);
            self.at += 1;
        }
        if number > COUNT_MAX {
            return Err(PatternError::TooLarge("a count in a pattern", COUNT_MAX as usize));
        }
        Ok((self.at > start).then_some(number))
    }

    /// Reads a class, whose `[` was read.
    fn class(&mut self) -> Result<(), PatternError> {
        let negated = self.eat("^");
        let mut items = String::new();
        loop {
            match self.class_item()? {
                None => break,
                Some(Item::Char(first)) if self.looks_at("-") && !self.looks_at("-]") => {
                    self.at += 1;
                    match self.class_item()? {
                        Some(Item::Char(last)) if first <= last => {
                            write_char(&mut items, first);
                            items.push('-');
                            write_char(&mut items, last);
                        }
                        Some(Item::Char(_)) => {
                            return Err(PatternError::Invalid("a pattern's range is out of order"));
                        }
                        _ => {
                            return Err(PatternError::Unsupported(
                                "a range to a set, in a pattern",
                            ));
                        }
                    }
                }
                Some(Item::Char(char)) => write_char(&mut items, char),
                Some(Item::Set(set)) => items.push_str(&set),
            }
        }
        match (negated, items.is_empty()) {
            (false, true) => self.out.push_str(NONE),
            (true, true) => self.out.push_str(ANY),
            (false, false) => write!(self.out, "[{items}]").expect("a string"),
            (true, false) => write!(self.out, "[^{items}]").expect("a string"),
        }
        Ok(())
    }

    /// One item of a class; `None` for its end, which is read too.
    fn class_item(&mut self) -> Result<Option<Item>, PatternError> {
        let char = self.peek().ok_or(PatternError::Invalid("a pattern has an unmatched `[`"))?;
        self.at += 1;
        match char {
            ']' => Ok(None),
            '\\' => self.escape(true).map(Some),
            char => Ok(Some(Item::Char(char))),
        }
    }

    /// Reads what follows a backslash.
    fn escape(&mut self, in_class: bool) -> Result<Item, PatternError> {
        let char = self.peek().ok_or(PatternError::Invalid("a pattern ends in a backslash"))?;
        self.at += 1;
        let char = match char {
            'd' => return Ok(Item::Set(format!("[{DIGIT}]"))),
            'D' => return Ok(Item::Set(format!("[^{DIGIT}]"))),
            'w' => return Ok(Item::Set(format!("[{WORD}]"))),
            'W' => return Ok(Item::Set(format!("[^{WORD}]"))),
            's' => return Ok(Item::Set(format!("[{SPACE}]"))),
            'S' => return Ok(Item::Set(format!("[^{SPACE}]"))),
            'p' | 'P' => return self.property(char),
            't' => '\t',
            'n' => '\n',
            'v' => '\u{B}',
            'f' => '\u{C}',
            'r' => '\r',
            'b' if in_class => '\u{8}',
            'b' | 'B' => return Err(PatternError::Unsupported("a word boundary in a pattern")),
            '0' if !self.peek().is_some_and(|char| char.is_ascii_digit()) => '\0',
            'x' => self.hexadecimal(2)?,
            'u' => self.unicode()?,
            '1'..='9' | 'k' => {
                return Err(PatternError::Unsupported("a back reference in a pattern"));
            }
            // Here a letter for some, an assertion or a control character for others.
            char if char.is_ascii_alphanumeric() => {
                return Err(PatternError::Unsupported("an unknown escape in a pattern"));
            }
            char => char,
        };
        Ok(Item::Char(char))
    }

    /// `\p{…}`, whose `p` was read: as it is, since the names are Unicode's.
    fn property(&mut self, char: char) -> Result<Item, PatternError> {
        let mut name = String::new();
        if self.eat("{") {
            while let Some(char) =
                self.peek().filter(|char| char.is_ascii_alphanumeric() || "_=".contains(*char))
            {
                name.push(char);
                self.at += 1;
            }
            if self.eat("}") && !name.is_empty() {
                return Ok(Item::Set(format!("\\{char}{{{name}}}")));
            }
        }
        Err(PatternError::Unsupported("an unknown escape in a pattern"))
    }

    fn unicode(&mut self) -> Result<char, PatternError> {
        if self.eat("{") {
            let length = self.chars[self.at..].iter().take_while(|char| **char != '}').count();
            let char = self.hexadecimal(length.clamp(1, 8))?;
            return if self.eat("}") { Ok(char) } else { Err(BAD_ESCAPE) };
        }
        let start = self.at;
        let high = self.code(4)?;
        if (0xD800..0xDC00).contains(&high) && self.eat("\\u") {
            let low = self.code(4)?;
            if (0xDC00..0xE000).contains(&low) {
                let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                return char::from_u32(code).ok_or(BAD_ESCAPE);
            }
        }
        self.at = start;
        self.hexadecimal(4)
    }

    fn hexadecimal(&mut self, digits: usize) -> Result<char, PatternError> {
        let half = PatternError::Unsupported("half a surrogate pair in a pattern");
        char::from_u32(self.code(digits)?).ok_or(half)
    }

    fn code(&mut self, digits: usize) -> Result<u32, PatternError> {
        let text: String = self.chars[self.at..].iter().take(digits).collect();
        if text.chars().count() != digits || !text.chars().all(|char| char.is_ascii_hexdigit()) {
            return Err(BAD_ESCAPE);
        }
        self.at += digits;
        u32::from_str_radix(&text, 16).map_err(|_| BAD_ESCAPE)
    }
}

const BAD_ESCAPE: PatternError = PatternError::Invalid("a pattern has an incomplete escape");

fn write_char(out: &mut String, char: char) {
    if char.is_ascii_alphanumeric() {
        out.push(char);
    } else {
        write!(out, "\\x{{{:X}}}", u32::from(char)).expect("a string");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructs_keep_their_meaning() {
        let cases = [
            (r"^a.c$", r"^a[^\x{A}\x{D}\x{2028}\x{2029}]c$"),
            (r"[[]\d", r"[\x{5B}][0-9]"),
            (r"[a&&b]", r"[a\x{26}\x{26}b]"),
            (r"a{2,}?|b{,3}", r"a{2,}|b\x{7B}\x{2C}3\x{7D}"),
            (r"(?<year>\x41\u00e9\ud83d\ude00)", r"(?:A\x{E9}\x{1F600})"),
            (r"[^]|[]", r"[\x{0}-\x{10FFFF}]|[^\x{0}-\x{10FFFF}]"),
            (r"[\w.-]+@", r"[[0-9A-Za-z_]\x{2E}\x{2D}]+\x{40}"),
            (r"\p{Lu}[\P{L}]", r"\p{Lu}[\P{L}]"),
        ];
        for (pattern, expected) in cases {
            assert_eq!(translate(pattern).as_deref(), Ok(expected), "{pattern}");
        }
    }

    #[test]
    fn what_cannot_be_held_is_said() {
        let unsupported = [r"(?=a)", r"(?<!a)b", r"\bfoo", r"(a)\1", r"a\Z", r"\ud800", r"\cA"];
        for pattern in unsupported {
            let error = translate(pattern).expect_err(pattern);
            assert!(matches!(error, PatternError::Unsupported(_)), "{pattern}: {error:?}");
        }
        for pattern in
            ["(", "a)", "[a", "*a", "a**", "a{3,2}", "[b-a]", "\\", "(?i)a", "^*", "\\x4"]
        {
            let error = translate(pattern).expect_err(pattern);
            assert!(matches!(error, PatternError::Invalid(_)), "{pattern}: {error:?}");
        }
        for pattern in ["a{20000}", "((a{999}){999}){999}", &"(".repeat(99), &"a".repeat(5000)] {
            let error = translate(pattern).expect_err(pattern);
            assert!(matches!(error, PatternError::TooLarge(..)), "{error:?}");
        }
    }
}
