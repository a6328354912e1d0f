//! The state that collections keep while they are frozen: given out in pieces as they were at one instant, though they go on
//! changing. Must not know what takes the pieces, nor types of values.
//!
//! A frozen collection remembers how far it was given out. Behind that place changes are free. Before it, whoever changes
//! or removes an element as it was leaves a copy of it ([`Copies`]), and what is there now is noted as one that the
//! pieces pass over. So every element that was there is given once, and no element bears a mark.

use std::collections::VecDeque;
use std::num::NonZeroU64;

/// The name that whoever freezes a collection gives to that.
pub type FreezeId = NonZeroU64;

/// The state of a frozen collection, if it is frozen. A copy of the collection is not.
pub struct Frozen<T>(Option<Box<Freeze<T>>>);

/// A freeze: its name, and how far the collection was given out.
struct Freeze<T> {
    id: FreezeId,
    state: T,
}

impl<T> Default for Frozen<T> {
    fn default() -> Self {
        Frozen(None)
    }
}

impl<T> Clone for Frozen<T> {
    fn clone(&self) -> Self {
        Frozen(None)
    }
}

impl<T> Frozen<T> {
    /// Makes the state of a collection that is not frozen.
    pub const fn none() -> Self {
        Frozen(None)
    }

    /// Freezes the collection, which is not frozen yet, under a name.
    pub fn freeze(&mut self, id: FreezeId, state: T) {
        debug_assert!(!self.is_frozen(), "it is frozen once");
        self.0 = Some(Box::new(Freeze { id, state }));
    }

    /// Returns the name of the freeze, if the collection is frozen.
    pub fn id(&self) -> Option<FreezeId> {
        self.0.as_ref().map(|freeze| freeze.id)
    }

    /// Returns true if the collection is frozen.
    #[inline]
    pub const fn is_frozen(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the state.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.0.as_ref().map(|freeze| &freeze.state)
    }

    /// Returns the state, to be changed.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut().map(|freeze| &mut freeze.state)
    }

    /// Takes the state out: the collection is not frozen any more.
    #[inline]
    pub fn take(&mut self) -> Self {
        Frozen(self.0.take())
    }
}

/// Size of a block of copies: bytes. They are taken in the order in which they came, so none is ever moved.
const BLOCK_BYTES: usize = 16 * 1024;

/// Copies of elements, first in, first out. An element is a key, bytes behind it, and a number that means nothing here.
#[derive(Default)]
pub struct Copies {
    blocks: VecDeque<Vec<u8>>,
    /// The place of the next one in the first block.
    at: usize,
}

/// The numbers before a copy: lengths of the key and of the bytes behind it, and the element's own.
const HEAD_BYTES: usize = 12;

impl Copies {
    /// Adds an element. Key and bytes are below 4 GiB each.
    pub fn push(&mut self, key: &[u8], number: u32, behind: &[u8]) {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("below 4 GiB");
        let bytes = HEAD_BYTES + key.len() + behind.len();
        let has_room = |block: &&mut Vec<u8>| block.capacity() - block.len() >= bytes;
        let block = match self.blocks.back_mut().filter(has_room) {
            Some(block) => block,
            None => {
                let fresh = Vec::with_capacity(bytes.max(BLOCK_BYTES));
                self.blocks.push_back(fresh);
                self.blocks.back_mut().expect("pushed just now")
            }
        };
        for number in [len(key), len(behind), number] {
            block.extend_from_slice(&number.to_ne_bytes());
        }
        block.extend_from_slice(key);
        block.extend_from_slice(behind);
    }

    /// Takes the next one out, and passes its key, number and bytes on; returns false if there was none.
    pub fn pop(&mut self, visit: impl FnOnce(&[u8], u32, &[u8])) -> bool {
        let Some(block) = self.blocks.front() else {
            return false;
        };
        let (head, rest) = block[self.at..].split_at(HEAD_BYTES);
        let number = |at: usize| {
            let bytes = head[4 * at..].first_chunk().expect("three numbers");
            u32::from_ne_bytes(*bytes)
        };
        let (key, rest) = rest.split_at(number(0) as usize);
        let behind = &rest[..number(1) as usize];
        visit(key, number(2), behind);
        self.at += HEAD_BYTES + key.len() + behind.len();
        if self.at == block.len() {
            self.blocks.pop_front();
            self.at = 0;
        }
        true
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_come_out_as_they_went_in() {
        let mut copies = Copies::default();
        let mut rng = fastrand::Rng::with_seed(3);
        let mut model = VecDeque::new();
        for number in 0..if cfg!(miri) { 100 } else { 20_000 } {
            if rng.u8(..3) < if number % 1000 < 500 { 2 } else { 1 } {
                let bytes = |rng: &mut fastrand::Rng| {
                    let len = match rng.u8(..100) {
                        0 => rng.usize(..3 * BLOCK_BYTES),
                        _ => rng.usize(..40),
                    };
                    vec![rng.u8(..); len]
                };
                let (key, behind) = (bytes(&mut rng), bytes(&mut rng));
                copies.push(&key, number, &behind);
                model.push_back((key, number, behind));
            } else {
                let mut popped = None;
                let was_there = copies.pop(|key, number, behind| {
                    popped = Some((key.to_vec(), number, behind.to_vec()));
                });
                assert_eq!(was_there, popped.is_some());
                assert!(popped == model.pop_front());
            }
            assert_eq!(copies.is_empty(), model.is_empty());
        }
    }

    #[test]
    fn a_copy_of_a_collection_is_not_frozen() {
        let mut frozen = Frozen::none();
        assert!(!frozen.is_frozen() && frozen.id().is_none());
        frozen.freeze(FreezeId::MIN, 1);
        assert_eq!((frozen.id(), frozen.get()), (Some(FreezeId::MIN), Some(&1)));
        assert!(!frozen.clone().is_frozen());
    }
}
