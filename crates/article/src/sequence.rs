//! Runs of the model that are looked at: what a step's taps showed, and what the KV cache holds.

use std::collections::BTreeMap;
use std::ops::Range;

use engine::{Batch, ForwardError, Model, Site, TapPoint, Taps};
use kernels::{KvError, KvStore, PAGE_TOKENS, PageId, RowPlace, Strided, Team, store_kv};

use crate::oracle::{Rows, wide};
use crate::tally::Stop;

/// A tensor that a tap showed; its shape is without the batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

impl Tensor {
    /// The shape with the batch of one in front.
    pub(crate) fn batched(&self) -> Vec<usize> {
        [&[1], &self.shape[..]].concat()
    }

    /// Numbers of one entry of the first axis.
    pub(crate) fn width(&self) -> usize {
        self.shape[1..].iter().product()
    }

    /// One entry of the first axis; nothing if there is no such one.
    pub(crate) fn row(&self, row: usize) -> &[f32] {
        let width = self.width();
        self.values.get(row * width..(row + 1) * width).unwrap_or_default()
    }

    /// All entries of the first axis in double precision.
    pub(crate) fn rows(&self) -> Rows {
        self.values.chunks_exact(self.width().max(1)).map(wide).collect()
    }

    /// The vector at two indices of a tensor of three axes.
    pub(crate) fn at(&self, first: usize, second: usize) -> &[f32] {
        let width = self.shape.last().copied().unwrap_or(0);
        self.row(first).get(second * width..(second + 1) * width).unwrap_or_default()
    }
}

/// What one step showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pass {
    taps: BTreeMap<TapPoint, Tensor>,
    /// The taps in the order in which they were shown.
    pub(crate) order: Vec<TapPoint>,
    /// The logits of all rows.
    pub(crate) logits: Vec<f32>,
}

impl Pass {
    /// The tensor at a place of one layer, which the engine must have shown.
    pub(crate) fn at(&self, layer: usize, site: Site) -> Result<&Tensor, Stop> {
        self.find(TapPoint { layer: Some(layer), site })
    }

    /// The tensor at a place outside the layers, which the engine must have shown.
    pub(crate) fn of(&self, site: Site) -> Result<&Tensor, Stop> {
        self.find(TapPoint::from(site))
    }

    fn find(&self, point: TapPoint) -> Result<&Tensor, Stop> {
        let found = self.taps.get(&point);
        found.ok_or_else(|| Stop::failed(point, "the engine did not show this tensor"))
    }

    /// Whether the engine showed a tensor at a place of one layer.
    pub(crate) fn has(&self, layer: usize, site: Site) -> bool {
        self.taps.contains_key(&TapPoint { layer: Some(layer), site })
    }

    /// Queries as they meet the keys: rotated, where the model does so.
    pub(crate) fn met_queries(&self, layer: usize) -> Result<&Tensor, Stop> {
        let rotated = self.has(layer, Site::RotatedQuery);
        self.at(layer, if rotated { Site::RotatedQuery } else { Site::Query })
    }

    /// Keys as they are met.
    pub(crate) fn met_keys(&self, layer: usize) -> Result<&Tensor, Stop> {
        let rotated = self.has(layer, Site::RotatedKey);
        self.at(layer, if rotated { Site::RotatedKey } else { Site::Key })
    }

    /// The sites of one layer, in the order in which they were shown.
    pub(crate) fn sites(&self, layer: usize) -> Vec<Site> {
        let of_layer = self.order.iter().filter(|point| point.layer == Some(layer));
        of_layer.map(|point| point.site).collect()
    }
}

#[cfg(test)]
impl Pass {
    /// The tensor at `point`, to change it.
    pub(crate) fn tensor_mut(&mut self, point: TapPoint) -> &mut Tensor {
        self.taps.entry(point).or_insert(Tensor { shape: Vec::new(), values: Vec::new() })
    }
}

#[cfg(test)]
impl Kv {
    /// Changes each number, by its place.
    pub(crate) fn change(&mut self, change: fn(usize, f32) -> f32) {
        for numbers in [&mut self.keys, &mut self.values] {
            numbers.iter_mut().enumerate().for_each(|(at, x)| *x = change(at, *x));
        }
    }
}

impl Taps for Pass {
    fn wants(&self, _point: TapPoint) -> bool {
        true
    }

    fn record(&mut self, point: TapPoint, shape: &[usize], values: &[f32]) {
        self.order.push(point);
        self.taps.insert(point, Tensor { shape: shape.to_vec(), values: values.to_vec() });
    }
}

