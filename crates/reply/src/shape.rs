//! How calls are written.

/// One way of writing calls.
#[derive(Debug)]
pub(crate) struct Shape {
    /// What comes before a call; empty where nothing marks it.
    pub(crate) opening: &'static str,
    pub(crate) place: Place,
    pub(crate) body: Body,
    /// What may come after a call and is none of the answer's text.
    pub(crate) closings: &'static [&'static str],
    /// What templates put between a text and a call. It is no part of the text, so that the
    /// conversation is rendered again as it was generated.
    pub(crate) before: &'static str,
    /// Whether only declared tools can be called, because what marks a call may be text as well.
    pub(crate) declared_only: bool,
}

/// Where a call may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Where the answer begins, or after another call.
    Beginning,
    /// There, and in the middle of a text.
    Anywhere,
}

/// What stands between a call's opening and closing.
#[derive(Debug)]
pub(crate) enum Body {
    /// An object with name and arguments, or a list of them.
    Json,
    /// The name, `between`, and the arguments as JSON. Before `between`, the call's id may stand
    /// behind `id`.
    Named { id: &'static str, between: &'static str },
    /// `name(parameter=value)`, or a list of them.
    Python,
    /// Elements, one for each parameter.
    Tagged(Tags),
}

/// The texts around the parts of a call that is written in elements.
#[derive(Debug)]
pub(crate) struct Tags {
    pub(crate) before_name: &'static str,
    /// Empty where the name ends before the next element.
    pub(crate) after_name: &'static str,
    pub(crate) before_key: &'static str,
    pub(crate) after_key: &'static str,
    pub(crate) before_value: &'static str,
    pub(crate) after_value: &'static str,
    pub(crate) end: &'static str,
    /// Whether a value stands on lines of its own, whose breaks are none of it.
    pub(crate) own_lines: bool,
}

/// What a grammar needs to make a model call declared tools.
///
/// Calls are written as `before`, then [`prefix`](Self::prefix), arguments and `suffix` of each
/// call with `between` between two, then `after`. What is written so, a reader of the same format
/// reads back.
#[derive(Debug, Clone, Copy)]
pub struct CallShape {
    /// Before the first call.
    pub before: &'static str,
    /// Between two calls; `None` where the model's template takes only one in an answer.
    pub between: Option<&'static str>,
    /// After the last call.
    pub after: &'static str,
    /// After the arguments of each call.
    pub suffix: &'static str,
    pub(crate) before_name: &'static str,
    pub(crate) after_name: &'static str,
}

impl CallShape {
    /// What comes before the arguments of a call of the tool `name`.
    pub fn prefix(&self, name: &str) -> String {
        // Of what names are made of, JSON escapes nothing.
        format!("{}{name}{}", self.before_name, self.after_name)
    }
}
