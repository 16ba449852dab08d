//! The children of a node, in the order of their token ids.

use std::hint::select_unpredictable;

use crate::arena::{Arena, Id};
use crate::compare::common_prefix;

/// Children in one chunk. A node has rarely more; where a hundred thousand conversations share a
/// system prompt, chunks keep an insertion from moving all of them and let the newest among many be
/// found by looking at chunks.
const CHUNK_MAX: usize = 64;

#[derive(Clone, Copy)]
struct Entry {
    id: Id,
    /// The [`key`] of the child's tokens, so that a search visits few children themselves.
    key: u64,
    /// The child's own `used`, kept here so that the newest child is found without visiting all.
    used: u64,
}

/// The first two of `tokens` after `skip` as a number that is not less for tokens that are not
/// less; `missing`, one of the constants, stands for what is not there.
fn key(tokens: &[u32], skip: usize, missing: u64) -> u64 {
    let at = |index| tokens.get(skip + index).map_or(missing, |&id| u64::from(id) + 1);
    (at(0) << 31) | (at(1) >> 2)
}

/// What a [`key`] says of the first of its tokens.
fn first_of(key: u64) -> u64 {
    key >> 31
}

/// Less than every id.
const LEAST: u64 = 0;
/// More than every id.
const MOST: u64 = (1 << 33) - 1;

/// Where those with keys from `least` to `most` begin and end, of `sorted` by their keys.
///
/// Which way a search turns must be no branch that a processor could learn: it would find again
/// sooner what it has just found in another namespace's children.
fn between<T>(sorted: &[T], key: impl Fn(&T) -> u64, least: u64, most: u64) -> (usize, usize) {
    let counted = |is_before: &dyn Fn(u64) -> bool| {
        let (mut start, mut left) = (0, sorted.len());
        while left > 1 {
            let half = left / 2;
            let before = is_before(key(&sorted[start + half]));
            start = select_unpredictable(before, start + half, start);
            left -= half;
        }
        start + usize::from(sorted.get(start).is_some_and(|first| is_before(key(first))))
    };
    (counted(&|key| key < least), counted(&|key| key <= most))
}

struct Chunk {
    entries: Vec<Entry>,
    /// The key of the first entry.
    first: u64,
    newest: u64,
}

impl Chunk {
    fn new(entries: Vec<Entry>) -> Self {
        let newest = entries.iter().map(|entry| entry.used).max().unwrap_or(0);
        let first = entries.first().map_or(0, |entry| entry.key);
        Self { entries, first, newest }
    }
}

/// A place among the children: the chunk, and the index inside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    chunk: usize,
    index: usize,
}

/// Several children, sorted by their token ids.
#[derive(Default)]
pub(crate) struct Sorted {
    chunks: Vec<Chunk>,
    /// So many tokens all children have in common.
    skip: usize,
}

impl Sorted {
    /// The only child there is.
    fn only(&self) -> Option<Id> {
        match &self.chunks[..] {
            [Chunk { entries, .. }] if entries.len() == 1 => Some(entries[0].id),
            _ => None,
        }
    }

