//! What is asked of an answer, and the way from there to a constraint.

use crate::constraint::Constraint;
use crate::error::GrammarError;
use crate::pattern::{self, PatternError};
use crate::schema::{self, UNSATISFIABLE};
use crate::vocabulary::Vocabulary;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::{Matcher, TokenParser};
use serde_json::{Value, json};
use std::fmt::Write;

/// Most choices, and most tools.
const CHOICES_MAX: usize = 1024;
/// Most text of all choices, or of the texts around calls, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// A grammar is compiled on a stack of its own, in bytes: schemas that refer to each other in a
/// chain are followed by recursion.
const STACK_BYTES: usize = 256 << 20;

/// What an answer may be.
#[derive(Debug, Clone, PartialEq)]
pub enum Grammar {
    /// Any JSON object.
    JsonObject,
    /// A JSON value that satisfies a JSON schema (drafts 4 to 2020-12; the last, where it says
    /// nothing).
    JsonSchema(Value),
    /// A text that matches a regular expression from its beginning to its end, in the notation of
    /// JSON Schema's patterns, which is ECMAScript's.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Calls of tools: `before`, a call, and where `parallel` any number of further calls, each
    /// after `between`, then `after`. In all texts here, what is the text of a special token
    /// stands for that token.
    Calls {
        /// Text before the first call.
        before: String,
        /// Text between two calls.
        between: String,
        /// Text after the last call.
        after: String,
        /// The tools that may be called: at least one.
        tools: Vec<Tool>,
        /// Whether there may be more than one call.
        parallel: bool,
    },
}

/// How a call of one tool is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Text before the arguments, such as `{"name": "weather", "arguments": `.
    pub prefix: String,
    /// JSON schema of the arguments.
    pub schema: Value,
    /// Text after the arguments.
    pub suffix: String,
}

impl Grammar {
    /// The constraint of an answer that has not begun.
    ///
    /// # Errors
    ///
    /// Where the grammar is not well formed, beyond a limit, or asks what is not supported.
    pub fn compile(&self, vocabulary: &Vocabulary) -> Result<Constraint, GrammarError> {
        let grammars = match self {
            Grammar::JsonObject => vec![json_grammar("json", &json!({"type": "object"}))?],
            Grammar::JsonSchema(schema) => vec![json_grammar("json", schema)?],
            Grammar::Regex(pattern) => vec![lark(format!("start: /{}/", regex(pattern)?))],
            Grammar::Choice(texts) => vec![lark(choice(texts)?)],
            Grammar::Calls { before, between, after, tools, parallel } => {
                let around = [before, between, after].map(|text| literal(text, vocabulary));
                calls(&around, tools, *parallel, vocabulary)?
            }
        };
        let parser = compiled(vocabulary, TopLevelGrammar { grammars, max_tokens: None })?;
        Ok(Constraint::new(vocabulary.clone(), Matcher::new(Ok(parser)), self.beginnings()))
    }

    /// What calls begin with, up to the arguments of the first one.
    fn beginnings(&self) -> Vec<Vec<u8>> {
        let Grammar::Calls { before, tools, .. } = self else { return Vec::new() };
        tools.iter().map(|tool| format!("{before}{}", tool.prefix).into_bytes()).collect()
    }
}

/// Compiles, on a thread that has stack enough.
fn compiled(
    vocabulary: &Vocabulary,
    grammar: TopLevelGrammar,
) -> Result<TokenParser, GrammarError> {
    let compile = || vocabulary.factory().create_parser(grammar).map_err(|e| format!("{e:#}"));
    let parser = std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("grammar".into()).stack_size(STACK_BYTES);
        let thread = builder.spawn_scoped(scope, compile).map_err(|error| error.to_string())?;
        thread.join().unwrap_or_else(|_| Err("it fails".to_owned()))
    });
    parser.map_err(|message| refusal(&message))
}

/// What `llguidance` says against a grammar. Most of it is checked before, with the place.
fn refusal(message: &str) -> GrammarError {
    let has = |part: &str| message.contains(part);
    if has("nsatisfiable") && has("while processing") {
        return GrammarError::unsupported("a `$ref` to what nothing satisfies", "#");
    }
    if has("nsatisfiable") {
        return GrammarError::invalid(UNSATISFIABLE, "#");
    }
    let complex = ["too large", "too many", "fuel", "limit", "Unable to determine", "too big"];
    if complex.iter().any(|part| has(part)) {
        return GrammarError::TooLarge { what: "what the grammar compiles to", limit: 200_000 };
    }
    let line = message.lines().next().unwrap_or_default();
    GrammarError::unsupported(format!("this combination ({line})"), "#")
}

