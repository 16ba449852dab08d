//! Memory that is kept from step to step.

use kernels::{ActivationRows, AttentionScratch};

use super::matrix_order::MatrixOrder;
use crate::rows::Rows;

/// Most buffers kept; a step has fewer alive at a time.
const SPARE_MAX: usize = 8;

/// Buffers that steps use again, so that a step allocates nothing once it has seen its size.
#[derive(Default)]
pub(crate) struct Scratch {
    spare: Vec<Vec<f32>>,
    pub(crate) activations: ActivationRows,
    pub(crate) attention: AttentionScratch,
    pub(crate) positions: Vec<usize>,
    pub(super) order: MatrixOrder,
}

impl Scratch {
    /// A matrix with unspecified content: a spare buffer of just its size, else the smallest that
    /// holds it, else the largest, enlarged. (What a buffer grows by is cleared.)
    pub(crate) fn take(&mut self, rows: usize, width: usize) -> Rows {
        let needed = rows * width;
        let unfit = |&at: &usize| {
            let (length, capacity) = (self.spare[at].len(), self.spare[at].capacity());
            match capacity {
                _ if length == needed => (0, 0),
                _ if capacity >= needed => (1, capacity),
                _ => (2, usize::MAX - capacity),
            }
        };
        let best = (0..self.spare.len()).min_by_key(unfit);
        let buffer = best.map(|at| self.spare.swap_remove(at)).unwrap_or_default();
        Rows::over(buffer, rows, width)
    }

    /// Keeps the memory of `rows` for another matrix.
    pub(crate) fn give(&mut self, rows: Rows) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(rows.data);
        }
    }
}
