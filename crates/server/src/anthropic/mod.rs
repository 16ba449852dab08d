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

use axum::http::HeaderMap;

pub(crate) use error::respond as respond_error;

/// Where Anthropic's clients expect their own shapes, also of errors.
pub(crate) const MESSAGES_PATH: &str = "/v1/messages";
/// The header that all of Anthropic's clients send, and nobody else's.
const VERSION_HEADER: &str = "anthropic-version";

/// Whether a request comes from one of Anthropic's clients, on a path that others have too.
pub(crate) fn is_client(headers: &HeaderMap) -> bool {
    headers.contains_key(VERSION_HEADER)
}
