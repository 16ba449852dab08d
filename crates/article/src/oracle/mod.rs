//! The article's formulas in plain double precision, from the package's own weights: what the
//! engine's numbers are compared with. Nothing here is shared with the engine.

mod formulas;
mod numbers;

use kernels::KvType;
use package::{Architecture, Config, LayerPart, Matrix, Package, Part, Suffix};

pub(crate) use formulas::{attention, gelu, norm, rotate, scores, silu, softmax, weigh};
pub(crate) use numbers::{matrix_row, multiply, wide};

use crate::tally::Stop;

/// Largest error of a sum of products of floats, as a share of the largest result.
const FLOAT_BOUND: f64 = 2e-5;
/// The same where the kernels round each input to 8 bits, as they do for quantized weights.
const QUANTIZED_BOUND: f64 = 4e-2;
/// The same where K and V are stored in f16 or bytes.
const ROUNDED_KV_BOUND: f64 = 3e-3;
/// The same in bf16, which has three bits less than f16.
const BF16_KV_BOUND: f64 = 8.0 * ROUNDED_KV_BOUND;

/// Rows of numbers.
pub(crate) type Rows = Vec<Vec<f64>>;

/// A model's weights, asked for by part.
#[derive(Clone, Copy)]
pub(crate) struct Oracle<'a> {
    package: &'a Package,
}

impl<'a> Oracle<'a> {
    pub(crate) fn new(package: &'a Package) -> Oracle<'a> {
        Oracle { package }
    }

    fn config(&self) -> &'a Config {
        &self.package.config
    }

    /// A matrix of the package.
    pub(crate) fn matrix(&self, part: Part) -> Result<Matrix<'a>, Stop> {
        self.package.weights.matrix(part).map_err(|error| Stop::failed("weights", error))
    }

    /// A vector of the package; zeros or ones have to be made by who asks.
    pub(crate) fn vector(&self, part: Part, suffix: Suffix) -> Result<Option<Vec<f64>>, Stop> {
        let vector = self.package.weights.vector(part, suffix);
        let vector = vector.map_err(|error| Stop::failed("weights", error))?;
        Ok(vector.map(|vector| wide(&vector)))
    }

    /// `x W + bias` for rows of `x`.
    pub(crate) fn linear(&self, part: Part, x: &Rows) -> Result<Rows, Stop> {
        let matrix = self.matrix(part)?;
        if x.iter().any(|row| row.len() != matrix.inputs) {
            let found = format!("its input is not {} wide", matrix.inputs);
            return Err(Stop::failed(format!("{part:?}"), found));
        }
        let mut y = multiply(&matrix, x);
        if !matches!(part, Part::TokenEmbedding | Part::PositionEmbedding | Part::Head)
            && let Some(bias) = self.vector(part, Suffix::Bias)?
        {
            let add = |row: &mut Vec<f64>| row.iter_mut().zip(&bias).for_each(|(y, b)| *y += b);
            y.iter_mut().for_each(add);
        }
        Ok(y)
    }

    /// The norm `part` of rows of `x`: layer norm for GPT-2, RMS norm for Llama.
    pub(crate) fn norm(&self, part: Part, x: &Rows) -> Result<Rows, Stop> {
        let gain = self.vector(part, Suffix::Weight)?.unwrap_or_default();
        let bias = self.vector(part, Suffix::Bias)?;
        let centred = self.config().architecture == Architecture::Gpt2;
        let epsilon = f64::from(self.config().norm_epsilon);
        Ok(x.iter().map(|x| norm(x, &gain, bias.as_deref(), epsilon, centred)).collect())
    }

    /// Queries, keys and values of rows of the attention's normalized input, not rotated.
    pub(crate) fn qkv(&self, layer: usize, x: &Rows) -> Result<[Rows; 3], Stop> {
        let part = |part| Part::Layer(layer, part);
        if self.config().architecture == Architecture::Gpt2 {
            let fused = self.linear(part(LayerPart::Qkv), x)?;
            let Config { heads, kv_heads, head_dim, .. } = self.config();
            let (key, value) = (heads * head_dim, (heads + kv_heads) * head_dim);
            let columns = |from: usize, to: Option<usize>| -> Rows {
                fused.iter().map(|row| row[from..to.unwrap_or(row.len())].to_vec()).collect()
            };
            return Ok([columns(0, Some(key)), columns(key, Some(value)), columns(value, None)]);
        }
        let [q, k, v] = [LayerPart::Q, LayerPart::K, LayerPart::V].map(part);
        Ok([self.linear(q, x)?, self.linear(k, x)?, self.linear(v, x)?])
    }

    /// The parts that give queries, keys and values.
    pub(crate) fn qkv_parts(&self, layer: usize) -> Vec<Part> {
        let parts: &[LayerPart] = match self.config().architecture {
            Architecture::Gpt2 => &[LayerPart::Qkv],
            Architecture::Llama => &[LayerPart::Q, LayerPart::K, LayerPart::V],
        };
        parts.iter().map(|&part| Part::Layer(layer, part)).collect()
    }

    /// The rows that go into the first layer, for `tokens` from position 0.
    pub(crate) fn entered(&self, tokens: &[u32]) -> Result<Rows, Stop> {
        let table = self.matrix(Part::TokenEmbedding)?;
        let mut rows: Rows =
            tokens.iter().map(|&token| matrix_row(&table, token as usize)).collect();
        if self.config().architecture == Architecture::Gpt2 {
            let table = self.matrix(Part::PositionEmbedding)?;
            for (position, row) in rows.iter_mut().enumerate() {
                let place = matrix_row(&table, position);
                row.iter_mut().zip(place).for_each(|(x, y)| *x += y);
            }
        }
        Ok(rows)
    }

    /// Rows of queries or keys as they meet: rotated by their positions, where the model does so.
    pub(crate) fn placed(&self, rows: &Rows, first_position: usize) -> Rows {
        let Some(rope) = &self.config().rope else { return rows.clone() };
        let mut rows = rows.clone();
        for (index, row) in rows.iter_mut().enumerate() {
            for head in row.chunks_exact_mut(self.config().head_dim) {
                rotate(head, first_position + index, rope);
            }
        }
        rows
    }

    /// How far a product with these parts may be from the exact one.
    pub(crate) fn bound(&self, parts: &[Part]) -> Result<f64, Stop> {
        let mut bound = FLOAT_BOUND;
        for &part in parts {
            if self.matrix(part)?.tensor.dtype.block_elements() > 1 {
                bound = QUANTIZED_BOUND;
            }
        }
        Ok(bound)
    }

    /// How far what reads K and V from the cache may be from the exact result.
    pub(crate) fn kv_bound(kv_type: KvType) -> f64 {
        match kv_type {
            KvType::F32 => FLOAT_BOUND,
            KvType::F16 | KvType::Q8_0 => ROUNDED_KV_BOUND,
            KvType::BF16 => BF16_KV_BOUND,
        }
    }
}
