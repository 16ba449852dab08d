//! An answer as output items, and the events of a stream that they make.

use reply::{Part, Reader};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::state::new_id;

/// The items of an answer as it comes. Events have no `sequence_number` yet.
pub(super) struct Items {
    /// `None` once the answer has ended.
    reader: Option<Reader>,
    /// Those that are whole.
    done: Vec<Value>,
    /// The one that is being written.
    open: Option<Item>,
    /// Log-probabilities that have not been said.
    logprobs: Vec<Value>,
    reasoning: Reasoning,
}

/// How much of an answer is reasoning.
#[derive(Default)]
struct Reasoning {
    /// Bytes of the answer that were read.
    read: usize,
    any: bool,
    /// Where something else began.
    end: Option<usize>,
}

/// An item that is being written.
struct Item {
    kind: Kind,
    id: String,
    /// Its text, or a call's arguments.
    text: String,
    logprobs: Vec<Value>,
}

enum Kind {
    Reasoning,
    Message,
    Call { call_id: String, name: String },
}

impl Items {
    pub(super) fn new(reader: Reader) -> Self {
        Self {
            reader: Some(reader),
            done: Vec::new(),
            open: None,
            logprobs: Vec::new(),
            reasoning: Reasoning::default(),
        }
    }

    /// Those that are whole.
    pub(super) fn done(&self) -> &[Value] {
        &self.done
    }

    /// Takes more of the answer's text, and the log-probabilities of its tokens, if these are
    /// wanted. They go with the next text that is said, since tokens may be held back until it is
    /// known what they mean; those of reasoning and calls have no place.
    pub(super) fn push(
        &mut self,
        text: &str,
        logprobs: Vec<Value>,
        out: &mut Vec<Value>,
    ) -> Result<(), ApiError> {
        self.logprobs.extend(logprobs);
        self.read(text).into_iter().try_for_each(|part| self.say(part, out))
    }

    /// The answer has ended, before its time if `is_cut`.
    pub(super) fn finish(&mut self, is_cut: bool, out: &mut Vec<Value>) -> Result<(), ApiError> {
        let parts = self.reader.take().map(Reader::finish);
        parts.into_iter().flatten().try_for_each(|part| self.say(part, out))?;
        if self.done.is_empty() && self.open.is_none() {
            self.begin(Kind::Message, "msg_", out)?;
        }
        self.close(if is_cut { "incomplete" } else { "completed" }, out);
        Ok(())
    }

    /// How many of an answer's tokens, given by the lengths of their texts, are reasoning: those
    /// before what else it says, with the marks around it.
    pub(super) fn reasoning_tokens(&self, lengths: impl Iterator<Item = usize>) -> usize {
        if !self.reasoning.any {
            return 0;
        }
        let end = self.reasoning.end.unwrap_or(usize::MAX);
        let starts = lengths.scan(0, |at, length| {
            *at += length;
            Some(*at - length)
        });
        starts.take_while(|start| *start < end).count()
    }

    /// Reads character by character as long as the answer may be reasoning, so that where that ends
    /// does not depend on how the text came.
    fn read(&mut self, text: &str) -> Vec<Part> {
        let Some(reader) = &mut self.reader else { return Vec::new() };
        let (mut parts, mut rest) = (Vec::new(), text);
        while self.reasoning.end.is_none()
            && let Some(character) = rest.chars().next()
        {
            let (first, other) = rest.split_at(character.len_utf8());
            for part in reader.push(first) {
                match (parts.last_mut(), part) {
                    (Some(Part::Reasoning(said)), Part::Reasoning(more)) => said.push_str(&more),
                    (_, part) => {
                        match part {
                            Part::Reasoning(_) => self.reasoning.any = true,
                            _ => self.reasoning.end = Some(self.reasoning.read),
                        }
                        parts.push(part);
                    }
                }
            }
            self.reasoning.read += first.len();
            rest = other;
        }
        parts.extend(reader.push(rest));
        parts
    }

