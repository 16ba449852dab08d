//! How old pages of the prompt cache are when they are reused or evicted, and how long nobody
//! wanted them.

use cache::Timestamp;
use kernels::PageId;

use crate::histogram::Histogram;

/// When each page of the pool came into the prompt cache and was last used there, and what follows.
pub(crate) struct PageAges {
    pages: Vec<Times>,
    figures: AgeFigures,
}

#[derive(Clone, Copy, Default)]
struct Times {
    held_since: Timestamp,
    used_at: Timestamp,
}

/// Ages of pages of the prompt cache in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgeFigures {
    /// Of reused pages, since they were computed or restored.
    pub reused: Histogram,
    /// Of reused pages, since they were last used.
    pub reuse_gap: Histogram,
    /// Of pages that made room, since they were computed or restored.
    pub evicted: Histogram,
}

impl PageAges {
    /// For a pool of so many pages.
    pub(crate) fn new(pages: usize) -> Self {
        let lives = || Histogram::new(Histogram::LIVES_S);
        let figures = AgeFigures { reused: lives(), reuse_gap: lives(), evicted: lives() };
        Self { pages: vec![Times::default(); pages], figures }
    }

    /// Pages that came into the prompt cache.
    pub(crate) fn note_held(&mut self, page: PageId, now: Timestamp) {
        self.pages[page as usize] = Times { held_since: now, used_at: now };
    }

    /// Pages that a request reuses.
    pub(crate) fn note_reused(&mut self, pages: &[PageId], now: Timestamp) {
        for &page in pages {
            let times = &mut self.pages[page as usize];
            self.figures.reused.count(seconds(times.held_since, now));
            self.figures.reuse_gap.count(seconds(times.used_at, now));
            times.used_at = now;
        }
    }

    /// A page that makes room for another.
    pub(crate) fn note_evicted(&mut self, page: PageId, now: Timestamp) {
        let since = self.pages[page as usize].held_since;
        self.figures.evicted.count(seconds(since, now));
    }

    pub(crate) fn figures(&self) -> &AgeFigures {
        &self.figures
    }
}

/// A clock that was set back makes it 0.
fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.0.saturating_sub(from.0) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of a histogram are no longer than each of its bounds.
    fn at_most(histogram: &Histogram, bound_s: f64) -> u64 {
        histogram
            .at_most()
            .filter(|&(bound, _)| bound <= bound_s)
            .map(|(_, count)| count)
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn ages_run_from_when_a_page_came_and_gaps_from_when_it_was_used() {
        let mut ages = PageAges::new(2);
        ages.note_held(1, Timestamp(1_000));
        ages.note_reused(&[1], Timestamp(6_000));
        ages.note_reused(&[1], Timestamp(65_000));
        let figures = ages.figures();
        assert_eq!([at_most(&figures.reused, 10.0), at_most(&figures.reused, 300.0)], [1, 2]);
        assert_eq!([at_most(&figures.reuse_gap, 10.0), at_most(&figures.reuse_gap, 60.0)], [1, 2]);
        assert_eq!(figures.reused.sum_s(), 5.0 + 64.0);
        assert_eq!(figures.reuse_gap.sum_s(), 5.0 + 59.0);
        ages.note_evicted(1, Timestamp(3_601_000));
        assert_eq!(ages.figures().evicted.sum_s(), 3_600.0);
        // It came anew.
        ages.note_held(1, Timestamp(4_000_000));
        ages.note_evicted(1, Timestamp(4_000_500));
        assert_eq!(at_most(&ages.figures().evicted, 1.0), 1);
    }
}
