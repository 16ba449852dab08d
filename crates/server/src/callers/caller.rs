//! Who calls.

use std::sync::Arc;

use super::limits::KeyLimits;

/// Who sent a request; nobody in particular where no keys are asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    /// The name of its key.
    pub(crate) name: Option<Arc<str>>,
    /// What its name may have.
    pub(super) limits: KeyLimits,
}
