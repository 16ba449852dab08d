//! Chat templates: conversations to text, keeping what came from which message.

mod clock;
mod environment;
mod error;
mod files;
mod guard;
mod json;
mod messages;
mod reasoning;
mod spans;

pub use error::ChatError;
pub use reasoning::REASONING_EFFORTS;

use crate::gguf::Metadata;
use crate::tokenizer::Tokenizer;
use clock::Moment;
use environment::Raised;
use messages::{ContentForm, EmptyForNull, Forms, Piece};
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value as JinjaValue};
use reasoning::Reasoning;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// Longest template; the longest known ones have some 20 KB.
pub const TEMPLATE_BYTES_MAX: usize = 256 << 10;
/// Longest text that a template may make: as much as is tokenized.
const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// Name of the template in its environment, and in messages about it.
const NAME: &str = "chat_template";
/// Stack of the thread that renders. A template can nest lists as deep as its fuel lasts, and
/// they are written and dropped recursively; only what is used of it takes memory.
const STACK_BYTES: usize = 512 << 20;

/// A model's chat template, ready to render.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    forms: Forms,
    uses_tools: bool,
    reasoning: Reasoning,
    bos: String,
    eos: String,
}

/// A conversation to render.
#[derive(Debug, Clone, Copy)]
pub struct ChatRequest<'a> {
    /// The messages, as OpenAI's clients send them.
    pub messages: &'a [Value],
    /// The tools, if there are any.
    pub tools: Option<&'a Value>,
    /// Whether the text ends with the beginning of an answer.
    pub add_generation_prompt: bool,
    /// Pins the date that the template sees: `2026-11-29` or `2026-11-29T10:00:00`; `None` is
    /// this machine's clock.
    pub date: Option<&'a str>,
    /// Further variables of the template (`chat_template_kwargs`).
    pub variables: &'a Map<String, Value>,
}

/// A rendered conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The text, special tokens written out. Whether it begins with BOS is the template's
    /// choice: encode it without adding one.
    pub text: String,
    /// What came from the messages, in order and without overlap; what no span covers, the
    /// template added.
    pub spans: Vec<Span>,
}

/// A part of the rendered text that is part of a message's own content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Bytes of the rendered text.
    pub range: Range<usize>,
    /// Index of the message.
    pub message: usize,
    /// The message's role.
    pub role: String,
    /// Where in the message's content the part begins, in Unicode scalars. Of a list of parts,
    /// the content is the texts one after the other.
    pub start_char: usize,
}

