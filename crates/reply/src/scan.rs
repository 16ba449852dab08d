//! JSON that is not all there yet: where its values end.
//!
//! Everything is looked at byte by byte: what JSON is made of is ASCII, and no byte of another
//! character looks like it.

/// Where a value ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Before this byte.
    At(usize),
    /// Not in this text.
    More,
    /// It is no value.
    Bad,
}

/// The first byte from `at` on that is no white space, or the text's length.
pub(crate) fn space(text: &str, at: usize) -> usize {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
    at + text.as_bytes()[at..].iter().take_while(|byte| is_space(byte)).count()
}

/// Where the value ends that begins at `at`.
pub(crate) fn value_end(text: &str, at: usize) -> End {
    let rest = &text[at..];
    match rest.as_bytes().first() {
        None => End::More,
        Some(b'"' | b'{' | b'[') => match Scan::default().end(rest) {
            Some(end) => End::At(at + end),
            None => End::More,
        },
        Some(_) => {
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
            match rest.as_bytes().iter().take_while(|byte| is_part(byte)).count() {
                0 => End::Bad,
                count if count == rest.len() => End::More,
                count => End::At(at + count),
            }
        }
    }
}

/// The text that the string at `at` stands for, and where it ends.
///
/// # Errors
/// [`End::More`] or [`End::Bad`].
pub(crate) fn string(text: &str, at: usize) -> Result<(String, usize), End> {
    match text.as_bytes().get(at) {
        None => return Err(End::More),
        Some(b'"') => {}
        Some(_) => return Err(End::Bad),
    }
    let End::At(end) = value_end(text, at) else { return Err(End::More) };
    let string = serde_json::from_str(&text[at..end]).map_err(|_| End::Bad)?;
    Ok((string, end))
}

/// Looks for the end of one string, object or list, piece by piece. Only strings and brackets are
/// looked at, so that wrong JSON has an end too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scan {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Scan {
    /// Looks at the next piece; the value ends before the byte that is returned.
    pub(crate) fn end(&mut self, piece: &str) -> Option<usize> {
        for (index, byte) in piece.bytes().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => continue,
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                    _ => continue,
                }
            }
            if self.depth == 0 && !self.in_string {
                return Some(index + 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{End, Scan, string, value_end};

    #[test]
    fn values_end_where_json_says() {
        let text = r#"{"a": "}\"]", "b": [1, {}]}, x"#;
        assert_eq!(value_end(text, 0), End::At(27));
        assert_eq!(value_end(text, 6), End::At(12));
        assert_eq!(value_end("12.5e-3,", 0), End::At(7));
        assert_eq!(value_end("-12", 0), End::More);
        assert_eq!(value_end(",", 0), End::Bad);
        assert_eq!(string(r#""a\u00e9\"é" "#, 0), Ok(("aé\"é".to_owned(), 13)));
        assert_eq!(string("\"a\n\"", 0), Err(End::Bad));
        assert_eq!(string(r#""a\""#, 0), Err(End::More));
    }

    #[test]
    fn an_end_is_found_in_any_pieces() {
        let text = r#"{"a": "}\\\"]", "b": [1, {}]}"#;
        let mut scan = Scan::default();
        for index in 0..text.len() - 1 {
            assert_eq!(scan.end(&text[index..=index]), None);
        }
        assert_eq!(scan.end("}}"), Some(1));
    }
}
