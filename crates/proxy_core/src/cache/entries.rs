//! Cached values by key and database, in bounded memory. Must not know whether they are still valid.
//!
//! Eviction is by a clock: its hand evicts entries that were not used since its last visit.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::route::NodeId;

/// Memory of an entry beside its bytes: its place, the index, and the allocator's rounding.
pub(super) const OVERHEAD_BYTES: usize = 128;
/// Largest number of entries that the hand skips before it evicts one, so that the time of an eviction is bounded.
const SPARED_MAX: usize = 256;
/// No place.
const NONE: u32 = u32::MAX;

/// A value that a server has sent.
#[derive(Debug)]
pub(super) struct Entry {
    /// Hash of the key.
    hash: u64,
    /// The next one with this hash.
    next: u32,
    /// Its database.
    pub db: u16,
    /// The server that sent the value.
    pub node: NodeId,
    /// It was used since the hand's last visit.
    pub was_used: bool,
    /// The key does not exist.
    pub is_null: bool,
    key_len: u32,
    /// Ticket of the GET.
    pub ticket: u64,
    /// Time of the GET: milliseconds of the worker's clock.
    pub asked_ms: u64,
    /// The key, followed by the reply.
    bytes: Box<[u8]>,
}

impl Entry {
    fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len as usize]
    }

    /// Returns the reply as it arrived; undefined if it `is_null`.
    pub fn reply(&self) -> &[u8] {
        &self.bytes[self.key_len as usize..]
    }

    pub fn key_len(&self) -> usize {
        self.key_len as usize
    }

    /// Returns the key and the reply, while the entry is not read.
    pub fn lend(&mut self) -> Box<[u8]> {
        std::mem::take(&mut self.bytes)
    }

    pub fn take_back(&mut self, bytes: Box<[u8]>) {
        self.bytes = bytes;
    }

    fn cost(&self) -> usize {
        self.bytes.len() + OVERHEAD_BYTES
    }
}

/// A value to be cached.
pub(super) struct Fresh<'a> {
    pub hash: u64,
    pub db: u16,
    pub node: NodeId,
    pub ticket: u64,
    pub asked_ms: u64,
    pub key: &'a [u8],
    /// `None`: the key does not exist.
    pub reply: Option<&'a [u8]>,
}

/// A hasher that returns the hash that it gets.
#[derive(Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The cached values.
pub(super) struct Entries {
    /// The first place of each hash of a key.
    index: HashMap<u64, u32, BuildHasherDefault<AsItIs>>,
    places: Vec<Option<Entry>>,
    free: Vec<u32>,
    hand: usize,
    swept: usize,
    bytes: usize,
    bytes_max: usize,
    /// Number of entries that were evicted for want of room.
    pub evicted: u64,
}

