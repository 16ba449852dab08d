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

/// Less than every id.
const LEAST: u64 = 0;
/// More than every id.
const MOST: u64 = (1 << 33) - 1;

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
        let Some(first) = self.chunks.first() else { return Place { chunk: 0, index: 0 } };
        let common = &nodes[first.entries[0].id].as_ref()[..self.skip];
        let (least, most) = match tokens.starts_with(common) {
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
        let before = |key: u64, entry: &Entry| key < least || (key <= most && visited(entry));
        let chunks = &self.chunks;
        let starting_before = chunks.partition_point(|c| before(c.first, &c.entries[0]));
        let Some(chunk) = starting_before.checked_sub(1) else {
            return Place { chunk: 0, index: 0 };
        };
        let entries = &chunks[chunk].entries;
        Place { chunk, index: entries.partition_point(|entry| before(entry.key, entry)) }
    }

    /// Where a child with these tokens is or would be.
    fn place<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, tokens: &[u32]) -> Place {
        let place = self.partition(nodes, tokens, false);
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

    /// How many of `tokens` the child that shares most of them begins with. It is one of the two
    /// neighbours of the place where `tokens` would be.
    fn longest<N: AsRef<[u32]>>(&self, nodes: &Arena<N>, tokens: &[u32]) -> usize {
        let place = self.partition(nodes, tokens, false);
        let before = match place.index.checked_sub(1) {
            Some(index) => self.at(Place { index, ..place }),
            None => None,
        };
        let after = self.at(place).or_else(|| self.at(Place { chunk: place.chunk + 1, index: 0 }));
        let shared = |id: Id| common_prefix(nodes[id].as_ref(), tokens);
        before.map_or(0, shared).max(after.map_or(0, shared))
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
            Self::Many(sorted) => sorted.at(sorted.place(nodes, tokens)),
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
