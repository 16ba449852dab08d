//! Going on from a conversation as it was computed, its reply as the model wrote it.
//!
//! A reply that a chat template renders again need not get the ids that were drawn: its text may
//! be tokenized otherwise, its reasoning left out, its calls written anew. So what follows it is
//! rendered, and put behind the ids that are there.

use package::{Encoding, PromptMap, Rendered, Span};
use serde_json::{Map, Value};

use crate::conversation::PromptMaker;
use crate::error::PromptError;

/// A conversation as it was computed, from its first token to the last of its last reply.
#[derive(Debug, Clone)]
pub struct Computed {
    tokens: Vec<u32>,
    map: PromptMap,
    /// How many messages it is of, the reply included.
    messages: usize,
}

impl Computed {
    /// A prompt of so many messages, and the reply to it: the tokens that were drawn, without the
    /// one that ended it, each with its bytes in the reply's text.
    pub fn new<'a>(
        (mut tokens, map): (Vec<u32>, &PromptMap),
        messages: usize,
        reply: impl Iterator<Item = (u32, &'a [u8])>,
    ) -> Self {
        let (mut bytes, mut encoding) = (Vec::new(), Encoding::default());
        for (id, own) in reply {
            encoding.ids.push(id);
            encoding.offsets.push(bytes.len()..bytes.len() + own.len());
            bytes.extend_from_slice(own);
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if text.len() != bytes.len() {
            // It was cut off inside a character: the whole is then where each token came from.
            encoding.offsets.iter_mut().for_each(|range| *range = 0..text.len());
        }
        let role = "assistant".to_owned();
        let span = Span { range: 0..text.len(), message: messages, role, start_char: 0 };
        let said = Rendered { spans: vec![span], text };
        let map = map.followed_by(&PromptMap::new(&said, &encoding));
        tokens.extend_from_slice(&encoding.ids);
        Self { tokens, map, messages: messages + 1 }
    }

    /// How many messages it is of, the system prompt and the reply included.
    pub fn message_count(&self) -> usize {
        self.messages
    }

    /// Bytes of memory that it takes, about.
    pub fn memory_bytes(&self) -> usize {
        self.tokens.len() * size_of::<u32>() + self.map.memory_bytes()
    }

    /// Whether a conversation begins as this one did, up to the first words that are not the
    /// system prompt's: that holds what was rendered from instructions and tools.
    fn has_same_head(&self, rendered: &Rendered) -> bool {
        let first = rendered.spans.iter().find(|span| span.role != "system");
        first.is_some_and(|span| self.map.text().starts_with(&rendered.text[..span.range.start]))
    }
}

impl PromptMaker<'_> {
    /// [`chat`](Self::chat) for a conversation that goes on from one that was computed: its tokens,
    /// and behind them what the template writes after its reply. `None` where the conversation
    /// begins otherwise, or where it cannot be told what comes after the reply; it is then to be
    /// rendered whole.
    ///
    /// # Errors
    /// As [`chat`](Self::chat).
    pub fn chat_after(
        &self,
        computed: &Computed,
        messages: &[Value],
        tools: Option<&Value>,
        variables: &Map<String, Value>,
    ) -> Result<Option<(Vec<u32>, PromptMap)>, PromptError> {
        let rendered = self.render(messages, tools, variables)?;
        let Some(end) = self.end_of_reply(computed.messages, messages, &rendered) else {
            return Ok(None);
        };
        if !computed.has_same_head(&rendered) {
            return Ok(None);
        }
        let spans = rendered.spans.into_iter().filter(|span| span.message >= computed.messages);
        let moved =
            |span: Span| Span { range: span.range.start - end..span.range.end - end, ..span };
        let rest =
            Rendered { text: rendered.text[end..].to_owned(), spans: spans.map(moved).collect() };
        let encoding = self.encode(&rest.text, false, "messages")?;
        let map = computed.map.followed_by(&PromptMap::new(&rest, &encoding));
        let tokens = computed.tokens.iter().copied().chain(encoding.ids).collect();
        Ok(Some((tokens, map)))
    }

    /// Where in the rendered text the template closes the last of the first `count` messages: the
    /// last token that ends an answer between that one's content and the next one's.
    fn end_of_reply(&self, count: usize, messages: &[Value], rendered: &Rendered) -> Option<usize> {
        let Rendered { text, spans } = rendered;
        let reply = count.checked_sub(1)?;
        let next = spans.iter().find(|span| span.message == count)?.range.start;
        let end_of = |wanted: &dyn Fn(usize) -> bool| {
            spans.iter().filter(|span| wanted(span.message)).map(|span| span.range.end).max()
        };
        let said = end_of(&|message| message == reply).or_else(|| {
            // A reply that only calls has no content; the name that it calls is in the text.
            let calls = messages.get(reply)?["tool_calls"].as_array()?;
            let name = calls.last()?["function"]["name"].as_str()?;
            let from = end_of(&|message| message < reply).unwrap_or(0);
            Some(from + text.get(from..next)?.rfind(name)?)
        })?;
        let between = text.get(said..next)?;
        let ends = self.tokenizer.end_ids().iter();
        let texts = ends.filter_map(|id| std::str::from_utf8(self.tokenizer.bytes(*id)?).ok());
        let found = texts.filter(|text| !text.is_empty()).filter_map(|text| between.rfind(text));
        found.max().map(|at| said + at)
    }
}

