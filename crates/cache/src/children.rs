//! The children of a node, in the order of their token ids.

use crate::arena::{Arena, Id};
use crate::compare::common_prefix;

/// Children in one chunk. A node has rarely more; where a hundred thousand conversations share a
/// system prompt, chunks keep an insertion from moving all of them and let the newest among many be
/// found by looking at chunks.
const CHUNK_MAX: usize = 64;

#[derive(Clone, Copy)]
struct Entry {
    id: Id,
    /// The child's own `used`, kept here so that the newest child is found without visiting all.
    used: u64,
}

struct Chunk {
    entries: Vec<Entry>,
    newest: u64,
}

impl Chunk {
    fn new(entries: Vec<Entry>) -> Self {
        let newest = entries.iter().map(|entry| entry.used).max().unwrap_or(0);
        Self { entries, newest }
    }
}

/// A place among the children: the chunk, and the index inside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    chunk: usize,
    index: usize,
}

/// Children sorted by their token ids. Every method that compares takes the
/// arena of the nodes, which give their tokens.
#[derive(Default)]
pub(crate) struct Children {
    chunks: Vec<Chunk>,
}

impl Children {
    /// Bytes on the heap for a node's only child.
    pub(crate) const ONLY_CHILD_BYTES: usize = size_of::<Chunk>() + size_of::<Entry>();

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The first place whose child is not `before`; children that are come first.
    fn partition<N: AsRef<[u32]>>(
        &self,
        nodes: &Arena<N>,
        before: impl Fn(&[u32]) -> bool,
    ) -> Place {
        let before = |entry: &Entry| before(nodes[entry.id].as_ref());
        let starting_before = self.chunks.partition_point(|chunk| before(&chunk.entries[0]));
        let Some(chunk) = starting_before.checked_sub(1) else {
            return Place { chunk: 0, index: 0 };
        };
        Place { chunk, index: self.chunks[chunk].entries.partition_point(before) }
    }

    /// Where a child with these tokens is or would be.
    pub(crate) fn place<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, tokens: &[u32]) -> Place {
        let place = self.partition(nodes, |child| child < tokens);
        // The end of one chunk is the start of the next, where the child itself would be.
        let past_end = self.chunks.get(place.chunk).is_some_and(|c| place.index == c.entries.len());
        let next = Place { chunk: place.chunk + 1, index: 0 };
        if past_end && self.at(next).is_some_and(|id| nodes[id].as_ref() == tokens) {
            return next;
        }
        place
    }

    fn at(&self, place: Place) -> Option<Id> {
        Some(self.chunks.get(place.chunk)?.entries.get(place.index)?.id)
    }

    /// The child with exactly these tokens.
    pub(crate) fn find<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, tokens: &[u32]) -> Option<Id> {
        let id = self.at(self.place(nodes, tokens))?;
        (nodes[id].as_ref() == tokens).then_some(id)
    }

    /// How many of `tokens` the child that shares most of them begins with. It is one of the two
    /// neighbours of the place where `tokens` would be.
    pub(crate) fn longest<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, tokens: &[u32]) -> usize {
        let place = self.partition(nodes, |child| child < tokens);
        let before = match place.index.checked_sub(1) {
            Some(index) => self.at(Place { index, ..place }),
            None => None,
        };
        let after = self.at(place).or_else(|| self.at(Place { chunk: place.chunk + 1, index: 0 }));
        let shared = |id: Id| common_prefix(nodes[id].as_ref(), tokens);
        before.map_or(0, shared).max(after.map_or(0, shared))
    }

    /// The most recently used child that begins with `prefix`.
    pub(crate) fn newest<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, prefix: &[u32]) -> Option<Id> {
        let start = self.partition(nodes, |child| child < prefix);
        let end = self.partition(nodes, |child| child < prefix || child.starts_with(prefix));
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

    /// Puts a child where [`Children::place`] said.
    pub(crate) fn insert(&mut self, place: Place, id: Id, used: u64) {
        let Some(chunk) = self.chunks.get_mut(place.chunk) else {
            self.chunks = vec![Chunk::new(vec![Entry { id, used }])];
            return;
        };
        chunk.entries.insert(place.index, Entry { id, used });
        chunk.newest = chunk.newest.max(used);
        if chunk.entries.len() > CHUNK_MAX {
            let upper = Chunk::new(chunk.entries.split_off(CHUNK_MAX / 2));
            *chunk = Chunk::new(std::mem::take(&mut chunk.entries));
            self.chunks.insert(place.chunk + 1, upper);
        }
    }

    /// Notes that the child at this place was used. `used` only grows.
    pub(crate) fn touch(&mut self, place: Place, used: u64) {
        let chunk = &mut self.chunks[place.chunk];
        chunk.entries[place.index].used = used;
        chunk.newest = chunk.newest.max(used);
    }

    /// Takes the child at this place out.
    pub(crate) fn remove(&mut self, place: Place) {
        let chunk = &mut self.chunks[place.chunk];
        let removed = chunk.entries.remove(place.index);
        if chunk.entries.is_empty() {
            self.chunks.remove(place.chunk);
        } else if chunk.newest == removed.used {
            *chunk = Chunk::new(std::mem::take(&mut chunk.entries));
        }
    }
}