impl ChatTemplate {
    /// Compiles a template; `bos` and `eos` are the texts of those tokens.
    ///
    /// # Errors
    /// [`ChatError::SourceTooLong`] over [`TEMPLATE_BYTES_MAX`], [`ChatError::Syntax`] for text
    /// that is no valid Jinja.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<ChatTemplate, ChatError> {
        if source.len() > TEMPLATE_BYTES_MAX {
            let bytes = source.len();
            return Err(ChatError::SourceTooLong { bytes, limit: TEMPLATE_BYTES_MAX });
        }
        let environment = environment::environment(source, NAME)
            .map_err(|error| ChatError::Syntax(error.to_string()))?;
        let either = ContentForm::Either;
        let forms = Forms { content: either, result: either, null: EmptyForNull::default() };
        let (bos, eos) = (bos.to_owned(), eos.to_owned());
        let mut template = ChatTemplate {
            environment,
            source: source.to_owned(),
            forms,
            uses_tools: false,
            reasoning: Reasoning::default(),
            bos,
            eos,
        };
        on_large_stack(|| template.find_out())?;
        Ok(template)
    }

    /// The template of a GGUF file, `None` when it has none. `tokenizer` tells BOS and EOS.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`ChatError::File`].
    pub fn from_gguf(
        metadata: &Metadata,
        tokenizer: &Tokenizer,
    ) -> Result<Option<ChatTemplate>, ChatError> {
        ChatTemplate::of(files::in_gguf(metadata)?, tokenizer)
    }

    /// The template of a directory of Hugging Face files (`chat_template.jinja`,
    /// `chat_template.json` or `tokenizer_config.json`), `None` when it has none.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`ChatError::File`].
    pub fn from_directory(
        directory: &Path,
        tokenizer: &Tokenizer,
    ) -> Result<Option<ChatTemplate>, ChatError> {
        ChatTemplate::of(files::in_directory(directory)?, tokenizer)
    }

    fn of(
        source: Option<String>,
        tokenizer: &Tokenizer,
    ) -> Result<Option<ChatTemplate>, ChatError> {
        let text = |id: Option<u32>| id.map(|id| tokenizer.decode(&[id], true)).unwrap_or_default();
        let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos()));
        source.map(|source| ChatTemplate::new(&source, &bos, &eos)).transpose()
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Another template of the same model: with the same tokens that begin and end a text.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_source(&self, source: &str) -> Result<ChatTemplate, ChatError> {
        ChatTemplate::new(source, &self.bos, &self.eos)
    }

    /// Whether declaring tools can change what it renders.
    pub fn uses_tools(&self) -> bool {
        self.uses_tools
    }

    /// The variables ([`ChatRequest::variables`]) by which this template's model reasons as much
    /// as one of [`REASONING_EFFORTS`] says; none for other words, and where it cannot be told.
    ///
    /// Templates read one of three things: a switch (`enable_thinking`, `thinking`, `reasoning`),
    /// which is off for `none` and `minimal`; a word (`reasoning_effort`), which is the nearest
    /// one that the template takes; or nothing.
    pub fn reasoning_variables(&self, effort: &str) -> Map<String, Value> {
        self.reasoning.variables(effort)
    }

    /// Finds out what the template takes. One that exceeds its limits on the shortest conversation
    /// is not tried again: it will fail when it is used, and opening it must not take long.
    fn find_out(&mut self) {
        self.uses_tools = self.names_tools();
        let messages = [json!({"role": "user", "content": "?"})];
        if let Err(ChatError::Limit(_)) = self.try_out(&messages, None, true) {
            return;
        }
        self.reasoning = Reasoning::find(&self.source, |name, value| {
            let variables = Map::from_iter([(name.to_owned(), value)]);
            self.try_out_with(&messages, None, true, &variables).ok()
        });
        self.forms.content =
            self.find_form(|content| vec![json!({"role": "user", "content": content})]);
        self.forms.null = self.find_null();
        self.forms.result = match self.find_form(with_result) {
            ContentForm::Parts => ContentForm::Parts,
            _ => self.forms.content,
        };
        self.uses_tools |= self.find_use_of_tools();
    }

    /// Finds out which form of content comes through, by rendering a message in both.
    fn find_form(&self, messages: impl Fn(Value) -> Vec<Value>) -> ContentForm {
        let word = "REFRAINPROBE";
        let render =
            |content: Value| self.try_out(&messages(content), None, true).unwrap_or_default();
        let from_text = render(Value::from(word));
        let from_parts = render(json!([{"type": "text", "text": word}]));
        let has_list = from_parts.contains("'text'") || from_parts.contains("\"text\"");
        match (from_text.contains(word), from_parts.contains(word)) {
            (true, true) if !has_list => ContentForm::Either,
            (false, true) => ContentForm::Parts,
            _ => ContentForm::Text,
        }
    }

    /// Whether the template names `tools` without setting it first.
    fn names_tools(&self) -> bool {
        let template = self.environment.get_template(NAME);
        template.is_ok_and(|template| template.undeclared_variables(false).contains("tools"))
    }

    /// Finds out whether `tools` is read, by rendering a message with and without a tool: a
    /// template that sets a variable of that name hides it.
    fn find_use_of_tools(&self) -> bool {
        let parameters = json!({"type": "object", "properties": {}});
        let function = json!({"name": "f", "description": "f", "parameters": parameters});
        let tools = json!([{"type": "function", "function": function}]);
        let messages = [json!({"role": "user", "content": "?"})];
        let render = |tools| self.try_out(&messages, tools, true).ok();
        render(Some(&tools)) != render(None)
    }

    /// Finds out where null must become an empty text, by rendering an answer with both.
    fn find_null(&self) -> EmptyForNull {
        let needs_text = |answer: &Value, as_map: bool| {
            let with = |content: Value| {
                let mut answer = answer.clone();
                answer["content"] = content;
                self.try_out(&[json!({"role": "user", "content": "?"}), answer], None, as_map)
            };
            // Jinja writes null out as None, this one as none.
            let nones = |text: &str| text.to_ascii_lowercase().matches("none").count();
            match (with(Value::Null), with(Value::from(""))) {
                (Ok(null), Ok(empty)) => nones(&null) > nones(&empty),
                (Err(_), Ok(_)) => true,
                (_, Err(_)) => false,
            }
        };
        let calling = json!({"role": "assistant", "tool_calls": a_call()});
        EmptyForNull {
            with_calls: needs_text(&calling, true) || needs_text(&calling, false),
            without_calls: needs_text(&json!({"role": "assistant"}), true),
        }
    }

    /// Renders a conversation to find out about the template.
    fn try_out(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        parse_arguments: bool,
    ) -> Result<String, ChatError> {
        self.try_out_with(messages, tools, parse_arguments, &Map::new())
    }

    fn try_out_with(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        parse_arguments: bool,
        variables: &Map<String, Value>,
    ) -> Result<String, ChatError> {
        let request = ChatRequest {
            messages,
            tools,
            add_generation_prompt: true,
            date: Some("2026-01-01"),
            variables,
        };
        let messages = messages::prepare(messages, self.forms, parse_arguments, None)?;
        self.run(&messages, &request)
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// [`ChatError::Refused`] when the template says so, [`ChatError::Limit`] when it takes too
    /// much work or makes too much text, [`ChatError::Content`] for content that it cannot take,
    /// [`ChatError::Date`] for a date that is none, [`ChatError::Render`] when it fails.
    pub fn render(&self, request: &ChatRequest<'_>) -> Result<Rendered, ChatError> {
        on_large_stack(|| self.render_here(request))?
    }

    fn render_here(&self, request: &ChatRequest<'_>) -> Result<Rendered, ChatError> {
        let render = |parse_arguments, texts: Option<&[Cow<'_, str>]>| {
            let messages = messages::prepare(request.messages, self.forms, parse_arguments, texts)?;
            self.run(&messages, request)
        };
        // Most templates take a tool call's arguments as a map; some only as text.
        let (parse_arguments, text) = match render(true, None) {
            Err(ChatError::Render(problem)) => {
                (false, render(false, None).map_err(|_| ChatError::Render(problem))?)
            }
            other => (true, other?),
        };
        let pieces = messages::pieces(request.messages);
        let found = spans::find(&text, &pieces, |texts| render(parse_arguments, Some(texts)).ok());
        let spans = found.into_iter().map(|found| span(found, &pieces, request.messages));
        let spans = spans.collect();
        Ok(Rendered { text, spans })
    }

    fn run(&self, messages: &[Value], request: &ChatRequest<'_>) -> Result<String, ChatError> {
        let moment = Moment::new(request.date)?;
        let mut variables: BTreeMap<String, JinjaValue> = request
            .variables
            .iter()
            .map(|(name, value)| (name.clone(), JinjaValue::from(Serde(value))))
            .collect();
        // transformers defines these as none where the caller gives nothing.
        variables.entry("documents".to_owned()).or_insert(JinjaValue::from(()));
        let tools = request.tools.filter(|tools| !tools.is_null());
        let own = [
            ("messages", JinjaValue::from(Serde(messages))),
            ("tools", JinjaValue::from(Serde(tools))),
            ("add_generation_prompt", JinjaValue::from(request.add_generation_prompt)),
            ("bos_token", JinjaValue::from(self.bos.as_str())),
            ("eos_token", JinjaValue::from(self.eos.as_str())),
            (
                "strftime_now",
                JinjaValue::from_function(move |format: String| {
                    moment
                        .format(&format)
                        .map_err(|problem| Error::new(ErrorKind::InvalidOperation, problem))
                }),
            ),
        ];
        variables.extend(own.map(|(name, value)| (name.to_owned(), value)));
        let variables = JinjaValue::from(variables);
        let text = guard::render(&self.environment, NAME, variables).map_err(failure)?;
        if text.len() > OUTPUT_BYTES_MAX {
            return Err(ChatError::Limit("text"));
        }
        Ok(text)
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("forms", &self.forms).finish_non_exhaustive()
    }
}

