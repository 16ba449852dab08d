//! Text to token ids and back: byte-level BPE.

mod bound;
mod byte_level;
mod description;
mod directory;
mod error;
mod gguf;
mod json;
mod parts;
mod pre;
mod table;

pub use error::TokenizerError;

use crate::gguf::Metadata;
use bound::Bound;
use description::{Description, KNOWN_ENDS, Roles, TokenName};
use parts::Parts;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use table::TokenTable;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{
    AddedVocabulary, Model, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
};

/// Longest text that is encoded; more than 2 million tokens.
pub const TEXT_BYTES_MAX: usize = 16 << 20;

/// Token ids of a text, and where each lies in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoding {
    /// The token ids.
    pub ids: Vec<u32>,
    /// For each token, its bytes in the text. Tokens that share a character have each their own
    /// part of its bytes, so that a range need not end at a character. A BOS that was put before
    /// the text has an empty range. Where the tokenizer changes the text (Unicode normalization,
    /// bytes that the vocabulary lacks) the ranges are those of the whole characters.
    pub offsets: Vec<Range<usize>>,
}

/// A byte-level BPE tokenizer. Ids depend on the text alone.
pub struct Tokenizer {
    normalizer: Option<NormalizerWrapper>,
    splitter: PreTokenizerWrapper,
    model: BPE,
    /// Tokens that are found in the text before BPE sees it.
    added: AddedVocabulary,
    /// The added tokens, with the special ones left as ordinary text.
    literal: AddedVocabulary,
    table: TokenTable,
    bound: Bound,
    parts: Parts,
    bos: Option<u32>,
    eos: Option<u32>,
    ends: Vec<u32>,
    adds_bos: bool,
}

impl Tokenizer {
    /// The tokenizer of a GGUF file, from `tokenizer.ggml.*`.
    ///
    /// # Errors
    /// [`TokenizerError::Unsupported`] for a tokenizer model other than `gpt2` or a splitting
    /// rule (`pre`) that is not known, by name; other variants for damaged metadata.
    pub fn from_gguf(metadata: &Metadata) -> Result<Tokenizer, TokenizerError> {
        Tokenizer::build(gguf::describe(metadata)?)
    }

    /// The tokenizer of a directory: `tokenizer.json`, or `vocab.json` with `merges.txt` (also
    /// under OpenAI's names, `encoder.json` and `vocab.bpe`), and what `tokenizer_config.json`,
    /// `special_tokens_map.json` and `generation_config.json` add.
    ///
    /// # Errors
    /// [`TokenizerError::Missing`] when there is none; other variants name the file or part.
    pub fn from_directory(directory: &Path) -> Result<Tokenizer, TokenizerError> {
        Tokenizer::build(directory::describe(directory)?)
    }

    /// The tokenizer that a `tokenizer.json` text describes.
    ///
    /// # Errors
    /// [`TokenizerError::Unsupported`] for anything other than byte-level BPE,
    /// [`TokenizerError::Damaged`] for text that is no tokenizer.
    pub fn from_json(json: &[u8]) -> Result<Tokenizer, TokenizerError> {
        Tokenizer::build(json::describe(json, Roles::default())?)
    }

