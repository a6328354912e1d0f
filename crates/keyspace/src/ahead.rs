//! Looking ahead: the cache misses of many keys are started before the first key is used. Takes no lock.
//!
//! A key is four dependent misses away: its slot, the slot's directory, the bucket, the entry. One after the other they
//! cost more than all the rest of a GET, so a batch of keys is walked once for each. What is read on the way may be
//! changed by others meanwhile: then a useless line is fetched, and the search under the lock finds the truth (see
//! `redline_table::Index`).
//!
//! Must not know: keys, entries, requests.

use redline_table::{BucketPlace, Index};

use crate::space::{Keyspace, slot_of};

/// A key that will be looked up soon; made by [`Keyspace::ahead`].
#[derive(Clone, Copy)]
pub struct Ahead {
    index: &'static Index,
    hash: u64,
    bucket: BucketPlace,
}

impl Keyspace {
    /// First pass: asks for the key's slot. `None`: the database has no table yet, so there is nothing to wait for.
    #[inline]
    pub fn ahead(&self, db: u32, hash: u64) -> Option<Ahead> {
        let index = &self.db(db)?.slots[slot_of(hash)];
        index.prefetch_place();
        Some(Ahead {
            index,
            hash,
            bucket: BucketPlace::default(),
        })
    }
}

impl Ahead {
    /// The other passes: directories, buckets, and the entries that the buckets' tags point to. What has spilled
    /// beyond its bucket is followed in rounds of its own, since each further bucket is another miss.
    #[inline]
    pub fn fetch(keys: &mut [Ahead]) {
        for key in &*keys {
            key.index.prefetch_directory(key.hash);
        }
        for key in &mut *keys {
            key.bucket = key.index.prefetch_bucket(key.hash);
        }
        for keys in keys.chunks(64) {
            let mut spilled = 0u64;
            for (i, key) in keys.iter().enumerate() {
                spilled |= u64::from(key.index.prefetch_entry(key.bucket, key.hash)) << i;
            }
            if spilled != 0 {
                follow(keys, spilled);
            }
        }
    }
}

/// The keys of the set bits were not in their home buckets.
fn follow(keys: &[Ahead], mut spilled: u64) {
    /// Buckets beyond the first that are looked at: at the usual fill one key in a hundred is further away.
    const STEPS_MAX: u32 = 3;
    for step in 1..=STEPS_MAX {
        let mut rest = spilled;
        while rest != 0 {
            let i = rest.trailing_zeros();
            rest &= rest - 1;
            let key = &keys[i as usize];
            if !key.index.prefetch_entry_beyond(key.hash, step) {
                spilled &= !(1 << i);
            }
        }
    }
}
