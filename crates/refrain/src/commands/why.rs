//! `refrain why`: the verdict that one prompt gets after another, without a server.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use anstyle::Style;
use cache::{Reason, TokenText, Verdict};
use doctor::{Excerpt, Hint, PROMPT_BYTES_MAX, Prompt, PromptMaker};
use package::{Package, Tokenizer};
use serde_json::json;

use crate::cli::WhyArguments;
use crate::failure::Failure;
use crate::loading;
use crate::quoted::{on_one_line, quoted};
use crate::screen::Screen;
use crate::terminal::Terminal;

/// Columns of a line's label.
const LABEL: usize = 9;
/// What the verdict leaves out.
const NOTE: &str = "of the prompts alone: a server also keeps the first one's answer";

pub(crate) fn run(arguments: &WhyArguments, terminal: &Terminal) -> Result<(), Failure> {
    let (Some(first), Some(second)) = (&arguments.prompt, &arguments.against) else {
        return Err(not_named(arguments));
    };
    if !arguments.more.is_empty() {
        return Err(not_named(arguments));
    }
    let path = loading::find(loading::model_or_default(arguments.model.as_deref()), terminal)?;
    let text = Package::open_text(&path).map_err(Failure::new)?;
    let maker = PromptMaker {
        tokenizer: &text.tokenizer,
        chat_template: text.chat_template.as_ref(),
        date: arguments.template_date.as_deref(),
        context: text.context,
    };
    let (first, second) = (read(first, maker)?, read(second, maker)?);
    let verdict = doctor::why(&first, &second, &text.tokenizer);
    let excerpt = Excerpt::of(&verdict, &second, &text.tokenizer);
    let hint = Hint::of(&verdict, excerpt.as_ref());
    let mut out = anstream::stdout();
    if arguments.json {
        let document = json!({
            "schema": "refrain.why/1",
            "verdict": verdict,
            "excerpt": excerpt,
            "hint": hint,
            "prompt": {"file": first.name, "read_as": first.shape, "tokens": first.tokens.len()},
            "against": {
                "file": second.name, "read_as": second.shape, "tokens": second.tokens.len(),
            },
            "note": NOTE,
        });
        writeln!(out, "{document}")?;
        return Ok(());
    }
    let apart = first.namespace != second.namespace;
    let report = Report { verdict: &verdict, excerpt, hint, tokenizer: &text.tokenizer, apart };
    report.write(&mut out)?;
    Ok(())
}

/// What is said where the files are given without their flags.
fn not_named(arguments: &WhyArguments) -> Failure {
    let words = arguments.model.iter().chain(&arguments.more).map(String::as_str);
    let words: Vec<&str> = words.collect();
    let [first, second] = match words.as_slice() {
        [.., first, second] => [*first, *second],
        _ => ["FIRST", "SECOND"],
    };
    let message = format!(
        "say which request came first and which after it: \
         refrain why --prompt {first} --against {second}"
    );
    Failure::Usage(message)
}

fn read(path: &Path, maker: PromptMaker<'_>) -> Result<Prompt, Failure> {
    let name = path.display().to_string();
    let failed = |problem: &dyn std::fmt::Display| Failure::new(format!("{name}: {problem}"));
    let mut bytes = Vec::new();
    // One byte more than is accepted, so that a longer file is seen to be one.
    let most = PROMPT_BYTES_MAX as u64 + 1;
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(|error| {
        match error.kind() {
            ErrorKind::NotFound => {
                failed(&format!("{error}; --prompt and --against are files of requests"))
            }
            _ => failed(&error),
        }
    })?;
    Prompt::read(&name, &bytes, maker).map_err(|error| {
        let lacks_template = error.field == "messages" && maker.chat_template.is_none();
        let hint =
            if lacks_template { "; here it may also be a plain text, in a .txt file" } else { "" };
        failed(&format!("{error}{hint}"))
    })
}

/// The verdict in lines for people.
struct Report<'a> {
    verdict: &'a Verdict,
    excerpt: Option<Excerpt>,
    hint: Option<Hint>,
    tokenizer: &'a Tokenizer,
    /// Whether the prompts are in different namespaces.
    apart: bool,
}