#[cfg(test)]
mod tests {
    use package::{ChatTemplate, Tokenizer};
    use serde_json::json;

    use super::*;

    const TEMPLATE: &str = "{% for m in messages %}<1>{{ m.role }}<2>{{ m.content }}\
                            {% for call in m.tool_calls %}c{{ call.function.name }}{% endfor %}\
                            <|im_end|>{% endfor %}\
                            {% if add_generation_prompt %}<1>assistant<2>{% endif %}";

    /// Letters, one pair that is merged, and marks.
    fn tokenizer() -> Tokenizer {
        let letters = (b'a'..=b'z').zip(0..).map(|(byte, id)| (char::from(byte).to_string(), id));
        let vocabulary: Map<String, Value> =
            letters.chain([("ab".to_owned(), 26)]).map(|(text, id)| (text, json!(id))).collect();
        let added = |(id, text): (u32, &str)| {
            json!({
                "id": id, "content": text, "special": true, "normalized": false,
                "lstrip": false, "rstrip": false, "single_word": false
            })
        };
        let added: Vec<Value> =
            [(27, "<1>"), (28, "<2>"), (29, "<|im_end|>")].into_iter().map(added).collect();
        let description = json!({
            "added_tokens": added,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
                "trim_offsets": false, "use_regex": true},
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
                "use_regex": true},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": ["a b"]},
        });
        Tokenizer::from_json(description.to_string().as_bytes()).expect("a sound tokenizer")
    }

    fn message(role: &str, content: &str) -> Value {
        json!({"role": role, "content": content})
    }

    /// A conversation that went on.
    struct Gone {
        /// The ids of prompt and reply.
        before: Vec<u32>,
        after: Option<(Vec<u32>, PromptMap)>,
        /// The ids of the conversation as it is rendered.
        whole: Vec<u32>,
    }

    /// Answers `messages` with single letters, and goes on with what `next` makes of them.
    fn go_on(
        messages: &[Value],
        reply: Value,
        drawn: &str,
        next: impl FnOnce(&mut Vec<Value>),
    ) -> Gone {
        let tokenizer = tokenizer();
        let template = ChatTemplate::new(TEMPLATE, "", "").expect("a sound template");
        let maker = PromptMaker {
            tokenizer: &tokenizer,
            chat_template: Some(&template),
            date: None,
            context: None,
            known: None,
        };
        let none = Map::new();
        let (prompt, map) = maker.chat(messages, None, &none).expect("a prompt");
        let letters: Vec<(u32, [u8; 1])> =
            drawn.bytes().map(|byte| (u32::from(byte - b'a'), [byte])).collect();
        let drawn = letters.iter().map(|(id, byte)| (*id, byte.as_slice()));
        let computed = Computed::new((prompt.ids, &map), messages.len(), drawn);
        let mut messages = [messages, &[reply]].concat();
        next(&mut messages);
        let after = maker.chat_after(&computed, &messages, None, &none).expect("rendered");
        let whole = maker.chat(&messages, None, &none).expect("rendered").0.ids;
        Gone { before: computed.tokens, after, whole }
    }

    #[test]
    fn the_own_tokens_of_a_reply_come_before_what_follows_it() {
        let messages = [message("system", "s"), message("user", "u")];
        let next = |messages: &mut Vec<Value>| messages.push(message("user", "xyz"));
        let Gone { before, after, whole } =
            go_on(&messages, message("assistant", "abab"), "abab", next);
        let (tokens, map) = after.expect("goes on");
        assert!(tokens.starts_with(&before) && before.ends_with(&[0, 1, 0, 1]));
        assert!(!whole.starts_with(&before), "rendered again, the pair is one token");
        let (tokenizer, text) = (tokenizer(), map.text());
        assert_eq!(tokenizer.decode(&tokens, true), tokenizer.decode(&whole, true));
        assert_eq!(tokenizer.decode(&tokens, true), text);
        let reply = map.locate(before.len() - 1..before.len());
        assert_eq!((reply.message, reply.chars), (Some(2), Some([3, 4])));
        let at = tokens.iter().rposition(|id| *id == 23).expect("the letter x");
        let next = map.locate(at..at + 1);
        assert_eq!((next.message, next.role.as_str()), (Some(3), "user"));
    }

    #[test]
    fn a_reply_that_only_calls_is_gone_on_from() {
        let reply = json!({
            "role": "assistant", "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": {}}}],
        });
        let next = |messages: &mut Vec<Value>| messages.push(message("tool", "t"));
        let Gone { before, after, whole } = go_on(&[message("user", "u")], reply, "cf", next);
        assert_eq!(after.expect("goes on").0, whole);
        assert!(whole.starts_with(&before));
    }

    #[test]
    fn another_beginning_or_an_unknown_end_is_rendered_whole() {
        let messages = [message("system", "s"), message("user", "u")];
        let reply = || message("assistant", "ab");
        let other = |messages: &mut Vec<Value>| {
            messages[0] = message("system", "other");
            messages.push(message("user", "x"));
        };
        assert!(go_on(&messages, reply(), "ab", other).after.is_none(), "other instructions");
        let blank = |messages: &mut Vec<Value>| messages.push(message("user", ""));
        assert!(
            go_on(&messages, reply(), "ab", blank).after.is_none(),
            "nothing that can be found"
        );
        let nothing = |_: &mut Vec<Value>| {};
        assert!(go_on(&messages, reply(), "ab", nothing).after.is_none(), "nothing follows");
    }
}
