//! Prefetching: the cache misses of many keys are started before the first key is used. Takes no lock.
//!
//! A key is four dependent misses away: its slot, the slot's directory, the bucket, the entry. One after the other they
//! cost more than all the rest of a GET, so each step is taken for many keys before the next. Words that are read on
//! the way may be changed by others meanwhile: then a useless line is fetched, and the search under the lock decides.
//! If nothing has changed, the entry that was seen is the right one, and no search is made (see
//! `redline_table::Index`).
//!
//! Must not know: keys, entries, requests.

use std::ptr::NonNull;

use redline_table::{Index, Sight};

use crate::space::{Keyspace, Place, slot_of};

/// A key that will be looked up soon; made by [`Keyspace::ahead`].
#[derive(Clone, Copy)]
pub struct Ahead {
    /// Its slot; `None`: the database had no table.
    index: Option<&'static Index>,
    place: Place,
    sight: Sight,
}

impl Keyspace {
    /// Takes the first step: prefetches the key's slot.
    #[inline]
    pub fn ahead(&self, db: u32, place: Place) -> Ahead {
        let index = self.db(db).map(|db| &db.slots[slot_of(place.hash())]);
        if let Some(index) = index {
            index.prefetch_place();
        }
        Ahead {
            index,
            place,
            sight: Sight::default(),
        }
    }
}

impl Ahead {
    /// Takes the other steps for some keys at once: directories, buckets, and the entries that the buckets' tags point
    /// to. Entries that have spilled beyond their bucket are followed in rounds of their own, since each further bucket
    /// is another miss.
    #[inline]
    pub fn fetch(keys: &mut [Ahead]) {
        keys.iter().for_each(Ahead::directory);
        keys.iter_mut().for_each(Ahead::bucket);
        for keys in keys.chunks_mut(64) {
            fetch_entries(keys);
        }
    }

    /// Takes the second step: prefetches the word of the directory.
    #[inline]
    fn directory(&self) {
        if let Some(index) = self.index {
            index.prefetch_directory(self.place.hash());
        }
    }

    /// Takes the third step: prefetches the bucket.
    #[inline]
    fn bucket(&mut self) {
        if let Some(index) = self.index {
            self.sight = index.prefetch_bucket(self.place.hash());
        }
    }

    /// Takes the fourth step: prefetches the entry. Returns true if it has spilled out of its bucket.
    #[inline]
    fn entry(&mut self) -> bool {
        self.index
            .is_some_and(|index| index.prefetch_entry(&mut self.sight, self.place.hash()))
    }

    /// Takes a further step: looks for the entry so many buckets beyond the first. Returns true if it is still further.
    fn beyond(&mut self, step: u32) -> bool {
        self.index.is_some_and(|index| {
            index.prefetch_entry_beyond(&mut self.sight, self.place.hash(), step)
        })
    }

    /// Returns the key's place.
    #[inline]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns the entry that was seen, if that was in this slot and is certainly still there. For holders of the
    /// stripe. It may have another key.
    #[inline]
    pub(crate) fn recall(&self, index: &Index) -> Option<NonNull<u8>> {
        if !self.index.is_some_and(|seen| std::ptr::eq(seen, index)) {
            return None;
        }
        index.recall(&self.sight)
    }
}

/// Buckets beyond the first that are looked at: at the usual fill one key in a hundred is further away.
const STEPS_MAX: u32 = 3;

/// Takes the fourth step and the further ones, for up to 64 keys at once.
fn fetch_entries(keys: &mut [Ahead]) {
    let spilled = fetch_first(keys);
    fetch_beyond(keys, spilled);
}

/// Takes the fourth step, for up to 64 keys at once. Returns those whose entries are beyond their bucket: bit by place.
fn fetch_first(keys: &mut [Ahead]) -> u64 {
    let mut spilled = 0;
    for (i, key) in keys.iter_mut().enumerate() {
        spilled |= u64::from(key.entry()) << i;
    }
    spilled
}

/// Takes the further steps of those.
fn fetch_beyond(keys: &mut [Ahead], mut spilled: u64) {
    for step in 1..=STEPS_MAX {
        let mut rest = spilled;
        while rest != 0 {
            let i = rest.trailing_zeros();
            rest &= rest - 1;
            if !keys[i as usize].beyond(step) {
                spilled &= !(1 << i);
            }
        }
    }
}

/// The keys of a batch in the order in which they will be looked up. They are walked to while the batch is decoded and
/// executed, some keys ahead of their use and in blocks. A block is small, since a CPU has room for a dozen or two of
/// misses at a time, and one more in a row waits for the first of them. And it is not one key, since a prefetch stalls
/// the CPU while it translates its address: of several in a row the translations overlap.
#[derive(Default)]
pub struct Walk {
    keys: Vec<Ahead>,
    /// Number of keys that have taken their second step.
    directories: usize,
    /// Number of keys that have taken their third step.
    buckets: usize,
    /// Result for the block that took its fourth step last: see [`fetch_first`].
    spilled: u64,
}

