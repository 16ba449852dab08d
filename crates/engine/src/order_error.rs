//! Why an order to the engine's thread was not carried out.

use cache::PinRefused;

use crate::request::{EngineError, SubmitError};

/// Orders that may wait for the end of a step.
pub(crate) const ORDERS_MAX: usize = 64;

/// Why a prefix was not pinned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PinError {
    /// The prompt cache would not.
    #[error(transparent)]
    Refused(#[from] PinRefused),
    /// The order was not carried out.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// A part of it is on disk only, and was not admitted to be read.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// That part could not be brought into memory.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Why an operator's order was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Too many orders wait.
    #[error("{ORDERS_MAX} orders wait already; try again")]
    Busy,
    /// The disk has not yet done what it was asked before.
    #[error("the disk is far behind with what was asked of it; try again")]
    DiskBehind,
    /// The engine no longer accepts any.
    #[error("the engine is shutting down")]
    ShuttingDown,
}
