//! What an architecture is written in: the operations of a transformer over the rows of one step.

use std::ops::Range;

use package::Part;

use crate::error::LoadError;
use crate::rows::{Heads, Norm, Rows};
use crate::taps::{Site, TapPoint, Taps};

/// The operations. Two implementations: `reference`, which is readable, and `fast`, which runs on
/// the kernels. What is taken by value is used up: its memory serves the next operation.
pub(crate) trait Ops {
    /// A matrix of weights with its bias, in the implementation's own form.
    type Matrix;

    /// The table's rows of the step's tokens.
    fn embed_tokens(&mut self, table: &Self::Matrix) -> Rows;

    /// The table's rows of the step's positions.
    fn embed_positions(&mut self, table: &Self::Matrix) -> Rows;

    /// `(x - mean) / sqrt(variance + epsilon) * gain + bias`, per row.
    fn layer_norm(&mut self, x: &Rows, norm: &Norm) -> Rows;

    /// `x / sqrt(mean(x^2) + epsilon) * gain`, per row.
    fn rms_norm(&mut self, x: &Rows, norm: &Norm) -> Rows;

    /// `x W^T + bias`. Matrices that were loaded together give their outputs side by side.
    fn linear(&mut self, x: Rows, matrix: &Self::Matrix) -> Rows;

    /// The logits of rows over the vocabulary: `x W^T` with the head's matrix.
    fn unembed(&mut self, x: Rows, head: &Self::Matrix) -> Rows;

    /// Rotates the queries and keys of fused `q | k | v` rows by their positions.
    fn rope(&mut self, qkv: &mut Rows, heads: Heads);

    /// Keeps the keys and values of fused `q | k | v` rows.
    fn keep(&mut self, layer: usize, qkv: &Rows, heads: Heads);

    /// Once the last layer's keys and values are kept, only the rows whose logits are asked for
    /// matter; an implementation may drop the others here.
    fn narrow(&mut self, x: &mut Rows, qkv: &mut Rows);

    /// Lets the query of each fused `q | k | v` row attend to its sequence up to itself. Gives
    /// `rows x (query heads * dim)`.
    fn attention(&mut self, layer: usize, qkv: Rows, heads: Heads) -> Rows;

    /// GELU with the tanh approximation, or with the error function.
    fn gelu(&mut self, x: Rows, tanh: bool) -> Rows;

    /// `silu(gate) * up` of fused `gate | up` rows.
    fn silu_gated(&mut self, gate_up: Rows) -> Rows;

    /// `x += y`.
    fn add(&mut self, x: &mut Rows, y: Rows);

    /// The rows whose logits are asked for, if not narrowed to them before.
    fn logit_rows(&mut self, x: Rows) -> Rows;

    /// The taps of this step, if any are wanted.
    fn taps(&mut self) -> Option<&mut dyn Taps>;

    /// Shows `values` at `point`.
    fn tap(&mut self, point: impl Into<TapPoint>, values: &Rows) {
        let point = point.into();
        if let Some(taps) = self.taps().filter(|taps| taps.wants(point)) {
            taps.record(point, &[values.rows, values.width], &values.data);
        }
    }

    /// Shows some columns of `values`, as `rows x columns`.
    fn tap_columns(&mut self, point: TapPoint, values: &Rows, columns: Range<usize>) {
        if let Some(taps) = self.taps().filter(|taps| taps.wants(point)) {
            let shape = [values.rows, columns.len()];
            taps.record(point, &shape, &values.columns(columns));
        }
    }

    /// Shows the columns of `values` from `column` on, as `rows x heads x dim`.
    fn tap_heads(&mut self, point: TapPoint, values: &Rows, column: usize, shape: [usize; 2]) {
        if let Some(taps) = self.taps().filter(|taps| taps.wants(point)) {
            let columns = column..column + shape[0] * shape[1];
            let shape = [values.rows, shape[0], shape[1]];
            taps.record(point, &shape, &values.columns(columns));
        }
    }

    /// Shows the queries, keys and values of fused rows, at the three sites.
    fn tap_qkv(&mut self, layer: usize, sites: [Option<Site>; 3], qkv: &Rows, heads: Heads) {
        let columns = [0, heads.key_column(), heads.value_column()];
        let counts = [heads.query, heads.kv, heads.kv];
        for (part, site) in sites.into_iter().enumerate() {
            if let Some(site) = site {
                let point = TapPoint { layer: Some(layer), site };
                self.tap_heads(point, qkv, columns[part], [counts[part], heads.dim]);
            }
        }
    }
}

/// Brings weights into an implementation's form.
pub(crate) trait Load: Sync {
    /// What [`Ops::Matrix`] is.
    type Matrix: Send;

    /// The matrices of `parts`, which have the same inputs, as one with their outputs side by side.
    fn matrix(&self, parts: &[Part]) -> Result<Self::Matrix, LoadError>;

    /// The parameters of the norm `part`.
    fn norm(&self, part: Part) -> Result<Norm, LoadError>;
}
