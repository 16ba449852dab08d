//! A prompt as a client's request makes it, from a file.

use cache::Namespace;
use package::PromptMap;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::anthropic;
use crate::conversation::{PromptMaker, check_messages};
use crate::effort::effort;
use crate::error::{PromptError, check_length, shown};
use crate::rendering::Rendering;
use crate::responses::{from_response_input, from_response_tools};
use crate::text_prompt::TextPrompt;
use crate::tools::{ToolChoice, check_tools};

/// A longer file is refused, as the server refuses a longer body.
pub const PROMPT_BYTES_MAX: usize = 16 << 20;

/// What a file was read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// The body of a chat request as OpenAI's clients send it.
    OpenaiChat,
    /// The body of a request for a response as OpenAI's clients send it.
    OpenaiResponse,
    /// The body of a completion request as OpenAI's clients send it.
    OpenaiCompletion,
    /// The body of a message request as Anthropic's clients send it.
    AnthropicMessages,
    /// No request: the text is the prompt.
    Text,
}

/// A request's prompt, and what of the request decides what it may reuse.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// What it is called in verdicts: `compared_with`.
    pub name: String,
    /// What it was read as.
    pub shape: Shape,
    /// Its token ids; at least one.
    pub tokens: Vec<u32>,
    /// Which message each token came from; only conversations have one.
    pub map: Option<PromptMap>,
    /// Whose prefixes it may reuse (`cache_salt`).
    pub namespace: Namespace,
    /// `false`: it neither reads nor feeds the cache (`cache_prompt`).
    pub use_cache: bool,
    /// The request's body, as it came; nothing of a plain text.
    pub body: Option<Map<String, Value>>,
    /// Logits of all its rows are wanted (`echo` with `logprobs`), which reuse does not have.
    pub wants_rows: bool,
}

impl Prompt {
    /// Makes the prompt of the file `name` with these contents: the body of a request, as OpenAI's
    /// or Anthropic's clients send it, or else a plain text. A file that is called `.json` must be
    /// a body. A body with `system`, with blocks that only Anthropic has, or with tools that have
    /// an `input_schema` is Anthropic's; its system prompt becomes message 0, and each result of a
    /// tool a message of its own.
    ///
    /// # Errors
    /// [`PromptError`] that names what cannot be read, for an empty prompt, and for one that leaves
    /// no room for an answer in the maker's context.
    pub fn read(name: &str, bytes: &[u8], maker: PromptMaker<'_>) -> Result<Prompt, PromptError> {
        if bytes.len() > PROMPT_BYTES_MAX {
            let message = format!("it is longer than {PROMPT_BYTES_MAX} bytes");
            return Err(PromptError::new("", message));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|error| PromptError::new("", format!("it is not UTF-8: {error}")))?;
        // Some editors put a mark before a text; a request begins behind it.
        let unmarked = text.strip_prefix('\u{feff}').unwrap_or(text);
        let prompt = match body(name, unmarked)? {
            Some(body) => {
                let prompt = Prompt::of_body(name, body.clone(), maker)?;
                Prompt { body: Some(body), ..prompt }
            }
            None => Prompt::of_text(name, text.to_owned(), maker)?,
        };
        prompt.not_empty()
    }

