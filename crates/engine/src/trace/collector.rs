//! Looks at the tensors of a step.

use package::Architecture;

use super::document::{Stats, Step, Tensor};
use super::name::{Subject, TensorName};
use crate::taps::{Site, TapPoint, Taps};

/// Numbers shown of each tensor.
const FIRST: usize = 8;

/// One query head's row in one layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) layer: usize,
    pub(super) head: usize,
    /// The KV head that the query head reads.
    pub(super) kv_head: usize,
    pub(super) query: usize,
}

/// Keeps the tensors that were asked for, whole.
pub(super) struct Keeper<'a> {
    keep: &'a dyn Fn(TensorName) -> bool,
    /// Bytes that may still be kept.
    room: usize,
    /// Whether more was asked for than there is room for.
    pub(super) overflowed: bool,
    pub(super) tensors: Vec<(TensorName, Tensor)>,
}

impl<'a> Keeper<'a> {
    pub(super) fn new(keep: &'a dyn Fn(TensorName) -> bool, room: usize) -> Self {
        Self { keep, room, overflowed: false, tensors: Vec::new() }
    }

    pub(super) fn wants(&self, name: TensorName) -> bool {
        !self.overflowed && (self.keep)(name)
    }

    /// Keeps a tensor that is wanted; `shape` is without the batch.
    pub(super) fn offer(&mut self, name: TensorName, shape: &[usize], values: &[f32]) {
        if !self.wants(name) {
            return;
        }
        match self.room.checked_sub(size_of_val(values)) {
            Some(room) => {
                self.room = room;
                let (text, values) = (name.to_string(), values.to_vec());
                self.tensors.push((name, Tensor { name: text, shape: batched(shape), values }));
            }
            None => self.overflowed = true,
        }
    }
}

/// `shape` with the batch of one in front.
fn batched(shape: &[usize]) -> Vec<usize> {
    [&[1], shape].concat()
}

/// A tensor's first numbers and the facts about all of them, of scores about those that the mask
/// leaves; `shape` is without the batch.
pub(super) fn summary(
    name: TensorName,
    architecture: Architecture,
    shape: &[usize],
    values: &[f32],
) -> Step {
    Step {
        name: name.to_string(),
        alias: name.alias(architecture),
        shape: batched(shape),
        first: values.iter().copied().take(FIRST).collect(),
        row: Vec::new(),
        stats: match name.subject {
            Subject::Tap(TapPoint { site: Site::Scores, .. }) => {
                let left = values.iter().copied().filter(|&score| score != f32::NEG_INFINITY);
                stats(&left.collect::<Vec<_>>())
            }
            _ => stats(values),
        },
    }
}

/// Summarizes every tensor of the prefill, and keeps those that were asked for.
pub(super) struct Collector<'a, 'b> {
    pub(super) architecture: Architecture,
    pub(super) spot: Spot,
    /// Whether the attention scores and weights of all layers are wanted, or only those of the
    /// spot's.
    pub(super) all_patterns: bool,
    pub(super) keeper: &'b mut Keeper<'a>,
    pub(super) steps: Vec<Step>,
    /// The query at the spot, as it meets the keys.
    pub(super) query: Vec<f32>,
    /// The key of the same row, as the queries meet it.
    pub(super) key: Vec<f32>,
    /// The attention weights at the spot.
    pub(super) weights: Vec<f32>,
}

impl Collector<'_, '_> {
    /// The first numbers of the spot's row, in its head where there are heads; of what comes after
    /// the layers, those of the last row, which the next token is chosen by. Nothing of a tensor
    /// whose rows are no tokens.
    fn row(&self, point: TapPoint, shape: &[usize], values: &[f32]) -> Vec<f32> {
        let Spot { head, kv_head, query, .. } = self.spot;
        let start = match (point.site, shape) {
            (Site::Scores | Site::Pattern, _) => return Vec::new(),
            (Site::FinalNorm | Site::Logits, &[rows, width]) => rows.saturating_sub(1) * width,
            (Site::Key | Site::RotatedKey | Site::Value, &[_, heads, width]) => {
                (query * heads + kv_head) * width
            }
            (_, &[_, heads, width]) => (query * heads + head) * width,
            (_, &[_, width]) => query * width,
            _ => return Vec::new(),
        };
        values.iter().copied().skip(start).take(FIRST).collect()
    }

