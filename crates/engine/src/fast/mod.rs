//! The fast forward: the same operations on the kernels, over packed weights and paged K/V.

mod faulty;
mod kv_choice;
mod matrix_order;
mod packed;
mod scratch;
mod weighed;

use kernels::{
    ActivationRows, KvError, KvStore, PackedMatrix, RopeTable, RowPlace, Strided, Team,
    attention_pattern, attention_scores,
};

pub(crate) use faulty::{Faulty, bend};
pub(crate) use packed::{PackLoad, Packed};
pub(crate) use scratch::Scratch;
pub(crate) use weighed::WeighLoad;

use crate::ops::Ops;
use crate::rows::{Heads, Norm, Rows};
use crate::taps::{Site, TapPoint, Taps};

/// The matmul to use: the right one, or a broken one that tests must notice.
pub(crate) type MatMul = fn(&Team, &PackedMatrix, &ActivationRows, &mut [f32]);

/// Of more rows, multiplying takes the time, and not reading the weights.
const READ_AHEAD_ROWS: usize = 8;

/// What one head of one row has with each position that it sees.
type Look = fn(&KvStore, usize, &[f32], RowPlace, usize, f32) -> Vec<f32>;

/// The operations over the rows of one step, which may belong to several sequences.
pub(crate) struct FastOps<'a> {
    pub(crate) team: &'a Team,
    pub(crate) kv: &'a mut KvStore,
    pub(crate) rope: Option<&'a RopeTable>,
    pub(crate) tokens: &'a [u32],
    pub(crate) places: &'a [RowPlace<'a>],
    pub(crate) logit_rows: &'a [usize],
    pub(crate) taps: Option<&'a mut dyn Taps>,
    pub(crate) scratch: &'a mut Scratch,
    /// The buffer that the logits are written to.
    pub(crate) logits: Rows,
    pub(crate) matmul: MatMul,
    /// The places of the rows that are left, once they have been narrowed to the logit rows.
    pub(crate) narrowed: Option<Vec<RowPlace<'a>>>,
    /// Why K/V could not be stored, if they could not; the step's results are void then.
    pub(crate) error: Option<KvError>,
}

impl FastOps<'_> {
    /// A copy of the rows whose logits are asked for.
    fn choose(&mut self, x: &Rows) -> Rows {
        let mut chosen = self.scratch.take(self.logit_rows.len(), x.width);
        for (to, &row) in chosen.data.chunks_exact_mut(x.width).zip(self.logit_rows) {
            to.copy_from_slice(x.row(row));
        }
        chosen
    }

    fn multiply(&mut self, x: &Rows, matrix: &Packed, out: &mut Rows) {
        let mut column = 0;
        for (index, block) in matrix.blocks.iter().enumerate() {
            let activations = &mut self.scratch.activations;
            if index == 0 || !activations.suits(block.weight_type()) {
                activations.set(self.team, &x.data, x.rows, x.width, block.weight_type());
            }
            if x.rows <= READ_AHEAD_ROWS {
                self.team.read_ahead(self.scratch.order.pass(block));
            }
            if block.outputs() == out.width {
                (self.matmul)(self.team, block, activations, &mut out.data);
                return;
            }
            let mut part = self.scratch.take(x.rows, block.outputs());
            (self.matmul)(self.team, block, &self.scratch.activations, &mut part.data);
            for row in 0..x.rows {
                let to = row * out.width + column;
                out.data[to..to + part.width].copy_from_slice(part.row(row));
            }
            column += part.width;
            self.scratch.give(part);
        }
    }

    /// Keeps the keys and values of fused rows; false if they cannot be kept.
    fn store(&mut self, layer: usize, qkv: &Rows, heads: Heads) -> bool {
        let part = |offset| Strided { data: &qkv.data, stride: qkv.width, offset };
        let (k, v) = (part(heads.key_column()), part(heads.value_column()));
        let stored = kernels::store_kv(self.team, self.kv, layer, k, v, self.places);
        self.error = stored.err().or(self.error.take());
        self.error.is_none()
    }

    /// Shows how well each row's query fits each position, and how much it attends to it.
    fn tap_attention(&mut self, layer: usize, qkv: &Rows, heads: Heads) {
        let scores = (attention_scores as Look, f32::NEG_INFINITY);
        self.tap_positions(layer, Site::Scores, qkv, heads, scores);
        self.tap_positions(layer, Site::Pattern, qkv, heads, (attention_pattern, 0.0));
    }

    /// Shows what `look` gives for each row's positions, `heads x rows x positions`, and `hidden`
    /// for those that a row does not see.
    fn tap_positions(
        &mut self,
        layer: usize,
        site: Site,
        qkv: &Rows,
        heads: Heads,
        (look, hidden): (Look, f32),
    ) {
        let point = TapPoint { layer: Some(layer), site };
        let Some(taps) = self.taps.as_mut().filter(|taps| taps.wants(point)) else { return };
        let positions = self.places.iter().map(|place| place.position + 1).max().unwrap_or(0);
        let scale = heads.scale();
        let mut seen = Vec::with_capacity(heads.query * qkv.rows * positions);
        for head in 0..heads.query {
            for (row, &place) in self.places.iter().enumerate() {
                let query = &qkv.row(row)[..heads.key_column()];
                seen.extend(look(self.kv, layer, query, place, head, scale));
                seen.resize((head * qkv.rows + row + 1) * positions, hidden);
            }
        }
        taps.record(point, &[heads.query, qkv.rows, positions], &seen);
    }
}