    /// Makes the prompt of a request's body, or of a text that is the prompt itself.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn of_value(
        name: &str,
        value: Value,
        maker: PromptMaker<'_>,
    ) -> Result<Prompt, PromptError> {
        let prompt = match value {
            Value::Object(body) => match problem(&body) {
                None => Prompt::of_body(name, body, maker)?,
                Some(problem) => return Err(PromptError::new("", problem)),
            },
            Value::String(text) => Prompt::of_text(name, text, maker)?,
            other => {
                let wanted = "the body of a request, or a text";
                return Err(PromptError::new(
                    "",
                    format!("it is {}, and not {wanted}", shown(&other)),
                ));
            }
        };
        prompt.not_empty()
    }

    fn of_text(name: &str, text: String, maker: PromptMaker<'_>) -> Result<Prompt, PromptError> {
        let tokens = TextPrompt::Text(text).encode(maker)?;
        fits(&tokens, 1, maker, "")?;
        Ok(Prompt::plain(name, Shape::Text, tokens))
    }

    fn not_empty(self) -> Result<Prompt, PromptError> {
        match self.tokens.is_empty() {
            true => Err(PromptError::new("", "the prompt is empty")),
            false => Ok(self),
        }
    }

    /// Its messages as they are rendered with the template's variables that `other` has; `None`
    /// where these are its own.
    pub(crate) fn rendered_as(&self, other: &Prompt, maker: PromptMaker<'_>) -> Option<Rendering> {
        const FIELD: &str = "chat_template_kwargs";
        let mut body = self.body.clone().filter(|_| self.map.is_some())?;
        let variables = |body: &Map<String, Value>| body.get(FIELD).cloned().unwrap_or_default();
        let (own, others) = (variables(&body), variables(other.body.as_ref()?));
        if own == others {
            return None;
        }
        body.insert(FIELD.to_owned(), others);
        let Prompt { tokens, map, .. } = Prompt::of_body(&self.name, body, maker).ok()?;
        map.map(|map| Rendering { tokens, map })
    }

    fn plain(name: &str, shape: Shape, tokens: Vec<u32>) -> Prompt {
        Prompt {
            name: name.to_owned(),
            shape,
            tokens,
            map: None,
            namespace: Namespace::default(),
            use_cache: true,
            body: None,
            wants_rows: false,
        }
    }

    fn of_body(
        name: &str,
        mut body: Map<String, Value>,
        maker: PromptMaker<'_>,
    ) -> Result<Prompt, PromptError> {
        let is_chat = body.contains_key("messages");
        // As the server does: a field that is null counts as absent.
        body.retain(|_, value| !value.is_null());
        let salt = match body.remove("cache_salt") {
            None => None,
            Some(Value::String(salt)) => Some(salt),
            Some(other) => return Err(PromptError::wrong_type("cache_salt", "a string", &other)),
        };
        let use_cache = boolean(&mut body, "cache_prompt")?.unwrap_or(true);
        let has = |name: &str| body.contains_key(name);
        let prompt = match (has("messages"), has("prompt"), has("input")) {
            (true, ..) => chat(name, body, maker)?,
            (false, true, _) => completion(name, body, maker)?,
            (false, false, true) => response(name, body, maker)?,
            // One whose messages are null and that has no prompt lacks its messages.
            _ if is_chat => chat(name, body, maker)?,
            _ => completion(name, body, maker)?,
        };
        let namespace = salt.as_deref().map_or_else(Namespace::default, Namespace::from_salt);
        Ok(Prompt { namespace, use_cache, ..prompt })
    }
}

/// The request in a file; `None` where it is a text.
fn body(name: &str, text: &str) -> Result<Option<Map<String, Value>>, PromptError> {
    let must_be = name.to_ascii_lowercase().ends_with(".json");
    let problem = match serde_json::from_str(text) {
        Ok(Value::Object(body)) => match problem(&body) {
            None => return Ok(Some(body)),
            Some(problem) => problem.to_owned(),
        },
        Ok(_) => "it is not a JSON object".to_owned(),
        Err(error) => format!("it is not JSON: {error}"),
    };
    if must_be { Err(PromptError::new("", problem)) } else { Ok(None) }
}

/// Why an object is not the body of a request that is read here, if it is not.
fn problem(body: &Map<String, Value>) -> Option<&'static str> {
    let known = ["messages", "prompt", "input"].iter().any(|name| body.contains_key(*name));
    if is_embeddings(body) {
        return Some("it asks for embeddings, which come of no prompt that is kept");
    }
    (!known).then_some("it has neither 'messages' nor 'prompt' nor 'input'")
}

/// Whether it is the body of a request for embeddings, whose `input` is a text, token ids, or a
/// list of either: of a request for a response it is a text, or a list of items.
pub(crate) fn is_embeddings(body: &Map<String, Value>) -> bool {
    if ["messages", "prompt"].iter().any(|name| body.contains_key(*name)) {
        return false;
    }
    match body.get("input") {
        Some(Value::Array(items)) => items.first().is_some_and(|first| !first.is_object()),
        Some(Value::String(_)) => {
            ["encoding_format", "dimensions"].iter().any(|name| body.contains_key(*name))
        }
        _ => false,
    }
}

