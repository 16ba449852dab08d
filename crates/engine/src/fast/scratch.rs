//! Memory that is kept from step to step.

use kernels::{ActivationRows, AttentionScratch};

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
}

impl Scratch {
    /// A matrix with unspecified content: the smallest spare buffer that holds it, else the
    /// largest, enlarged.
    pub(crate) fn take(&mut self, rows: usize, width: usize) -> Rows {
        let needed = rows * width;
        let fits = |buffer: &Vec<f32>| buffer.capacity() >= needed;
        let capacity = |&at: &usize| self.spare[at].capacity();
        let all = 0..self.spare.len();
        let smallest = all.clone().filter(|&at| fits(&self.spare[at])).min_by_key(capacity);
        let best = smallest.or_else(|| all.max_by_key(capacity));
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
