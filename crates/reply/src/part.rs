//! What an answer is made of.

/// A piece of an answer, in the order in which it was generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// What the model wrote for itself before it answered.
    Reasoning(String),
    /// What it says to the user.
    Text(String),
    /// A tool call begins. Calls are counted from 0, and only one is open at a time.
    CallStart {
        /// Which call of the answer.
        index: usize,
        /// The tool's name.
        name: String,
    },
    /// More of the open call's arguments.
    CallArguments {
        /// Which call of the answer.
        index: usize,
        /// A fragment of JSON; all of a call's fragments together are its arguments.
        fragment: String,
    },
    /// The call's arguments are whole. A call that the answer's end cut off, or that went wrong
    /// after it had begun, has no such part.
    CallEnd {
        /// Which call of the answer.
        index: usize,
    },
}

/// A whole answer, put together of its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// All reasoning.
    pub reasoning: String,
    /// All text.
    pub text: String,
    /// The tool calls, in order.
    pub calls: Vec<Call>,
}

/// A tool call of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// The tool's name.
    pub name: String,
    /// Its arguments: JSON as the model wrote it, which may be wrong JSON.
    pub arguments: String,
    /// Whether the arguments came to their end.
    pub whole: bool,
}

impl Extend<Part> for Reply {
    /// Adds parts in their order; one of a call that did not start is left out.
    fn extend<T: IntoIterator<Item = Part>>(&mut self, parts: T) {
        for part in parts {
            match part {
                Part::Reasoning(text) => self.reasoning.push_str(&text),
                Part::Text(text) => self.text.push_str(&text),
                Part::CallStart { name, .. } => {
                    self.calls.push(Call { name, ..Call::default() });
                }
                Part::CallArguments { index, fragment } => {
                    if let Some(call) = self.calls.get_mut(index) {
                        call.arguments.push_str(&fragment);
                    }
                }
                Part::CallEnd { index } => {
                    if let Some(call) = self.calls.get_mut(index) {
                        call.whole = true;
                    }
                }
            }
        }
    }
}
