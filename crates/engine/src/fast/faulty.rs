//! The fast operations with one of them bent, so that checks can be seen to notice. Only built
//! where a fault was asked for: the right operations know nothing of it.

use kernels::RowPlace;

use super::{FastOps, Packed};
use crate::fault::Fault;
use crate::ops::Ops;
use crate::rows::{Heads, Norm, Rows};
use crate::taps::Taps;

/// Multiplications of one transformer block, in every architecture: q, k and v in one, then the
/// attention's output, then the MLP's two.
const LINEARS_PER_BLOCK: usize = 4;

/// The operations over the rows of one step, with a fault.
pub(crate) struct Faulty<'o, 'a> {
    inner: &'o mut FastOps<'a>,
    fault: Fault,
    heads: Heads,
    context: usize,
    /// Where the fault takes the rows to stand.
    bent: &'a [RowPlace<'a>],
    /// Multiplications so far.
    linears: usize,
}

/// Where `fault` takes the rows of a step to stand; nothing if there is no fault.
pub(crate) fn bend<'a>(
    fault: Option<Fault>,
    places: &[RowPlace<'a>],
    context: usize,
) -> Vec<RowPlace<'a>> {
    let bent = |place: &RowPlace<'a>| {
        let same = |other: &&RowPlace| std::ptr::eq(other.pages, place.pages);
        let of_sequence = || places.iter().filter(same).map(|other| other.position);
        let RowPlace { pages, position } = *place;
        let position = match fault {
            Some(Fault::OpenMask) => of_sequence().max().unwrap_or(position),
            Some(Fault::PositionOff) => (position + 1) % context,
            Some(Fault::CacheShort) if of_sequence().all(|other| other > 0) => position - 1,
            _ => position,
        };
        RowPlace { pages, position }
    };
    if fault.is_some() { places.iter().map(bent).collect() } else { Vec::new() }
}

impl<'o, 'a> Faulty<'o, 'a> {
    pub(crate) fn new(
        inner: &'o mut FastOps<'a>,
        fault: Fault,
        bent: &'a [RowPlace<'a>],
        heads: Heads,
        context: usize,
    ) -> Self {
        Faulty { inner, fault, heads, context, bent, linears: 0 }
    }

    /// What `operation` does where it stands wrongly, if that is the fault.
    fn bent<T>(&mut self, faults: &[Fault], operation: impl FnOnce(&mut FastOps) -> T) -> T {
        let places = self.inner.places;
        if faults.contains(&self.fault) {
            self.inner.places = self.bent;
        }
        let result = operation(self.inner);
        self.inner.places = places;
        result
    }
}

impl Ops for Faulty<'_, '_> {
    type Matrix = Packed;

    fn embed_tokens(&mut self, table: &Packed) -> Rows {
        self.inner.embed_tokens(table)
    }

    fn embed_positions(&mut self, table: &Packed) -> Rows {
        self.bent(&[Fault::PositionOff], |ops| ops.embed_positions(table))
    }

    fn layer_norm(&mut self, x: &Rows, norm: &Norm) -> Rows {
        self.inner.layer_norm(x, norm)
    }

    fn rms_norm(&mut self, x: &Rows, norm: &Norm) -> Rows {
        self.inner.rms_norm(x, norm)
    }

    fn linear(&mut self, x: Rows, matrix: &Packed) -> Rows {
        let mut y = self.inner.linear(x, matrix);
        if self.fault == Fault::SplitOrder && self.linears.is_multiple_of(LINEARS_PER_BLOCK) {
            let (query, key) = (self.heads.query * self.heads.dim, self.heads.kv * self.heads.dim);
            for row in y.data.chunks_exact_mut(y.width) {
                row[..query + key].rotate_left(key);
            }
        }
        self.linears += 1;
        y
    }

    fn unembed(&mut self, x: Rows, head: &Packed) -> Rows {
        self.inner.unembed(x, head)
    }

    fn rope(&mut self, qkv: &mut Rows, heads: Heads) {
        let positions = self.inner.scratch.positions.clone();
        if self.fault == Fault::PositionOff {
            let next = positions.iter().map(|position| (position + 1) % self.context);
            self.inner.scratch.positions = next.collect();
        }
        self.inner.rope(qkv, heads);
        self.inner.scratch.positions = positions;
    }

    fn keep(&mut self, layer: usize, qkv: &Rows, heads: Heads) {
        if self.bent(&[Fault::CacheShort], |ops| ops.store(layer, qkv, heads)) {
            let faults = [Fault::CacheShort, Fault::OpenMask];
            self.bent(&faults, |ops| ops.tap_attention(layer, qkv, heads));
        }
    }

    fn narrow(&mut self, x: &mut Rows, qkv: &mut Rows) {
        self.bent(&[Fault::CacheShort, Fault::OpenMask], |ops| ops.narrow(x, qkv));
    }

    fn attention(&mut self, layer: usize, qkv: Rows, heads: Heads) -> Rows {
        let faults = [Fault::CacheShort, Fault::OpenMask];
        self.bent(&faults, |ops| ops.attention(layer, qkv, heads))
    }

    fn gelu(&mut self, x: Rows, tanh: bool) -> Rows {
        self.inner.gelu(x, tanh)
    }

    fn silu_gated(&mut self, gate_up: Rows) -> Rows {
        self.inner.silu_gated(gate_up)
    }

    fn add(&mut self, x: &mut Rows, y: Rows) {
        // Before the first multiplication it is positions that are added.
        if self.fault == Fault::NoResidual && self.linears > 0 {
            x.data.copy_from_slice(&y.data);
            self.inner.scratch.give(y);
        } else {
            self.inner.add(x, y);
        }
    }

    fn logit_rows(&mut self, x: Rows) -> Rows {
        self.inner.logit_rows(x)
    }

    fn taps(&mut self) -> Option<&mut dyn Taps> {
        self.inner.taps()
    }
}
