//! Which part of a rendered conversation came from which message.
//!
//! A template is a program, so its output is not searched for the messages: the conversation is
//! rendered once more with each text replaced by a mark that no text contains, which shows where
//! the template puts what. What then does not fit is left out: a span is never guessed.

use super::messages::Piece;
use std::borrow::Cow;
use std::ops::Range;

/// Marks are made of private-use characters, which templates neither trim nor change by case.
const MARK_START: char = '\u{E000}';
const MARK_END: char = '\u{E001}';
const MARK_DIGITS: u32 = 0xE010;
/// Most text that is rendered to find out about the messages one by one.
const SINGLE_BYTES_MAX: usize = 8 << 20;

/// A part of the rendered text that is part of a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Bytes of the rendered text.
    pub(super) range: Range<usize>,
    /// Index of the piece.
    pub(super) piece: usize,
    /// Where in the piece's text the part begins, in Unicode scalars.
    pub(super) start_char: usize,
}

/// Finds the pieces in `rendered`. `render` renders the conversation with other texts for its
/// pieces.
pub(super) fn find(
    rendered: &str,
    pieces: &[Piece],
    mut render: impl FnMut(&[Cow<'_, str>]) -> Option<String>,
) -> Vec<Found> {
    let blank = |piece: &Piece| piece.text.trim().is_empty();
    if rendered.contains(MARK_START) || pieces.iter().all(blank) {
        return Vec::new();
    }
    let marked: Vec<Cow<'_, str>> = (0..)
        .zip(pieces)
        .map(|(index, piece)| match blank(piece) {
            true => Cow::Borrowed(piece.text.as_str()),
            false => Cow::Owned(mark(index)),
        })
        .collect();
    let together = render(&marked).and_then(|marked| fit(rendered, &marked, pieces));
    together.unwrap_or_else(|| find_singly(rendered, pieces, &marked, render))
}

fn mark(index: u32) -> String {
    let digit = |shift: u32| char::from_u32(MARK_DIGITS + (index >> shift & 15));
    let digits = (0..8).filter_map(|place| digit(28 - 4 * place));
    [MARK_START].into_iter().chain(digits).chain([MARK_END]).collect()
}

/// The text before a mark, the mark's index, and the text after it.
fn split_mark(text: &str) -> Option<(&str, usize, &str)> {
    let (before, rest) = text.split_once(MARK_START)?;
    let (digits, after) = rest.split_once(MARK_END)?;
    let index = digits.chars().try_fold(0, |index: usize, digit| {
        let value = u32::from(digit).checked_sub(MARK_DIGITS).filter(|value| *value < 16)?;
        index.checked_mul(16)?.checked_add(value as usize)
    })?;
    Some((before, index, after))
}

/// Lays the rendered text over the marked one: between the marks both must be equal, and in
/// place of each mark must stand its piece, whole or trimmed. `None` where they do not fit.
fn fit(rendered: &str, marked: &str, pieces: &[Piece]) -> Option<Vec<Found>> {
    let mut literals = Vec::new();
    let mut indices = Vec::new();
    let mut rest = marked;
    while let Some((before, index, after)) = split_mark(rest) {
        literals.push(before);
        indices.push(index);
        rest = after;
    }
    literals.push(rest);
    if !rendered.starts_with(literals[0]) {
        return None;
    }
    // Depth first over the ways to trim; `found` is the path to the node that is looked at.
    let mut found: Vec<Found> = Vec::new();
    let mut open = vec![(0, literals[0].len(), None)];
    let mut steps = 8 * indices.len() + 64;
    while let Some((depth, at, came_by)) = open.pop() {
        found.truncate(depth.max(1) - 1);
        found.extend(came_by);
        if depth == indices.len() {
            if at == rendered.len() {
                return Some(found);
            }
            continue;
        }
        steps = steps.checked_sub(1)?;
        let piece = pieces.get(indices[depth])?;
        for (start_char, text) in trimmed(&piece.text) {
            let end = at + text.len();
            let next = literals[depth + 1];
            if rendered[at..].starts_with(text) && rendered[end..].starts_with(next) {
                let found = Found { range: at..end, piece: indices[depth], start_char };
                open.push((depth + 1, end + next.len(), Some(found)));
            }
        }
    }
    None
}

/// A text as templates put it: trimmed on both sides, on one, or whole; the last is the likeliest
/// and is tried first. With each, how many scalars are missing at its start.
fn trimmed(text: &str) -> Vec<(usize, &str)> {
    let without_start = text.trim_start();
    let missing = text[..text.len() - without_start.len()].chars().count();
    let mut ways = vec![
        (missing, without_start.trim_end()),
        (missing, without_start),
        (0, text.trim_end()),
        (0, text),
    ];
    ways.dedup_by_key(|(_, text)| text.len());
    ways
}

/// Finds pieces by marking one at a time, for templates that treat some messages by what is in
/// them: the text before and after the mark must be that of the rendered text, and what stands
/// in its place must be a part of the piece, once.
fn find_singly(
    rendered: &str,
    pieces: &[Piece],
    marks: &[Cow<'_, str>],
    mut render: impl FnMut(&[Cow<'_, str>]) -> Option<String>,
) -> Vec<Found> {
    if pieces.len().saturating_mul(rendered.len()) > SINGLE_BYTES_MAX {
        return Vec::new();
    }
    let mut texts: Vec<Cow<'_, str>> =
        pieces.iter().map(|piece| Cow::Borrowed(piece.text.as_str())).collect();
    let mut found: Vec<Found> = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        if piece.text == marks[index] {
            continue;
        }
        let own = std::mem::replace(&mut texts[index], marks[index].clone());
        let marked = render(&texts);
        texts[index] = own;
        let range = marked.as_deref().and_then(|marked| place(rendered, marked));
        let Some(range) = range else { continue };
        if let Some(start_char) = start_of(&rendered[range.clone()], &piece.text) {
            found.push(Found { range, piece: index, start_char });
        }
    }
    found.sort_by_key(|found| found.range.start);
    // Two pieces in one place: at least one is wrong.
    let overlap = found.windows(2).any(|pair| pair[0].range.end > pair[1].range.start);
    if overlap { Vec::new() } else { found }
}

/// What stands in the rendered text where the only mark is.
fn place(rendered: &str, marked: &str) -> Option<Range<usize>> {
    let (before, _, after) = split_mark(marked)?;
    let middle = rendered.strip_prefix(before)?.strip_suffix(after)?;
    let alone = !after.contains(MARK_START) && !middle.is_empty();
    alone.then(|| before.len()..before.len() + middle.len())
}

/// Where the part begins in the whole, in Unicode scalars; `None` unless it is there just once.
fn start_of(part: &str, whole: &str) -> Option<usize> {
    let at = whole.find(part)?;
    let next = at + part.chars().next().map_or(0, char::len_utf8);
    let once = !whole[next..].contains(part);
    once.then(|| whole[..at].chars().count())
}
