//! Explaining: from what clients send to prompts, and from two prompts to the verdict that the
//! second gets after the first.
//!
//! The server makes its prompts and completes its verdicts with this crate too, so what is said
//! offline and what is said live come from one code. It never runs a model.
//!
//! ```no_run
//! use doctor::{Prompt, PromptMaker};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = package::Package::open_text(std::path::Path::new("model.gguf"))?;
//! let maker = PromptMaker {
//!     tokenizer: &text.tokenizer,
//!     chat_template: text.chat_template.as_ref(),
//!     date: None,
//!     context: text.context,
//!     known: None,
//! };
//! let first = Prompt::read("a.txt", b"Once upon a time", maker)?;
//! let second = Prompt::read("b.txt", b"Once upon a midnight dreary", maker)?;
//! let verdict = doctor::why(&first, &second, maker);
//! println!("{} of {} tokens reused", verdict.reused_tokens, verdict.prompt_tokens);
//! # Ok(())
//! # }
//! ```

mod anthropic;
mod continuation;
mod conversation;
mod difference;
mod effort;
mod error;
mod excerpt;
mod hint;
mod known_texts;
mod prompt;
mod rendering;
mod replay;
mod responses;
mod retokenized;
mod text_prompt;
mod tool_text;
mod tools;
mod verdict;
mod why;

pub use anthropic::from_anthropic;
pub use continuation::Computed;
pub use conversation::{PromptMaker, check_messages};
pub use difference::DIFFERENCE_TOKENS_MAX;
pub use error::{PromptError, PromptTooLong, check_length, shown};
pub use excerpt::Excerpt;
pub use hint::{Explained, Hint};
pub use known_texts::KnownTexts;
pub use prompt::{PROMPT_BYTES_MAX, Prompt, Shape};
pub use rendering::{Conversation, Rendering, Renderings, note_rendering};
pub use replay::{AtCapacity, Replay, ReplayError, StopCount, Trace, TraceFormat};
pub use responses::{from_response_input, from_response_tools};
pub use text_prompt::{TextPrompt, token_ids};
pub use tools::{ToolChoice, check_tools, declared_tools};
pub use verdict::{Compared, complete};
pub use why::why;