/// Why a sequence could not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SequenceError {
    #[error(transparent)]
    Forward(#[from] ForwardError),
    #[error(transparent)]
    Kv(#[from] KvError),
}

/// One sequence with its own KV cache.
pub(crate) struct Sequence {
    store: KvStore,
    pages: Vec<PageId>,
    /// Tokens given so far.
    length: usize,
}

impl Sequence {
    /// An empty sequence with room for `capacity` tokens.
    pub(crate) fn new(model: &Model, capacity: usize) -> Result<Sequence, SequenceError> {
        let pages = capacity.div_ceil(PAGE_TOKENS).max(1);
        let mut store = KvStore::new(model.kv_geometry(), pages)?;
        // In descending order, so that a page's number is never its place by luck.
        let pages: Vec<PageId> = (0..pages as PageId).rev().collect();
        pages.iter().for_each(|&page| store.zero_page(page));
        Ok(Sequence { store, pages, length: 0 })
    }

    /// Appends `tokens` in one step, looks at every tensor, and computes all logits.
    pub(crate) fn step(
        &mut self,
        model: &mut Model,
        tokens: &[u32],
    ) -> Result<Pass, SequenceError> {
        let rows: Vec<usize> = (0..tokens.len()).collect();
        let mut pass = Pass::default();
        pass.logits = self.run(model, tokens, &rows, &mut pass)?;
        Ok(pass)
    }

    /// Appends `tokens` in one step and gives the logits of its rows `logit_rows`.
    pub(crate) fn run(
        &mut self,
        model: &mut Model,
        tokens: &[u32],
        logit_rows: &[usize],
        taps: &mut dyn Taps,
    ) -> Result<Vec<f32>, SequenceError> {
        let positions = self.length..self.length + tokens.len();
        let places: Vec<RowPlace> =
            positions.map(|position| RowPlace { pages: &self.pages, position }).collect();
        let batch = Batch { tokens, places: &places, logit_rows };
        self.length += tokens.len();
        Ok(model.forward(&mut self.store, &batch, taps)?.to_vec())
    }

    /// Doubles the values of layer 0 in the cache.
    pub(crate) fn double_values(&mut self, team: &Team) -> Result<(), SequenceError> {
        let geometry = self.store.geometry();
        for position in 0..self.length {
            let (page, slot) = (self.pages[position / PAGE_TOKENS], position % PAGE_TOKENS);
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for head in 0..geometry.kv_heads {
                let (key, value) = self.store.read(page, 0, head, slot);
                keys.extend(key);
                values.extend(value.iter().map(|number| 2.0 * number));
            }
            let row = |data| Strided { data, stride: values.len(), offset: 0 };
            let place = RowPlace { pages: &self.pages, position };
            store_kv(team, &mut self.store, 0, row(&keys), row(&values), &[place])?;
        }
        Ok(())
    }

    /// How many numbers other than zero the cache's memory holds.
    pub(crate) fn written_numbers(&self) -> usize {
        let size = self.store.geometry().kv_type.bytes();
        let written = |page: &PageId| {
            let numbers = self.store.page_bytes(*page).chunks_exact(size);
            numbers.filter(|number| number.iter().any(|byte| *byte != 0)).count()
        };
        self.pages.iter().map(written).sum()
    }

    /// What the KV cache holds, whatever was asked to be written there.
    pub(crate) fn kv(&self) -> Kv {
        let geometry = self.store.geometry();
        let capacity = self.pages.len() * PAGE_TOKENS;
        let mut kv = Kv { layers: geometry.layers, heads: geometry.kv_heads, ..Kv::default() };
        kv.capacity = capacity;
        kv.width = geometry.head_dim;
        kv.number_bytes = geometry.kv_type.bytes();
        for layer in 0..geometry.layers {
            for head in 0..geometry.kv_heads {
                for position in 0..capacity {
                    let page = self.pages[position / PAGE_TOKENS];
                    let slot = position % PAGE_TOKENS;
                    let (key, value) = self.store.read(page, layer, head, slot);
                    kv.keys.extend(key);
                    kv.values.extend(value);
                }
            }
        }
        kv
    }
}

/// The content of a KV cache: layers, heads, positions, numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Kv {
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// Positions that there is room for.
    pub(crate) capacity: usize,
    /// Numbers of one key or value.
    pub(crate) width: usize,
    /// Bytes of one number.
    pub(crate) number_bytes: usize,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Kv {
    fn range(&self, layer: usize, head: usize, positions: Range<usize>) -> Range<usize> {
        let start = (layer * self.heads + head) * self.capacity;
        (start + positions.start) * self.width..(start + positions.end) * self.width
    }

    /// The keys of one head at some positions.
    pub(crate) fn keys(&self, layer: usize, head: usize, positions: Range<usize>) -> &[f32] {
        &self.keys[self.range(layer, head, positions)]
    }

    /// The values of one head at some positions.
    pub(crate) fn values(&self, layer: usize, head: usize, positions: Range<usize>) -> &[f32] {
        &self.values[self.range(layer, head, positions)]
    }

    /// Whether anything is stored at a position, in a layer. Pages are zeros before.
    pub(crate) fn holds(&self, layer: usize, position: usize) -> bool {
        let mut heads = 0..self.heads;
        heads.any(|head| {
            let at = position..position + 1;
            let numbers = [self.keys(layer, head, at.clone()), self.values(layer, head, at)];
            numbers.concat().iter().any(|&number| number != 0.0)
        })
    }

    /// How many positions a layer's cache holds.
    pub(crate) fn length(&self, layer: usize) -> usize {
        (0..self.capacity).filter(|&position| self.holds(layer, position)).count()
    }
}