/// The calls of a message with one call. Some templates want an id of nine characters.
fn a_call() -> Value {
    let function = json!({"name": "f", "arguments": "{}"});
    json!([{"id": "callprobe", "type": "function", "function": function}])
}

/// A conversation in which a tool has returned this.
fn with_result(content: Value) -> Vec<Value> {
    vec![
        json!({"role": "user", "content": "?"}),
        json!({"role": "assistant", "content": "!", "tool_calls": a_call()}),
        json!({"role": "tool", "tool_call_id": "callprobe", "name": "f", "content": content}),
    ]
}

fn span(found: spans::Found, pieces: &[Piece], messages: &[Value]) -> Span {
    let piece = &pieces[found.piece];
    let role = messages[piece.message]["role"].as_str().unwrap_or_default().to_owned();
    let start_char = piece.start_char + found.start_char;
    Span { range: found.range, message: piece.message, role, start_char }
}

/// Runs on a thread of its own, with [`STACK_BYTES`].
fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, ChatError> {
    let failed = |problem: String| ChatError::Render(problem);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("template".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|error| failed(format!("no thread can be started: {error}")))?;
        thread.join().map_err(|_| failed("it was given up".to_owned()))
    })
}

/// What a template's failure means.
fn failure(error: Error) -> ChatError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(current) = cause {
        if let Some(raised) = current.downcast_ref::<Raised>() {
            return ChatError::Refused(raised.0.clone());
        }
        let kind = current.downcast_ref::<Error>().map(Error::kind);
        if kind == Some(ErrorKind::OutOfFuel) {
            return ChatError::Limit("work");
        }
        cause = current.source();
    }
    ChatError::Render(error.to_string())
}
