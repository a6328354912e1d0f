//! Looking ahead: the cache misses of many keys are started before the first key is used. Takes no lock.
//!
//! A key is four dependent misses away: its slot, the slot's directory, the bucket, the entry. One after the other they
//! cost more than all the rest of a GET, so a batch of keys is walked once for each. What is read on the way may be
//! changed by others meanwhile: then a useless line is fetched, and the search under the lock finds the truth. If nothing
//! has changed, the entry that was seen is the truth, and no search is made (see `redline_table::Index`).
//!
//! Must not know: keys, entries, requests.

use std::ptr::NonNull;

use redline_table::{Index, Sight};

use crate::space::{Keyspace, slot_of};

/// A key that will be looked up soon; made by [`Keyspace::ahead`].
#[derive(Clone, Copy)]
pub struct Ahead {
    /// Its slot; `None`: the database had no table.
    index: Option<&'static Index>,
    hash: u64,
    sight: Sight,
}

impl Keyspace {
    /// First pass: asks for the key's slot.
    #[inline]
    pub fn ahead(&self, db: u32, hash: u64) -> Ahead {
        let index = self.db(db).map(|db| &db.slots[slot_of(hash)]);
        if let Some(index) = index {
            index.prefetch_place();
        }
        Ahead {
            index,
            hash,
            sight: Sight::default(),
        }
    }
}

impl Ahead {
    /// The other passes: directories, buckets, and the entries that the buckets' tags point to. What has spilled
    /// beyond its bucket is followed in rounds of its own, since each further bucket is another miss.
    #[inline]
    pub fn fetch(keys: &mut [Ahead]) {
        for key in &*keys {
            if let Some(index) = key.index {
                index.prefetch_directory(key.hash);
            }
        }
        for key in &mut *keys {
            if let Some(index) = key.index {
                key.sight = index.prefetch_bucket(key.hash);
            }
        }
        for keys in keys.chunks_mut(64) {
            let mut spilled = 0u64;
            for (i, key) in keys.iter_mut().enumerate() {
                if let Some(index) = key.index {
                    spilled |= u64::from(index.prefetch_entry(&mut key.sight, key.hash)) << i;
                }
            }
            if spilled != 0 {
                follow(keys, spilled);
            }
        }
    }

    /// The key's hash.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The entry that was seen, if that was in this slot and is certainly still there. For holders of the stripe. Whether
    /// it has the key is not known.
    #[inline]
    pub(crate) fn recall(&self, index: &Index) -> Option<NonNull<u8>> {
        if !self.index.is_some_and(|seen| std::ptr::eq(seen, index)) {
            return None;
        }
        index.recall(&self.sight)
    }
}

/// The keys of the set bits were not in their home buckets.
fn follow(keys: &mut [Ahead], mut spilled: u64) {
    /// Buckets beyond the first that are looked at: at the usual fill one key in a hundred is further away.
    const STEPS_MAX: u32 = 3;
    for step in 1..=STEPS_MAX {
        let mut rest = spilled;
        while rest != 0 {
            let i = rest.trailing_zeros();
            rest &= rest - 1;
            let key = &mut keys[i as usize];
            let further =
                |index: &Index| index.prefetch_entry_beyond(&mut key.sight, key.hash, step);
            if !key.index.is_some_and(further) {
                spilled &= !(1 << i);
            }
        }
    }
}