    fn build(description: Description) -> Result<Tokenizer, TokenizerError> {
        let Description { vocabulary, merges, added: tokens, splitting, roles } = description;
        let damaged = |error: String| TokenizerError::Damaged(error);
        let normalizer: Option<NormalizerWrapper> =
            serde_json::from_value(splitting.normalizer.clone())
                .map_err(|error| damaged(format!("the normalizer: {error}")))?;
        let splitter = serde_json::from_value(splitting.pre_tokenizer)
            .map_err(|error| damaged(format!("the pre-tokenizer: {error}")))?;
        let model = description::model(&vocabulary, merges, splitting.ignore_merges)?;
        let mut added = AddedVocabulary::new();
        added
            .add_tokens(tokens.iter().map(|token| token.token.clone()), &model, normalizer.as_ref())
            .map_err(|error| damaged(error.to_string()))?;
        let mut texts = HashMap::with_capacity(tokens.len());
        for token in &tokens {
            let text = token.token.content.clone();
            let id = added.token_to_id(&text, &model);
            if id != Some(token.id) {
                return Err(damaged(format!("{text:?} has id {id:?} and id {}", token.id)));
            }
            texts.insert(token.id, (text, token.token.special));
        }
        let table = TokenTable::new(&vocabulary, &texts)?;
        let bound =
            Bound::new(&table, &vocabulary, &tokens, normalizer.as_ref(), &splitting.normalizer);
        let mut literal = added.clone();
        literal.set_encode_special_tokens(true);
        let (bos, eos, ends, adds_bos) = (None, None, Vec::new(), false);
        let mut tokenizer = Tokenizer {
            normalizer,
            splitter,
            model,
            added,
            literal,
            table,
            bound,
            parts: Parts::new(&tokens),
            bos,
            eos,
            ends,
            adds_bos,
        };
        tokenizer.assign(&roles);
        Ok(tokenizer)
    }

    /// Finds the ids of the tokens that have a role.
    fn assign(&mut self, roles: &Roles) {
        let resolve = |name: &TokenName| match name {
            TokenName::Id(id) => self.table.bytes(*id).map(|_| *id),
            TokenName::Text(text) => self.id_of(text),
        };
        let bos = roles.bos.as_ref().and_then(resolve);
        let eos = roles.eos.as_ref().and_then(resolve);
        let known = KNOWN_ENDS.iter().filter_map(|text| self.id_of(text));
        let mut ends: Vec<u32> = eos
            .into_iter()
            .chain(roles.ends.iter().filter_map(resolve))
            .chain(known.filter(|id| self.is_special(*id)))
            .collect();
        ends.sort_unstable();
        ends.dedup();
        self.adds_bos = bos.is_some() && roles.adds_bos.unwrap_or(false);
        (self.bos, self.eos, self.ends) = (bos, eos, ends);
    }

    /// Encodes a text in which special tokens are written out, as a rendered chat template has
    /// them. With `bos`, BOS comes first where this tokenizer [adds one](Self::adds_bos), unless
    /// the text begins with it already.
    ///
    /// # Errors
    /// [`TokenizerError::TextTooLong`] over [`TEXT_BYTES_MAX`].
    pub fn encode(&self, text: &str, bos: bool) -> Result<Encoding, TokenizerError> {
        self.encode_with(&self.added, text, bos)
    }

