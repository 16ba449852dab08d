//! Tokens as text for people.

/// A token between quotes, its control characters escaped; bytes that are no character as `\xNN`.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("'");
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\'' | '\\' => text.extend(['\\', character]),
                c if c.is_control() => text.extend(c.escape_debug()),
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
            c if c.is_control() => line.extend(c.escape_debug()),
            c => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{on_one_line, quoted};

    #[test]
    fn what_cannot_be_read_is_escaped() {
        assert_eq!(quoted(b" it's\n"), r"' it\'s\n'");
        assert_eq!(quoted("你\u{1b}".as_bytes()), r"'你\u{1b}'");
        assert_eq!(quoted(&[0xe4, 0xbd]), r"'\xe4\xbd'");
        assert_eq!(on_one_line("a\n\tb\u{1b}[2J"), r"a⏎\tb\u{1b}[2J");
    }
}
