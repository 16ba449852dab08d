//! Anthropic's API.

mod breakpoints;
mod content;
pub(crate) mod count_tokens;
mod diagnostics;
mod error;
mod header;
pub(crate) mod messages;
mod stream;
mod usage;

pub(crate) use error::respond as respond_error;

/// Where Anthropic's clients expect their own shapes, also of errors.
pub(crate) const MESSAGES_PATH: &str = "/v1/messages";
