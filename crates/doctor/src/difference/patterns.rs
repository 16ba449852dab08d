//! Dates, times, ids and numbers in texts.

use std::ops::Range;

use cache::DifferenceKind;

use super::span::Side;

/// Bytes before a difference in which what it lies in may begin.
const BEFORE_MAX: usize = 64;
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const DAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
/// The shortest part of an id, between its marks, that can look random.
const RANDOM_MIN: usize = 6;
/// More digits than any count has.
const RANDOM_DIGITS_MIN: usize = 15;

/// Tells how many bytes of what a text begins with match.
type Pattern = fn(&[u8]) -> Option<usize>;

/// What kind of thing changed into another of its kind, if it is one that is known.
pub(crate) fn kind(cached: &Side<'_>, request: &Side<'_>) -> Option<DifferenceKind> {
    let without_space = |side: &Side<'_>| -> String {
        side.changed().chars().filter(|character| !character.is_whitespace()).collect()
    };
    if cached.changed() != request.changed() && without_space(cached) == without_space(request) {
        return Some(DifferenceKind::WhiteSpace);
    }
    let patterns: [(DifferenceKind, Pattern); 5] = [
        (DifferenceKind::Uuid, uuid),
        (DifferenceKind::Date, date),
        (DifferenceKind::Time, time),
        (DifferenceKind::RandomId, random_id),
        (DifferenceKind::Counter, number),
    ];
    let both = |pattern| lies_in(cached, pattern) && lies_in(request, pattern);
    patterns.into_iter().find(|(_, pattern)| both(*pattern)).map(|(kind, _)| kind)
}

/// Whether the difference lies in something that matches the pattern.
fn lies_in(side: &Side<'_>, pattern: Pattern) -> bool {
    let text = side.text.as_bytes();
    let Range { start, end } = side.core.clone();
    (start.saturating_sub(BEFORE_MAX)..=end.min(text.len())).any(|from| {
        // Matches begin at words only.
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let inside = from > 0 && word(text[from - 1]);
        let joined = from > 0 && text[from - 1] == b'T' && text[from..].first() != Some(&b'T');
        if inside && !joined {
            return false;
        }
        let Some(length) = pattern(&text[from..]) else { return false };
        match start == end {
            // Something was put in or taken out beside it.
            true => from <= start && start <= from + length,
            false => from < end && start < from + length,
        }
    })
}

/// How many digits a text begins with.
fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// The number that a text begins with, if it has `least` to `most` digits, and how many.
fn whole(text: &[u8], least: usize, most: usize) -> Option<(u32, usize)> {
    let count = digits(text);
    if !(least..=most).contains(&count) {
        return None;
    }
    let number = text[..count].iter().fold(0, |all, digit| 10 * all + u32::from(digit - b'0'));
    Some((number, count))
}

/// Whether a word ends here.
fn ends(text: &[u8]) -> bool {
    !text.first().is_some_and(|byte| byte.is_ascii_alphanumeric())
}

fn date(text: &[u8]) -> Option<usize> {
    numeric_date(text).or_else(|| compact_date(text)).or_else(|| written_date(text)).or_else(|| {
        let day = word(text);
        let name = DAYS.iter().find(|name| name.eq_ignore_ascii_case(day))?;
        Some(name.len())
    })
}

/// As 2026-01-05, 5/1/2026, 05.01.2026 or 2026年1月5日.
fn numeric_date(text: &[u8]) -> Option<usize> {
    let (first, at) = whole(text, 1, 4)?;
    let marks: [&[u8]; 2] = match text.get(at)? {
        b'-' => [b"-", b"-"],
        b'/' => [b"/", b"/"],
        b'.' => [b".", b"."],
        _ => ["年".as_bytes(), "月".as_bytes()],
    };
    let (second, length) = whole(text.get(at..)?.strip_prefix(marks[0])?, 1, 2)?;
    let at = at + marks[0].len() + length;
    let (third, length) = whole(text.get(at..)?.strip_prefix(marks[1])?, 1, 4)?;
    let end = at + marks[1].len() + length;
    let (year_first, year_last) = ((1900..2200).contains(&first), (1900..2200).contains(&third));
    let day_and_month = |one, other| (1..=31).contains(&one) && (1..=31).contains(&other);
    let short = text[at] == b'/' && third < 100 && length == 2 && day_and_month(first, second);
    let fits = (year_first && day_and_month(second, third))
        || (year_last && day_and_month(first, second))
        || short;
    // A time may follow at once.
    let after = &text[end..];
    (fits && (ends(after) || after.starts_with(b"T"))).then_some(end)
}

/// As 20260105.
fn compact_date(text: &[u8]) -> Option<usize> {
    let (number, length) = whole(text, 8, 8)?;
    let (year, month, day) = (number / 10_000, number / 100 % 100, number % 100);
    let fits = (1900..2200).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let after = &text[length..];
    (fits && (ends(after) || after.starts_with(b"T"))).then_some(length)
}

