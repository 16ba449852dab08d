//! `refrain why`: the verdict that one prompt gets after another, without a server.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use anstyle::Style;
use cache::{DifferenceKind, Reason, TokenText, Verdict};
use doctor::{Excerpt, Explained, PROMPT_BYTES_MAX, Prompt, PromptMaker};
use package::{ChatTemplate, Package, Tokenizer};
use serde_json::{Value, json};
use server::Reception;

use crate::cli::WhyArguments;
use crate::failure::Failure;
use crate::loading;
use crate::quoted::{on_one_line, quoted};
use crate::screen::Screen;
use crate::terminal::Terminal;
use crate::words::counted;

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
        known: None,
    };
    let ((first, received), (second, receives)) = (read(first, maker)?, read(second, maker)?);
    let verdict = doctor::why(&first, &second, maker);
    let excerpt = Excerpt::of(&verdict, &first, &second, &text.tokenizer);
    let explained = Explained::new(&verdict);
    let mut out = anstream::stdout();
    if arguments.json {
        let document = json!({
            "schema": "refrain.why/1",
            "verdict": explained,
            "ignored": receives.ignored,
            "excerpt": excerpt,
            "hint": explained.hint,
            "advice": explained.advice,
            "prompt": described(&first, &received),
            "against": described(&second, &receives),
            "note": NOTE,
        });
        writeln!(out, "{document}")?;
        return Ok(());
    }
    let apart = first.namespace != second.namespace;
    let report = Report {
        verdict: &verdict,
        excerpt,
        advice: explained.advice,
        tokenizer: &text.tokenizer,
        apart,
        receptions: [received, receives],
    };
    report.write(&mut out)?;
    Ok(())
}

