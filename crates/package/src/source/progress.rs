//! Telling the caller how far a pull is.

/// What a pull reports to. Called often; it must be quick.
pub trait Progress {
    /// A new stage begins, for instance `downloading model.safetensors`.
    fn stage(&self, text: &str);
    /// Bytes done in this stage, and how many there are where that is known.
    fn bytes(&self, done: u64, total: Option<u64>);
}

/// Reports to nobody.
impl Progress for () {
    fn stage(&self, _text: &str) {}
    fn bytes(&self, _done: u64, _total: Option<u64>) {}
}
