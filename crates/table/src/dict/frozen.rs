//! Maps while they are frozen: see [`frozen`](crate::frozen). Must not know what takes the pieces.
//!
//! A map is given out in the order of the hashes, so the place up to which that was done is a hash, as a cursor of a scan
//! is, and an element's header tells on which side of it the element is.

use super::{BytesDict, Core, Dict, Element, HASH_BITS, LEN_BITS, Payload, ValueLen, stored_hash};
use crate::frozen::{Copies, FreezeId};

/// Copies that a piece has at most, beside the elements of one bucket.
const COPIES_PER_PIECE: usize = 16;

/// The state of a frozen map.
pub(super) struct Progress {
    /// The first bits of the hash from which on nothing was given yet; above all hashes in the end.
    from: u64,
    /// Keys of elements from there on that the pieces pass over.
    passed_over: Dict<()>,
    copies: Copies,
}

/// The place above all hashes.
const END: u64 = 1 << HASH_BITS;

impl<P: Payload> Core<P> {
    pub(super) fn freeze(&mut self, id: FreezeId) {
        self.frozen.freeze(
            id,
            Progress {
                from: 0,
                passed_over: Dict::new(),
                copies: Copies::default(),
            },
        );
    }

    pub(super) fn freeze_id(&self) -> Option<FreezeId> {
        self.frozen.id()
    }

    /// Notes that an element is new.
    #[cold]
    #[inline(never)]
    pub(super) fn note_new(&mut self, hash: u64, key: &[u8]) {
        if let Some(progress) = self.frozen.get_mut()
            && hash >> LEN_BITS >= progress.from
        {
            progress.passed_over.insert(key, ());
        }
    }

    /// Keeps an element as it is before it changes; `goes`: it is removed.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_copy(&mut self, hash: u64, element: Element<P>, goes: bool) {
        let mut frozen = self.frozen.take();
        if let Some(progress) = frozen.get_mut()
            && hash >> LEN_BITS >= progress.from
        {
            let key = self.key(element);
            let is_new = match goes {
                true => progress.passed_over.remove(key).is_some(),
                false => progress.passed_over.insert(key, ()).is_some(),
            };
            if !is_new {
                let number = self.payload(element).number();
                progress.copies.push(key, number, self.behind_key(element));
            }
        }
        self.frozen = frozen;
    }

    /// Passes on some elements as they were: key, [`Payload::number`] and the bytes behind the key. Returns true after
    /// the last one: the map is not frozen any more.
    #[allow(clippy::type_complexity)] // three parts of an element
    fn give_piece(&mut self, visit: &mut dyn FnMut(&[u8], u32, &[u8])) -> bool {
        let mut frozen = self.frozen.take();
        let Some(progress) = frozen.get_mut() else {
            return true;
        };
        for _ in 0..COPIES_PER_PIECE {
            if !progress.copies.pop(&mut *visit) {
                break;
            }
        }
        if progress.from < END {
            let next = self.scan(progress.from, |element| {
                // A bucket may begin before the place to go on at.
                if stored_hash(element) >> LEN_BITS < progress.from {
                    return;
                }
                let key = self.key(element);
                if progress.passed_over.remove(key).is_none() {
                    let number = self.payload(element).number();
                    visit(key, number, self.behind_key(element));
                }
            });
            progress.from = if next == 0 { END } else { next };
        }
        if progress.from == END && progress.copies.is_empty() {
            debug_assert!(progress.passed_over.is_empty(), "all of them were met");
            return true;
        }
        self.frozen = frozen;
        false
    }
}

impl Dict<()> {
    /// Freezes the map: [`Dict::give_piece`] gives its keys as they are now.
    pub fn freeze(&mut self, id: FreezeId) {
        self.0.freeze(id);
    }

    /// Returns the name of the freeze, if the map is frozen.
    pub fn freeze_id(&self) -> Option<FreezeId> {
        self.0.freeze_id()
    }

    /// Ends the freeze, whatever was given.
    pub fn thaw(&mut self) {
        self.0.frozen.take();
    }

    /// Passes on some of the keys that a frozen map had; returns true after the last one, which ends the freeze.
    pub fn give_piece(&mut self, visit: &mut dyn FnMut(&[u8])) -> bool {
        self.0.give_piece(&mut |key, _, _| visit(key))
    }
}

impl BytesDict {
    /// Freezes the map: [`BytesDict::give_piece`] gives its elements as they are now.
    pub fn freeze(&mut self, id: FreezeId) {
        self.0.freeze(id);
    }

    /// Returns the name of the freeze, if the map is frozen.
    pub fn freeze_id(&self) -> Option<FreezeId> {
        self.0.freeze_id()
    }

    /// Ends the freeze, whatever was given.
    pub fn thaw(&mut self) {
        self.0.frozen.take();
    }

