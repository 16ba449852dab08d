//! Random conversations, and edits of them.

use serde_json::{Value, json};

use crate::random::{Random, WORDS};
use crate::tools;

/// Every way in which the second request of a pair is made of the first. They take turns.
pub(crate) const EDITS: [&str; 34] = [
    "same",
    "appended",
    "inserted",
    "removed",
    "messages swapped",
    "role",
    "replaced",
    "system added",
    "style",
    "salt",
    "not cached",
    "no cache",
    "null",
    "second",
    "day",
    "cut",
    "character",
    "end",
    "white space in system",
    "white space in user",
    "white space in assistant",
    "white space in tools",
    "tool added",
    "tool removed",
    "tools swapped",
    "tool described",
    "tool named",
    "tool keys",
    "same text",
    "longer text",
    "other text",
    "white space in text",
    "ids",
    "rows",
];

/// The first of [`EDITS`] that is of text completions.
const COMPLETIONS_FROM: usize = 28;

/// How the requests are given offline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Given {
    Openai,
    Anthropic,
    Text,
}

/// Two requests, as a server takes them.
pub(crate) struct Pair {
    pub(crate) first: Value,
    pub(crate) second: Value,
    /// How the second was made of the first.
    pub(crate) edit: &'static str,
    pub(crate) given: Given,
}

/// Where the pairs come from: the same ones each time.
pub(crate) struct Pairs {
    random: Random,
}

impl Pairs {
    pub(crate) fn new(seed: u64) -> Pairs {
        Pairs { random: Random::new(seed) }
    }

    /// Pair number `index`, in a namespace of its own.
    pub(crate) fn next(&mut self, index: usize) -> Pair {
        let salt = format!("pair {index}");
        let number = index % EDITS.len();
        let edit = EDITS[number];
        if number >= COMPLETIONS_FROM {
            return self.completions(edit, &salt);
        }
        let mut messages = self.conversation(edit);
        let least = if edit == "tools swapped" { 2 } else { 1 };
        let some = edit.contains("tool") || self.random.below(3) == 0;
        let mut tools = if some { tools::random(&mut self.random, least) } else { Vec::new() };
        let request = |messages: &[Value], tools: &[Value]| {
            let mut request = request("messages", json!(messages), &salt);
            if !tools.is_empty() {
                request["tools"] = json!(tools);
                request["tool_choice"] = json!("none");
            }
            request
        };
        let mut first = request(&messages, &tools);
        match edit.contains("tool") {
            true => tools::edit(&mut self.random, &mut tools, edit),
            false => self.edit(&mut messages, edit),
        }
        let mut second = request(&messages, &tools);
        match edit {
            "style" => second["chat_template_kwargs"] = json!({"style": "plaid"}),
            "salt" => second["cache_salt"] = json!(format!("other {index}")),
            "not cached" => first["cache_prompt"] = json!(false),
            "no cache" => second["cache_prompt"] = json!(false),
            "null" => second["cache_prompt"] = Value::Null,
            _ => {}
        }
        let given = [Given::Openai, Given::Openai, Given::Anthropic][self.random.below(3)];
        Pair { first, second, edit, given }
    }

    fn text(&mut self) -> String {
        let words = 1 + self.random.below(12);
        let word = |_| WORDS[self.random.below(WORDS.len())];
        (0..words).map(word).collect::<Vec<_>>().join(" ")
    }

    fn message(&mut self, role: &str) -> Value {
        let text = self.text();
        match self.random.below(4) {
            0 => json!({"role": role, "content": [
                {"type": "text", "text": text}, {"type": "text", "text": self.text()}]}),
            _ => json!({"role": role, "content": text}),
        }
    }

    /// A conversation that has what `edit` changes.
    fn conversation(&mut self, edit: &str) -> Vec<Value> {
        let mut messages = Vec::new();
        if edit == "second" || edit == "day" {
            let (before, after) = (self.text(), self.text());
            let text = format!("{before}\nCurrent time: 2026-11-28 10:00:01\n{after}");
            messages.push(json!({"role": "system", "content": text}));
        } else if edit == "white space in system"
            || edit != "system added" && self.random.below(4) > 0
        {
            messages.push(self.message("system"));
        }
        let turns = if edit == "white space in assistant" { 2 } else { 1 };
        for turn in 0..turns + self.random.below(5) {
            messages.push(self.message(["user", "assistant"][turn % 2]));
        }
        if edit == "messages swapped" || edit == "removed" {
            messages.push(self.message("user"));
        }
        messages
    }

