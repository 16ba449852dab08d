//! Where a text may be cut so that its parts can be encoded one by one.

use super::description::Added;

/// Tokens that a text may be cut before.
#[derive(Debug)]
pub(super) struct Parts {
    texts: Vec<String>,
}

impl Parts {
    /// Before a token that is found in the text as it stands, whatever is around it, and whose
    /// first character no token has in another place: then no token reaches over the cut, and the
    /// search for tokens begins anew there. What lies between tokens is normalized and split by
    /// itself.
    pub(super) fn new(added: &[Added]) -> Parts {
        let inner = |first: char| {
            added.iter().any(|other| other.token.content.chars().skip(1).any(|c| c == first))
        };
        let cuts = |added: &&Added| {
            let token = &added.token;
            let plain = !(token.lstrip || token.rstrip || token.single_word || token.normalized);
            let first = token.content.chars().next();
            plain
                && token.special
                && first.is_some_and(|first| !first.is_whitespace() && !inner(first))
        };
        let texts = added.iter().filter(cuts).map(|added| added.token.content.clone());
        Parts { texts: texts.collect() }
    }

    /// The parts of a text, end to end; a text without a cut is one part.
    pub(super) fn of<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let mut firsts: Vec<char> =
            self.texts.iter().filter_map(|text| text.chars().next()).collect();
        firsts.sort_unstable();
        firsts.dedup();
        let (mut parts, mut start) = (Vec::new(), 0);
        for (at, _) in text.match_indices(firsts.as_slice()) {
            if at > start && self.texts.iter().any(|token| text[at..].starts_with(token)) {
                parts.push(&text[start..at]);
                start = at;
            }
        }
        parts.push(&text[start..]);
        parts
    }
}
