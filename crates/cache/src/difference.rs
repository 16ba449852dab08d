//! What changed between what is held and what a request says.

use serde::Serialize;

/// What kind of change it is. Codes are added, never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// A date.
    Date,
    /// A time of day, or a moment in seconds or milliseconds since 1970.
    Time,
    /// A UUID.
    Uuid,
    /// An id of letters and digits that look drawn at random.
    RandomId,
    /// A number: a counter, or any other.
    Counter,
    /// The keys of a JSON object stand in another order; nothing else changed in it.
    ReorderedKeys,
    /// The tools stand in another order; nothing else changed in them.
    ReorderedTools,
    /// Only white space.
    WhiteSpace,
    /// A date, a time or a number in what the chat template adds, which is usually today's date.
    TemplateDate,
    /// The chat template set the conversations differently: other roles, or what goes with them.
    Structure,
    /// A message ends where it went on before.
    MessageShortened,
    /// A message goes on where it ended before.
    MessageLengthened,
    /// Messages were put in before one that is held.
    MessagesInserted,
    /// Messages were taken out that are held before this one.
    MessagesRemoved,
    /// Anything else.
    Other,
}

/// The first span in which what is held and a request differ. The cache knows ids only, so whoever
/// has a tokenizer fills it in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What kind of change it is.
    pub kind: DifferenceKind,
    /// The span's text in what is held, whole words of it, cut to a length worth reading.
    pub cached_text: String,
    /// The span's text in the request.
    pub request_text: String,
    /// `messages_inserted`, `messages_removed`: how many, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<usize>,
    /// The tool in whose definition, or in a call of which, it lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Where in the tool's definition or call, as `parameters.properties.city.description`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}
