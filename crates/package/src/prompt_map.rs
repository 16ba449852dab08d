//! Which message a token came from.

use crate::chat::{Rendered, Span};
use crate::tokenizer::Encoding;
use std::ops::Range;

/// The role of text that no message contains.
const TEMPLATE: &str = "template";

/// From token positions to messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptMap {
    text: String,
    spans: Vec<Span>,
    offsets: Vec<Range<usize>>,
}

/// Where some tokens came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Index of the message; `None` where the template added the text.
    pub message: Option<usize>,
    /// The message's role, or `template`.
    pub role: String,
    /// Half-open range in the message's own content, in Unicode scalars.
    pub chars: Option<[usize; 2]>,
}

impl PromptMap {
    /// A map for a rendered conversation and the encoding of its text.
    pub fn new(rendered: &Rendered, encoding: &Encoding) -> PromptMap {
        PromptMap {
            text: rendered.text.clone(),
            spans: rendered.spans.clone(),
            offsets: encoding.offsets.clone(),
        }
    }

    /// The text that the tokens stand for.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The map of this one's tokens with those of `next` behind them.
    #[must_use]
    pub fn followed_by(&self, next: &PromptMap) -> PromptMap {
        let moved =
            |range: &Range<usize>| self.text.len() + range.start..self.text.len() + range.end;
        let spans =
            next.spans.iter().map(|span| Span { range: moved(&span.range), ..span.clone() });
        PromptMap {
            text: format!("{}{}", self.text, next.text),
            spans: self.spans.iter().cloned().chain(spans).collect(),
            offsets: self.offsets.iter().cloned().chain(next.offsets.iter().map(moved)).collect(),
        }
    }

    /// Bytes of memory that it takes, about.
    pub fn memory_bytes(&self) -> usize {
        let roles = self.spans.iter().map(|span| span.role.len()).sum::<usize>();
        let spans = self.spans.len() * size_of::<Span>() + roles;
        self.text.len() + spans + self.offsets.len() * size_of::<Range<usize>>()
    }

    /// Where the tokens at these positions came from: the first message that they touch. Parts
    /// of a character count as the whole. Positions beyond the prompt, and those that touch no
    /// message, are the template's.
    pub fn locate(&self, tokens: Range<usize>) -> Location {
        self.find(tokens).unwrap_or_else(|| Location {
            message: None,
            role: TEMPLATE.to_owned(),
            chars: None,
        })
    }

    /// What of the text came from messages.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The byte of the text at which a token begins.
    pub fn start_of(&self, token: usize) -> Option<usize> {
        Some(self.offsets.get(token)?.start)
    }

    /// The first token that begins at this byte of the text or after it.
    pub fn token_at(&self, byte: usize) -> Option<usize> {
        let token = self.offsets.partition_point(|offset| offset.start < byte);
        (token < self.offsets.len()).then_some(token)
    }

    /// Tokens up to the end of the message of this index, and of those before it.
    pub fn end_of(&self, message: usize) -> usize {
        let spans = self.spans.iter().filter(|span| span.message <= message);
        let end = spans.map(|span| span.range.end).max().unwrap_or(0);
        self.offsets.partition_point(|offset| offset.end <= end && end > 0)
    }

    fn find(&self, tokens: Range<usize>) -> Option<Location> {
        let touched = self.offsets.get(tokens.start..tokens.end.min(self.offsets.len()))?;
        let (start, end) = (touched.first()?.start, touched.last()?.end);
        let span =
            self.spans.iter().find(|span| span.range.start < end && start < span.range.end)?;
        let first = floor_char(&self.text, start.max(span.range.start));
        let last = floor_char(&self.text, end.min(span.range.end) - 1);
        let count = |range: Range<usize>| self.text.get(range).map(|text| text.chars().count());
        let from = span.start_char + count(span.range.start..first)?;
        let to = span.start_char + count(span.range.start..last)? + 1;
        Some(Location {
            message: Some(span.message),
            role: span.role.clone(),
            chars: Some([from, to]),
        })
    }
}

/// The start of the character that the byte at `index` belongs to.
fn floor_char(text: &str, mut index: usize) -> usize {
    while !text.is_char_boundary(index) {
        index -= 1;
    }
    index
}