    fn completions(&mut self, edit: &'static str, salt: &str) -> Pair {
        let request = |prompt| request("prompt", prompt, salt);
        let (text, tail) = (self.text(), self.text());
        let first = request(json!(text));
        let second = match edit {
            "same text" => request(json!(text)),
            "longer text" => request(json!(format!("{text}{tail}"))),
            "other text" => request(json!(tail)),
            "white space in text" => request(json!(self.spaced(&text))),
            "ids" => request(json!([[1, 2, self.random.below(200)]])),
            _ => {
                let mut second = request(json!(text));
                (second["echo"], second["logprobs"]) = (json!(true), json!(1));
                second
            }
        };
        let is_text = edit != "ids" && edit != "rows" && self.random.below(2) == 0;
        let given = if is_text { Given::Text } else { Given::Openai };
        Pair { first, second, edit, given }
    }

    /// Changes the conversation in one place.
    fn edit(&mut self, messages: &mut Vec<Value>, edit: &str) {
        let at = self.random.below(messages.len());
        match edit {
            "appended" => {
                messages.push(self.message("assistant"));
                messages.push(self.message("user"));
            }
            "inserted" => messages.insert(at, self.message("user")),
            "removed" => drop(messages.remove(at)),
            "messages swapped" => {
                let other = (at + 1 + self.random.below(messages.len() - 1)) % messages.len();
                messages.swap(at, other);
            }
            "role" => {
                let roles = ["user", "assistant", "system"];
                messages[at]["role"] = json!(roles[self.random.below(roles.len())]);
            }
            "replaced" => messages[at] = self.message("user"),
            "system added" => messages.insert(0, self.message("system")),
            "second" => replace(&mut messages[0], "10:00:01", "10:00:02"),
            "day" => replace(&mut messages[0], "2026-11-28", "2026-11-29"),
            _ => {
                let role = edit.strip_prefix("white space in ");
                let said = |message: &Value| role.is_none_or(|role| message["role"] == role);
                let from = at..messages.len();
                let place = from.chain(0..at).find(|&place| said(&messages[place]));
                self.edit_text(&mut messages[place.unwrap_or(at)], edit);
            }
        }
    }

    /// Changes some characters of a message.
    fn edit_text(&mut self, message: &mut Value, edit: &str) {
        let content = match &mut message["content"] {
            Value::Array(parts) => &mut parts[0]["text"],
            content => content,
        };
        let text = content.as_str().unwrap_or_default().to_owned();
        let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
        let at = places[self.random.below(places.len())];
        *content = Value::from(match edit {
            "cut" => text[..at].to_owned(),
            "character" => {
                let character = ['é', '9', '😀', 'x'][self.random.below(4)];
                format!("{}{character}{}", &text[..at], &text[at..])
            }
            "end" => format!("{text} later"),
            edit if edit.starts_with("white space") => self.spaced(&text),
            _ => text,
        });
    }

    /// The text with white space somewhere.
    fn spaced(&mut self, text: &str) -> String {
        let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
        let at = places[self.random.below(places.len())];
        let space = [' ', '\n', '\u{a0}'][self.random.below(3)];
        format!("{}{space}{}", &text[..at], &text[at..])
    }
}

impl Pair {
    /// A request's file: its name's ending, and what is in it. Some pairs are given as Anthropic's
    /// clients would send them, and some as plain texts, which must come to the same prompt.
    pub(crate) fn offline(&self, request: &Value) -> (&'static str, String) {
        match self.given {
            Given::Openai => ("json", request.to_string()),
            Given::Anthropic => ("json", anthropic(request.clone()).to_string()),
            Given::Text => ("txt", request["prompt"].as_str().unwrap_or_default().to_owned()),
        }
    }
}

/// The same request as Anthropic's clients send it, where they can.
fn anthropic(mut request: Value) -> Value {
    let ephemeral = json!({"type": "ephemeral"});
    let said = request["messages"].as_array().map_or(0, Vec::len);
    // Anthropic's messages cannot be empty but for the system prompt.
    if said > 1 && request["messages"][0]["role"] == "system" {
        let messages = request["messages"].as_array_mut().expect("messages");
        let system = messages.remove(0)["content"].take();
        request["system"] = match system {
            Value::String(text) if text.len() % 2 == 0 => {
                json!([{"type": "text", "text": text, "cache_control": ephemeral}])
            }
            other => other,
        };
    }
    for tool in request["tools"].as_array_mut().into_iter().flatten() {
        let function = tool["function"].take();
        let mut own = json!({"name": function["name"]});
        own["input_schema"] = function["parameters"].clone();
        own["description"] = function["description"].clone();
        own["cache_control"] = ephemeral.clone();
        *tool = own;
    }
    if !request["tool_choice"].is_null() {
        request["tool_choice"] = json!({"type": "none"});
    }
    request
}

fn replace(message: &mut Value, from: &str, to: &str) {
    let text = message["content"].as_str().unwrap_or_default();
    message["content"] = Value::from(text.replace(from, to));
}

/// A request for one token, which is drawn but never computed, so that the cache is left with the
/// prompt alone.
fn request(field: &str, prompt: Value, salt: &str) -> Value {
    let mut request = json!({"max_tokens": 1, "temperature": 0, "cache_salt": salt});
    request[field] = prompt;
    request
}