impl Report<'_> {
    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Verdict { prompt_tokens, reused_tokens, computed_tokens, stop, .. } = self.verdict;
        let share = 100 * reused_tokens / (*prompt_tokens).max(1);
        let screen = Screen::detect();
        let line = |out: &mut dyn Write, label, text: &str| {
            writeln!(out, "{}", screen.labelled(label, LABEL, text))
        };
        let what = format!(
            "{reused_tokens} of {prompt_tokens} prompt tokens ({share} %), computed \
             {computed_tokens}"
        );
        line(out, "reused", &what)?;
        let why = format!("{} at {}   {}", stop.reason.code(), stop.at, self.meaning());
        line(out, "stopped", &why)?;
        if let Some(place) = self.place() {
            line(out, "where", &place)?;
        }
        if let Some(excerpt) = &self.excerpt {
            let text = self.context(excerpt);
            let mark = screen.text(&self.mark());
            for line in screen.wrap_whole(&text, screen.width.saturating_sub(LABEL)) {
                writeln!(out, "{:LABEL$}{}", "", bold(&line, &mark))?;
            }
        }
        if let Some(after) = stop.identical_after.filter(|&after| after > 0) {
            let tokens = if after == 1 { "token is" } else { "tokens are" };
            let lost =
                format!("{after} following {tokens} identical but come after the difference");
            line(out, "lost", &lost)?;
        }
        if let Some(hint) = self.hint {
            line(out, "hint", hint.advice())?;
        }
        if self.apart {
            line(out, "salts", "cache_salt differs: nothing is shared between salts")?;
        }
        line(out, "note", NOTE)
    }

    /// The reason in words; for a difference, the two tokens.
    fn meaning(&self) -> String {
        let stop = &self.verdict.stop;
        let token = |token: &Option<TokenText>| match token {
            Some(token) => {
                let bytes = self.tokenizer.bytes(token.id).unwrap_or_default();
                format!("{} ({})", quoted(bytes), token.id)
            }
            None => "nothing".to_owned(),
        };
        match stop.reason {
            Reason::DifferentToken => {
                format!("cached {}   now {}", token(&stop.cached), token(&stop.request))
            }
            Reason::EndOfPrompt => "all but the last token, which is always computed".to_owned(),
            Reason::EndOfCached => "all that is held; the prompt goes on".to_owned(),
            Reason::FirstRequest => "nothing in common with what is held".to_owned(),
            Reason::Evicted => "it was held, and had to make room".to_owned(),
            Reason::RowsRequested => "echo with logprobs asks for rows that reuse lacks".to_owned(),
            Reason::DisabledByRequest => "the request says \"cache_prompt\": false".to_owned(),
        }
    }

    fn place(&self) -> Option<String> {
        let stop = &self.verdict.stop;
        let role = stop.role.as_deref()?;
        Some(match (stop.message, stop.chars) {
            (Some(message), Some([from, to])) => {
                format!("message {message} ({role}), chars {from}–{to}")
            }
            (Some(message), None) => format!("message {message} ({role})"),
            (None, _) => "text that the chat template adds".to_owned(),
        })
    }

    /// `…before[cached→request]after…`, on one line.
    fn context(&self, excerpt: &Excerpt) -> String {
        let (before, after) = (on_one_line(&excerpt.before), on_one_line(&excerpt.after));
        let cut = |text: &str| if text.chars().count() < Excerpt::CHARS { "" } else { "…" };
        let (left, right) = (cut(&excerpt.before), cut(&excerpt.after));
        format!("{left}{before}{}{after}{right}", self.mark())
    }

    /// `[cached→request]`.
    fn mark(&self) -> String {
        let text = |token: &Option<TokenText>| {
            let text = token.as_ref().and_then(|token| token.text.as_deref());
            on_one_line(text.unwrap_or_default())
        };
        let stop = &self.verdict.stop;
        format!("[{}→{}]", text(&stop.cached), text(&stop.request))
    }
}

/// `line`, with `mark` in bold where it has all of it.
fn bold(line: &str, mark: &str) -> String {
    let bold = Style::new().bold();
    line.replacen(mark, &format!("{bold}{mark}{bold:#}"), 1)
}
