//! Hints: the places of keys that a unit is going to look up, which spare it their hashes and mostly the searches.
//!
//! Must not know: what is looked up for, the stripes that are held.

use std::cell::Cell;

use crate::{
    ahead::Ahead,
    space::{Keyspace, Place},
};

/// A key of a request and its hash. It is recognised by its place in memory, so that place must keep the key as long as
/// the unit runs.
#[derive(Clone, Copy, Debug)]
pub struct Hint {
    address: usize,
    len: usize,
    place: Place,
}

impl Hint {
    const NONE: Hint = Hint {
        address: 0,
        len: 0,
        place: Place(0),
    };

    /// Makes the hint of a key and its place.
    #[inline]
    pub fn new(key: &[u8], place: Place) -> Hint {
        Hint {
            address: key.as_ptr() as usize,
            len: key.len(),
            place,
        }
    }

    /// Returns the key's place.
    #[inline]
    pub fn place(&self) -> Place {
        self.place
    }

    #[inline]
    fn is(&self, key: &[u8]) -> bool {
        self.address == key.as_ptr() as usize && self.len == key.len()
    }
}

/// Number of keys that are prefetched together, one such group before they are used.
const HINTS_AHEAD: usize = 16;

/// The hints of a unit.
pub(super) struct Hints<'a> {
    /// The last key that was searched, if it is one of the hinted.
    last: Cell<Hint>,
    /// Result of the prefetch for the unit's only key.
    ahead: Option<&'a Ahead>,
    /// The keys that the unit will search, mostly in this order.
    keys: &'a [Hint],
    next: Cell<usize>,
}

impl<'a> Hints<'a> {
    /// Returns no hints.
    #[inline(always)] // as `View::new`
    pub(super) fn none() -> Hints<'a> {
        Hints {
            last: Cell::new(Hint::NONE),
            ahead: None,
            keys: &[],
            next: Cell::new(0),
        }
    }

    /// Takes the prefetched state of the unit's only key.
    #[inline]
    pub(super) fn take_one(&mut self, key: &[u8], ahead: &'a Ahead) {
        self.last.set(Hint::new(key, ahead.place()));
        self.ahead = Some(ahead);
    }

    /// Takes the hints of many keys, and prefetches the first of them.
    pub(super) fn take_many(&mut self, keys: &'a [Hint], space: &Keyspace, db: u32) {
        self.keys = keys;
        self.prefetch(0, space, db);
        self.prefetch(HINTS_AHEAD, space, db);
    }

    /// Returns the prefetched state of the unit's only key.
    #[inline]
    pub(super) fn ahead(&self) -> Option<&'a Ahead> {
        self.ahead
    }

    /// Returns the place of a key, hinted or not. `db`: the database in which hinted keys are prefetched.
    #[inline]
    pub(super) fn place(&self, key: &[u8], space: &Keyspace, db: u32) -> Place {
        let last = self.last.get();
        if last.is(key) {
            last.place
        } else {
            self.place_of_another(key, space, db)
        }
    }

    fn place_of_another(&self, key: &[u8], space: &Keyspace, db: u32) -> Place {
        let next = self.next.get();
        // A command that goes over its keys a second time starts from the first again.
        for at in [next, 0] {
            if let Some(hint) = self.keys.get(at).filter(|hint| hint.is(key)) {
                if at % HINTS_AHEAD == 0 && at != 0 {
                    self.prefetch(at + HINTS_AHEAD, space, db);
                }
                self.last.set(*hint);
                self.next.set(at + 1);
                return hint.place;
            }
        }
        space.place(key)
    }

    /// Prefetches the entries of some of the keys, from one of them on. The steps to an entry depend on each other, so each
    /// is taken for all keys before the next.
    fn prefetch(&self, from: usize, space: &Keyspace, db: u32) {
        let keys = self.keys.get(from..).unwrap_or(&[]);
        let keys = &keys[..keys.len().min(HINTS_AHEAD)];
        let mut keys = keys.iter().map(|hint| space.ahead(db, hint.place));
        let Some(first) = keys.next() else {
            return;
        };
        let mut ahead = [first; HINTS_AHEAD];
        let mut count = 1;
        for key in keys {
            ahead[count] = key;
            count += 1;
        }
        Ahead::fetch(&mut ahead[..count]);
    }
}
