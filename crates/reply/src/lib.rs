//! What an answer says: its text to reasoning, text and tool calls, as it is generated.
//!
//! A model writes all of these as one text, in a [`Format`] of its own, which its chat template
//! shows. A [`Reader`] takes the text in pieces and returns [`Part`]s. For calls that a model is
//! made to make, [`Format::call_shape`] says how they must be written.
//!
//! The arguments of a call are passed on as they come and are not checked: OpenAI's clients
//! expect that a model may write wrong JSON. Where it must not, a grammar keeps it from it.

mod attempt;
mod families;
mod format;
mod json_call;
mod named_call;
mod part;
mod python_call;
mod reader;
mod scan;
mod shape;
mod tagged_call;
mod tools;

pub use format::Format;
pub use part::{Call, Part, Reply};
pub use reader::Reader;
pub use shape::CallShape;
pub use tools::Tools;