    /// The first place whose child does not sort before `tokens`; with `past`, nor begins with
    /// them.
    fn partition<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, tokens: &[u32], past: bool) -> Place {
        let (least, most) = match self.in_common(nodes, tokens) == self.skip {
            true => (
                key(tokens, self.skip, LEAST),
                key(tokens, self.skip, if past { MOST } else { LEAST }),
            ),
            false => (0, u64::MAX),
        };
        let visited = |entry: &Entry| {
            let child = nodes[entry.id].as_ref();
            child < tokens || (past && child.starts_with(tokens))
        };
        // Few have a key that does not decide.
        let chunks = &self.chunks;
        let (from, to) = between(chunks, |chunk| chunk.first, least, most);
        let starting_before = from + chunks[from..to].partition_point(|c| visited(&c.entries[0]));
        let Some(chunk) = starting_before.checked_sub(1) else {
            return Place { chunk: 0, index: 0 };
        };
        let entries = &chunks[chunk].entries;
        let (from, to) = between(entries, |entry| entry.key, least, most);
        Place { chunk, index: from + entries[from..to].partition_point(visited) }
    }

    /// Where a child with these tokens is or would be.
    fn place<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, tokens: &[u32]) -> Place {
        let place = self.partition(nodes, tokens, false);
        // The end of one chunk is the start of the next, where the child itself would be.
        let past_end = self.chunks.get(place.chunk).is_some_and(|c| place.index == c.entries.len());
        let next = Place { chunk: place.chunk + 1, index: 0 };
        let wanted = key(tokens, self.skip, LEAST);
        let is_it = |entry: &Entry| entry.key == wanted && nodes[entry.id].as_ref() == tokens;
        if past_end && self.entry(next).is_some_and(is_it) {
            return next;
        }
        place
    }

    /// The child that has these tokens if one has: a child whose first ones are others is not
    /// visited.
    fn find<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, tokens: &[u32]) -> Option<Id> {
        let wanted = key(tokens, self.skip, LEAST);
        let found = self.entry(self.place(nodes, tokens));
        found.filter(|entry| entry.key == wanted).map(|entry| entry.id)
    }

    fn entry(&self, place: Place) -> Option<&Entry> {
        self.chunks.get(place.chunk)?.entries.get(place.index)
    }

    /// How many of `tokens` all children begin with, at most [`skip`](Self::skip).
    fn in_common<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, tokens: &[u32]) -> usize {
        let any = self.chunks.first().filter(|_| self.skip > 0);
        any.map_or(0, |c| common_prefix(&nodes[c.entries[0].id].as_ref()[..self.skip], tokens))
    }

    /// How many of `tokens` the child that shares most of them begins with. It is one of the two
    /// neighbours of the place where `tokens` would be.
    fn longest<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, tokens: &[u32]) -> usize {
        let in_common = self.in_common(nodes, tokens);
        if in_common < self.skip {
            return in_common;
        }
        let place = self.partition(nodes, tokens, false);
        let before = match place.index.checked_sub(1) {
            Some(index) => self.entry(Place { index, ..place }),
            None => None,
        };
        let next = Place { chunk: place.chunk + 1, index: 0 };
        let after = self.entry(place).or_else(|| self.entry(next));
        // A child whose next token is another is not visited.
        let wanted = first_of(key(tokens, self.skip, LEAST));
        let neighbours = before.into_iter().chain(after);
        let sharing = neighbours.filter(|entry| first_of(entry.key) == wanted);
        let shared = sharing.map(|entry| common_prefix(nodes[entry.id].as_ref(), tokens));
        shared.max().unwrap_or(in_common)
    }

    /// The most recently used child that begins with `prefix`.
    fn newest<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, prefix: &[u32]) -> Option<Id> {
        let start = self.partition(nodes, prefix, false);
        let end = self.partition(nodes, prefix, true);
        let within = |number: usize| {
            let entries = &self.chunks[number].entries;
            let from = if number == start.chunk { start.index } else { 0 };
            let to = if number == end.chunk { end.index } else { entries.len() };
            &entries[from.min(to)..to]
        };
        let last = end.chunk.min(self.chunks.len().checked_sub(1)?);
        let newest_within = |number: usize| {
            let entries = within(number);
            if entries.len() == self.chunks[number].entries.len() {
                Some(self.chunks[number].newest)
            } else {
                entries.iter().map(|entry| entry.used).max()
            }
        };
        let chunk = (start.chunk..=last).max_by_key(|&number| newest_within(number))?;
        within(chunk).iter().max_by_key(|entry| entry.used).map(|entry| entry.id)
    }

    /// Adds a child.
    fn insert<N: AsRef<[u32]>>(&mut self, nodes: &Arena<N>, id: Id, used: u64) {
        let tokens = nodes[id].as_ref();
        let any = self.chunks.first().map(|chunk| nodes[chunk.entries[0].id].as_ref());
        let skip = any.map_or(0, |any| common_prefix(any, tokens).min(self.skip));
        if skip < self.skip {
            // At most once for each token of a page.
            self.skip = skip;
            for chunk in &mut self.chunks {
                for entry in &mut chunk.entries {
                    entry.key = key(nodes[entry.id].as_ref(), skip, LEAST);
                }
                chunk.first = chunk.entries[0].key;
            }
        }
        let place = self.place(nodes, tokens);
        let entry = Entry { id, key: key(tokens, skip, LEAST), used };
        let Some(chunk) = self.chunks.get_mut(place.chunk) else {
            self.chunks = vec![Chunk::new(vec![entry])];
            return;
        };
        chunk.entries.insert(place.index, entry);
        chunk.first = chunk.entries[0].key;
        chunk.newest = chunk.newest.max(used);
        if chunk.entries.len() > CHUNK_MAX {
            let upper = Chunk::new(chunk.entries.split_off(CHUNK_MAX / 2));
            *chunk = Chunk::new(std::mem::take(&mut chunk.entries));
            self.chunks.insert(place.chunk + 1, upper);
        }
    }

    /// Notes that the child at this place was used. `used` only grows.
    fn touch(&mut self, place: Place, used: u64) {
        let chunk = &mut self.chunks[place.chunk];
        chunk.entries[place.index].used = used;
        chunk.newest = chunk.newest.max(used);
    }

    /// Takes the child at this place out.
    fn remove(&mut self, place: Place) {
        let chunk = &mut self.chunks[place.chunk];
        let removed = chunk.entries.remove(place.index);
        if chunk.entries.is_empty() {
            self.chunks.remove(place.chunk);
        } else if chunk.newest == removed.used {
            *chunk = Chunk::new(std::mem::take(&mut chunk.entries));
        } else {
            chunk.first = chunk.entries[0].key;
        }
    }
}