/// A request in the document: what it is, and what a server would make of it.
fn described(prompt: &Prompt, reception: &Reception) -> Value {
    json!({
        "file": prompt.name, "read_as": prompt.shape, "tokens": prompt.tokens.len(),
        "ignored": reception.ignored, "refused": reception.refused,
    })
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

/// The request in a file, and what a server would say of it.
fn read(path: &Path, maker: PromptMaker<'_>) -> Result<(Prompt, Reception), Failure> {
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
    let prompt = Prompt::read(&name, &bytes, maker).map_err(|error| {
        let lacks_template = error.field == "messages" && maker.chat_template.is_none();
        let hint =
            if lacks_template { "; here it may also be a plain text, in a .txt file" } else { "" };
        failed(&format!("{error}{hint}"))
    })?;
    let reads_tools = maker.chat_template.is_some_and(ChatTemplate::uses_tools);
    let body = prompt.body.clone().unwrap_or_default();
    let reception = Reception::of(prompt.shape, body, reads_tools);
    Ok((prompt, reception))
}

/// The verdict in lines for people.
struct Report<'a> {
    verdict: &'a Verdict,
    excerpt: Option<Excerpt>,
    /// What to do about it.
    advice: Option<&'static str>,
    tokenizer: &'a Tokenizer,
    /// Whether the prompts are in different namespaces.
    apart: bool,
    /// What a server would say of the first request and of the second.
    receptions: [Reception; 2],
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
        for (label, text, mark) in self.contexts() {
            let mark = screen.text(&mark);
            let lines = screen.wrap_whole(&text, screen.width.saturating_sub(LABEL));
            for (index, line) in lines.iter().enumerate() {
                let label = if index == 0 { label } else { "" };
                let dim = Style::new().dimmed();
                writeln!(out, "{dim}{label:LABEL$}{dim:#}{}", bold(line, &mark))?;
            }
        }
        if let Some(after) = stop.identical_after.filter(|&after| after > 0) {
            let tokens = if after == 1 { "token is" } else { "tokens are" };
            let lost =
                format!("{after} following {tokens} identical but come after the difference");
            line(out, "lost", &lost)?;
        }
        if let Some(advice) = self.advice {
            line(out, "hint", advice)?;
        }
        if self.apart {
            line(out, "salts", "cache_salt differs: nothing is shared between salts")?;
        }
        if let Some(ignored) = self.ignored() {
            line(out, "ignored", &ignored)?;
        }
        for refused in self.refused() {
            line(out, "refused", &refused)?;
        }
        line(out, "note", NOTE)
    }

    /// The fields that have no effect.
    fn ignored(&self) -> Option<String> {
        let [first, second] = self.receptions.each_ref().map(|one| one.ignored.join(", "));
        let fields = match (first.as_str(), second.as_str()) {
            ("", "") => return None,
            (first, second) if first == second => format!("{first} in both"),
            (first, "") => format!("{first} in the first"),
            ("", second) => format!("{second} in the second"),
            (first, second) => format!("{first} in the first, {second} in the second"),
        };
        let tools = self.receptions.iter().any(|one| one.ignored.iter().any(|f| f == "tools"));
        let reason = if tools { "; this model's chat template reads no tools" } else { "" };
        Some(format!("{fields}{reason}"))
    }

    /// Why a server would not take a request as it is.
    fn refused(&self) -> Vec<String> {
        let [first, second] = self.receptions.each_ref().map(|one| one.refused.as_deref());
        if let (Some(why), true) = (first, first == second) {
            return vec![format!("a server takes neither as it is: {why}")];
        }
        let said = [("first", first), ("second", second)];
        let said = said.iter().filter_map(|(which, why)| Some((which, (*why)?)));
        said.map(|(which, why)| format!("a server does not take the {which} as it is: {why}"))
            .collect()
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
            Reason::Expired => "it was held, until its time was over".to_owned(),
            Reason::Damaged => "what is stored of it is damaged".to_owned(),
            Reason::CheaperToCompute => "reading it would take longer than computing".to_owned(),
            Reason::DifferentModel => "it is held under another model or setting".to_owned(),
            Reason::TemplateChanged => "another template rendered the messages".to_owned(),
            Reason::Retokenized => {
                let (cached, now) = (token(&stop.cached), token(&stop.request));
                format!("the same text: cached {cached}   now {now}")
            }
            Reason::RowsRequested => "echo with logprobs asks for rows that reuse lacks".to_owned(),
            Reason::DisabledByRequest => "the request says \"cache_prompt\": false".to_owned(),
        }
    }

    fn place(&self) -> Option<String> {
        let stop = &self.verdict.stop;
        let role = stop.role.as_deref()?;
        if let Some(place) = self.changed_messages(role) {
            return Some(place);
        }
        Some(match (stop.message, stop.chars) {
            (Some(message), Some([from, to])) => {
                format!("message {message} ({role}), chars {from}–{to}")
            }
            (Some(message), None) => format!("message {message} ({role})"),
            (None, _) => match stop.difference.as_ref().map(|one| (&one.tool, &one.path)) {
                Some((Some(tool), Some(path))) => format!("tool {tool}, {path}"),
                Some((Some(tool), None)) => format!("tool {tool}"),
                _ => "text that the chat template adds".to_owned(),
            },
        })
    }

    /// What became of messages as a whole, where it is that.
    fn changed_messages(&self, role: &str) -> Option<String> {
        let stop = &self.verdict.stop;
        let (difference, message) = (stop.difference.as_ref()?, stop.message?);
        let [from, to] = stop.chars.unwrap_or_default();
        let messages = match difference.messages {
            Some(count) => counted(count, "message"),
            None => "messages".to_owned(),
        };
        Some(match difference.kind {
            DifferenceKind::MessageShortened => {
                format!("message {message} ({role}) is shorter: its text ends at char {to}")
            }
            DifferenceKind::MessageLengthened => {
                format!("message {message} ({role}) is longer: chars {from}–{to} are new")
            }
            DifferenceKind::MessagesInserted => {
                let next = message + difference.messages.unwrap_or(1);
                format!("{messages} inserted before message {next}")
            }
            DifferenceKind::MessagesRemoved => {
                format!("{messages} removed before message {message}")
            }
            _ => return None,
        })
    }

    /// What stands around the difference, in lines with their labels and what is marked in them:
    /// `…before[cached→request]after…` where both go on alike, else a line for each.
    fn contexts(&self) -> Vec<(&'static str, String, String)> {
        let Some(excerpt) = &self.excerpt else { return Vec::new() };
        let text = |token: &Option<TokenText>| {
            let text = token.as_ref().and_then(|token| token.text.as_deref());
            on_one_line(text.unwrap_or_default())
        };
        let stop = &self.verdict.stop;
        let (cached, request) = (text(&stop.cached), text(&stop.request));
        let cut = |text: &str| if text.chars().count() < Excerpt::CHARS { "" } else { "…" };
        let shown = |label, mark: String, after: &str| {
            let (left, right) = (cut(&excerpt.before), cut(after));
            let (before, after) = (on_one_line(&excerpt.before), on_one_line(after));
            (label, format!("{left}{before}{mark}{after}{right}"), mark)
        };
        if excerpt.cached_after == excerpt.after {
            return vec![shown("", format!("[{cached}→{request}]"), &excerpt.after)];
        }
        vec![
            shown("cached", format!("[{cached}]"), &excerpt.cached_after),
            shown("now", format!("[{request}]"), &excerpt.after),
        ]
    }
}

/// `line`, with `mark` in bold where it has all of it.
fn bold(line: &str, mark: &str) -> String {
    let bold = Style::new().bold();
    line.replacen(mark, &format!("{bold}{mark}{bold:#}"), 1)
}
