//! A vocabulary of all bytes, with two special tokens and two that end an answer.

use grammar::{Constraint, Vocabulary};
use std::sync::LazyLock;

/// `<end>` and `<eot>`. Before them are `<call>` and `</call>`.
pub(crate) const ENDS: [u32; 2] = [258, 259];

pub(crate) static VOCABULARY: LazyLock<Vocabulary> = LazyLock::new(|| {
    let bytes: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
    let specials = ["<call>", "</call>", "<end>", "<eot>"];
    let specials = specials.map(|text| (text.as_bytes(), true));
    let tokens = bytes.iter().map(|byte| (&byte[..], false)).chain(specials);
    Vocabulary::new(tokens, &ENDS).expect("a vocabulary")
});

/// The ids of a text, special tokens as bytes.
pub(crate) fn ids(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// Whether the text is an answer: each token is allowed, and so is each end after it.
pub(crate) fn accepts(constraint: &Constraint, text: &str) -> bool {
    takes(constraint, &ids(text))
}

/// Whether the tokens are an answer.
pub(crate) fn takes(constraint: &Constraint, tokens: &[u32]) -> bool {
    let mut constraint = constraint.clone();
    for &token in tokens {
        let is_allowed = constraint.allowed().expect("a set").has(token);
        assert_eq!(constraint.advance(token).is_ok(), is_allowed, "token {token}");
        if !is_allowed {
            return false;
        }
    }
    let allowed = constraint.allowed().expect("a set");
    let may_end = ENDS.map(|end| allowed.has(end));
    assert_eq!(may_end[0], may_end[1]);
    assert_eq!(constraint.advance(ENDS[1]).is_ok(), may_end[0]);
    assert!(!may_end[0] || constraint.is_finished());
    may_end[0]
}