impl Entries {
    /// Returns an empty cache of at most this many bytes.
    pub fn new(bytes_max: usize) -> Entries {
        Entries {
            index: HashMap::default(),
            places: Vec::new(),
            free: Vec::new(),
            hand: 0,
            swept: 0,
            bytes: 0,
            bytes_max,
            evicted: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the place of a key's value.
    pub fn find(&self, hash: u64, db: u16, key: &[u8]) -> Option<u32> {
        let mut at = *self.index.get(&hash)?;
        while let Some(entry) = self.at(at) {
            if entry.db == db && entry.key() == key {
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    pub fn at(&self, at: u32) -> Option<&Entry> {
        self.places.get(at as usize)?.as_ref()
    }

    pub fn at_mut(&mut self, at: u32) -> Option<&mut Entry> {
        self.places.get_mut(at as usize)?.as_mut()
    }

    pub fn remove(&mut self, at: u32) {
        let Some(entry) = self.places.get_mut(at as usize).and_then(Option::take) else {
            return;
        };
        self.bytes -= entry.cost();
        self.free.push(at);
        match self.index.get_mut(&entry.hash) {
            Some(first) if *first == at && entry.next == NONE => {
                self.index.remove(&entry.hash);
            }
            Some(first) if *first == at => *first = entry.next,
            Some(first) => {
                let mut before = *first;
                while let Some(other) = self.at_mut(before) {
                    if other.next == at {
                        other.next = entry.next;
                        break;
                    }
                    before = other.next;
                }
            }
            None => {}
        }
    }

    /// Removes a key in every database.
    pub fn remove_key(&mut self, hash: u64, key: &[u8]) {
        let Some(&first) = self.index.get(&hash) else {
            return;
        };
        let mut at = first;
        while let Some(entry) = self.at(at) {
            let (next, is_it) = (entry.next, entry.key() == key);
            if is_it {
                self.remove(at);
            }
            at = next;
        }
    }

    /// Stores a value that is not there yet, if there is room for it at all.
    pub fn put(&mut self, fresh: Fresh<'_>) {
        let reply = fresh.reply.unwrap_or_default();
        let cost = fresh.key.len() + reply.len() + OVERHEAD_BYTES;
        // A value that would evict most of the others is not worth it.
        if cost > self.bytes_max / 4 {
            return;
        }
        let mut spared = 0;
        while self.bytes + cost > self.bytes_max {
            spared = self.turn(spared);
        }
        let at = self.free.pop().unwrap_or(self.places.len() as u32);
        let next = self.index.insert(fresh.hash, at).unwrap_or(NONE);
        let entry = Entry {
            hash: fresh.hash,
            next,
            db: fresh.db,
            node: fresh.node,
            was_used: false,
            is_null: fresh.reply.is_none(),
            key_len: fresh.key.len() as u32,
            ticket: fresh.ticket,
            asked_ms: fresh.asked_ms,
            bytes: [fresh.key, reply].concat().into(),
        };
        self.bytes += cost;
        match self.places.get_mut(at as usize) {
            Some(place) => *place = Some(entry),
            None => self.places.push(Some(entry)),
        }
    }

    /// Advances the hand by one place; some place is taken. Returns the number of entries skipped since the last
    /// eviction.
    fn turn(&mut self, spared: usize) -> usize {
        self.hand = (self.hand + 1) % self.places.len().max(1);
        match self.at_mut(self.hand as u32) {
            Some(entry) if entry.was_used && spared < SPARED_MAX => {
                entry.was_used = false;
                spared + 1
            }
            Some(_) => {
                self.evicted += 1;
                self.remove(self.hand as u32);
                0
            }
            None => spared,
        }
    }

    /// Removes the invalid entries of the next `count` places.
    pub fn sweep(&mut self, count: usize, is_dead: impl Fn(&Entry) -> bool) {
        for _ in 0..count.min(self.places.len()) {
            self.swept = (self.swept + 1) % self.places.len();
            if self.at(self.swept as u32).is_some_and(&is_dead) {
                self.remove(self.swept as u32);
            }
        }
        if self.len() == 0 && self.places.capacity() > 0 {
            (self.places, self.free, self.index) = Default::default();
            (self.hand, self.swept) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh<'a>(hash: u64, db: u16, key: &'a [u8], reply: &'a [u8]) -> Fresh<'a> {
        Fresh {
            hash,
            db,
            node: 0,
            ticket: 0,
            asked_ms: 0,
            key,
            reply: Some(reply),
        }
    }

    fn is_there(entries: &Entries, hash: u64, db: u16, key: &[u8]) -> bool {
        let found = entries.find(hash, db, key);
        found.is_some_and(|at| entries.at(at).unwrap().key() == key)
    }

    #[test]
    fn keys_with_one_hash_are_told_apart() {
        let mut entries = Entries::new(1 << 20);
        for (db, key) in [(0, "a"), (1, "a"), (0, "b"), (2, "b"), (0, "c")] {
            entries.put(fresh(7, db, key.as_bytes(), b"x"));
        }
        assert!(!is_there(&entries, 7, 1, b"b") && is_there(&entries, 7, 2, b"b"));
        entries.remove_key(7, b"b");
        assert!(!is_there(&entries, 7, 0, b"b") && !is_there(&entries, 7, 2, b"b"));
        assert!(is_there(&entries, 7, 1, b"a") && is_there(&entries, 7, 0, b"c"));
        entries.remove_key(7, b"a");
        entries.remove_key(7, b"c");
        assert_eq!((entries.len(), entries.bytes()), (0, 0));
        assert!(entries.index.is_empty());
        entries.sweep(10, |_| true);
        assert_eq!(entries.places.capacity(), 0);
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_makes_room() {
        let bytes_max = 100 * (OVERHEAD_BYTES + 104);
        let mut entries = Entries::new(bytes_max);
        let key = |number: u32| number.to_be_bytes();
        for number in 0..1_000 {
            entries.put(fresh(number.into(), 0, &key(number), &[b'v'; 100]));
            assert!(entries.bytes() <= bytes_max);
            for hot in 0..10.min(number) {
                if let Some(at) = entries.find(hot.into(), 0, &key(hot)) {
                    entries.at_mut(at).unwrap().was_used = true;
                }
            }
        }
        assert_eq!(entries.len(), 100);
        assert_eq!(entries.evicted, 900);
        assert!((0..10).all(|hot| is_there(&entries, hot.into(), 0, &key(hot))));
        entries.put(fresh(5_000, 0, b"large", &vec![b'v'; bytes_max / 2]));
        assert!(!is_there(&entries, 5_000, 0, b"large"));
        entries.sweep(usize::MAX, |entry| entry.key() != key(3));
        assert_eq!(entries.len(), 1);
    }
}
