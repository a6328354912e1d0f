//! Safe maps from bytes for large collections. Knows no types of the product, no clock, no locks.

use crate::hash::hash;
use std::collections::BTreeMap;

/// A cursor is a prefix of the hash: this many bits of it, always below 2^53.
const CURSOR_BITS: u32 = 48;

/// A map from bytes to `V`, in the order of the keys' hashes, with cursors that survive growing and shrinking.
pub struct Dict<V> {
    map: BTreeMap<(u64, Box<[u8]>), V>,
    bytes: usize,
}

impl<V> Default for Dict<V> {
    fn default() -> Self {
        Dict {
            map: BTreeMap::new(),
            bytes: 0,
        }
    }
}

impl<V> Dict<V> {
    /// An empty map. Takes no memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        self.map.get(&(hash(key), key.into()))
    }

    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        self.map.get_mut(&(hash(key), key.into()))
    }

    /// The key as it is stored, and its value.
    pub fn get_key_value(&self, key: &[u8]) -> Option<(&[u8], &V)> {
        self.map
            .get_key_value(&(hash(key), key.into()))
            .map(|(k, v)| (&*k.1, v))
    }

    /// True if the key is there.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    /// Sets the value of a key and gives back the one that it had.
    pub fn insert(&mut self, key: &[u8], value: V) -> Option<V> {
        let old = self.map.insert((hash(key), key.into()), value);
        self.bytes += if old.is_none() {
            key.len() + size_of::<V>() + 16
        } else {
            0
        };
        old
    }

    /// The value of a key, put there by `make` if it was missing; the second is true if it was made now.
    pub fn get_or_insert_with(&mut self, key: &[u8], make: impl FnOnce() -> V) -> (&mut V, bool) {
        let is_new = !self.contains(key);
        if is_new {
            self.insert(key, make());
        }
        (self.get_mut(key).expect("just inserted"), is_new)
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &[u8]) -> Option<V> {
        let old = self.map.remove(&(hash(key), key.into()))?;
        self.bytes -= key.len() + size_of::<V>() + 16;
        Some(old)
    }

    /// All elements, in hash order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &V)> + '_ {
        self.map.iter().map(|(k, v)| (&*k.1, v))
    }

    /// One step of a scan: visits at least the elements of one bucket from `cursor` (0 at first) on and returns the
    /// next cursor, 0 at the end. Cursors are below 2^53, hold no state, and give every element that is there during
    /// the whole scan at least once, whatever comes and goes meanwhile. Any number is a valid cursor.
    pub fn scan(&self, cursor: u64, visit: &mut impl FnMut(&[u8], &V)) -> u64 {
        let from = cursor.checked_shl(64 - CURSOR_BITS).unwrap_or(0);
        let mut bucket = None;
        for ((h, key), value) in self.map.range((from, Box::default())..) {
            let prefix = h >> (64 - CURSOR_BITS);
            match bucket {
                Some(first) if first != prefix => return prefix,
                _ => bucket = Some(prefix),
            }
            visit(key, value);
        }
        0
    }

    /// An element, each about equally likely.
    pub fn random(&self, rng: &mut impl FnMut() -> u64) -> Option<(&[u8], &V)> {
        let n = rng().checked_rem(self.len() as u64)?;
        self.iter().nth(n as usize)
    }

    /// Takes out an element, each about equally likely.
    pub fn pop_random(&mut self, rng: &mut impl FnMut() -> u64) -> Option<(Box<[u8]>, V)> {
        let key: Box<[u8]> = self.random(rng)?.0.into();
        let value = self.remove(&key)?;
        Some((key, value))
    }

    /// Bytes on the heap, without what the values own elsewhere.
    pub fn heap_bytes(&self) -> usize {
        self.bytes
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes everything out, giving each element to `visit`.
    pub fn drain(&mut self, mut visit: impl FnMut(&[u8], V)) {
        for ((_, key), value) in std::mem::take(self).map {
            visit(&key, value);
        }
    }
}

/// A map from bytes to bytes: key and value of an element are one allocation.
#[derive(Default)]
pub struct BytesDict {
    dict: Dict<Box<[u8]>>,
    value_bytes: usize,
}

impl BytesDict {
    /// An empty map. Takes no memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.dict.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.dict.is_empty()
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.dict.get(key).map(|v| &**v)
    }

    /// True if the key is there.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.dict.contains(key)
    }

    /// Sets the value of a key. True if the key is new.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> bool {
        let old = self.dict.insert(key, value.into());
        self.value_bytes += value.len();
        self.value_bytes -= old.as_ref().map_or(0, |v| v.len());
        old.is_none()
    }

    /// Takes a key out. False if it was not there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let old = self.dict.remove(key);
        self.value_bytes -= old.as_ref().map_or(0, |v| v.len());
        old.is_some()
    }

    /// All elements, in hash order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + '_ {
        self.dict.iter().map(|(k, v)| (k, &**v))
    }

    /// One step of a scan, as [`Dict::scan`].
    pub fn scan(&self, cursor: u64, visit: &mut impl FnMut(&[u8], &[u8])) -> u64 {
        self.dict.scan(cursor, &mut |k, v| visit(k, v))
    }

    /// An element, each about equally likely.
    pub fn random(&self, rng: &mut impl FnMut() -> u64) -> Option<(&[u8], &[u8])> {
        self.dict.random(rng).map(|(k, v)| (k, &**v))
    }

    /// Takes out an element, each about equally likely.
    pub fn pop_random(&mut self, rng: &mut impl FnMut() -> u64) -> Option<(Box<[u8]>, Box<[u8]>)> {
        let (key, value) = self.dict.pop_random(rng)?;
        self.value_bytes -= value.len();
        Some((key, value))
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.dict.heap_bytes() + self.value_bytes
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes everything out, giving each element to `visit`.
    pub fn drain(&mut self, mut visit: impl FnMut(&[u8], &[u8])) {
        std::mem::take(self).dict.drain(|k, v| visit(k, &v));
    }
}
