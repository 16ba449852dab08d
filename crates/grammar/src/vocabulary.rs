//! The tokens of a model, as a tree of their bytes.

use llguidance::ParserFactory;
use llguidance::api::ParserLimits;
use llguidance::earley::SlicedBiasComputer;
use std::sync::Arc;
use toktrie::{
    ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId,
};

/// Most tokens: `toktrie` has 24 bits for an id, one of which means none.
const TOKENS_MAX: usize = (1 << 22) - 1;
/// Longest token in bytes; a longer one is never allowed in a constrained answer.
const TOKEN_BYTES_MAX: usize = 1000;
/// Most bytes of all tokens.
const BYTES_MAX: usize = 64 << 20;

/// What `llguidance` may spend. Steps: 1 ms is about 14,000 lexer units or 20,000 items.
const LIMITS: ParserLimits = ParserLimits {
    max_items_in_row: 8_000,
    initial_lexer_fuel: 1_000_000,
    step_lexer_fuel: 200_000,
    step_max_items: 50_000,
    max_lexer_states: 250_000,
    max_grammar_size: 200_000,
    precompute_large_lexemes: false,
    verbose_errors: false,
};

/// Why tokens make no vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VocabularyError {
    /// There are more tokens, or more bytes in them, than can be held.
    #[error("a vocabulary of {tokens} tokens with {bytes} bytes is too large")]
    TooLarge {
        /// The number of tokens.
        tokens: usize,
        /// The bytes of all.
        bytes: usize,
    },
    /// No token ends an answer, or one that should is not in the vocabulary.
    #[error("the tokens that end an answer are none of the vocabulary: {ends:?}")]
    NoEnd {
        /// The ids that were given.
        ends: Vec<u32>,
    },
    /// `llguidance` refuses it.
    #[error("no tree of tokens: {message}")]
    Refused {
        /// What it says.
        message: String,
    },
}

/// A model's tokens. Made once for a model; clones share it.
#[derive(Clone)]
pub struct Vocabulary {
    shared: Arc<Shared>,
}

struct Shared {
    factory: ParserFactory,
    /// Sorted.
    ends: Vec<u32>,
    /// Texts of the special tokens, longest first, with their ids.
    specials: Vec<(Vec<u8>, u32)>,
}

impl Vocabulary {
    /// A vocabulary of tokens by id, each with its bytes and whether it is a special one, which no
    /// text stands for. Ids without a token have no bytes. Each of `ends` ends an answer.
    ///
    /// # Errors
    ///
    /// Where there are too many tokens, or none of `ends` is one of them.
    pub fn new<'a>(
        tokens: impl IntoIterator<Item = (&'a [u8], bool)>,
        ends: &[u32],
    ) -> Result<Self, VocabularyError> {
        let (mut words, mut specials, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (token, is_special) in tokens {
            bytes += token.len();
            let id = words.len() as u32;
            if words.len() == TOKENS_MAX || bytes > BYTES_MAX {
                return Err(VocabularyError::TooLarge { tokens: words.len() + 1, bytes });
            }
            let is_special = is_special || ends.contains(&id);
            if is_special && !token.is_empty() {
                specials.push((token.to_vec(), id));
            }
            words.push(word(token, id, is_special));
        }
        let mut ends = ends.to_vec();
        ends.sort_unstable();
        ends.dedup();
        if ends.is_empty() || ends.iter().any(|end| *end as usize >= words.len()) {
            return Err(VocabularyError::NoEnd { ends });
        }
        specials.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        let factory = factory(&words, &ends)?;
        Ok(Vocabulary { shared: Arc::new(Shared { factory, ends, specials }) })
    }

    /// How many ids there are.
    pub fn size(&self) -> usize {
        self.trie().vocab_size()
    }

    /// The ids that end an answer, sorted.
    pub fn ends(&self) -> &[u32] {
        &self.shared.ends
    }

    pub(crate) fn factory(&self) -> &ParserFactory {
        &self.shared.factory
    }

    pub(crate) fn trie(&self) -> &TokTrie {
        self.shared.factory.tok_env().tok_trie()
    }

    /// The special token that the text begins with, and the rest.
    pub(crate) fn special<'t>(&self, text: &'t [u8]) -> Option<(u32, &'t [u8])> {
        let mut specials = self.shared.specials.iter();
        specials.find_map(|(token, id)| Some((*id, text.strip_prefix(token.as_slice())?)))
    }
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Vocabulary").field("size", &self.size()).finish_non_exhaustive()
    }
}

/// A token's bytes as `toktrie` wants them: those of special tokens begin with a byte that no text
/// has, and are written by id here, so that none of them begins another.
fn word(token: &[u8], id: u32, is_special: bool) -> Vec<u8> {
    if is_special {
        let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
        word.extend_from_slice(format!("<{id}>").as_bytes());
        word
    } else if token.len() > TOKEN_BYTES_MAX || token.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER)
    {
        Vec::new()
    } else {
        token.to_vec()
    }
}

fn factory(words: &[Vec<u8>], ends: &[u32]) -> Result<ParserFactory, VocabularyError> {
    let info = TokRxInfo::new(words.len() as u32, ends[0]);
    let trie = TokTrie::from(&info, words).with_eos_tokens(ends);
    let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let capabilities = InferenceCapabilities::default();
    let slices = SlicedBiasComputer::json_slices();
    let mut factory = ParserFactory::new(&environment, capabilities, &slices)
        .map_err(|error| VocabularyError::Refused { message: error.to_string() })?;
    factory.quiet();
    *factory.limits_mut() = LIMITS;
    Ok(factory)
}

/// A set of token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSet(SimpleVob);

impl TokenSet {
    pub(crate) fn new(set: SimpleVob) -> Self {
        TokenSet(set)
    }

    /// What is in either.
    pub(crate) fn or(mut self, other: &TokenSet) -> Self {
        self.0.or(&other.0);
        self
    }

    /// Whether a token is in it; not so for ids beyond the vocabulary.
    pub fn has(&self, token: u32) -> bool {
        (token as usize) < self.0.len() && self.0.is_allowed(token as TokenId)
    }

    /// The set as bits: bit `i % 32` of word `i / 32` is token `i`. Words that are not there are
    /// zero.
    pub fn words(&self) -> &[u32] {
        self.0.as_slice()
    }

    /// The ids in it, ascending.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.0.iter()
    }
}
