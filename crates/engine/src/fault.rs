//! Deliberate errors, by which the checks are checked.

/// A deliberate error of the fast forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Sums of a matmul depend on how many rows a step has.
    BatchDependent,
    /// A row attends to all positions of its step, also to those after it.
    OpenMask,
    /// The columns of fused `q | k | v` rows are taken as `k | q | v`.
    SplitOrder,
    /// What attention and MLP give replaces the residual stream instead of being added to it.
    NoResidual,
    /// A row is told the position after its own.
    PositionOff,
    /// A step that goes on writes and attends one position too early.
    CacheShort,
}
