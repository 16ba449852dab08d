//! Lines that are the bodies of requests.

use cache::Timestamp;
use serde_json::Value;

use super::Request;
use super::error::ReplayError;
use crate::conversation::PromptMaker;
use crate::prompt::{Prompt, is_embeddings};

/// The request of line `number`: a body, as OpenAI's or Anthropic's clients send it, or a JSON text
/// that is the prompt itself. Bodies tell no time, so each comes a millisecond after the other.
/// `None` for a request for embeddings, which a prompt cache has nothing to do with.
pub(crate) fn request(
    number: u64,
    line: &[u8],
    maker: PromptMaker<'_>,
) -> Result<Option<Request>, ReplayError> {
    let body: Value =
        serde_json::from_slice(line).map_err(|error| ReplayError::json(number, &error))?;
    if body.as_object().is_some_and(is_embeddings) {
        return Ok(None);
    }
    let name = format!("line {number}");
    let prompt = Prompt::of_value(&name, body, maker)
        .map_err(|error| ReplayError::at(number, error.message))?;
    Ok(Some(Request {
        name,
        at: Timestamp(number),
        namespace: prompt.namespace,
        published: prompt.tokens.len(),
        prompt_tokens: prompt.tokens.len() as u64,
        ids: prompt.tokens,
        use_cache: prompt.use_cache,
        wants_rows: prompt.wants_rows,
    }))
}
