//! What a server says of a request's body before it runs it, for whoever has no server at hand.

use doctor::{Shape, ToolChoice};
use serde_json::{Map, Value};

use crate::anthropic::messages;
use crate::fields::Fields;
use crate::openai::responses::call;
use crate::openai::{chat, completions};

/// What a server says of a body, besides the verdict on its prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reception {
    /// The fields that have no effect, as an answer lists them in `ignored`. Of a body that is
    /// refused, only those that the prompt would have been made of.
    pub ignored: Vec<String>,
    /// Why the body is refused as it is, in the words of the error; `None` where its fields are
    /// taken.
    pub refused: Option<String>,
}

impl Reception {
    /// What is said of `body`, which was read as `shape`, on a model whose chat template reads
    /// tools or does not. Only the body's fields are looked at: a server also refuses a prompt
    /// that is too long, and what its options forbid.
    pub fn of(shape: Shape, body: Map<String, Value>, reads_tools: bool) -> Reception {
        let has_tools = body.get("tools").and_then(Value::as_array).is_some_and(|t| !t.is_empty());
        let choice = ToolChoice::read(body.get("tool_choice").unwrap_or(&Value::Null));
        let may_call = choice.is_ok_and(|choice| choice.may_call());
        let unread = has_tools && !reads_tools && !may_call;
        let ignored = unread.then(|| "tools".to_owned()).into_iter().collect();
        let fields = Fields::new(body);
        let taken = match shape {
            Shape::OpenaiChat => chat::parse(fields).map(|call| call.ignored(reads_tools)),
            Shape::OpenaiResponse => call::parse(fields).map(|call| call.ignored(reads_tools)),
            Shape::OpenaiCompletion => completions::parse(fields).map(|call| call.ignored),
            Shape::AnthropicMessages => {
                messages::parse(fields).map(|call| call.ignored(reads_tools))
            }
            Shape::Text => return Reception::default(),
        };
        match taken {
            Ok(ignored) => Reception { ignored, refused: None },
            Err(error) => Reception { ignored, refused: Some(error.message().to_owned()) },
        }
    }
}
