//! Slots with generations: an index that outlives its value is recognized, never followed to
//! whatever took the slot since.

use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// Slots that are allocated at once: growing moves none, and leaves few of them empty.
const CHUNK_SLOTS: usize = 256;

/// Names one value in an [`Arena`], for as long as that value is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    index: u32,
    generation: NonZeroU32,
}

impl Id {
    #[inline(always)]
    fn place(self) -> (usize, usize) {
        (self.index as usize / CHUNK_SLOTS, self.index as usize % CHUNK_SLOTS)
    }
}

struct Slot<T> {
    generation: NonZeroU32,
    value: Option<T>,
}

/// Values at stable, generation-checked ids.
pub(crate) struct Arena<T> {
    /// All full but the last.
    chunks: Vec<Vec<Slot<T>>>,
    free: Vec<u32>,
}

impl<T> Arena<T> {
    /// Bytes that one value occupies here, its place among the free ones included.
    pub(crate) const SLOT_BYTES: usize = size_of::<Slot<T>>() + size_of::<u32>();

    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new() }
    }

    /// Puts `value` into a slot; `None` when all 2³² are taken.
    pub(crate) fn insert(&mut self, value: T) -> Option<Id> {
        if let Some(index) = self.free.pop() {
            let index = index as usize;
            let slot = &mut self.chunks[index / CHUNK_SLOTS][index % CHUNK_SLOTS];
            slot.value = Some(value);
            return Some(Id { index: index as u32, generation: slot.generation });
        }
        if self.chunks.last().is_none_or(|last| last.len() == CHUNK_SLOTS) {
            u32::try_from((self.chunks.len() + 1) * CHUNK_SLOTS - 1).ok()?;
            self.chunks.push(Vec::with_capacity(CHUNK_SLOTS));
        }
        let last = self.chunks.len() - 1;
        let slots = &mut self.chunks[last];
        let index = (last * CHUNK_SLOTS + slots.len()) as u32;
        slots.push(Slot { generation: NonZeroU32::MIN, value: Some(value) });
        Some(Id { index, generation: NonZeroU32::MIN })
    }

    /// Takes the value out; its id names nothing from here on.
    pub(crate) fn remove(&mut self, id: Id) -> Option<T> {
        let (chunk, slot) = id.place();
        let slot = self.chunks.get_mut(chunk)?.get_mut(slot)?;
        if slot.generation != id.generation {
            return None;
        }
        let value = slot.value.take()?;
        // A slot whose generations are used up is retired, so that no id ever comes twice.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(id.index);
        }
        Some(value)
    }

    #[inline(always)]
    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        let (chunk, slot) = id.place();
        let slot = self.chunks.get(chunk)?.get(slot)?;
        if slot.generation == id.generation { slot.value.as_ref() } else { None }
    }
}

/// For ids that the owner of the arena holds itself and therefore knows to be there.
impl<T> Index<Id> for Arena<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, id: Id) -> &T {
        self.get(id).expect("an id held by the tree names a node of the tree")
    }
}

impl<T> IndexMut<Id> for Arena<T> {
    #[inline(always)]
    fn index_mut(&mut self, id: Id) -> &mut T {
        let (chunk, slot) = id.place();
        let slot = &mut self.chunks[chunk][slot];
        assert_eq!(slot.generation, id.generation, "an id held by the tree is never stale");
        slot.value.as_mut().expect("an id held by the tree names a node of the tree")
    }
}

#[cfg(test)]
mod tests {
    use super::{Arena, CHUNK_SLOTS};

    #[test]
    fn an_old_id_does_not_name_the_slots_next_value() {
        let mut arena = Arena::new();
        let old = arena.insert("old").unwrap();
        assert_eq!(arena.remove(old), Some("old"));
        let new = arena.insert("new").unwrap();
        assert_eq!(arena.get(old), None);
        assert_eq!(arena.remove(old), None);
        assert_eq!(arena[new], "new");
    }

    #[test]
    fn every_value_has_its_own_slot() {
        let mut arena = Arena::new();
        let ids: Vec<_> = (0..3 * CHUNK_SLOTS + 1).map(|i| arena.insert(i).unwrap()).collect();
        assert!(ids.iter().enumerate().all(|(i, &id)| arena[id] == i));
    }
}
