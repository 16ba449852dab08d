//! Lines of Mooncake's traces: <https://github.com/kvcache-ai/Mooncake>, `FAST25-release/traces`.
//!
//! The ids of the tokens are not in them, only one hash id for each 512, chained, so that equal ids
//! mean an equal prefix up to there. So one page of the tree stands for one block of 512: its 16
//! ids are all the block's number, which no other block has. The tree never reuses the last id,
//! which a real prompt needs for its logits, while such a trace counts whole blocks; an id that
//! nothing else has stands in for it.

use std::collections::HashMap;

use cache::{Namespace, PAGE_TOKENS, Timestamp};
use serde::Deserialize;

use super::Request;
use super::error::ReplayError;

/// Tokens that one hash id stands for.
pub(crate) const BLOCK_TOKENS: u64 = 512;
/// The id behind the blocks; no block has this number.
const LAST_ID: u32 = u32::MAX;

#[derive(Deserialize)]
struct Line {
    timestamp: u64,
    input_length: u32,
    hash_ids: Vec<u64>,
}

/// Makes requests of lines.
#[derive(Default)]
pub(crate) struct Blocks {
    numbers: HashMap<u64, u32>,
    latest: Timestamp,
}

impl Blocks {
    /// The request of line `number`.
    pub(crate) fn request(&mut self, number: u64, line: &[u8]) -> Result<Request, ReplayError> {
        let failed = |problem: String| Err(ReplayError::at(number, problem));
        let read: Line =
            serde_json::from_slice(line).map_err(|error| ReplayError::json(number, &error))?;
        let prompt_tokens = u64::from(read.input_length);
        if prompt_tokens == 0 {
            return failed("its 'input_length' is 0: a prompt has at least one token".to_owned());
        }
        let blocks = prompt_tokens.div_ceil(BLOCK_TOKENS);
        if read.hash_ids.len() as u64 != blocks {
            return failed(format!(
                "it has {} 'hash_ids' for {prompt_tokens} input tokens, and not {blocks}: one for \
                 each {BLOCK_TOKENS}",
                read.hash_ids.len()
            ));
        }
        let at = Timestamp(read.timestamp);
        if at < self.latest {
            let (now, before) = (at.0, self.latest.0);
            return failed(format!("its 'timestamp' {now} is before {before}, the one before it"));
        }
        self.latest = at;
        let mut ids = Vec::with_capacity(read.hash_ids.len() * PAGE_TOKENS + 1);
        for hash in &read.hash_ids {
            let next = u32::try_from(self.numbers.len()).ok().filter(|&next| next != LAST_ID);
            let block = match (self.numbers.get(hash), next) {
                (Some(&block), _) => block,
                (None, Some(next)) => *self.numbers.entry(*hash).or_insert(next),
                (None, None) => return failed(format!("there are over {LAST_ID} blocks")),
            };
            ids.extend([block; PAGE_TOKENS]);
        }
        let published = ids.len();
        ids.push(LAST_ID);
        Ok(Request {
            name: format!("line {number}"),
            at,
            namespace: Namespace::public(),
            ids,
            published,
            prompt_tokens,
            use_cache: true,
            wants_rows: false,
        })
    }
}
