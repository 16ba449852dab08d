//! Messages that became shorter or longer, or that were put in or taken out, as the rendered texts
//! tell: what is held has no messages, only tokens.

use std::ops::Range;

use cache::DifferenceKind;
use package::{PromptMap, Tokenizer};

/// What became of the messages where two prompts part.
pub(crate) struct Change {
    pub(crate) kind: DifferenceKind,
    /// Index of the request's message in which they part, or before which something is missing.
    pub(crate) message: usize,
    /// Its role.
    pub(crate) role: String,
    /// Of a message that became longer, the characters that it has more, in Unicode scalars of its
    /// content; of one that became shorter, where it ends.
    pub(crate) chars: Option<[usize; 2]>,
    /// How many messages were put in or taken out.
    pub(crate) messages: Option<usize>,
    /// What is held of it and not asked for, and the other way round.
    pub(crate) cached_text: String,
    pub(crate) request_text: String,
}

/// A message of the request.
struct Message<'a> {
    index: usize,
    role: &'a str,
    /// Its content in the rendered text, in bytes.
    range: Range<usize>,
}

/// The two prompts where they part.
struct Parting<'a> {
    text: &'a str,
    messages: Vec<Message<'a>>,
    /// Where in the request's text they part.
    at: usize,
    /// The message that this lies in or before, or whose end it is.
    number: usize,
    /// What is held from there on.
    held: String,
}

/// What became of the messages, if it is that; `at` is the first position in `request` whose token
/// is not the one that is held, and `cached` is what is held from there on.
pub(crate) fn change(
    at: usize,
    cached: &[u32],
    request: &[u32],
    map: &PromptMap,
    tokenizer: &Tokenizer,
) -> Option<Change> {
    let messages = messages(map);
    let byte = map.start_of(at)?;
    let number = messages.iter().position(|message| message.range.end >= byte)?;
    let held = tokenizer.decode(cached, true);
    let parting = Parting { text: map.text(), messages, at: byte, number, held };
    // What stands behind a message: the template's mark, of which the first token is enough.
    let mark = |number: usize| {
        let first = map.token_at(parting.messages.get(number)?.range.end)?;
        Some((request.get(first).copied()?, tokenizer.decode(request.get(first..=first)?, true)))
    };
    let moved = parting.inserted(&mark).or_else(|| parting.removed(&mark, tokenizer));
    moved.or_else(|| {
        let (id, text) = mark(number)?;
        let first = cached.first().copied()?;
        let goes_on = first != id && !tokenizer.is_special(first);
        let changed = parting.shortened(goes_on, &text);
        let mut changed = changed.or_else(|| parting.lengthened(first == id))?;
        let end_of = |token: Option<usize>| {
            let location = token.map(|token| map.locate(token..token + 1));
            let location = location.filter(|found| found.message == Some(changed.message));
            location.and_then(|found| found.chars).map_or(0, |[_, end]| end)
        };
        let from = end_of(at.checked_sub(1));
        let last = map.token_at(parting.messages[number].range.end)?;
        changed.chars = Some(match changed.kind {
            DifferenceKind::MessageLengthened => [from, end_of(last.checked_sub(1))],
            _ => [from, from],
        });
        Some(changed)
    })
}

/// The messages of the request, in order, without those that have no content.
fn messages(map: &PromptMap) -> Vec<Message<'_>> {
    let mut messages: Vec<Message<'_>> = Vec::new();
    for span in map.spans() {
        match messages.last_mut().filter(|last| last.index == span.message) {
            Some(last) => last.range.end = span.range.end,
            None => messages.push(Message {
                index: span.message,
                role: &span.role,
                range: span.range.clone(),
            }),
        }
    }
    messages
}

