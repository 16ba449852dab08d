//! The reference forward: slow, readable, f32, and independent of the kernels. The fast path is
//! compared with it tap by tap, so it stays for ever.
//!
//! It keeps nothing between calls: every call computes the whole sequence, so that it has no cache
//! to be wrong about.

mod dequantize;
mod math;

pub use dequantize::dequantize;

use package::{Config, Package, Part, Rope, Suffix, Weights};
use rayon::prelude::*;

use crate::architecture::Transformer;
use crate::error::{ForwardError, LoadError};
use crate::ops::{Load, Ops};
use crate::rows::{Heads, Norm, Rows};
use crate::taps::{Site, TapPoint, Taps};

/// A model for the reference forward: all weights as f32.
pub struct Reference {
    config: Config,
    transformer: Transformer<Dense>,
}

impl Reference {
    /// Loads the weights of `package`, dequantized.
    ///
    /// # Errors
    /// A weight that the configuration calls for is not there.
    pub fn load(package: &Package) -> Result<Reference, LoadError> {
        let config = package.config.clone();
        let load = DenseLoad { weights: &package.weights, epsilon: config.norm_epsilon };
        let transformer = Transformer::load(&config, &load)?;
        Ok(Reference { config, transformer })
    }

    /// Computes the sequence `tokens` from its beginning and gives the logits of the rows
    /// `logit_rows`, `logit_rows.len() x vocab`.
    ///
    /// # Errors
    /// A token or row out of range, or more tokens than the model has positions.
    pub fn forward(
        &self,
        tokens: &[u32],
        logit_rows: &[usize],
        taps: &mut dyn Taps,
    ) -> Result<Vec<f32>, ForwardError> {
        let places = 0..tokens.len();
        ForwardError::check(&self.config, tokens, places, logit_rows)?;
        let taps: Option<&mut dyn Taps> = if taps.any() { Some(taps) } else { None };
        let rope = self.config.rope.as_ref();
        let mut ops = ReferenceOps { tokens, logit_rows, rope, taps };
        Ok(self.transformer.forward(&mut ops).data)
    }
}

/// A matrix `outputs x inputs`, with a bias per output that may be zero.
struct Dense {
    inputs: usize,
    weights: Vec<f32>,
    bias: Vec<f32>,
}

impl Dense {
    fn row(&self, output: usize) -> &[f32] {
        &self.weights[output * self.inputs..(output + 1) * self.inputs]
    }

    fn apply(&self, x: &[f32], y: &mut [f32]) {
        for (output, (y, bias)) in y.iter_mut().zip(&self.bias).enumerate() {
            *y = math::dot(x, self.row(output)) + bias;
        }
    }
}

struct DenseLoad<'a> {
    weights: &'a Weights,
    epsilon: f32,
}

impl Load for DenseLoad<'_> {
    type Matrix = Dense;

    fn matrix(&self, parts: &[Part]) -> Result<Dense, LoadError> {
        let mut dense = Dense { inputs: 0, weights: Vec::new(), bias: Vec::new() };
        for &part in parts {
            let matrix = self.weights.matrix(part)?;
            dense.inputs = matrix.inputs;
            dense.weights.extend(dequantize::dense(&matrix));
            let bias = self.weights.vector(part, Suffix::Bias)?;
            dense.bias.extend(bias.unwrap_or_else(|| vec![0.0; matrix.outputs]));
        }
        Ok(dense)
    }

    fn norm(&self, part: Part) -> Result<Norm, LoadError> {
        Norm::load(self.weights, part, self.epsilon)
    }
}

/// The operations over one whole sequence.
struct ReferenceOps<'a> {
    tokens: &'a [u32],
    logit_rows: &'a [usize],
    rope: Option<&'a Rope>,
    taps: Option<&'a mut dyn Taps>,
}

impl ReferenceOps<'_> {
    /// How well each query of `head` fits each position, negative infinity behind the mask:
    /// `rows x rows`.
    fn scores(qkv: &Rows, heads: Heads, head: usize) -> Vec<f32> {
        let dim = heads.dim;
        let key_column = heads.key_column() + head / (heads.query / heads.kv) * dim;
        let mut scores = vec![f32::NEG_INFINITY; qkv.rows * qkv.rows];
        for (row, scores) in scores.chunks_exact_mut(qkv.rows).enumerate() {
            let query = &qkv.row(row)[head * dim..(head + 1) * dim];
            for (position, score) in scores[..=row].iter_mut().enumerate() {
                let key = &qkv.row(position)[key_column..key_column + dim];
                *score = math::dot(query, key) * heads.scale();
            }
        }
        scores
    }

    /// The weights that these scores make, `rows x positions`.
    fn pattern(scores: &[f32], rows: usize) -> Vec<f32> {
        let mut pattern = vec![0.0; scores.len()];
        let both = pattern.chunks_exact_mut(rows).zip(scores.chunks_exact(rows));
        for (row, (weights, scores)) in both.enumerate() {
            weights[..=row].copy_from_slice(&scores[..=row]);
            math::softmax(&mut weights[..=row]);
        }
        pattern
    }
}

