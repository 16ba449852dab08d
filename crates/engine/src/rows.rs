//! The activations of a step.

use std::ops::Range;

use package::{Config, Part, Suffix, Weights};

use crate::error::LoadError;

/// A dense row-major matrix of activations: one row for each token of the step.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) data: Vec<f32>,
    pub(crate) rows: usize,
    pub(crate) width: usize,
}

impl Rows {
    /// A matrix over `data`, which is cut or zero-extended to `rows * width`.
    pub(crate) fn over(mut data: Vec<f32>, rows: usize, width: usize) -> Rows {
        data.resize(rows * width, 0.0);
        Rows { data, rows, width }
    }

    /// Row `index`.
    pub(crate) fn row(&self, index: usize) -> &[f32] {
        &self.data[index * self.width..(index + 1) * self.width]
    }

    /// A copy of some columns of every row.
    pub(crate) fn columns(&self, columns: Range<usize>) -> Vec<f32> {
        (0..self.rows).flat_map(|row| &self.row(row)[columns.clone()]).copied().collect()
    }
}

/// How the columns of a fused `q | k | v` row divide: `query` heads, then twice `kv` heads, of
/// `dim` columns each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    pub(crate) query: usize,
    pub(crate) kv: usize,
    pub(crate) dim: usize,
}

impl Heads {
    /// How the rows of the model that `config` describes divide.
    pub(crate) fn of(config: &Config) -> Heads {
        Heads { query: config.heads, kv: config.kv_heads, dim: config.head_dim }
    }

    /// The column where the keys begin.
    pub(crate) fn key_column(&self) -> usize {
        self.query * self.dim
    }

    /// The column where the values begin.
    pub(crate) fn value_column(&self) -> usize {
        (self.query + self.kv) * self.dim
    }

    /// Scores are divided by the square root of the head's width ("Attention Is All You Need",
    /// 3.2.1).
    pub(crate) fn scale(&self) -> f32 {
        1.0 / (self.dim as f32).sqrt()
    }
}

/// The parameters of a layer norm or an RMS norm; zero where it has no bias.
#[derive(Debug)]
pub(crate) struct Norm {
    pub(crate) gain: Vec<f32>,
    pub(crate) bias: Vec<f32>,
    pub(crate) epsilon: f32,
}

impl Norm {
    /// Reads the norm `part`.
    pub(crate) fn load(weights: &Weights, part: Part, epsilon: f32) -> Result<Norm, LoadError> {
        let gain = weights.vector(part, Suffix::Weight)?;
        let gain = gain.ok_or_else(|| LoadError::MissingNorm(format!("{part:?}")))?;
        let bias = weights.vector(part, Suffix::Bias)?;
        let bias = bias.unwrap_or_else(|| vec![0.0; gain.len()]);
        Ok(Norm { gain, bias, epsilon })
    }
}