/// As January 5, 2026, Jan. 5th, 5 January or May 2026.
fn written_date(text: &[u8]) -> Option<usize> {
    let number = |text: &[u8]| {
        let (_, length) = whole(text, 1, 4)?;
        let ordinal = ["st", "nd", "rd", "th"].iter().any(|end| {
            text[length..].starts_with(end.as_bytes()) && ends(&text[length + end.len()..])
        });
        let length = length + if ordinal { 2 } else { 0 };
        ends(&text[length..]).then_some(length)
    };
    let spaces = |text: &[u8]| text.iter().take_while(|byte| b" ,.".contains(byte)).count();
    let mut end = 0;
    let leading = number(text);
    if let Some(length) = leading {
        end = length + spaces(&text[length..]);
    }
    end += month(&text[end..])?;
    let trailing = || {
        let at = end + spaces(&text[end..]);
        Some(at + number(&text[at..])?)
    };
    match trailing() {
        Some(day) => {
            let at = day + spaces(&text[day..]);
            let year = whole(&text[at..], 4, 4).filter(|(_, length)| ends(&text[at + length..]));
            Some(year.map_or(day, |(_, length)| at + length))
        }
        None => leading.map(|_| end),
    }
}

fn month(text: &[u8]) -> Option<usize> {
    let name = word(text);
    let is = |month: &&str| {
        let short = name.eq_ignore_ascii_case(&month[..3]);
        short || name.eq_ignore_ascii_case(month)
    };
    MONTHS.iter().any(is).then_some(name.len())
}

/// The letters that a text begins with, as a word.
fn word(text: &[u8]) -> &str {
    let length = text.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    std::str::from_utf8(&text[..length]).unwrap_or_default()
}

/// As 10:32, 10:32:07.123Z, 10:32 AM, 10 am, 20260105T103207, or a moment since 1970.
fn time(text: &[u8]) -> Option<usize> {
    let count = digits(text);
    let recent = |text: &[u8]| text[0] == b'1' && (b'5'..=b'9').contains(&text[1]);
    if matches!(count, 10 | 13) && recent(text) && ends(&text[count..]) {
        return Some(count);
    }
    if let Some(length) = compact_time(text) {
        return Some(length);
    }
    let half = |at: usize| {
        let rest = &text[at..];
        let space = usize::from(rest.first() == Some(&b' '));
        let half = word(&rest[space..]);
        let is = ["am", "pm"].iter().any(|one| half.eq_ignore_ascii_case(one));
        is.then_some(at + space + 2)
    };
    let (hour, at) = whole(text, 1, 2).filter(|(hour, _)| *hour <= 24)?;
    let two = |at: usize| {
        let (number, _) = whole(text.get(at..)?.strip_prefix(b":")?, 2, 2)?;
        (number < 60).then_some(at + 3)
    };
    let Some(mut end) = two(at) else { return half(at).filter(|_| hour <= 12) };
    if let Some(seconds) = two(end) {
        end = seconds;
        if text.get(end) == Some(&b'.') {
            end += 1 + digits(&text[end + 1..]);
        }
    }
    Some(half(end).unwrap_or(end + usize::from(text.get(end) == Some(&b'Z'))))
}

/// As 20260105T103207Z; the date in it is told from the time by who asks for dates first.
fn compact_time(text: &[u8]) -> Option<usize> {
    let at = compact_date(text)?;
    let (_, length) = whole(text[at..].strip_prefix(b"T")?, 4, 6)?;
    Some(at + 1 + length)
}

fn uuid(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            text.get(at..)?.strip_prefix(b"-")?;
            at += 1;
        }
        let part = text.get(at..at + length)?;
        if !part.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        at += length;
    }
    ends(&text[at..]).then_some(at)
}

/// As req_8f3a91c2, call_AbCdEfGhIjKl or 24 hexadecimal digits: letters and digits, or small and
/// capital letters, mixed as in no word.
fn random_id(text: &[u8]) -> Option<usize> {
    let marks = |byte: &u8| *byte == b'_' || *byte == b'-';
    let length = text.iter().take_while(|byte| byte.is_ascii_alphanumeric() || marks(byte)).count();
    let looks_random = |part: &[u8]| {
        let count = part.iter().filter(|byte| byte.is_ascii_digit()).count();
        let changes = part.windows(2).filter(|pair| kind_of(pair[0]) != kind_of(pair[1])).count();
        let mixed = count > 0 && count < part.len() && changes >= 2;
        let cases = 2 * changes >= part.len() && part.len() >= 2 * RANDOM_MIN;
        part.len() >= RANDOM_MIN && (mixed || cases) || digits(part) >= RANDOM_DIGITS_MIN
    };
    text[..length].split(marks).any(looks_random).then_some(length)
}

/// A digit, a small or a capital letter.
fn kind_of(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => 0,
        b'a'..=b'z' => 1,
        _ => 2,
    }
}

fn number(text: &[u8]) -> Option<usize> {
    Some(digits(text)).filter(|count| *count > 0)
}
