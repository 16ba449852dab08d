//! Looks at the tensors of a step.

use package::Architecture;

use super::document::{Stats, Step, Tensor};
use crate::taps::{Site, TapPoint, Taps};

/// Numbers shown of each tensor.
const FIRST: usize = 8;

/// One query head's row in one layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) layer: usize,
    pub(super) head: usize,
    pub(super) query: usize,
}

impl Spot {
    fn at(&self, site: Site) -> TapPoint {
        TapPoint { layer: Some(self.layer), site }
    }
}

/// Summarizes every tensor of the prefill, and keeps those that were asked for.
pub(super) struct Collector<'a> {
    pub(super) architecture: Architecture,
    pub(super) spot: Spot,
    /// Whether the attention weights of all layers are wanted, or only those of the spot's.
    pub(super) all_patterns: bool,
    pub(super) keep: &'a dyn Fn(TapPoint) -> bool,
    /// Bytes that may still be kept.
    pub(super) room: usize,
    /// Whether more was asked for than there is room for.
    pub(super) overflowed: bool,
    pub(super) steps: Vec<Step>,
    pub(super) tensors: Vec<Tensor>,
    /// The query at the spot, as it meets the keys.
    pub(super) query: Vec<f32>,
    /// The attention weights at the spot.
    pub(super) weights: Vec<f32>,
}

impl Collector<'_> {
    fn look_at_spot(&mut self, point: TapPoint, shape: &[usize], values: &[f32]) {
        let Spot { head, query, .. } = self.spot;
        let (&[first, second, third], true) = (shape, point.layer == Some(self.spot.layer)) else {
            return;
        };
        match point.site {
            // Rows, heads, dimensions. The rotated query comes after the plain one.
            Site::Query | Site::RotatedQuery if query < first && head < second => {
                self.query = values[(query * second + head) * third..][..third].to_vec();
            }
            // Heads, rows, positions.
            Site::Pattern if head < first && query < second => {
                self.weights = values[(head * second + query) * third..][..third].to_vec();
            }
            _ => {}
        }
    }
}

impl Taps for Collector<'_> {
    fn wants(&self, point: TapPoint) -> bool {
        point.site != Site::Pattern
            || self.all_patterns
            || point == self.spot.at(Site::Pattern)
            || (self.keep)(point)
    }

    fn record(&mut self, point: TapPoint, shape: &[usize], values: &[f32]) {
        self.look_at_spot(point, shape, values);
        let name = point.to_string();
        let shape: Vec<usize> = [&[1], shape].concat();
        if (self.keep)(point) {
            match self.room.checked_sub(size_of_val(values)) {
                Some(room) => {
                    self.room = room;
                    let (name, shape) = (name.clone(), shape.clone());
                    self.tensors.push(Tensor { name, shape, values: values.to_vec() });
                }
                None => self.overflowed = true,
            }
        }
        let first = values.iter().copied().take(FIRST).collect();
        let alias = point.alias(self.architecture);
        self.steps.push(Step { name, alias, shape, first, stats: stats(values) });
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

/// Sees the shape of one layer's attention weights.
pub(super) struct PatternShape {
    pub(super) spot: Spot,
    pub(super) shape: Vec<usize>,
}

impl Taps for PatternShape {
    fn wants(&self, point: TapPoint) -> bool {
        point == self.spot.at(Site::Pattern)
    }

    fn record(&mut self, _point: TapPoint, shape: &[usize], _values: &[f32]) {
        self.shape = [&[1], shape].concat();
    }
}
