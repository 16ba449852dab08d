//! An ordered set from whose ends it is cheap to take, and to which it is cheap to add there.

use std::collections::BTreeSet;

/// An ordered set whose least and greatest elements stand apart from the tree of the others. What
/// is given up next, and what was used last, change with nearly every operation: the page before a
/// page takes its place there.
pub(crate) struct Ends<T> {
    /// Less than all others.
    least: Option<T>,
    between: BTreeSet<T>,
    /// Greater than all others.
    greatest: Option<T>,
}

impl<T: Copy + Ord> Ends<T> {
    pub(crate) const fn new() -> Self {
        Self { least: None, between: BTreeSet::new(), greatest: None }
    }

    /// Adds an element that is not there.
    pub(crate) fn insert(&mut self, element: T) {
        let is_greatest = match self.greatest {
            Some(greatest) => element > greatest,
            None => {
                let last = self.between.last().or(self.least.as_ref());
                last.is_none_or(|&last| element > last)
            }
        };
        if is_greatest {
            self.between.extend(self.greatest.replace(element));
            return;
        }
        let is_least = match self.least {
            Some(least) => element < least,
            None => self.between.first().is_none_or(|&first| element < first),
        };
        if is_least {
            self.between.extend(self.least.replace(element));
        } else {
            self.between.insert(element);
        }
    }

    /// Takes an element out.
    pub(crate) fn remove(&mut self, element: &T) {
        if self.least.as_ref() == Some(element) {
            self.least = None;
        } else if self.greatest.as_ref() == Some(element) {
            self.greatest = None;
        } else {
            self.between.remove(element);
        }
    }

    /// The least element.
    pub(crate) fn first(&self) -> Option<T> {
        self.least.or_else(|| self.between.first().copied()).or(self.greatest)
    }

    /// All elements, the greatest first.
    pub(crate) fn descending(&self) -> impl Iterator<Item = T> {
        self.greatest.into_iter().chain(self.between.iter().rev().copied()).chain(self.least)
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.least.is_some())
            + self.between.len()
            + usize::from(self.greatest.is_some())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_an_ordered_set(changes in prop::collection::vec((0_u8..3, 0_u32..40), 0..200)) {
            let (mut ends, mut set) = (Ends::new(), BTreeSet::new());
            for (kind, number) in changes {
                match kind {
                    0 if set.insert(number) => ends.insert(number),
                    1 => set.pop_first().iter().for_each(|first| ends.remove(first)),
                    _ => {
                        set.remove(&number);
                        ends.remove(&number);
                    }
                }
                prop_assert_eq!(ends.first(), set.first().copied());
                prop_assert_eq!(ends.len(), set.len());
                prop_assert!(ends.descending().eq(set.iter().rev().copied()));
            }
        }
    }
}
