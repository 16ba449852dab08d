//! OpenAI's Responses API: <https://platform.openai.com/docs/api-reference/responses>.

pub(crate) mod call;
pub(crate) mod create;
mod echo;
mod input;
mod items;
pub(crate) mod stored;
mod stream;
mod usage;
mod writer;
