//! Log-probabilities in the two shapes that OpenAI has for them.

use engine::TokenInfo;
use package::Tokenizer;
use serde_json::{Map, Value, json};

/// A token as text. One that ends inside a character is written `bytes:\xe4\xb8`, as OpenAI does.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            bytes.iter().fold("bytes:".to_owned(), |text, byte| format!("{text}\\x{byte:02x}"))
        }
    }
}

/// Chat's shape: `{"content": [{token, logprob, bytes, top_logprobs}]}`.
pub(crate) fn chat(tokens: &[TokenInfo], tokenizer: &Tokenizer) -> Value {
    let entry = |bytes: &[u8], logprob: Option<f32>| -> Value {
        json!({
            "token": text(bytes), "logprob": logprob, "bytes": bytes,
        })
    };
    let content = tokens.iter().map(|token| {
        let top = token
            .top
            .iter()
            .map(|&(id, logprob)| entry(tokenizer.bytes(id).unwrap_or_default(), Some(logprob)));
        let mut value = entry(&token.bytes, token.logprob);
        value["top_logprobs"] = top.collect();
        value
    });
    json!({"content": content.collect::<Vec<_>>(), "refusal": null})
}

/// Text completions' shape: four parallel arrays, offsets in characters of the answer.
#[derive(Default)]
pub(crate) struct TextLogprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<Map<String, Value>>>,
    text_offset: Vec<usize>,
}

impl TextLogprobs {
    /// Adds one token that begins `offset` characters into the answer. A prompt's first token has
    /// no log-probability, since nothing comes before it.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        logprob: Option<f32>,
        top: &[(u32, f32)],
        offset: usize,
        tokenizer: &Tokenizer,
    ) {
        let top = logprob.map(|_| {
            top.iter()
                .map(|&(id, logprob)| {
                    (text(tokenizer.bytes(id).unwrap_or_default()), json!(logprob))
                })
                .collect()
        });
        self.tokens.push(text(bytes));
        self.token_logprobs.push(logprob);
        self.top_logprobs.push(top);
        self.text_offset.push(offset);
    }

    pub(crate) fn into_json(self) -> Value {
        json!({
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs,
            "text_offset": self.text_offset,
        })
    }
}

/// How many characters begin in `bytes`: continuation bytes of UTF-8 begin none.
pub(crate) fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte & 0xC0 != 0x80).count()
}