    fn look_at_spot(&mut self, point: TapPoint, shape: &[usize], values: &[f32]) {
        let Spot { head, kv_head, query, .. } = self.spot;
        let (&[first, second, third], true) = (shape, point.layer == Some(self.spot.layer)) else {
            return;
        };
        let row = |head: usize| values[(query * second + head) * third..][..third].to_vec();
        match point.site {
            // Rows, heads, dimensions. What is rotated comes after the plain one.
            Site::Query | Site::RotatedQuery if query < first && head < second => {
                self.query = row(head);
            }
            Site::Key | Site::RotatedKey if query < first && kv_head < second => {
                self.key = row(kv_head);
            }
            // Heads, rows, positions.
            Site::Pattern if head < first && query < second => {
                self.weights = values[(head * second + query) * third..][..third].to_vec();
            }
            _ => {}
        }
    }
}

/// The tensor at `point` in the prefill.
fn in_prefill(point: TapPoint) -> TensorName {
    TensorName { decode: None, subject: Subject::Tap(point) }
}

impl Taps for Collector<'_, '_> {
    fn wants(&self, point: TapPoint) -> bool {
        !matches!(point.site, Site::Scores | Site::Pattern)
            || self.all_patterns
            || point.layer == Some(self.spot.layer)
            || self.keeper.wants(in_prefill(point))
    }

    fn record(&mut self, point: TapPoint, shape: &[usize], values: &[f32]) {
        self.look_at_spot(point, shape, values);
        self.keeper.offer(in_prefill(point), shape, values);
        let row = self.row(point, shape, values);
        self.steps
            .push(Step { row, ..summary(in_prefill(point), self.architecture, shape, values) });
    }
}

fn stats(values: &[f32]) -> Stats {
    let count = values.len().max(1) as f64;
    let sum: f64 = values.iter().copied().map(f64::from).sum();
    let mean = sum / count;
    let squares: f64 = values.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum();
    // Unlike `f32::min`, these let a NaN through: it must be seen.
    let least = |a: f32, b: f32| if b < a || b.is_nan() { b } else { a };
    let greatest = |a: f32, b: f32| if b > a || b.is_nan() { b } else { a };
    let values = || values.iter().copied();
    Stats {
        min: values().reduce(least).unwrap_or(0.0),
        max: values().reduce(greatest).unwrap_or(0.0),
        mean,
        std: (squares / count).sqrt(),
        sum,
    }
}

/// Sees shapes in one layer of a decode step, and keeps the tensors that were asked for.
pub(super) struct DecodeCollector<'a, 'b> {
    pub(super) step: usize,
    pub(super) layer: usize,
    pub(super) keeper: &'b mut Keeper<'a>,
    /// Shapes of the layer's new queries, keys and values, heads before rows, and of its attention
    /// weights.
    pub(super) query: Vec<usize>,
    pub(super) key: Vec<usize>,
    pub(super) value: Vec<usize>,
    pub(super) pattern: Vec<usize>,
}

impl<'a, 'b> DecodeCollector<'a, 'b> {
    pub(super) fn new(step: usize, layer: usize, keeper: &'b mut Keeper<'a>) -> Self {
        let none = Vec::new;
        let (query, key, value, pattern) = (none(), none(), none(), none());
        Self { step, layer, keeper, query, key, value, pattern }
    }

    fn name(&self, point: TapPoint) -> TensorName {
        TensorName { decode: Some(self.step), subject: Subject::Tap(point) }
    }
}

impl Taps for DecodeCollector<'_, '_> {
    fn wants(&self, point: TapPoint) -> bool {
        let here = point.layer == Some(self.layer);
        let shown =
            matches!(point.site, Site::Query | Site::Key | Site::Value | Site::Pattern) && here;
        shown || self.keeper.wants(self.name(point))
    }

    fn record(&mut self, point: TapPoint, shape: &[usize], values: &[f32]) {
        self.keeper.offer(self.name(point), shape, values);
        let (&[rows, heads, width], true) = (shape, point.layer == Some(self.layer)) else {
            return;
        };
        match point.site {
            Site::Query => self.query = vec![1, heads, rows, width],
            Site::Key => self.key = vec![1, heads, rows, width],
            Site::Value => self.value = vec![1, heads, rows, width],
            Site::Pattern => self.pattern = batched(shape),
            _ => {}
        }
    }
}
