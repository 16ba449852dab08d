//! What an answer may be: constrained answers, over `llguidance`.
//!
//! A [`Vocabulary`] is made once for a model; a [`Grammar`] says what is asked and becomes a
//! [`Constraint`] of one answer, which says before each token which may come.
//!
//! ```
//! use grammar::{Grammar, Vocabulary};
//!
//! // A vocabulary of all bytes, and a special token that ends an answer.
//! let bytes: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
//! let tokens = bytes.iter().map(|byte| (&byte[..], false)).chain([(&b"<end>"[..], true)]);
//! let vocabulary = Vocabulary::new(tokens, &[256]).unwrap();
//! let grammar = Grammar::Choice(vec!["yes".into(), "no".into()]);
//! let mut constraint = grammar.compile(&vocabulary).unwrap();
//! let allowed: Vec<u32> = constraint.allowed().unwrap().ids().collect();
//! assert_eq!(allowed, [b'n', b'y'].map(u32::from));
//! for byte in b"no" {
//!     constraint.advance(u32::from(*byte)).unwrap();
//! }
//! assert!(constraint.is_finished());
//! ```
//!
//! # What is held to a schema, and what is refused
//!
//! An answer has exactly the values that the schema allows, in a form with these choices: an
//! object's named properties come in the schema's order (those that are only required after
//! them, others last), as with other servers of structured answers; numbers are written without
//! superfluous zeros; between tokens of JSON there may be a space, or a line break and up to 64
//! spaces or tabs. What cannot be held exactly is refused before the first token
//! ([`GrammarError::Unsupported`], with the keyword and its place), never ignored: see the
//! coverage in this crate's COVERAGE.md. Annotations (`title`, `default`, …), keywords that JSON
//! Schema doesn't define, and formats that it doesn't define are no constraints.
//!
//! Rules that OpenAI's strict mode has beyond JSON Schema (all properties required,
//! `additionalProperties` false everywhere) are not enforced: a schema that follows them works,
//! and one that doesn't means what JSON Schema says. References are followed within the schema
//! only; nothing is fetched.

mod compile;
mod constraint;
mod error;
mod pattern;
mod schema;
mod vocabulary;

pub use compile::{Grammar, Tool};
pub use constraint::Constraint;
pub use error::{Failure, GrammarError};
pub use vocabulary::{TokenSet, Vocabulary, VocabularyError};
