//! The first span in which a request differs from what is held: its text on both sides, what kind
//! of change it is, and the tool that it lies in.

mod json;
mod messages;
mod patterns;
mod span;

use cache::{Difference, DifferenceKind, Stop};
use package::{PromptMap, Tokenizer};

use self::messages::Change;
use self::span::{Side, sides};

/// Tokens that are looked at on either side of the place where two prompts part. Tools that are
/// longer are compared as far as that.
pub const DIFFERENCE_TOKENS_MAX: usize = 4_096;
/// Characters of a span that are shown.
const SHOWN_CHARS_MAX: usize = 200;

/// What changed where the verdict says that a prompt and what is held part; `cached` is what is
/// held from there on. Where messages were changed as a whole, the stop is said to lie in them.
pub(crate) fn explain(
    stop: &mut Stop,
    prompt: &[u32],
    map: Option<&PromptMap>,
    cached: &[u32],
    tokenizer: &Tokenizer,
) {
    let template = stop.role.is_some() && stop.message.is_none();
    let mut difference = difference(stop.at, cached, prompt, template, tokenizer);
    let cached = &cached[..cached.len().min(DIFFERENCE_TOKENS_MAX)];
    let change = map.and_then(|map| messages::change(stop.at, cached, prompt, map, tokenizer));
    if let Some(change) = change.filter(|change| prevails(change.kind, &difference)) {
        let Change { kind, message, role, chars, messages, cached_text, request_text } = change;
        (stop.message, stop.role, stop.chars) = (Some(message), Some(role), chars);
        let [cached_text, request_text] = [cached_text, request_text].map(|text| shortened(&text));
        difference =
            Difference { kind, cached_text, request_text, messages, tool: None, path: None };
    }
    stop.difference = Some(difference);
}

/// Whether what became of the messages says more than what the words tell.
fn prevails(kind: DifferenceKind, words: &Difference) -> bool {
    use DifferenceKind::{MessageLengthened, MessageShortened, Other, Structure, TemplateDate};
    match words.kind {
        DifferenceKind::WhiteSpace
        | DifferenceKind::ReorderedKeys
        | DifferenceKind::ReorderedTools => false,
        // A number at the end of a message is not the template's.
        Other | Structure | TemplateDate => true,
        _ => !matches!(kind, MessageShortened | MessageLengthened),
    }
}

/// What changed at `at`, the first position in `request` whose token is not the one that is held.
/// `cached` is what is held from there on; `template` says that the chat template put the
/// request's token there.
pub(crate) fn difference(
    at: usize,
    cached: &[u32],
    request: &[u32],
    template: bool,
    tokenizer: &Tokenizer,
) -> Difference {
    let before = &request[at.saturating_sub(DIFFERENCE_TOKENS_MAX)..at];
    let text = |after: &[u32]| {
        let after = &after[..after.len().min(DIFFERENCE_TOKENS_MAX)];
        tokenizer.decode(&[before, after].concat(), true)
    };
    of_texts(&text(cached), &text(&request[at..]), template)
}

/// What changed between two texts that begin alike.
fn of_texts(cached: &str, request: &str, template: bool) -> Difference {
    let [cached, request] = sides(cached, request);
    let place = json::place(&cached, &request);
    let in_tool = template && place.tool.is_some();
    let kind = match patterns::kind(&cached, &request) {
        Some(DifferenceKind::WhiteSpace) => DifferenceKind::WhiteSpace,
        _ if place.reordered.is_some() => place.reordered.unwrap_or(DifferenceKind::Other),
        Some(DifferenceKind::Date | DifferenceKind::Time | DifferenceKind::Counter)
            if template && !in_tool =>
        {
            DifferenceKind::TemplateDate
        }
        Some(kind) => kind,
        None if template && !in_tool => DifferenceKind::Structure,
        None => DifferenceKind::Other,
    };
    let (tool, path) = if in_tool { (place.tool, place.path) } else { (None, None) };
    let (cached_text, request_text) = (shown(&cached), shown(&request));
    Difference { kind, cached_text, request_text, messages: None, tool, path }
}

/// The text of a span, as much as is shown.
fn shown(side: &Side<'_>) -> String {
    shortened(side.changed())
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
