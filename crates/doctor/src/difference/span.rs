//! Where two texts that begin alike differ first, in whole words.

use std::ops::Range;

/// A span goes on for at most so many words, on both sides together.
const WORDS_MAX: usize = 128;
/// So many words in a row, spaces included, that both have are no coincidence.
const SAME_WORDS_MIN: usize = 4;
/// A word begins at most so many bytes before what differs in it.
const WORD_BYTES_MAX: usize = 128;

/// One of two texts, and what differs in it from the other.
pub(crate) struct Side<'a> {
    pub(crate) text: &'a str,
    /// The words that differ, in bytes.
    pub(crate) words: Range<usize>,
    /// Of these, what is left without the letters that both begin and end with.
    pub(crate) core: Range<usize>,
}

impl Side<'_> {
    /// The words that differ.
    pub(crate) fn changed(&self) -> &str {
        &self.text[self.words.clone()]
    }
}

/// Both sides of the first difference: what is held, and the request. It ends where both go on
/// alike for a while, or else after one word.
pub(crate) fn sides<'a>(cached: &'a str, request: &'a str) -> [Side<'a>; 2] {
    let parting = common_prefix(cached, request);
    let line = &request[..parting];
    let least = line.floor_char_boundary(parting.saturating_sub(WORD_BYTES_MAX));
    let start = line[least..].rfind(char::is_whitespace).map_or(least, |space| {
        let space = least + space;
        space + line[space..].chars().next().map_or(0, char::len_utf8)
    });
    let (held, asked) = (words(&cached[start..]), words(&request[start..]));
    let same = held.iter().zip(&asked).take_while(|(held, asked)| held == asked).count();
    let bytes = |words: &[&str]| words.iter().map(|word| word.len()).sum::<usize>();
    let start = start + bytes(&held[..same]);
    let (held, asked) = (&held[same..], &asked[same..]);
    let (of_held, of_asked) =
        meeting(held, asked).unwrap_or((held.len().min(1), asked.len().min(1)));
    let side = |text, words: &[&str]| (text, start..start + bytes(words));
    with_cores(side(cached, &held[..of_held]), side(request, &asked[..of_asked]))
}

fn with_cores<'a>(
    (cached, held): (&'a str, Range<usize>),
    (request, asked): (&'a str, Range<usize>),
) -> [Side<'a>; 2] {
    let before = common_prefix(&cached[held.clone()], &request[asked.clone()]);
    let rest = (&cached[held.start + before..held.end], &request[asked.start + before..asked.end]);
    let both = rest.0.chars().rev().zip(rest.1.chars().rev());
    let after: usize =
        both.take_while(|(held, asked)| held == asked).map(|(held, _)| held.len_utf8()).sum();
    let side = |text, words: Range<usize>| {
        let core = words.start + before..words.end - after;
        Side { text, words, core }
    };
    [side(cached, held), side(request, asked)]
}

/// Bytes that both begin with, in whole characters.
fn common_prefix(one: &str, other: &str) -> usize {
    let both = one.chars().zip(other.chars());
    both.take_while(|(one, other)| one == other).map(|(one, _)| one.len_utf8()).sum()
}

/// The fewest words of either side after which both go on alike.
fn meeting(held: &[&str], asked: &[&str]) -> Option<(usize, usize)> {
    for skipped in 1..=WORDS_MAX {
        for of_asked in 0..=skipped.min(asked.len()) {
            let of_held = skipped - of_asked;
            let rest = asked[of_asked..].len().min(SAME_WORDS_MIN);
            let alike =
                || held.get(of_held..of_held + rest) == asked.get(of_asked..of_asked + rest);
            if rest > 0 && alike() {
                return Some((of_held, of_asked));
            }
        }
    }
    None
}

/// The words of a text, and what stands between them character by character; no more of them than
/// are looked at. Dates, times and ids are one word.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = if in_word(first) { word_end(rest) } else { first.len_utf8() };
        let (word, after) = rest.split_at(end);
        words.push(word);
        rest = after;
        if words.len() >= 2 * WORDS_MAX {
            break;
        }
    }
    words
}

/// Letters and digits of scripts that are written with spaces, and underscores.
fn in_word(character: char) -> bool {
    (character.is_alphanumeric() && character < '\u{2e80}') || character == '_'
}

/// Where the word that `text` begins with ends. Some marks join what is on both sides of them.
fn word_end(text: &str) -> usize {
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        let joins = "-:./+".contains(character) && next.is_some_and(in_word);
        if !in_word(character) && !joins {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn changed<'a>(cached: &'a str, request: &'a str) -> [String; 2] {
        sides(cached, request).map(|side| side.changed().to_owned())
    }

    #[test]
    fn a_span_is_whole_words() {
        let same = " and the rest of it stays";
        for (cached, request) in [
            ("10:32:07", "10:41:11"),
            ("2026-01-05T10:32:11Z", "2026-01-06T09:00:00Z"),
            ("January 5", "February 6"),
            ("41", "42"),
            ("req_8f3a91c2", "req_77aa01de"),
            ("", "now "),
        ] {
            let [held, asked] =
                [cached, request].map(|word| format!("It is {word}{same}").replace("  ", " "));
            let found = changed(&held, &asked);
            assert_eq!(found.map(|text| text.trim().to_owned()), [cached, request.trim()]);
        }
        // Without anything alike behind it, one word.
        assert_eq!(changed("Say one thing", "Say other words"), ["one", "other"]);
        assert_eq!(changed("same", "same"), ["", ""]);
    }

    proptest! {
        #[test]
        fn a_span_covers_what_differs_and_no_text_breaks_it(
            before in ".{0,40}", held in ".{0,60}", asked in ".{0,60}", after in ".{0,40}",
        ) {
            let (cached, request) =
                (format!("{before}{held}{after}"), format!("{before}{asked}{after}"));
            let [held, asked] = sides(&cached, &request);
            prop_assert_eq!(&cached[..held.words.start], &request[..asked.words.start]);
            if cached != request {
                prop_assert_ne!(held.changed(), asked.changed());
            }
            for side in [held, asked] {
                prop_assert!(side.words.start <= side.core.start);
                prop_assert!(side.core.start <= side.core.end && side.core.end <= side.words.end);
                prop_assert!(side.text.get(side.core).is_some());
            }
        }
    }
}