/// Number of keys that take a step together.
const BLOCK: usize = 8;

impl Walk {
    /// Adds a key that will be looked up after those that are here, and walks on with the ones before. Returns its
    /// number.
    #[inline]
    pub fn push(&mut self, key: Ahead) -> usize {
        let number = self.keys.len();
        self.keys.push(key);
        if number.is_multiple_of(BLOCK) {
            let directories = number.saturating_sub(BLOCK);
            self.walk_to(directories, directories.saturating_sub(BLOCK));
        }
        number
    }

    /// Takes the second and the third step, for all keys below these numbers.
    #[inline(never)]
    fn walk_to(&mut self, directories: usize, buckets: usize) {
        let keys = &mut self.keys;
        keys[self.directories..directories]
            .iter()
            .for_each(Ahead::directory);
        keys[self.buckets..buckets]
            .iter_mut()
            .for_each(Ahead::bucket);
        (self.directories, self.buckets) = (directories, buckets);
    }

    /// Walks on with the last keys, when all are here, and prefetches the first entries.
    pub fn begin(&mut self) {
        let all = self.keys.len();
        self.walk_to(all, all);
        fetch_entries(&mut self.keys[..all.min(2 * BLOCK)]);
    }

    /// Prefetches the entries of later keys, since this one is about to be looked up. Called for each key in turn.
    #[inline]
    pub fn reach(&mut self, number: usize) {
        if number.is_multiple_of(BLOCK) {
            self.entries_from(number + BLOCK);
        }
    }

    /// Takes the further steps for the block that begins there, and the fourth step for the next.
    #[inline(never)]
    fn entries_from(&mut self, number: usize) {
        let later = self.keys.get_mut(number..).unwrap_or_default();
        let (block, later) = later.split_at_mut(later.len().min(BLOCK));
        fetch_beyond(block, self.spilled);
        let next = later.len().min(BLOCK);
        self.spilled = fetch_first(&mut later[..next]);
    }

    /// Returns the state of the lookup of a key, by the key's number.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&Ahead> {
        self.keys.get(number)
    }

    /// Returns the state of the lookup of all keys.
    #[inline]
    pub fn keys(&self) -> &[Ahead] {
        &self.keys
    }

    /// Removes all keys.
    #[inline]
    pub fn clear(&mut self) {
        self.keys.clear();
        (self.directories, self.buckets, self.spilled) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use redline_types::Limits;

    use super::*;
    use crate::{Classes, Expiry, Local, Unit, lock::NobodyWaits};

    #[test]
    fn a_walk_finds_by_and_by_what_a_fetch_finds_at_once() {
        const KEYS: usize = 290_000;
        let mut space = Keyspace::new(1, Box::new(NobodyWaits));
        let mut local = Local::new(fastrand::Rng::with_seed(1), Limits::default());
        let key = |number: usize| format!("key:{number}").into_bytes();
        let mut unit = Unit::exclusive(&mut space);
        let mut view = unit.view(&mut local, 0, 1_700_000_000_000);
        for number in 0..KEYS {
            view.set_string(&key(number), b"value", Expiry::Clear);
            view.changed(Classes::STRING, "set", &key(number));
        }
        view.finish_unreported();
        drop(unit);
        let ahead = |number| space.ahead(0, space.place(&key(number)));

        let (mut walked, mut found, mut followed) = (0, 0, 0);
        for count in [0, 1, 3, 4, 5, 8, 9, 15, 16, 17, 40, 64, 65, 500, 60_000] {
            let mut at_once: Vec<Ahead> = (walked..walked + count).map(ahead).collect();
            Ahead::fetch(&mut at_once);
            let mut walk = Walk::default();
            for (at, number) in (walked..walked + count).enumerate() {
                assert_eq!(walk.push(ahead(number)), at);
            }
            walk.begin();
            for (at, expected) in at_once.iter().enumerate() {
                walk.reach(at);
                let key = walk.get(at).expect("as many keys");
                let index = key.index.expect("a table");
                assert_eq!(
                    key.recall(index),
                    expected.recall(index),
                    "key {at} of {count}"
                );
                found += usize::from(key.recall(index).is_some());
                let mut home = ahead(walked + at);
                home.bucket();
                followed += usize::from(home.entry());
            }
            walked += count;
        }
        assert!(found * 100 > walked * 95, "{found} of {walked}");
        assert!(followed >= 20, "{followed} of {walked} had spilled");
    }
}