/// The children of a node. Nearly all nodes have one or none, which needs no memory of its own.
/// Every method that compares takes the arena of the nodes, which give their tokens.
#[derive(Default)]
pub(crate) enum Children {
    #[default]
    None,
    One(Id),
    Many(Box<Sorted>),
}

impl Children {
    /// Bytes for one among many children (chunks are at least half full, but for removals).
    pub(crate) const CHILD_BYTES: usize = 2 * size_of::<Entry>();

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The child, when there is only one.
    pub(crate) fn only(&self) -> Option<Id> {
        match self {
            Self::One(id) => Some(*id),
            Self::None | Self::Many(_) => None,
        }
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Id> {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(id) => (Some(*id), None),
            Self::Many(sorted) => (None, Some(sorted)),
        };
        let chunks = many.into_iter().flat_map(|sorted| &sorted.chunks);
        one.into_iter().chain(chunks.flat_map(|chunk| &chunk.entries).map(|entry| entry.id))
    }

    /// The child with exactly these tokens.
    pub(crate) fn find<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, tokens: &[u32]) -> Option<Id> {
        let id = match self {
            Self::None => None,
            Self::One(id) => Some(*id),
            Self::Many(sorted) => sorted.find(nodes, tokens),
        };
        id.filter(|&id| nodes[id].as_ref() == tokens)
    }

    /// How many of `tokens` the child that shares most of them begins with.
    pub(crate) fn longest<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, tokens: &[u32]) -> usize {
        match self {
            Self::None => 0,
            Self::One(id) => common_prefix(nodes[*id].as_ref(), tokens),
            Self::Many(sorted) => sorted.longest(nodes, tokens),
        }
    }

    /// The most recently used child that begins with `prefix`.
    pub(crate) fn newest<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, prefix: &[u32]) -> Option<Id> {
        match self {
            Self::None => None,
            Self::One(id) => nodes[*id].as_ref().starts_with(prefix).then_some(*id),
            Self::Many(sorted) => sorted.newest(nodes, prefix),
        }
    }

    /// Adds a child, which has these tokens and was last used by operation `used`; `only_used` is
    /// that of the [`only`](Self::only) child so far.
    pub(crate) fn insert<N: AsRef<[u32]>>(
        &mut self,
        nodes: &Arena<N>,
        (id, used): (Id, u64),
        only_used: u64,
    ) {
        match self {
            Self::None => *self = Self::One(id),
            Self::One(first) => {
                let tokens = nodes[*first].as_ref();
                let skip = common_prefix(tokens, nodes[id].as_ref());
                let first = Entry { id: *first, key: key(tokens, skip, LEAST), used: only_used };
                let mut sorted = Sorted { chunks: vec![Chunk::new(vec![first])], skip };
                sorted.insert(nodes, id, used);
                *self = Self::Many(Box::new(sorted));
            }
            Self::Many(sorted) => sorted.insert(nodes, id, used),
        }
    }

    /// Notes that a child was used. `used` only grows.
    pub(crate) fn touch<N: AsRef<[u32]>>(&mut self, nodes: &Arena<N>, id: Id, used: u64) {
        if let Self::Many(sorted) = self {
            sorted.touch(sorted.place(nodes, nodes[id].as_ref()), used);
        }
    }

    /// Takes a child out.
    pub(crate) fn remove<N: AsRef<[u32]>>(&mut self, nodes: &Arena<N>, id: Id) {
        match self {
            Self::None => {}
            Self::One(_) => *self = Self::None,
            Self::Many(sorted) => {
                sorted.remove(sorted.place(nodes, nodes[id].as_ref()));
                if let Some(only) = sorted.only() {
                    *self = Self::One(only);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A page that counts how often it is looked at.
    struct Counted(Vec<u32>, Cell<usize>);

    impl AsRef<[u32]> for Counted {
        fn as_ref(&self) -> &[u32] {
            self.1.set(self.1.get() + 1);
            &self.0
        }
    }

    /// What stands beside a prompt may lie in memory beside another namespace's pages.
    #[test]
    fn a_search_visits_no_child_that_shares_no_token() {
        let (mut nodes, mut children) = (Arena::new(), Children::default());
        let mut ids = Vec::new();
        for number in 0..1_000_u32 {
            let page = vec![number * 7_919 % 1_000 * 2, number, 5];
            let id = nodes.insert(Counted(page, Cell::new(0))).unwrap();
            children.insert(&nodes, (id, 1), 1);
            ids.push(id);
        }
        ids.iter().for_each(|&id| nodes[id].1.set(0));
        for token in 0..1_000 {
            let page = [token * 2 + 1, 3, 5];
            assert_eq!(children.longest(&nodes, &page), 0);
            assert_eq!(children.find(&nodes, &page), None);
        }
        assert!(ids.iter().all(|&id| nodes[id].1.get() == 0));
        for &id in &ids {
            let page = nodes[id].0.clone();
            assert_eq!(children.find(&nodes, &page), Some(id));
            assert_eq!(children.longest(&nodes, &[page[0], page[1], 9]), 2);
        }
    }
}