    /// Like [`encode`](Self::encode), but what looks like a special token is ordinary text.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_plain(&self, text: &str, bos: bool) -> Result<Encoding, TokenizerError> {
        self.encode_with(&self.literal, text, bos)
    }

    fn encode_with(
        &self,
        added: &AddedVocabulary,
        text: &str,
        bos: bool,
    ) -> Result<Encoding, TokenizerError> {
        if text.len() > TEXT_BYTES_MAX {
            let bytes = text.len();
            return Err(TokenizerError::TextTooLong { bytes, limit: TEXT_BYTES_MAX });
        }
        let failed = |error: tokenizers::Error| TokenizerError::Encode(error.to_string());
        let mut pieces = added.extract_and_normalize(self.normalizer.as_ref(), text);
        self.splitter.pre_tokenize(&mut pieces).map_err(failed)?;
        pieces.tokenize(|piece| self.model.tokenize(piece.get())).map_err(failed)?;
        let mut encoding = self.locate(pieces, text)?;
        if let Some(id) = self.bos.filter(|_| bos && self.adds_bos)
            && encoding.ids.first() != Some(&id)
        {
            encoding.ids.insert(0, id);
            encoding.offsets.insert(0, 0..0);
        }
        Ok(encoding)
    }

    /// Takes the ids out of the pieces, and finds where they lie: end to end where the tokens'
    /// bytes are the text, else by the library's alignment.
    fn locate(&self, pieces: PreTokenizedString, text: &str) -> Result<Encoding, TokenizerError> {
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let tokens = splits.iter().flat_map(|(_, _, tokens)| tokens.iter().flatten());
        let ids: Vec<u32> = tokens.map(|token| token.id).collect();
        let mut offsets = Vec::with_capacity(ids.len());
        let mut rest = text.as_bytes();
        for id in &ids {
            let start = text.len() - rest.len();
            let Some(after) = self.table.bytes(*id).and_then(|bytes| rest.strip_prefix(bytes))
            else {
                break;
            };
            rest = after;
            offsets.push(start..text.len() - rest.len());
        }
        if offsets.len() == ids.len() && rest.is_empty() {
            return Ok(Encoding { ids, offsets });
        }
        let encoding = pieces
            .into_encoding(None, 0, OffsetType::Byte)
            .map_err(|error| TokenizerError::Encode(error.to_string()))?;
        let offsets = encoding.get_offsets().iter().map(|&(start, end)| start..end).collect();
        Ok(Encoding { ids, offsets })
    }

    /// Cuts a text where its encoding may be: the [encodings](Self::encode) of the parts, end to
    /// end, are that of the whole. A rendered conversation is cut before each of the tokens by
    /// which its template marks messages; a text without any such is one part.
    pub fn parts<'a>(&self, text: &'a str) -> Vec<&'a str> {
        self.parts.of(text)
    }

    /// What kind of tokenizer it is, for people to read.
    pub fn kind(&self) -> &'static str {
        "byte-level BPE"
    }

    /// The bytes that a token stands for; `None` for an id that has no token. They need not be
    /// whole characters.
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.table.bytes(id)
    }

    /// Whether a token is a special one: a control token, no text.
    pub fn is_special(&self, id: u32) -> bool {
        self.table.is_special(id)
    }

    /// The highest id plus one. The model's vocabulary may be larger: it is often padded.
    pub fn vocab_size(&self) -> usize {
        self.table.len()
    }

    /// No encoding of `text` has fewer tokens than this. It takes one look at each byte, so that a
    /// text that cannot fit is refused before it is tokenized.
    ///
    /// The bytes of the text, but those that the vocabulary lacks and white space that an added
    /// token may swallow, divided by those of the longest token; where the tokenizer normalizes
    /// text, by that times what the normalizer may shorten a text by (6 for NFC).
    pub fn tokens_at_least(&self, text: &str) -> usize {
        self.bound.tokens_at_least(text)
    }

    /// The text of several tokens; bytes that are no UTF-8 become U+FFFD, and ids that have no
    /// token nothing. Special tokens are left out unless `keep_special`.
    pub fn decode(&self, ids: &[u32], keep_special: bool) -> String {
        let mut bytes = Vec::new();
        for id in ids.iter().filter(|id| keep_special || !self.is_special(**id)) {
            bytes.extend_from_slice(self.bytes(*id).unwrap_or_default());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The id of the token with exactly this text.
    pub fn id_of(&self, text: &str) -> Option<u32> {
        let added = self.added.get_vocab().get(text).copied();
        added.or_else(|| self.model.token_to_id(&byte_level::written(text)))
    }

    /// The tokens that end an answer, sorted: EOS, those of the generation config, and the
    /// special tokens by which known chat formats end a turn.
    pub fn end_ids(&self) -> &[u32] {
        &self.ends
    }

    /// The token that begins a text, if there is one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text, if there is one.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether [`encode`](Self::encode) with `bos` puts BOS before a text.
    pub fn adds_bos(&self) -> bool {
        self.adds_bos
    }

    /// A token for people to read: its text, with bytes that are no whole character as `\xNN`,
    /// and `<id>` for an id that has no token.
    pub fn display(&self, id: u32) -> String {
        let Some(bytes) = self.bytes(id) else { return format!("<{id}>") };
        let mut shown = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            shown.push_str(chunk.valid());
            for byte in chunk.invalid() {
                shown.push_str(&format!("\\x{byte:02x}"));
            }
        }
        shown
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}
