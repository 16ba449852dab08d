//! An answer as content blocks, whole or as the events of a stream.

use reply::{Call, Part, Reader, Reply};
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::state::new_id;

/// The blocks of a whole answer.
pub(super) fn blocks(reply: &Reply) -> Result<Vec<Value>, ApiError> {
    let mut blocks = Vec::new();
    if !reply.reasoning.is_empty() {
        blocks.push(thinking(&reply.reasoning));
    }
    if !reply.text.is_empty() {
        blocks.push(text(&reply.text));
    }
    for call in &reply.calls {
        blocks.push(tool_use(call)?);
    }
    Ok(blocks)
}

fn thinking(said: &str) -> Value {
    // Nobody but this server reads it, so that there is nothing to be signed.
    json!({"type": "thinking", "thinking": said, "signature": ""})
}

fn text(said: &str) -> Value {
    json!({"type": "text", "text": said, "citations": null})
}

/// A call; one whose arguments are no JSON object, as where the answer was cut off, is text.
fn tool_use(call: &Call) -> Result<Value, ApiError> {
    let input = match call.arguments.trim() {
        "" if call.whole => Ok(Map::new()),
        arguments => serde_json::from_str(arguments),
    };
    Ok(match input {
        Ok(input) => tool_use_block(&call.name, input)?,
        Err(_) => text(&format!("{} {}", call.name, call.arguments)),
    })
}

fn tool_use_block(name: &str, input: Map<String, Value>) -> Result<Value, ApiError> {
    let id = new_id("toolu_")?;
    Ok(json!({
        "type": "tool_use", "id": id, "name": name, "input": input, "caller": {"type": "direct"},
    }))
}

/// The blocks of an answer that is streamed.
pub(super) struct Blocks {
    /// `None` once the answer has ended.
    reader: Option<Reader>,
    /// The kind of the block that is being written.
    open: Option<Kind>,
    /// Blocks so far, the open one included.
    count: usize,
    pub(super) has_calls: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
    ToolUse,
}

impl Blocks {
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader: Some(reader), open: None, count: 0, has_calls: false }
    }

    /// The events that more of the answer's text makes.
    pub(super) fn push(&mut self, text: &str, out: &mut Vec<Value>) -> Result<(), ApiError> {
        let parts = self.reader.as_mut().map(|reader| reader.push(text));
        parts.into_iter().flatten().try_for_each(|part| self.say(part, out))
    }

    /// Those of the answer's end.
    pub(super) fn finish(&mut self, out: &mut Vec<Value>) -> Result<(), ApiError> {
        let parts = self.reader.take().map(Reader::finish);
        parts.into_iter().flatten().try_for_each(|part| self.say(part, out))?;
        self.close(out);
        Ok(())
    }

    fn say(&mut self, part: Part, out: &mut Vec<Value>) -> Result<(), ApiError> {
        match part {
            Part::Reasoning(said) => {
                self.open(Kind::Thinking, || Ok(thinking("")), out)?;
                self.delta(json!({"type": "thinking_delta", "thinking": said}), out);
            }
            Part::Text(said) => {
                self.open(Kind::Text, || Ok(text("")), out)?;
                self.delta(json!({"type": "text_delta", "text": said}), out);
            }
            Part::CallStart { name, .. } => {
                self.close(out);
                self.has_calls = true;
                self.open(Kind::ToolUse, || tool_use_block(&name, Map::new()), out)?;
            }
            Part::CallArguments { fragment, .. } => {
                self.delta(json!({"type": "input_json_delta", "partial_json": fragment}), out);
            }
            Part::CallEnd { .. } => self.close(out),
        }
        Ok(())
    }

    /// Begins a block, unless one of the kind is being written.
    fn open(
        &mut self,
        kind: Kind,
        block: impl FnOnce() -> Result<Value, ApiError>,
        out: &mut Vec<Value>,
    ) -> Result<(), ApiError> {
        if self.open == Some(kind) {
            return Ok(());
        }
        self.close(out);
        let (index, block) = (self.count, block()?);
        out.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        (self.open, self.count) = (Some(kind), index + 1);
        Ok(())
    }

    fn delta(&self, delta: Value, out: &mut Vec<Value>) {
        let index = self.count.saturating_sub(1);
        out.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }

    fn close(&mut self, out: &mut Vec<Value>) {
        if self.open.take().is_some() {
            out.push(json!({"type": "content_block_stop", "index": self.count.saturating_sub(1)}));
        }
    }
}

#[cfg(test)]
mod tests {
    use reply::Format;

    use super::*;

    const ANSWER: &str = "<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"weather\", \
                          \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";

    fn reader() -> Reader {
        let tools = [("weather", &Value::Null)].into_iter().collect();
        Reader::new(Format::of("<tool_call> </think>"), tools, false)
    }

    #[test]
    fn a_streams_events_are_the_blocks_of_the_whole() {
        let mut whole = Reply::default();
        let mut read = reader();
        whole.extend(read.push(ANSWER));
        whole.extend(read.finish());
        let kinds = |blocks: &[Value]| -> Vec<String> {
            blocks.iter().map(|block| block["type"].to_string()).collect()
        };
        let whole = blocks(&whole).unwrap();
        assert_eq!(kinds(&whole), ["\"thinking\"", "\"text\"", "\"tool_use\""]);
        assert_eq!(whole[2]["input"], json!({"city": "Paris"}));

        let (mut blocks, mut events) = (Blocks::new(reader()), Vec::new());
        for character in ANSWER.chars() {
            blocks.push(&character.to_string(), &mut events).unwrap();
        }
        blocks.finish(&mut events).unwrap();
        let started = |event: &&Value| event["type"] == "content_block_start";
        let begun: Vec<Value> =
            events.iter().filter(started).map(|event| event["content_block"].clone()).collect();
        assert_eq!(kinds(&begun), kinds(&whole));
        let said = |index: usize, field: &str| -> String {
            let deltas = events.iter().filter(|event| event["index"] == index);
            deltas.filter_map(|event| event["delta"][field].as_str()).collect()
        };
        assert_eq!(said(0, "thinking"), whole[0]["thinking"].as_str().unwrap());
        assert_eq!(said(1, "text"), whole[1]["text"].as_str().unwrap());
        assert_eq!(said(2, "partial_json"), "{\"city\": \"Paris\"}");
        let stops = events.iter().filter(|event| event["type"] == "content_block_stop").count();
        assert_eq!((stops, blocks.has_calls), (3, true));
    }

    #[test]
    fn a_call_that_was_cut_off_is_text() {
        let cut = Call { name: "f".to_owned(), arguments: "{\"a\": ".to_owned(), whole: false };
        let reply = Reply { calls: vec![cut], ..Reply::default() };
        assert_eq!(blocks(&reply).unwrap(), [text("f {\"a\": ")]);
    }
}