    fn say(&mut self, part: Part, out: &mut Vec<Value>) -> Result<(), ApiError> {
        let logprobs = std::mem::take(&mut self.logprobs);
        match part {
            Part::Reasoning(said) => {
                if !matches!(self.open, Some(Item { kind: Kind::Reasoning, .. })) {
                    self.begin(Kind::Reasoning, "rs_", out)?;
                }
                self.delta("response.reasoning_text.delta", said, None, out);
            }
            Part::Text(said) => {
                if !matches!(self.open, Some(Item { kind: Kind::Message, .. })) {
                    self.begin(Kind::Message, "msg_", out)?;
                }
                self.delta("response.output_text.delta", said, Some(logprobs), out);
            }
            Part::CallStart { name, .. } => {
                let call_id = new_id("call_")?;
                self.begin(Kind::Call { call_id, name }, "fc_", out)?;
            }
            Part::CallArguments { fragment, .. } => {
                self.delta("response.function_call_arguments.delta", fragment, None, out);
            }
            Part::CallEnd { .. } => self.close("completed", out),
        }
        Ok(())
    }

    /// Begins an item, after the one that is open has ended.
    fn begin(&mut self, kind: Kind, prefix: &str, out: &mut Vec<Value>) -> Result<(), ApiError> {
        self.close("completed", out);
        let item = Item { kind, id: new_id(prefix)?, text: String::new(), logprobs: Vec::new() };
        let index = self.done.len();
        out.push(json!({
            "type": "response.output_item.added", "output_index": index, "item": item.begun(),
        }));
        if let Some(part) = item.part() {
            out.push(json!({
                "type": "response.content_part.added",
                "item_id": item.id,
                "output_index": index,
                "content_index": 0,
                "part": part,
            }));
        }
        self.open = Some(item);
        Ok(())
    }

    fn delta(
        &mut self,
        kind: &str,
        said: String,
        logprobs: Option<Vec<Value>>,
        out: &mut Vec<Value>,
    ) {
        let Some(item) = &mut self.open else { return };
        item.text.push_str(&said);
        let mut event = item.event(kind, self.done.len());
        event["delta"] = Value::from(said);
        if let Some(rows) = logprobs {
            event["logprobs"] = Value::from(rows.as_slice());
            item.logprobs.extend(rows);
        }
        out.push(event);
    }

    /// Ends the open item, if there is one.
    fn close(&mut self, status: &str, out: &mut Vec<Value>) {
        let Some(item) = self.open.take() else { return };
        let index = self.done.len();
        out.push(item.ended(index));
        if let Some(part) = item.part() {
            let mut event = item.event("response.content_part.done", index);
            event["part"] = part;
            out.push(event);
        }
        let whole = item.whole(status);
        out.push(json!({
            "type": "response.output_item.done", "output_index": index, "item": whole,
        }));
        self.done.push(whole);
    }
}

impl Item {
    /// An event about its text.
    fn event(&self, kind: &str, index: usize) -> Value {
        let mut event = json!({"type": kind, "item_id": self.id, "output_index": index});
        if !matches!(self.kind, Kind::Call { .. }) {
            event["content_index"] = Value::from(0);
        }
        event
    }

    /// The event that its text is whole.
    fn ended(&self, index: usize) -> Value {
        let text = self.text.as_str();
        match &self.kind {
            Kind::Reasoning => {
                let mut event = self.event("response.reasoning_text.done", index);
                event["text"] = Value::from(text);
                event
            }
            Kind::Message => {
                let mut event = self.event("response.output_text.done", index);
                event["text"] = Value::from(text);
                event["logprobs"] = Value::from(self.logprobs.as_slice());
                event
            }
            Kind::Call { name, .. } => {
                let mut event = self.event("response.function_call_arguments.done", index);
                event["name"] = Value::from(name.as_str());
                event["arguments"] = Value::from(text);
                event
            }
        }
    }

    /// Its one part; a call has none.
    fn part(&self) -> Option<Value> {
        match self.kind {
            Kind::Reasoning => Some(json!({"type": "reasoning_text", "text": self.text})),
            Kind::Message => Some(json!({
                "type": "output_text",
                "text": self.text,
                "annotations": [],
                "logprobs": self.logprobs,
            })),
            Kind::Call { .. } => None,
        }
    }

    /// As it begins, without parts.
    fn begun(&self) -> Value {
        let mut item = self.whole("in_progress");
        if !matches!(self.kind, Kind::Call { .. }) {
            item["content"] = json!([]);
        }
        item
    }

