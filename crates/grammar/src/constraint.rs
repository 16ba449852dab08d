//! Where an answer stands in its grammar.

use crate::error::Failure;
use crate::vocabulary::{TokenSet, Vocabulary};
use llguidance::Matcher;
use llguidance::api::StopReason;

/// Longest text that is forced at once, in bytes.
const FORCED_BYTES_MAX: usize = 256;

/// Where one answer stands. Clones go on independently; they share what has been worked out of the
/// grammar, so that a clone costs little, and changes nothing that another says.
#[derive(Clone)]
pub struct Constraint {
    vocabulary: Vocabulary,
    matcher: Matcher,
    /// What may come next, once it was asked for.
    allowed: Option<TokenSet>,
    /// Whether a token came that ends an answer.
    has_ended: bool,
}

impl Constraint {
    pub(crate) fn new(vocabulary: Vocabulary, matcher: Matcher) -> Self {
        Constraint { vocabulary, matcher, allowed: None, has_ended: false }
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
                let set = self.matcher.compute_mask_or_eos();
                TokenSet::new(set.map_err(|error| self.failure(&error.to_string()))?)
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
        match self.matcher.try_consume_tokens(&[token]) {
            Ok(0) => Err(not_allowed),
            Ok(_) => {
                self.allowed = None;
                Ok(())
            }
            Err(error) => Err(self.failure(&error.to_string())),
        }
    }

    /// Whether the answer is complete: an end came, or nothing but an end can.
    pub fn is_finished(&self) -> bool {
        self.has_ended || (self.matcher.is_stopped() && self.matcher.stop_reason().is_ok())
    }

    /// Tokens that spell what must come next, whatever the answer; empty where there is a choice.
    /// The same text may have other tokens, so that these are a guess and no constraint.
    pub fn forced(&mut self) -> Vec<u32> {
        if self.is_finished() {
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
        self.matcher.is_accepting().map_err(|error| self.failure(&error.to_string()))
    }

    fn failure(&self, message: &str) -> Failure {
        match self.matcher.stop_reason() {
            StopReason::NoExtensionBias | StopReason::NoExtension => Failure::NoToken,
            _ => {
                let message = message.lines().next().unwrap_or_default().to_owned();
                Failure::TooComplex { message }
            }
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