impl Ops for FastOps<'_> {
    type Matrix = Packed;

    fn embed_tokens(&mut self, table: &Packed) -> Rows {
        self.scratch.order.begin();
        let mut x = self.scratch.take(self.tokens.len(), table.inputs);
        for (row, &token) in x.data.chunks_exact_mut(table.inputs).zip(self.tokens) {
            table.blocks[0].row(token as usize, row);
        }
        x
    }

    fn embed_positions(&mut self, table: &Packed) -> Rows {
        let mut x = self.scratch.take(self.places.len(), table.inputs);
        for (row, place) in x.data.chunks_exact_mut(table.inputs).zip(self.places) {
            table.blocks[0].row(place.position, row);
        }
        x
    }

    fn layer_norm(&mut self, x: &Rows, norm: &Norm) -> Rows {
        let mut y = self.scratch.take(x.rows, x.width);
        let (gain, bias) = (&norm.gain, &norm.bias);
        kernels::layer_norm(self.team, &x.data, gain, Some(bias), norm.epsilon, &mut y.data);
        y
    }

    fn rms_norm(&mut self, x: &Rows, norm: &Norm) -> Rows {
        let mut y = self.scratch.take(x.rows, x.width);
        kernels::rms_norm(self.team, &x.data, &norm.gain, norm.epsilon, &mut y.data);
        y
    }

    fn linear(&mut self, x: Rows, matrix: &Packed) -> Rows {
        let mut y = self.scratch.take(x.rows, matrix.outputs);
        self.multiply(&x, matrix, &mut y);
        self.scratch.give(x);
        y
    }

    fn unembed(&mut self, x: Rows, head: &Packed) -> Rows {
        let buffer = std::mem::take(&mut self.logits.data);
        let mut logits = Rows::over(buffer, x.rows, head.outputs);
        self.multiply(&x, head, &mut logits);
        self.scratch.give(x);
        logits
    }

    fn rope(&mut self, qkv: &mut Rows, heads: Heads) {
        let Some(table) = self.rope else { return };
        // Queries and keys lie side by side and turn alike: they are rotated as heads of one kind.
        let turned = heads.query + heads.kv;
        let positions = &self.scratch.positions;
        kernels::rope(self.team, table, &mut qkv.data, qkv.width, turned, positions);
    }

    fn keep(&mut self, layer: usize, qkv: &Rows, heads: Heads) {
        if self.store(layer, qkv, heads) {
            self.tap_attention(layer, qkv, heads);
        }
    }

    fn narrow(&mut self, x: &mut Rows, qkv: &mut Rows) {
        // Taps see all rows of every layer, so nothing is dropped for them.
        let all = self.logit_rows.iter().copied().eq(0..self.places.len());
        if all || self.taps.is_some() {
            return;
        }
        for rows in [x, qkv] {
            let chosen = self.choose(rows);
            self.scratch.give(std::mem::replace(rows, chosen));
        }
        self.narrowed = Some(self.logit_rows.iter().map(|&row| self.places[row]).collect());
    }

    fn attention(&mut self, layer: usize, qkv: Rows, heads: Heads) -> Rows {
        let mut mixed = self.scratch.take(qkv.rows, heads.query * heads.dim);
        if self.error.is_none() {
            let q = Strided { data: &qkv.data, stride: qkv.width, offset: 0 };
            let places = self.narrowed.as_deref().unwrap_or(self.places);
            let (out, scratch) = (&mut mixed.data, &mut self.scratch.attention);
            kernels::attention(self.team, self.kv, layer, q, places, heads.scale(), out, scratch);
        }
        self.scratch.give(qkv);
        mixed
    }

    fn gelu(&mut self, mut x: Rows, tanh: bool) -> Rows {
        if tanh {
            kernels::gelu_tanh(self.team, &mut x.data);
        } else {
            kernels::gelu(self.team, &mut x.data);
        }
        x
    }

    fn silu_gated(&mut self, gate_up: Rows) -> Rows {
        let width = gate_up.width / 2;
        let mut out = self.scratch.take(gate_up.rows, width);
        let half = |offset| Strided { data: &gate_up.data, stride: gate_up.width, offset };
        kernels::silu_mul(self.team, half(0), half(width), width, &mut out.data);
        self.scratch.give(gate_up);
        out
    }

    fn add(&mut self, x: &mut Rows, y: Rows) {
        kernels::add(self.team, &mut x.data, &y.data);
        self.scratch.give(y);
    }

    fn logit_rows(&mut self, x: Rows) -> Rows {
        if self.narrowed.is_some() {
            return x;
        }
        let chosen = self.choose(&x);
        self.scratch.give(x);
        chosen
    }

    fn taps(&mut self) -> Option<&mut dyn Taps> {
        match &mut self.taps {
            Some(taps) => Some(&mut **taps),
            None => None,
        }
    }
}
