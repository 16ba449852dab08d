//! Where an answer stands in its grammar.

use crate::error::Failure;
use crate::vocabulary::{TokenSet, Vocabulary};
use llguidance::Matcher;
use llguidance::api::StopReason;
use std::sync::Arc;

/// Longest text that is forced at once, in bytes.
const FORCED_BYTES_MAX: usize = 256;

/// Where one answer stands. Clones go on independently; they share what has been worked out of the
/// grammar, so that a clone costs little, and changes nothing that another says.
#[derive(Clone)]
pub struct Constraint {
    vocabulary: Vocabulary,
    matcher: Matcher,
    /// What every answer that it allows begins with, one of these; empty where that is not known.
    beginnings: Arc<[Vec<u8>]>,
    /// What else the answer may be, until that is decided.
    other: Option<Other>,
    /// What may come next, once it was asked for.
    allowed: Option<TokenSet>,
    /// Whether a token came that ends an answer.
    has_ended: bool,
}

/// What else an answer may be.
#[derive(Clone)]
struct Other {
    matcher: Matcher,
    /// What was written while it was not decided.
    written: Vec<u8>,
}

impl Constraint {
    pub(crate) fn new(
        vocabulary: Vocabulary,
        matcher: Matcher,
        beginnings: impl Into<Arc<[Vec<u8>]>>,
    ) -> Self {
        let beginnings = beginnings.into();
        Constraint { vocabulary, matcher, beginnings, other: None, allowed: None, has_ended: false }
    }

    /// The constraint of an answer that is either of this one or of `text`, of which neither has
    /// begun. Where this one is of [calls](crate::Grammar::Calls), an answer that begins as a call
    /// of one of the tools does, up to its arguments, is of calls: so that what is read as a call
    /// is one, also where `text` allows the same.
    #[must_use]
    pub fn or(self, text: Constraint) -> Constraint {
        let other = Other { matcher: text.matcher, written: Vec::new() };
        Constraint { other: Some(other), allowed: None, ..self }
    }

    /// The tokens that may come next. Those that end an answer are among them exactly when the
    /// answer may end here, and they are the only ones where nothing can follow.
    ///
    /// # Errors
    ///
    /// Where no token can follow, or to tell takes more work than one step may.
    pub fn allowed(&mut self) -> Result<&TokenSet, Failure> {
        let set = match self.allowed.take() {
            Some(set) => set,
            None => {
                let set = allowed(&mut self.matcher);
                let other = self.other.as_mut().map(|other| allowed(&mut other.matcher));
                match (set, other) {
                    (Ok(set), Some(Ok(other))) => set.or(&other),
                    (Err(_), Some(Ok(set))) | (Ok(set), _) => set,
                    (Err(failure), _) => return Err(failure),
                }
            }
        };
        Ok(self.allowed.insert(set))
    }

    /// Goes on by a token.
    ///
    /// # Errors
    ///
    /// [`Failure::NotAllowed`] where the token is none of those that are allowed, in which case
    /// nothing has changed, and what [`allowed`](Self::allowed) fails with.
    pub fn advance(&mut self, token: u32) -> Result<(), Failure> {
        let not_allowed = Failure::NotAllowed { token };
        if token as usize >= self.vocabulary.size() || self.has_ended {
            return Err(not_allowed);
        }
        let is_end = self.vocabulary.ends().binary_search(&token).is_ok();
        if is_end {
            let may_end = self.is_finished() || self.may_end()?;
            self.has_ended = may_end;
            self.allowed = self.allowed.take().filter(|_| !may_end);
            return if may_end { Ok(()) } else { Err(not_allowed) };
        }
        self.consume(token)?;
        self.allowed = None;
        Ok(())
    }

    /// Goes on by a token that is no end, and gives up what cannot go on by it.
    fn consume(&mut self, token: u32) -> Result<(), Failure> {
        let Some(other) = &mut self.other else {
            return consume(&mut self.matcher, token);
        };
        match (consume(&mut self.matcher, token), consume(&mut other.matcher, token)) {
            (Ok(()), Ok(())) => {
                other.written.extend_from_slice(self.vocabulary.trie().token(token));
                let written = &other.written;
                if self.beginnings.iter().any(|beginning| written.starts_with(beginning)) {
                    self.other = None;
                }
            }
            (Ok(()), Err(_)) => self.other = None,
            (Err(_), Ok(())) => {
                if let Some(other) = self.other.take() {
                    self.matcher = other.matcher;
                }
            }
            (Err(failure), Err(_)) => return Err(failure),
        }
        Ok(())
    }

    /// Whether the answer is complete: an end came, or nothing but an end can.
    pub fn is_finished(&self) -> bool {
        let is_complete = |matcher: &Matcher| matcher.is_stopped() && matcher.stop_reason().is_ok();
        let other = self.other.as_ref().is_none_or(|other| is_complete(&other.matcher));
        self.has_ended || (other && is_complete(&self.matcher))
    }

    /// Tokens that spell what must come next, whatever the answer; empty where there is a choice.
    /// The same text may have other tokens, so that these are a guess and no constraint.
    pub fn forced(&mut self) -> Vec<u32> {
        if self.is_finished() || self.other.is_some() {
            return Vec::new();
        }
        let mut bytes = self.matcher.compute_ff_bytes();
        bytes.truncate(FORCED_BYTES_MAX);
        let mut tokens = self.vocabulary.trie().greedy_tokenize(&bytes);
        // The last one may reach further than what is forced.
        tokens.pop();
        tokens
    }

    fn may_end(&mut self) -> Result<bool, Failure> {
        let other = self.other.as_mut().map(|other| may_end(&mut other.matcher));
        match (may_end(&mut self.matcher), other) {
            (Ok(one), Some(Ok(other))) => Ok(one || other),
            (Err(_), Some(Ok(may_end))) | (Ok(may_end), _) => Ok(may_end),
            (Err(failure), _) => Err(failure),
        }
    }
}

/// The tokens that may come next.
fn allowed(matcher: &mut Matcher) -> Result<TokenSet, Failure> {
    let set = matcher.compute_mask_or_eos();
    set.map(TokenSet::new).map_err(|error| failure(matcher, &error.to_string()))
}

/// Goes on by a token, or leaves all as it was.
fn consume(matcher: &mut Matcher, token: u32) -> Result<(), Failure> {
    match matcher.try_consume_tokens(&[token]) {
        Ok(0) => Err(Failure::NotAllowed { token }),
        Ok(_) => Ok(()),
        Err(error) => Err(failure(matcher, &error.to_string())),
    }
}

fn may_end(matcher: &mut Matcher) -> Result<bool, Failure> {
    matcher.is_accepting().map_err(|error| failure(matcher, &error.to_string()))
}

fn failure(matcher: &Matcher, message: &str) -> Failure {
    match matcher.stop_reason() {
        StopReason::NoExtensionBias | StopReason::NoExtension => Failure::NoToken,
        _ => {
            let message = message.lines().next().unwrap_or_default().to_owned();
            Failure::TooComplex { message }
        }
    }
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Constraint")
            .field("is_finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}
