//! `NAME[SLICE]`: which part of which tensor.

use engine::trace::{Tensor, TensorName};
use package::Architecture;

use crate::failure::Failure;
use crate::quoted::brief;

/// What a slice may be.
const SLICES: &str = "for each dimension an index (0, -1) or a range (:, 2:5, :8), without a step";

/// A tensor, by its name or alias, and what of it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    pub(super) name: String,
    cuts: Vec<Cut>,
}

/// What is meant of one dimension; negative numbers count from its end, as in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// One index; the dimension is gone.
    At(i64),
    Range(Option<i64>, Option<i64>),
}

impl Selection {
    pub(super) fn parse(text: &str) -> Result<Selection, Failure> {
        let wrong = || {
            let text = brief(text);
            Failure::Usage(format!("'{text}' is no tensor; write it like hook_embed[0,3,:8]"))
        };
        let Some((name, rest)) = text.split_once('[') else {
            return match text {
                "" => Err(wrong()),
                name => Ok(Selection { name: name.to_owned(), cuts: Vec::new() }),
            };
        };
        let inside = rest.strip_suffix(']').ok_or_else(wrong)?;
        if name.is_empty() {
            return Err(wrong());
        }
        let parse = |cut: &str| {
            Cut::parse(cut.trim()).ok_or_else(|| {
                let inside = brief(inside);
                Failure::Usage(format!("the slice [{inside}] is not supported; write {SLICES}"))
            })
        };
        let cuts = inside.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
        Ok(Selection { name: name.to_owned(), cuts })
    }

    /// Whether the tensor called `name` is meant.
    pub(super) fn names(&self, name: TensorName, architecture: Architecture) -> bool {
        self.name == name.to_string() || self.name == name.alias(architecture)
    }

    /// The part of `tensor` that is meant.
    pub(super) fn of(&self, tensor: &Tensor) -> Result<Tensor, Failure> {
        if self.cuts.len() > tensor.shape.len() {
            let (name, rank) = (&tensor.name, tensor.shape.len());
            return Err(Failure::Usage(format!("{name} has {rank} dimensions only")));
        }
        let mut shape = Vec::new();
        // The indices into the flat tensor of all that is chosen so far.
        let mut chosen = vec![0];
        for (dimension, &size) in tensor.shape.iter().enumerate() {
            let cut = self.cuts.get(dimension).copied().unwrap_or(Cut::Range(None, None));
            let range = cut.range(size).ok_or_else(|| {
                let name = &tensor.name;
                Failure::Usage(format!("{name}: dimension {dimension} has {size} entries only"))
            })?;
            if matches!(cut, Cut::Range(..)) {
                shape.push(range.len());
            }
            chosen = chosen
                .iter()
                .flat_map(|&before| range.clone().map(move |index| before * size + index))
                .collect();
        }
        let values = chosen.into_iter().map(|index| tensor.values[index]).collect();
        Ok(Tensor { name: tensor.name.clone(), shape, values })
    }
}

impl Cut {
    fn parse(text: &str) -> Option<Cut> {
        let number = |text: &str| text.trim().parse::<i64>().ok();
        let Some((start, end)) = text.split_once(':') else { return number(text).map(Cut::At) };
        let bound = |text: &str| match text.trim() {
            "" => Some(None),
            text => number(text).map(Some),
        };
        Some(Cut::Range(bound(start)?, bound(end)?))
    }

    /// The indices that are meant of a dimension of `size`; `None` for one that is not there.
    fn range(self, size: usize) -> Option<std::ops::Range<usize>> {
        let wide = i64::try_from(size).ok()?;
        let counted = |index: i64| if index < 0 { index.saturating_add(wide) } else { index };
        match self {
            Cut::At(index) => {
                let index = usize::try_from(counted(index)).ok().filter(|&index| index < size)?;
                Some(index..index + 1)
            }
            Cut::Range(start, end) => {
                let bound = |index: i64| usize::try_from(counted(index).clamp(0, wide)).ok();
                let (start, end) = (bound(start.unwrap_or(0))?, bound(end.unwrap_or(wide))?);
                Some(start..end.max(start))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Result<(Vec<usize>, Vec<f32>), Failure> {
        let values = (0..24u8).map(f32::from).collect();
        let tensor = Tensor { name: "x".to_owned(), shape: vec![2, 3, 4], values };
        Selection::parse(text)?.of(&tensor).map(|tensor| (tensor.shape, tensor.values))
    }

    /// What NumPy says of the numbers 0 to 23 in the shape (2, 3, 4).
    #[test]
    fn slices_are_pythons() {
        assert_eq!(cut("x").unwrap().0, [2, 3, 4]);
        assert_eq!(cut("x[1]").unwrap().0, [3, 4]);
        assert_eq!(cut("x[1,-1,2:]").unwrap(), (vec![2], vec![22.0, 23.0]));
        assert_eq!(cut("x[:, 0, 3]").unwrap(), (vec![2], vec![3.0, 15.0]));
        assert_eq!(cut("x[0,1:9,:-3]").unwrap(), (vec![2, 1], vec![4.0, 8.0]));
        assert_eq!(cut("x[1,2,0]").unwrap(), (vec![], vec![20.0]));
        assert_eq!(cut("x[0,2:1]").unwrap(), (vec![0, 4], vec![]));
    }

    #[test]
    fn what_is_no_slice_or_not_there_is_refused() {
        for wrong in ["", "[0]", "x[", "x[0", "x[2]", "x[0,-4]", "x[0,0,0,0]"] {
            assert!(matches!(cut(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
        let long = format!("x[{}]", "a".repeat(100_000));
        for wrong in ["x[]", "x[a]", "x[...]", "x[::-1]", "x[0,::2]", "x[None]", &long] {
            let Err(Failure::Usage(message)) = cut(wrong) else { panic!("{wrong}") };
            assert!(message.contains("is not supported") && message.contains(SLICES), "{wrong}");
            assert!(message.len() < 300);
        }
    }
}
