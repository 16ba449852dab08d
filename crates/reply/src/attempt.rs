//! What reading a call from its beginning comes to.

/// The outcome for the text that is there so far. More text never turns [`Attempt::Bad`] or
/// [`Attempt::Call`] into something else.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// It may become a call.
    More,
    /// It is no call.
    Bad,
    /// It is one.
    Call(Started),
}

/// A call whose name is known.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) name: String,
    /// Bytes of the text that were read; what is open begins after them.
    pub(crate) consumed: usize,
    /// Whether the call is an item of a list that is still open.
    pub(crate) in_list: bool,
    pub(crate) arguments: Arguments,
}

/// Where the arguments are.
#[derive(Debug)]
pub(crate) enum Arguments {
    /// They come next, as JSON that begins with a brace.
    Verbatim,
    /// These are all of them; with `inside`, the rest of the object that holds the call comes next.
    Whole { json: String, inside: bool },
    /// They come next, one element for each.
    Tagged,
}
