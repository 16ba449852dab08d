//! Random conversations, and edits of them.

use serde_json::{Value, json};

/// Two requests, as a server takes them.
pub(crate) struct Pair {
    pub(crate) first: Value,
    pub(crate) second: Value,
    /// How the second was made of the first.
    pub(crate) edit: &'static str,
    anthropic: bool,
}

impl Pair {
    /// The request as it is given offline: some pairs as Anthropic's clients would send them,
    /// which must come to the same prompt.
    pub(crate) fn offline(&self, request: &Value) -> Value {
        let mut request = request.clone();
        let begins = request["messages"][0]["role"] == "system";
        if !(self.anthropic && begins) {
            return request;
        }
        let Some(messages) = request["messages"].as_array_mut() else { return request };
        let system = messages.remove(0)["content"].take();
        request["system"] = match system {
            Value::String(text) if text.len() % 2 == 0 => {
                json!([{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}])
            }
            other => other,
        };
        request
    }
}

/// Where the pairs come from: the same ones each time.
pub(crate) struct Pairs {
    state: u64,
}

const WORDS: [&str; 16] = [
    "river",
    "is",
    "a",
    "time",
    "10:01",
    "2026-11-29",
    "你好",
    "😀",
    "  ",
    "\n",
    "\t",
    "Be",
    "brief",
    "tool",
    "é",
    "<user>",
];

impl Pairs {
    pub(crate) fn new(seed: u64) -> Pairs {
        Pairs { state: seed }
    }

    /// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
    fn below(&mut self, limit: usize) -> usize {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }

    fn text(&mut self) -> String {
        let words = 1 + self.below(12);
        let word = |_| WORDS[self.below(WORDS.len())];
        (0..words).map(word).collect::<Vec<_>>().join(" ")
    }

    fn message(&mut self, role: &str) -> Value {
        let text = self.text();
        match self.below(4) {
            0 => json!({"role": role, "content": [
                {"type": "text", "text": text}, {"type": "text", "text": self.text()}]}),
            _ => json!({"role": role, "content": text}),
        }
    }

    fn conversation(&mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        if self.below(4) > 0 {
            messages.push(self.message("system"));
        }
        for turn in 0..1 + self.below(5) {
            messages.push(self.message(["user", "assistant"][turn % 2]));
        }
        messages
    }

    /// Pair number `index`, in a namespace of its own.
    pub(crate) fn next(&mut self, index: usize) -> Pair {
        let salt = format!("pair {index}");
        if self.below(8) == 0 {
            return self.completions(&salt);
        }
        let request = |messages: &[Value]| request("messages", json!(messages), &salt);
        let mut messages = self.conversation();
        let mut first = request(&messages);
        let edit = self.edit(&mut messages);
        let mut second = request(&messages);
        match edit {
            "style" => second["chat_template_kwargs"] = json!({"style": "plaid"}),
            "salt" => second["cache_salt"] = json!(format!("other {index}")),
            "not cached" => first["cache_prompt"] = json!(false),
            "no cache" => second["cache_prompt"] = json!(false),
            "null" => second["cache_prompt"] = Value::Null,
            _ => {}
        }
        // Anthropic's messages cannot be empty but for the system prompt.
        let anthropic = messages.len() > 1 && self.below(3) == 0;
        Pair { first, second, edit, anthropic }
    }

    fn completions(&mut self, salt: &str) -> Pair {
        let request = |prompt| request("prompt", prompt, salt);
        let (text, tail) = (self.text(), self.text());
        let first = request(json!(text));
        let (second, edit) = match self.below(5) {
            0 => (request(json!(text)), "same text"),
            1 => (request(json!(format!("{text}{tail}"))), "longer text"),
            2 => (request(json!(tail)), "other text"),
            3 => (request(json!([[1, 2, self.below(200)]])), "ids"),
            _ => {
                let mut second = request(json!(text));
                (second["echo"], second["logprobs"]) = (json!(true), json!(1));
                (second, "rows")
            }
        };
        Pair { first, second, edit, anthropic: false }
    }

    /// Changes the conversation in one place, or says what else of the request is to change.
    fn edit(&mut self, messages: &mut Vec<Value>) -> &'static str {
        let at = self.below(messages.len());
        let other = self.below(messages.len());
        match self.below(16) {
            0 => "same",
            1 => {
                messages.push(self.message("assistant"));
                messages.push(self.message("user"));
                "appended"
            }
            2 => {
                messages.insert(at, self.message("user"));
                "inserted"
            }
            3 if messages.len() > 1 => {
                messages.remove(at);
                "removed"
            }
            4 => {
                messages.swap(at, other);
                "swapped"
            }
            5 => {
                messages[at]["role"] = json!(["user", "assistant", "system"][self.below(3)]);
                "role"
            }
            6 => "style",
            7 => "salt",
            8 => "not cached",
            9 => "no cache",
            10 => "null",
            11 => {
                messages[at] = self.message("user");
                "replaced"
            }
            _ => self.edit_text(&mut messages[at]),
        }
    }

    /// Changes some characters of a message.
    fn edit_text(&mut self, message: &mut Value) -> &'static str {
        let content = match &mut message["content"] {
            Value::Array(parts) => &mut parts[0]["text"],
            content => content,
        };
        let mut characters: Vec<char> = content.as_str().unwrap_or_default().chars().collect();
        let at = self.below(characters.len().max(1)).min(characters.len());
        let edit = match self.below(4) {
            0 => {
                characters.insert(at, [' ', '\n', '\u{a0}'][self.below(3)]);
                "white space"
            }
            1 => {
                characters.truncate(at);
                "cut"
            }
            2 => {
                characters.insert(at, ['é', '9', '😀', 'x'][self.below(4)]);
                "character"
            }
            _ => {
                characters.extend(" later".chars());
                "end"
            }
        };
        *content = Value::from(characters.into_iter().collect::<String>());
        edit
    }
}

/// A request for one token, which is drawn but never computed, so that the cache is left with the
/// prompt alone.
fn request(field: &str, prompt: Value, salt: &str) -> Value {
    let mut request = json!({"max_tokens": 1, "temperature": 0, "cache_salt": salt});
    request[field] = prompt;
    request
}