    fn whole(&self, status: &str) -> Value {
        let Item { kind, id, text, .. } = self;
        let content = self.part();
        match kind {
            Kind::Reasoning => json!({
                "id": id,
                "type": "reasoning",
                "status": status,
                "summary": [],
                "content": [content],
            }),
            Kind::Message => json!({
                "id": id,
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": [content],
            }),
            Kind::Call { call_id, name } => json!({
                "id": id,
                "type": "function_call",
                "status": status,
                "call_id": call_id,
                "name": name,
                "arguments": text,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reply::Format;

    use super::*;

    const ANSWER: &str = "<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \
                          \"weather\", \"arguments\": {\"city\": \"Orléans\"}}\n</tool_call>";

    fn items() -> Items {
        let tools = [("weather", &Value::Null)].into_iter().collect();
        Items::new(Reader::new(Format::of("<tool_call> </think>"), tools, false))
    }

    /// The items of an answer that came in these pieces, and all events.
    fn written(pieces: &[&str], is_cut: bool) -> (Items, Vec<Value>) {
        let (mut items, mut events) = (items(), Vec::new());
        for piece in pieces {
            items.push(piece, vec![json!(piece)], &mut events).unwrap();
        }
        items.finish(is_cut, &mut events).unwrap();
        (items, events)
    }

    fn kinds(events: &[Value]) -> Vec<&str> {
        events.iter().filter_map(|event| event["type"].as_str()).collect()
    }

    #[test]
    fn each_item_has_its_events_in_order() {
        let (items, events) = written(&[ANSWER], false);
        let expected = [
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
        ];
        let mut kinds = kinds(&events);
        kinds.dedup();
        assert_eq!(kinds, expected);
        let done = items.done();
        assert_eq!(done[0]["content"][0]["text"], "Hm.");
        assert_eq!(done[1]["content"][0]["text"], "I look.");
        assert_eq!(done[2]["arguments"], "{\"city\": \"Orléans\"}");
        assert!(done.iter().all(|item| item["status"] == "completed"));
    }

    #[test]
    fn an_answer_that_was_cut_off_is_incomplete_and_an_empty_one_a_message() {
        let (items, _) = written(&["<think>\nHm"], true);
        assert_eq!(items.done()[0]["status"], "incomplete");
        assert_eq!(items.reasoning_tokens([7, 1, 2].into_iter()), 3);
        let (items, events) = written(&[], false);
        assert_eq!(items.done()[0]["content"][0]["text"], "");
        assert_eq!(kinds(&events)[0], "response.output_item.added");
        assert_eq!(items.reasoning_tokens([1].into_iter()), 0);
    }

    proptest! {
        /// However an answer comes: the deltas of each item join to its text, all else of it is the
        /// same, and so is what counts as reasoning.
        #[test]
        fn deltas_join_to_the_items_of_the_whole(cuts in prop::collection::vec(1_usize..9, 0..99)) {
            let (mut pieces, mut rest) = (Vec::new(), ANSWER);
            for cut in cuts {
                let (first, other) = rest.split_at(rest.floor_char_boundary(cut));
                pieces.push(first);
                rest = other;
            }
            pieces.push(rest);
            let (whole, _) = written(&[ANSWER], false);
            let (items, events) = written(&pieces, false);
            let plain = |items: &Items| -> Vec<Value> {
                let plain = |item: &Value| {
                    let mut item = item.clone();
                    for random in ["id", "call_id"] {
                        item[random] = Value::Null;
                    }
                    if !item["content"].is_null() {
                        item["content"][0]["logprobs"] = Value::Null;
                    }
                    item
                };
                items.done().iter().map(plain).collect()
            };
            prop_assert_eq!(plain(&items), plain(&whole));
            for (index, item) in items.done().iter().enumerate() {
                let own = events.iter().filter(|event| event["output_index"] == index);
                let said: String = own.filter_map(|event| event["delta"].as_str()).collect();
                let text = item["content"][0]["text"].as_str().or(item["arguments"].as_str());
                prop_assert_eq!(Some(said.as_str()), text);
            }
            let letters = || ANSWER.chars().map(char::len_utf8);
            prop_assert_eq!(items.reasoning_tokens(letters()), whole.reasoning_tokens(letters()));
            prop_assert_eq!(
                whole.reasoning_tokens(letters()),
                ANSWER.find("I look").unwrap()
            );
        }
    }
}