impl Parting<'_> {
    /// Where the text between a message and the one before it begins; of the first message, where
    /// it begins itself.
    fn start(&self, number: usize, first: usize) -> usize {
        match first {
            0 => self.messages[number].range.start,
            _ => self.messages[number - 1].range.end,
        }
    }

    /// What is held from the end of the message before the parting on.
    fn held_from_there(&self) -> Option<String> {
        let from = self.start(self.number, self.number);
        Some(format!("{}{}", self.text.get(from..self.at)?, self.held))
    }

    /// What is held goes on with a later message of the request.
    fn inserted(&self, mark: &impl Fn(usize) -> Option<(u32, String)>) -> Option<Change> {
        let held = self.held_from_there()?;
        let found = (self.number + 1..self.messages.len()).find(|&number| {
            let whole = self.start(number, self.number)..self.messages[number].range.end;
            let rest = self.text.get(whole).and_then(|whole| held.strip_prefix(whole));
            let ends = mark(number).map(|(_, text)| text).unwrap_or_default();
            rest.is_some_and(|rest| rest.starts_with(&ends))
        })?;
        let new = self.messages[self.number].range.start..self.messages[found - 1].range.end;
        // By index: those without content, as calls of tools, are among them. What is held goes
        // on behind the content before the parting as the request does behind the last one that
        // was put in.
        let before = self.number.checked_sub(1).map(|before| self.messages[before].index + 1);
        let first = before.unwrap_or(0);
        let change = self.change(DifferenceKind::MessagesInserted, self.number);
        let role = match first == change.message {
            true => change.role,
            // Without content are the turns that only call.
            false => "assistant".to_owned(),
        };
        Some(Change {
            message: first,
            role,
            messages: Some(self.messages[found - 1].index + 1 - first),
            request_text: self.text.get(new)?.to_owned(),
            ..change
        })
    }

    /// What is held goes on with other messages, and then with the request's.
    fn removed(
        &self,
        mark: &impl Fn(usize) -> Option<(u32, String)>,
        tokenizer: &Tokenizer,
    ) -> Option<Change> {
        let held = self.held_from_there()?;
        let message = &self.messages[self.number];
        let whole = self.text.get(self.start(self.number, self.number)..message.range.end)?;
        let ends = mark(self.number).map(|(_, text)| text).unwrap_or_default();
        let found = held.find(&format!("{whole}{ends}")).filter(|&found| found > 0)?;
        // Who is to be counted by it must find it nowhere else.
        let (id, end) = mark(self.number.checked_sub(1)?)?;
        let messages = held[..found].matches(&end).count();
        Some(Change {
            messages: Some(messages).filter(|_| tokenizer.is_special(id)),
            cached_text: held[..found].to_owned(),
            ..self.change(DifferenceKind::MessagesRemoved, self.number)
        })
    }

    /// The request's message ends, and what is held of it goes on.
    fn shortened(&self, goes_on: bool, mark: &str) -> Option<Change> {
        let message = &self.messages[self.number];
        if self.at != message.range.end || !goes_on {
            return None;
        }
        let missing = self.held.find(mark).map_or(&self.held[..], |end| &self.held[..end]);
        Some(Change {
            cached_text: missing.to_owned(),
            ..self.change(DifferenceKind::MessageShortened, self.number)
        })
    }

    /// What is held of the message ends, and the request's goes on.
    fn lengthened(&self, ended: bool) -> Option<Change> {
        let message = &self.messages[self.number];
        if !ended || self.at <= message.range.start || self.at >= message.range.end {
            return None;
        }
        Some(Change {
            request_text: self.text.get(self.at..message.range.end)?.to_owned(),
            ..self.change(DifferenceKind::MessageLengthened, self.number)
        })
    }

    fn change(&self, kind: DifferenceKind, number: usize) -> Change {
        let Message { index, role, .. } = &self.messages[number];
        Change {
            kind,
            message: *index,
            role: (*role).to_owned(),
            chars: None,
            messages: None,
            cached_text: String::new(),
            request_text: String::new(),
        }
    }
}
