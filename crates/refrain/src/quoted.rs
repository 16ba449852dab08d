//! Texts from elsewhere (files, names, paths, other programs) as a terminal may get them: nothing
//! in them moves its cursor, changes its colours, turns the direction of writing, or is unseen.

use std::borrow::Cow;

/// A token between quotes, its control characters escaped; bytes that are no character as `\xNN`.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("'");
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\'' | '\\' => text.extend(['\\', character]),
                c if is_hidden(c) => push_escaped(c, &mut text),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text.push('\'');
    text
}

/// A text on one line: line breaks as `⏎`, other control characters escaped.
pub(crate) fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => line.push('⏎'),
            c if is_hidden(c) => push_escaped(c, &mut line),
            c => line.push(c),
        }
    }
    line
}

/// Longest piece of what the user wrote that an error repeats, in characters.
const BRIEF_CHARACTERS_MAX: usize = 80;

/// A text on one line, cut where it is too long to be repeated in an error.
pub(crate) fn brief(text: &str) -> String {
    match text.char_indices().nth(BRIEF_CHARACTERS_MAX) {
        None => on_one_line(text),
        Some((end, _)) => on_one_line(&text[..end]) + "…",
    }
}

/// A text whose lines stay lines, and all else that cannot be seen is escaped.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_hidden(c))
}

/// A model's answer for a terminal: control characters and changes of direction are escaped;
/// what joins letters or emoji stays.
pub(crate) fn answered(text: &str) -> Cow<'_, str> {
    escaped(text, |c| !matches!(c, '\n' | '\t' | '\u{200c}' | '\u{200d}') && is_hidden(c))
}

fn escaped(text: &str, hides: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hides) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match hides(character) {
            true => push_escaped(character, &mut shown),
            false => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal acts on a character, writes it without width, or turns the text around it.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

fn push_escaped(character: char, text: &mut String) {
    match character.is_control() {
        true => text.extend(character.escape_debug()),
        false => text.extend(character.escape_unicode()),
    }
}

#[cfg(test)]
mod tests {
    use super::{answered, brief, on_one_line, quoted, visible};

    #[test]
    fn what_is_long_is_cut() {
        assert_eq!(brief("hook_embed"), "hook_embed");
        assert_eq!(brief(&"ü".repeat(80)), "ü".repeat(80));
        assert_eq!(brief(&"ü".repeat(100_000)).chars().count(), 81);
    }

    #[test]
    fn what_cannot_be_read_is_escaped() {
        assert_eq!(quoted(b" it's\n"), r"' it\'s\n'");
        assert_eq!(quoted("你\u{1b}".as_bytes()), r"'你\u{1b}'");
        assert_eq!(quoted(&[0xe4, 0xbd]), r"'\xe4\xbd'");
        assert_eq!(on_one_line("a\n\tb\u{1b}[2J"), r"a⏎\tb\u{1b}[2J");
        assert_eq!(quoted("a\u{200b}\u{202e}".as_bytes()), r"'a\u{200b}\u{202e}'");
        assert_eq!(visible("a\n\u{9b}31m\u{feff}"), "a\n\\u{9b}31m\\u{feff}");
        assert_eq!(visible("plain 猫 é"), "plain 猫 é");
        assert_eq!(answered("👩\u{200d}💻\t\u{7}\n"), "👩\u{200d}💻\t\\u{7}\n");
    }
}