impl Ops for ReferenceOps<'_> {
    type Matrix = Dense;

    fn embed_tokens(&mut self, table: &Dense) -> Rows {
        let data = self.tokens.iter().flat_map(|&token| table.row(token as usize)).copied();
        Rows::over(data.collect(), self.tokens.len(), table.inputs)
    }

    fn embed_positions(&mut self, table: &Dense) -> Rows {
        let data = table.weights[..self.tokens.len() * table.inputs].to_vec();
        Rows::over(data, self.tokens.len(), table.inputs)
    }

    fn layer_norm(&mut self, x: &Rows, norm: &Norm) -> Rows {
        let mut y = x.data.clone();
        y.chunks_exact_mut(x.width).for_each(|row| math::layer_norm(row, norm));
        Rows::over(y, x.rows, x.width)
    }

    fn rms_norm(&mut self, x: &Rows, norm: &Norm) -> Rows {
        let mut y = x.data.clone();
        y.chunks_exact_mut(x.width).for_each(|row| math::rms_norm(row, norm));
        Rows::over(y, x.rows, x.width)
    }

    fn linear(&mut self, x: Rows, matrix: &Dense) -> Rows {
        let mut y = Rows::over(Vec::new(), x.rows, matrix.bias.len());
        y.data
            .par_chunks_exact_mut(y.width)
            .zip(x.data.par_chunks_exact(x.width))
            .for_each(|(y, x)| matrix.apply(x, y));
        y
    }

    fn unembed(&mut self, x: Rows, head: &Dense) -> Rows {
        self.linear(x, head)
    }

    fn rope(&mut self, qkv: &mut Rows, heads: Heads) {
        let Some(rope) = self.rope else { return };
        for (position, row) in qkv.data.chunks_exact_mut(qkv.width).enumerate() {
            for head in row[..heads.value_column()].chunks_exact_mut(heads.dim) {
                math::rotate(head, position, rope);
            }
        }
    }

    /// Nothing is kept from call to call; attention finds keys and values in the rows.
    fn keep(&mut self, _layer: usize, _qkv: &Rows, _heads: Heads) {}

    /// Every row is computed to the end.
    fn narrow(&mut self, _x: &mut Rows, _qkv: &mut Rows) {}

    fn attention(&mut self, layer: usize, qkv: Rows, heads: Heads) -> Rows {
        let (rows, dim) = (qkv.rows, heads.dim);
        let scores: Vec<Vec<f32>> =
            (0..heads.query).into_par_iter().map(|head| Self::scores(&qkv, heads, head)).collect();
        let patterns: Vec<Vec<f32>> =
            scores.par_iter().map(|scores| Self::pattern(scores, rows)).collect();
        for (site, values) in [(Site::Scores, &scores), (Site::Pattern, &patterns)] {
            let point = TapPoint { layer: Some(layer), site };
            if let Some(taps) = self.taps().filter(|taps| taps.wants(point)) {
                taps.record(point, &[heads.query, rows, rows], &values.concat());
            }
        }
        let mut mixed = Rows::over(Vec::new(), rows, heads.query * dim);
        for (row, out) in mixed.data.chunks_exact_mut(heads.query * dim).enumerate() {
            for (head, out) in out.chunks_exact_mut(dim).enumerate() {
                let column = heads.value_column() + head / (heads.query / heads.kv) * dim;
                for position in 0..=row {
                    let weight = patterns[head][row * rows + position];
                    let value = &qkv.row(position)[column..column + dim];
                    out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value);
                }
            }
        }
        mixed
    }

    fn gelu(&mut self, mut x: Rows, tanh: bool) -> Rows {
        x.data.par_iter_mut().for_each(|x| *x = math::gelu(*x, tanh));
        x
    }

    fn silu_gated(&mut self, gate_up: Rows) -> Rows {
        let width = gate_up.width / 2;
        let data = gate_up.data.chunks_exact(gate_up.width).flat_map(|row| {
            let (gate, up) = row.split_at(width);
            gate.iter().zip(up).map(|(&gate, &up)| math::silu(gate) * up)
        });
        Rows::over(data.collect(), gate_up.rows, width)
    }

    fn add(&mut self, x: &mut Rows, y: Rows) {
        x.data.iter_mut().zip(&y.data).for_each(|(x, y)| *x += y);
    }

    fn logit_rows(&mut self, x: Rows) -> Rows {
        let data = self.logit_rows.iter().flat_map(|&row| x.row(row)).copied();
        Rows::over(data.collect(), self.logit_rows.len(), x.width)
    }

    fn taps(&mut self) -> Option<&mut dyn Taps> {
        match &mut self.taps {
            Some(taps) => Some(&mut **taps),
            None => None,
        }
    }
}