    /// Passes on some of the elements that a frozen map had, with their stamps; returns true after the last one, which
    /// ends the freeze.
    #[allow(clippy::type_complexity)] // three parts of an element
    pub fn give_piece(&mut self, visit: &mut dyn FnMut(&[u8], &[u8], Option<u64>)) -> bool {
        self.0.give_piece(&mut |key, number, behind| {
            let (value, stamp) = behind.split_at(ValueLen(number).value_bytes());
            let stamp = stamp.first_chunk().copied().map(u64::from_ne_bytes);
            visit(key, value, stamp);
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Contents = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

    /// Changes a map and its model at random. Most keys are few, so that they come and go.
    fn change(map: &mut BytesDict, model: &mut Contents, rng: &mut fastrand::Rng) {
        let key = match rng.u8(..4) {
            0 => rng.u32(..20_000),
            _ => rng.u32(..3_000),
        };
        let key = key.to_string().into_bytes();
        let value = vec![rng.u8(..); rng.usize(..30)];
        match rng.u8(..10) {
            0..4 => {
                map.insert(&key, &value);
                model.insert(key, (value, None));
            }
            4..6 => {
                let stamp = rng.u64(..);
                map.insert_stamped(&key, &value, stamp);
                model.insert(key, (value, Some(stamp)));
            }
            6..9 => assert_eq!(map.remove(&key), model.remove(&key).is_some()),
            _ => {
                if let Some((key, _)) = map.pop_random(&mut || rng.u64(..)) {
                    model.remove(&*key);
                }
            }
        }
    }

    /// Freezes and changes maps; asserts that the pieces are what was there. `forgets`: the copies that are kept are lost.
    fn run(seed: u64, forgets: bool) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut map, mut model) = (BytesDict::new(), Contents::new());
        for round in 0..if cfg!(miri) { 1 } else { 8 } {
            let changes = if cfg!(miri) { 60 } else { rng.usize(..6_000) };
            (0..changes).for_each(|_| change(&mut map, &mut model, &mut rng));
            let expected = model.clone();
            let id = FreezeId::new(round + 1).unwrap();
            map.freeze(id);
            assert_eq!(map.freeze_id(), Some(id));
            assert_eq!(map.clone().freeze_id(), None);
            let pace = [0, 1, 5, 200][rng.usize(..4)];
            let empties = rng.u8(..4) == 0;
            let mut given = Contents::new();
            loop {
                let is_done = map.give_piece(&mut |key, value, stamp| {
                    let twice = given.insert(key.to_vec(), (value.to_vec(), stamp));
                    assert!(twice.is_none(), "given twice: {key:?}");
                });
                if is_done {
                    break;
                }
                (0..pace).for_each(|_| change(&mut map, &mut model, &mut rng));
                if let Some(progress) = map.0.frozen.get_mut().filter(|_| forgets) {
                    progress.copies = Copies::default();
                }
                if empties && rng.u8(..20) == 0 {
                    while let Some((key, _)) = map.pop_random(&mut || rng.u64(..)) {
                        model.remove(&*key);
                    }
                    assert_eq!(map.freeze_id(), Some(id));
                }
            }
            assert!(given == expected, "seed {seed}, round {round}");
            assert_eq!(map.freeze_id(), None);
            assert_eq!(map.len(), model.len());
        }
    }

    #[test]
    fn the_pieces_are_what_was_there_whatever_changes_between_them() {
        (0..if cfg!(miri) { 1 } else { 4 }).for_each(|seed| run(seed, false));
    }

    #[test]
    fn a_map_that_keeps_no_copy_of_what_changes_is_found() {
        let found = std::panic::catch_unwind(|| (0..4).for_each(|seed| run(seed, true)));
        assert!(found.is_err());
    }

    #[test]
    fn keys_alone_are_given_as_they_were_and_a_thaw_ends_it() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut set = Dict::<()>::new();
        let keys = if cfg!(miri) { 40u32 } else { 5_000 };
        for n in 0..keys {
            set.insert(&n.to_le_bytes(), ());
        }
        let id = FreezeId::MIN;
        set.freeze(id);
        let mut given = Vec::new();
        while !set.give_piece(&mut |key| given.push(key.to_vec())) {
            for _ in 0..20 {
                set.remove(&rng.u32(..keys).to_le_bytes());
                set.insert(&rng.u32(..2 * keys).to_le_bytes(), ());
            }
        }
        given.sort_by_key(|key| u32::from_le_bytes(*key.first_chunk().unwrap()));
        let expected: Vec<_> = (0..keys).map(|n| n.to_le_bytes().to_vec()).collect();
        assert!(given == expected);
        set.freeze(id);
        set.remove(&1u32.to_le_bytes());
        set.thaw();
        assert_eq!(set.freeze_id(), None);
        assert!(set.give_piece(&mut |_| panic!("it is not frozen")));
    }
}
