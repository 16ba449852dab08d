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
