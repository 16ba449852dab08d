//! Slots with generations: an index that outlives its value is recognized, never followed to
//! whatever took the slot since.

use std::ops::{Index, IndexMut};

/// Names one value in an [`Arena`], for as long as that value is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    index: u32,
    generation: u32,
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values at stable, generation-checked ids.
pub(crate) struct Arena<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Arena<T> {
    /// Bytes that one value occupies here.
    pub(crate) const SLOT_BYTES: usize = size_of::<Slot<T>>();

    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Puts `value` into a slot; `None` when all 2³² are taken.
    pub(crate) fn insert(&mut self, value: T) -> Option<Id> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Some(Id { index, generation: slot.generation });
        }
        let index = u32::try_from(self.slots.len()).ok()?;
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Some(Id { index, generation: 0 })
    }

    /// Takes the value out; its id names nothing from here on.
    pub(crate) fn remove(&mut self, id: Id) -> Option<T> {
        let slot = self.slots.get_mut(id.index as usize)?;
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

    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        let slot = self.slots.get(id.index as usize)?;
        if slot.generation == id.generation { slot.value.as_ref() } else { None }
    }
}

/// For ids that the owner of the arena holds itself and therefore knows to be there.
impl<T> Index<Id> for Arena<T> {
    type Output = T;

    fn index(&self, id: Id) -> &T {
        self.get(id).expect("an id held by the tree names a node of the tree")
    }
}

impl<T> IndexMut<Id> for Arena<T> {
    fn index_mut(&mut self, id: Id) -> &mut T {
        let slot = &mut self.slots[id.index as usize];
        assert_eq!(slot.generation, id.generation, "an id held by the tree is never stale");
        slot.value.as_mut().expect("an id held by the tree names a node of the tree")
    }
}

#[cfg(test)]
mod tests {
    use super::Arena;

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
}