/// The prompt of a request for a response, whose conversation is in its body.
fn response(
    name: &str,
    mut body: Map<String, Value>,
    maker: PromptMaker<'_>,
) -> Result<Prompt, PromptError> {
    const PREVIOUS: &str = "previous_response_id";
    if body.contains_key(PREVIOUS) {
        let message = format!("'{PREVIOUS}' names a response that only its server has");
        return Err(PromptError::new(PREVIOUS, message));
    }
    let mut messages = from_response_input(&body.remove("input").unwrap_or_default())?;
    match body.remove("instructions") {
        None => {}
        Some(Value::String(text)) => messages.insert(0, json!({"role": "system", "content": text})),
        Some(other) => return Err(PromptError::wrong_type("instructions", "a string", &other)),
    }
    body.insert("messages".to_owned(), Value::from(messages));
    if let Some(Value::Array(tools)) = body.get("tools") {
        let tools = from_response_tools(tools)?;
        body.insert("tools".to_owned(), Value::from(tools));
    }
    Ok(Prompt { shape: Shape::OpenaiResponse, ..chat(name, body, maker)? })
}

fn completion(
    name: &str,
    mut body: Map<String, Value>,
    maker: PromptMaker<'_>,
) -> Result<Prompt, PromptError> {
    let prompts = TextPrompt::parse(body.remove("prompt"))?;
    let [prompt] = prompts.as_slice() else {
        let message = "'prompt' holds several prompts; give one";
        return Err(PromptError::new("prompt", message));
    };
    let echo = boolean(&mut body, "echo")?.unwrap_or(false);
    let tokens = prompt.encode(maker)?;
    // With `echo`, the prompt alone may be asked for.
    let answer = usize::from(body.get("max_tokens").is_none_or(|most| most != 0));
    fits(&tokens, answer, maker, "prompt")?;
    let wants_rows = echo && body.contains_key("logprobs");
    Ok(Prompt { wants_rows, ..Prompt::plain(name, Shape::OpenaiCompletion, tokens) })
}

fn chat(
    name: &str,
    mut body: Map<String, Value>,
    maker: PromptMaker<'_>,
) -> Result<Prompt, PromptError> {
    let shape = match anthropic::is_anthropic(&body) {
        true => Shape::AnthropicMessages,
        false => Shape::OpenaiChat,
    };
    if shape == Shape::AnthropicMessages {
        body = anthropic::from_anthropic(body)?;
    }
    let messages = match body.remove("messages") {
        Some(Value::Array(messages)) => Some(messages),
        Some(other) => return Err(PromptError::wrong_type("messages", "an array", &other)),
        None => None,
    };
    let messages = check_messages(messages)?;
    let variables = match body.remove("chat_template_kwargs") {
        None => Map::new(),
        Some(Value::Object(variables)) => variables,
        Some(other) => {
            return Err(PromptError::wrong_type("chat_template_kwargs", "an object", &other));
        }
    };
    let tools = match body.remove("tools") {
        None => None,
        Some(Value::Array(tools)) => Some(tools),
        Some(other) => return Err(PromptError::wrong_type("tools", "an array", &other)),
    };
    let tools = check_tools(tools)?;
    let choice = ToolChoice::read(&body.remove("tool_choice").unwrap_or_default())?;
    let tools = tools.filter(|_| maker.shows_tools(&choice));
    let mut all = match (maker.chat_template, effort(&body, &choice)) {
        (Some(template), Some(effort)) => template.reasoning_variables(effort),
        _ => Map::new(),
    };
    all.extend(variables);
    let (encoding, map) = maker.chat(&messages, tools.as_ref(), &all)?;
    fits(&encoding.ids, 1, maker, "messages")?;
    Ok(Prompt { map: Some(map), ..Prompt::plain(name, shape, encoding.ids) })
}

/// Checks that a prompt and an answer of at least `answer` tokens fit the context, if it is known.
fn fits(
    tokens: &[u32],
    answer: usize,
    maker: PromptMaker<'_>,
    field: &str,
) -> Result<(), PromptError> {
    let Some(context) = maker.context else { return Ok(()) };
    check_length(tokens.len(), answer, context).map_err(|error| PromptError::too_long(field, error))
}

fn boolean(body: &mut Map<String, Value>, name: &str) -> Result<Option<bool>, PromptError> {
    match body.remove(name) {
        None => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(value)),
        Some(other) => Err(PromptError::wrong_type(name, "true or false", &other)),
    }
}