fn json_grammar(name: &str, schema: &Value) -> Result<GrammarWithLexer, GrammarError> {
    let json_schema = Some(schema::prepare(schema)?);
    Ok(GrammarWithLexer { name: Some(name.to_owned()), json_schema, lark_grammar: None })
}

fn lark(text: String) -> GrammarWithLexer {
    GrammarWithLexer { name: Some("start".to_owned()), json_schema: None, lark_grammar: Some(text) }
}

fn regex(pattern: &str) -> Result<String, GrammarError> {
    pattern::translate(pattern).map_err(|error| match error {
        PatternError::Unsupported(what) => GrammarError::unsupported(what, "#"),
        PatternError::Invalid(message) => GrammarError::invalid(message, "#"),
        PatternError::TooLarge(what, limit) => GrammarError::TooLarge { what, limit },
    })
}

fn choice(texts: &[String]) -> Result<String, GrammarError> {
    check_size(texts.len(), texts.iter())?;
    let quoted: Vec<String> =
        texts.iter().filter(|text| !text.is_empty()).map(|text| quoted(text)).collect();
    let may_be_empty = quoted.len() < texts.len();
    match (quoted.is_empty(), may_be_empty) {
        (true, false) => Err(GrammarError::invalid("there is nothing to choose", "#")),
        (true, true) => Ok("start: \"\"".to_owned()),
        (false, false) => Ok(format!("start: CHOICE\nCHOICE: {}", quoted.join(" | "))),
        (false, true) => Ok(format!("start: CHOICE?\nCHOICE: {}", quoted.join(" | "))),
    }
}

fn check_size<'a>(
    count: usize,
    texts: impl Iterator<Item = &'a String>,
) -> Result<(), GrammarError> {
    if count > CHOICES_MAX {
        return Err(GrammarError::TooLarge { what: "the number of choices", limit: CHOICES_MAX });
    }
    if texts.map(String::len).sum::<usize>() > TEXT_BYTES_MAX {
        let limit = TEXT_BYTES_MAX;
        return Err(GrammarError::TooLarge { what: "the text of a grammar", limit });
    }
    Ok(())
}

/// The grammars of calls: one in Lark for what is around the arguments, and one for each tool's.
fn calls(
    [before, between, after]: &[String; 3],
    tools: &[Tool],
    parallel: bool,
    vocabulary: &Vocabulary,
) -> Result<Vec<GrammarWithLexer>, GrammarError> {
    let texts = tools.iter().flat_map(|tool| [&tool.prefix, &tool.suffix]);
    check_size(tools.len(), texts.chain([before, between, after]))?;
    if tools.is_empty() {
        return Err(GrammarError::invalid("there is no tool to call", "#"));
    }
    let more = if parallel { format!("({between} call)*") } else { String::new() };
    let mut text = format!("start: {before} call {more} {after}\ncall: ");
    let mut grammars = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        let [prefix, suffix] = [&tool.prefix, &tool.suffix].map(|text| literal(text, vocabulary));
        let bar = if index == 0 { "" } else { " | " };
        write!(text, "{bar}{prefix} @tool{index} {suffix}").expect("a string");
        grammars.push(json_grammar(&format!("tool{index}"), &tool.schema)?);
    }
    grammars.insert(0, lark(text));
    Ok(grammars)
}

/// A text in Lark's notation, with special tokens by id.
fn literal(text: &str, vocabulary: &Vocabulary) -> String {
    let mut out = String::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        if let Some((id, after)) = vocabulary.special(rest.as_bytes()) {
            let text = std::mem::take(&mut plain);
            write!(out, "{} <[{id}]> ", quoted(&text)).expect("a string");
            rest = std::str::from_utf8(after).unwrap_or_default();
        } else {
            plain.push(char);
            rest = &rest[char.len_utf8()..];
        }
    }
    out.push_str(&quoted(&plain));
    out
}

/// A text as a string of Lark's, which is JSON's but for one character more that is escaped.
fn quoted(text: &str) -> String {
    json!(text).to_string().replace('\u{7F}', "\\u007f")
}
