//! Safe maps from bytes for large collections: [`Dict`] and [`BytesDict`]. Must not know types of values, a clock.
//!
//! An element is one allocation, `[header][value][key]`; pointers to elements stand in [`Index`]es, the tables that the
//! keyspace uses for its slots. One index would be rebuilt as a whole whenever it grows, so a map has many, by
//! extendible hashing: the first bits of the hash choose one, and one with more than `SPLIT_LEN` elements is split in
//! two by the next bit. Each index orders its elements by the 16 hash bits after those, so the whole map is in hash
//! order, whatever was split or merged: a scan's cursor is simply the hash up to which everything was given.
//!
//! The header holds the key's length and the first 34 bits of its hash, so that splitting and merging hash nothing.

mod frozen;
mod payload;

use std::alloc::Layout;
use std::marker::PhantomData;
use std::mem::{offset_of, size_of};
use std::ptr::NonNull;

use crate::frozen::Frozen;
use crate::hash::hash;
use crate::index::{Index, Sight};
use payload::{Alone, Payload, ValueLen};

/// Hash bits in an element's header, and in a cursor.
const HASH_BITS: u32 = 34;
/// The rest of the header's word is the key's length: no key reaches 1 GiB.
const LEN_BITS: u32 = 64 - HASH_BITS;
const LEN_MASK: u64 = (1 << LEN_BITS) - 1;
/// Order bits of an index. The rest of `HASH_BITS` may choose an index.
const ORDER_BITS: u32 = 16;
const DEPTH_MAX: u32 = HASH_BITS - ORDER_BITS;
/// An index with more elements is split: its rebuilding takes a few microseconds.
const SPLIT_LEN: usize = 1_000;
/// Two halves with fewer elements together are merged.
const MERGE_LEN: usize = 400;

/// A map from bytes to `V`. `V`'s alignment is at most 8.
pub struct Dict<V>(Core<Alone<V>>);

/// A map from bytes to bytes: key and value of an element are one allocation. An element may carry a stamp, a number
/// beside its value that means nothing in here; elements without one use no memory for it.
#[derive(Clone, Default)]
pub struct BytesDict(Core<ValueLen>);

/// A key and its value, taken out of a [`BytesDict`].
pub type BytesPair = (Box<[u8]>, Box<[u8]>);

impl<V: Copy> Clone for Dict<V> {
    fn clone(&self) -> Self {
        Dict(self.0.clone())
    }
}

impl<V> Default for Dict<V> {
    fn default() -> Self {
        Dict(Core::default())
    }
}

impl<V> Dict<V> {
    /// Makes an empty map, which takes no memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes an empty map with room for so many elements, or for as many as it takes without being split.
    pub fn with_room(len: usize) -> Self {
        Dict(Core::with_room(len))
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns true if there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Returns the value of a key.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        self.get_key_value(key).map(|(_, value)| value)
    }

    /// Returns the value of a key, to be changed.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        let element = self.0.find(hash(key), key)?;
        Some(&mut self.0.payload_mut(element).0)
    }

    /// Returns the key as it is stored, and its value.
    #[inline]
    pub fn get_key_value(&self, key: &[u8]) -> Option<(&[u8], &V)> {
        self.0
            .find(hash(key), key)
            .map(|element| self.view(element))
    }

    /// Returns true if the key is there.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.0.find(hash(key), key).is_some()
    }

    /// Prefetches the memory that a search for these keys will need, for the first [`LOOK_AHEAD_MAX`] of them.
    pub fn look_ahead<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        self.0.look_ahead(keys);
    }

    /// Sets the value of a key and returns its old one.
    pub fn insert(&mut self, key: &[u8], value: V) -> Option<V> {
        let hash = hash(key);
        match self.0.find(hash, key) {
            Some(element) => Some(std::mem::replace(&mut self.0.payload_mut(element).0, value)),
            None => {
                self.0.add(hash, key, Alone(value), &[]);
                None
            }
        }
    }

    /// Returns the value of a key, put there by `make` if it was missing; the second is true if it was made now.
    pub fn get_or_insert_with(&mut self, key: &[u8], make: impl FnOnce() -> V) -> (&mut V, bool) {
        let hash = hash(key);
        let found = self.0.find(hash, key);
        let element = found.unwrap_or_else(|| self.0.add(hash, key, Alone(make()), &[]));
        (&mut self.0.payload_mut(element).0, found.is_none())
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &[u8]) -> Option<V> {
        let hash = hash(key);
        let element = self.0.find(hash, key)?;
        Some(self.0.take(hash, element).0)
    }

    /// Returns all elements, in hash order but for neighbours.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &V)> + '_ {
        self.0.elements().map(|element| self.view(element))
    }

    /// Makes one step of a scan: visits the elements of one bucket from `cursor` (0 at first) on and returns the next
    /// cursor, 0 at the end. Cursors are below 2^53, hold no state, and give every element that is there during the
    /// whole scan at least once, whatever is added and removed meanwhile. Any number is a valid cursor.
    pub fn scan(&self, cursor: u64, visit: &mut impl FnMut(&[u8], &V)) -> u64 {
        self.0.scan(cursor, |element| {
            let (key, value) = self.view(element);
            visit(key, value);
        })
    }

    /// Returns an element, each about equally likely.
    pub fn random(&self, rng: &mut impl FnMut() -> u64) -> Option<(&[u8], &V)> {
        self.0.random(rng).map(|element| self.view(element))
    }

    /// Removes and returns an element, each about equally likely.
    pub fn pop_random(&mut self, rng: &mut impl FnMut() -> u64) -> Option<(Box<[u8]>, V)> {
        let element = self.0.random(rng)?;
        let key: Box<[u8]> = self.0.key(element).into();
        let value = self.0.take(hash(&key), element).0;
        Some((key, value))
    }

    /// Returns the number of bytes on the heap, without those that the values own elsewhere.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Removes all elements, giving each to `visit`.
    pub fn drain(&mut self, mut visit: impl FnMut(&[u8], V)) {
        self.0.drain(|key, payload, _| visit(key, payload.0));
    }

    /// Moves the tables out of memory that a running [`crate::heap::Compaction`] gives back.
    pub fn compact(&mut self) {
        self.0.compact();
    }

    fn view(&self, element: Element<Alone<V>>) -> (&[u8], &V) {
        (self.0.key(element), &self.0.payload(element).0)
    }
}

impl BytesDict {
    /// Makes an empty map, which takes no memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a map as [`Dict::with_room`] does.
    pub fn with_room(len: usize) -> Self {
        BytesDict(Core::with_room(len))
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns true if there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Prefetches as [`Dict::look_ahead`] does.
    pub fn look_ahead<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        self.0.look_ahead(keys);
    }

    /// Returns the value of a key.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.0
            .find(hash(key), key)
            .map(|element| self.view(element).1)
    }

    /// Returns true if the key is there.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.0.find(hash(key), key).is_some()
    }

    /// Sets the value of a key; its stamp is removed. Returns true if the key is new. A value is below 2 GiB.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.store(key, ValueLen::new(value, false), value)
    }

    /// Sets the value of a key, and a stamp beside it. Returns true if the key is new. A value is below 2 GiB.
    pub fn insert_stamped(&mut self, key: &[u8], value: &[u8], stamp: u64) -> bool {
        let behind_key = [value, &stamp.to_ne_bytes()].concat();
        self.store(key, ValueLen::new(value, true), &behind_key)
    }

    fn store(&mut self, key: &[u8], len: ValueLen, behind_key: &[u8]) -> bool {
        let hash = hash(key);
        match self.0.find(hash, key) {
            Some(element) => self.0.overwrite(hash, element, len, behind_key),
            None => {
                self.0.add(hash, key, len, behind_key);
                return true;
            }
        }
        false
    }

    /// Returns the value of a key, and its stamp if it has one.
    pub fn get_stamped(&self, key: &[u8]) -> Option<(&[u8], Option<u64>)> {
        let element = self.0.find(hash(key), key)?;
        let (_, value, stamp) = self.view_stamped(element);
        Some((value, stamp))
    }

    /// Returns all elements with their stamps, in the order of [`BytesDict::iter`].
    pub fn iter_stamped(&self) -> impl Iterator<Item = (&[u8], &[u8], Option<u64>)> + '_ {
        self.0.elements().map(|element| self.view_stamped(element))
    }

    /// Makes one step of a scan with stamps, as [`Dict::scan`].
    pub fn scan_stamped(
        &self,
        cursor: u64,
        visit: &mut impl FnMut(&[u8], &[u8], Option<u64>),
    ) -> u64 {
        self.0.scan(cursor, |element| {
            let (key, value, stamp) = self.view_stamped(element);
            visit(key, value, stamp);
        })
    }

    /// Returns the first 32 bits of a key's hash: with [`BytesDict::for_each_with_prefix`], a short name for the key.
    pub fn hash_prefix(key: &[u8]) -> u32 {
        (hash(key) >> 32) as u32
    }

    /// Shows the elements whose hash begins with these bits: mostly one, or none.
    pub fn for_each_with_prefix(
        &self,
        prefix: u32,
        mut visit: impl FnMut(&[u8], &[u8], Option<u64>),
    ) {
        let beyond = (u64::from(prefix) + 1) << (HASH_BITS - 32);
        let mut cursor = u64::from(prefix) << (HASH_BITS - 32);
        loop {
            cursor = self.0.scan(cursor, |element| {
                if (stored_hash(element) >> 32) as u32 == prefix {
                    let (key, value, stamp) = self.view_stamped(element);
                    visit(key, value, stamp);
                }
            });
            if cursor == 0 || cursor >= beyond {
                return;
            }
        }
    }

    /// Removes a key. Returns false if it was not there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let hash = hash(key);
        let element = self.0.find(hash, key);
        element.map(|element| self.0.take(hash, element)).is_some()
    }

    /// Returns all elements, in hash order but for neighbours.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + '_ {
        self.0.elements().map(|element| self.view(element))
    }

    /// Makes one step of a scan, as [`Dict::scan`].
    pub fn scan(&self, cursor: u64, visit: &mut impl FnMut(&[u8], &[u8])) -> u64 {
        self.0.scan(cursor, |element| {
            let (key, value) = self.view(element);
            visit(key, value);
        })
    }

    /// Returns an element, each about equally likely.
    pub fn random(&self, rng: &mut impl FnMut() -> u64) -> Option<(&[u8], &[u8])> {
        self.0.random(rng).map(|element| self.view(element))
    }

    /// Removes and returns an element, each about equally likely.
    pub fn pop_random(&mut self, rng: &mut impl FnMut() -> u64) -> Option<BytesPair> {
        let element = self.0.random(rng)?;
        let (key, value) = self.view(element);
        let (key, value): (Box<[u8]>, Box<[u8]>) = (key.into(), value.into());
        self.0.take(hash(&key), element);
        Some((key, value))
    }

    /// Returns the number of bytes on the heap.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Removes all elements, giving each to `visit`.
    pub fn drain(&mut self, mut visit: impl FnMut(&[u8], &[u8])) {
        self.0
            .drain(|key, len, behind| visit(key, &behind[..len.value_bytes()]));
    }

    /// Moves the tables out of memory that a running [`crate::heap::Compaction`] gives back.
    pub fn compact(&mut self) {
        self.0.compact();
    }

    #[inline]
    fn view(&self, element: Element<ValueLen>) -> (&[u8], &[u8]) {
        let value_bytes = self.0.payload(element).value_bytes();
        let behind = self.0.behind_key(element);
        (self.0.key(element), &behind[..value_bytes])
    }

    fn view_stamped(&self, element: Element<ValueLen>) -> (&[u8], &[u8], Option<u64>) {
        let value_bytes = self.0.payload(element).value_bytes();
        let (value, stamp) = self.0.behind_key(element).split_at(value_bytes);
        let stamp = stamp.first_chunk().copied().map(u64::from_ne_bytes);
        (self.0.key(element), value, stamp)
    }
}

/// Number of keys that [`Dict::look_ahead`] prefetches at once.
pub const LOOK_AHEAD_MAX: usize = 64;

/// The core of both maps. It owns its elements: pointers in its indexes are alive, and no other code has them.
struct Core<P: Payload> {
    /// `2^depth` positions. An index that is split less often than `depth` times owns several, and lies in the first.
    subs: Box<[Index]>,
    /// Number of times that the index of each position was split.
    depths: Box<[u8]>,
    depth: u32,
    len: usize,
    /// Bytes of elements and tables, without `subs` and `depths`.
    bytes: usize,
    frozen: Frozen<frozen::Progress>,
    _owns: PhantomData<P>,
}

/// A pointer to an element of a `Core`.
struct Element<P>(NonNull<Header<P>>);

impl<P> Clone for Element<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Element<P> {}

/// Header of an element; the key follows right behind the payload, and the payload says which bytes follow the key.
#[repr(C)]
struct Header<P> {
    /// `first bits of the hash << LEN_BITS | length of the key`.
    word: u64,
    payload: P,
}

impl<P: Payload> Default for Core<P> {
    fn default() -> Self {
        Core {
            subs: Box::default(),
            depths: Box::default(),
            depth: 0,
            len: 0,
            bytes: 0,
            frozen: Frozen::none(),
            _owns: PhantomData,
        }
    }
}

impl<P: Payload + Copy> Clone for Core<P> {
    /// Copies index by index, each with the room that it needs: nothing is hashed, looked up or rebuilt.
    fn clone(&self) -> Self {
        if self.len == 0 {
            return Self::default();
        }
        let mut copy = Core {
            // SAFETY: as in `begin`.
            subs: unsafe { Index::slots(self.subs.len()) },
            depths: self.depths.clone(),
            depth: self.depth,
            len: self.len,
            bytes: 0,
            frozen: Frozen::none(),
            _owns: PhantomData,
        };
        let mut elements = Vec::new();
        for (sub, index) in self.subs.iter().enumerate() {
            elements.clear();
            index.for_each_tagged(|at, tag| {
                let element = Element::<P>(at.cast());
                let (key, behind_key) = (self.key(element), self.behind_key(element));
                let payload = *self.payload(element);
                copy.bytes += element_bytes::<P>(key.len(), behind_key.len());
                elements.push((create(stored_hash(element), key, payload, behind_key), tag));
            });
            if !elements.is_empty() {
                copy.fill(sub, self.depths[sub].into(), &elements);
            }
        }
        copy
    }
}

impl<P: Payload> Core<P> {
    const KEY_AT: usize = offset_of!(Header<P>, payload) + size_of::<P>();

    fn heap_bytes(&self) -> usize {
        self.bytes + self.subs.len() * (size_of::<Index>() + 1)
    }

    /// The misses on the way to an element depend on each other, those of different elements do not: so each step is
    /// taken for all keys before the next.
    fn look_ahead<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        /// Smaller tables mostly lie in the caches.
        const LEN_MIN: usize = 512;
        if self.len < LEN_MIN {
            return;
        }
        let mut looks = [(0, 0, Sight::default()); LOOK_AHEAD_MAX];
        let mut count = 0;
        for (look, key) in looks.iter_mut().zip(keys) {
            let hash = hash(key);
            let (sub, depth) = self.sub_of(hash);
            *look = (sub, order_hash(hash, depth), Sight::default());
            self.subs[sub].prefetch_directory(look.1);
            count += 1;
        }
        let looks = &mut looks[..count];
        for (sub, hash, sight) in &mut *looks {
            *sight = self.subs[*sub].prefetch_bucket(*hash);
        }
        for (sub, hash, sight) in looks {
            self.subs[*sub].prefetch_entry(sight, *hash);
        }
    }

    #[inline]
    fn find(&self, hash: u64, key: &[u8]) -> Option<Element<P>> {
        if self.len == 0 {
            return None;
        }
        let (sub, depth) = self.sub_of(hash);
        let found = self.subs[sub].find(order_hash(hash, depth), |at| {
            self.key(Element(at.cast())) == key
        });
        found.map(|at| Element(at.cast()))
    }

    /// Returns the position of the index for a hash, and how often it was split.
    #[inline]
    fn sub_of(&self, hash: u64) -> (usize, u32) {
        // Two steps: a shift by 64 is none.
        let position = (hash >> 1 >> (63 - self.depth)) as usize;
        let depth = u32::from(self.depths[position]);
        (position & !((1 << (self.depth - depth)) - 1), depth)
    }

    #[inline]
    fn key(&self, element: Element<P>) -> &[u8] {
        // SAFETY: the element is one of this map's, which are alive and change only under `&mut self`; its key has the
        // length that the header says.
        unsafe {
            let len = (element.0.as_ref().word & LEN_MASK) as usize;
            std::slice::from_raw_parts(element.0.as_ptr().cast::<u8>().add(Self::KEY_AT), len)
        }
    }

    fn behind_key(&self, element: Element<P>) -> &[u8] {
        let key = self.key(element);
        // SAFETY: as in `key`; so many bytes follow the key.
        unsafe {
            let len = element.0.as_ref().payload.bytes_behind_key();
            std::slice::from_raw_parts(
                element
                    .0
                    .as_ptr()
                    .cast::<u8>()
                    .add(Self::KEY_AT + key.len()),
                len,
            )
        }
    }

    #[inline]
    fn payload(&self, element: Element<P>) -> &P {
        // SAFETY: as in `key`.
        unsafe { &(*element.0.as_ptr()).payload }
    }

    #[inline]
    fn payload_mut(&mut self, mut element: Element<P>) -> &mut P {
        // SAFETY: as in `key`, and `&mut self` makes this the only reference into the element.
        unsafe { &mut element.0.as_mut().payload }
    }

    fn with_room(len: usize) -> Self {
        let mut core = Self::default();
        if len > 0 {
            core.begin();
            core.change(0, |index| index.reserve(len.min(SPLIT_LEN)));
        }
        core
    }

    /// Makes the one index that a map begins with.
    fn begin(&mut self) {
        // SAFETY: indexes of a map are only used through it: changed under `&mut self`, read under `&self`.
        self.subs = unsafe { Index::slots(1) };
        self.depths = Box::new([0]);
    }

    /// Adds an element for a key that is not there.
    fn add(&mut self, hash: u64, key: &[u8], payload: P, behind_key: &[u8]) -> Element<P> {
        if self.subs.is_empty() {
            self.begin();
        }
        let element = create(hash, key, payload, behind_key);
        self.bytes += element_bytes::<P>(key.len(), behind_key.len());
        self.len += 1;
        if self.frozen.is_frozen() {
            self.note_new(hash, key);
        }
        let (sub, depth) = self.sub_of(hash);
        self.change(sub, |index| {
            index.insert(order_hash(hash, depth), element.0.cast())
        });
        if self.subs[sub].len() > SPLIT_LEN && depth < DEPTH_MAX {
            self.split(sub, depth);
        }
        element
    }

    /// Removes an element and frees it.
    fn take(&mut self, hash: u64, element: Element<P>) -> P {
        if self.frozen.is_frozen() {
            self.keep_copy(hash, element, true);
        }
        let (sub, depth) = self.sub_of(hash);
        let was_there = self.change(sub, |index| {
            index.remove(order_hash(hash, depth), element.0.cast())
        });
        assert!(was_there, "an element of this map");
        self.len -= 1;
        // SAFETY: the element was in the map, which owned it, and is not in it any more.
        let payload = unsafe { self.destroy(element) };
        if self.len == 0 {
            let frozen = self.frozen.take();
            *self = Self::default();
            self.frozen = frozen;
        } else {
            self.merge_around(sub, depth);
        }
        payload
    }

    /// Gives an element another payload and other bytes behind the key.
    fn overwrite(&mut self, hash: u64, element: Element<P>, payload: P, behind_key: &[u8]) {
        if self.frozen.is_frozen() {
            self.keep_copy(hash, element, false);
        }
        let key_len = self.key(element).len();
        let old = layout::<P>(key_len, self.payload(element).bytes_behind_key());
        if layout::<P>(key_len, behind_key.len()) == old {
            *self.payload_mut(element) = payload;
            // SAFETY: the element has as many bytes as it needs now, and `&mut self` makes this the only access.
            unsafe {
                let at = element.0.as_ptr().cast::<u8>().add(Self::KEY_AT + key_len);
                at.copy_from_nonoverlapping(behind_key.as_ptr(), behind_key.len());
            }
            return;
        }
        let new = create(hash, self.key(element), payload, behind_key);
        self.bytes += element_bytes::<P>(key_len, behind_key.len());
        let (sub, depth) = self.sub_of(hash);
        let was_there =
            self.subs[sub].replace(order_hash(hash, depth), element.0.cast(), new.0.cast());
        assert!(was_there, "an element of this map");
        // SAFETY: the element was in the map, which owned it, and is not in it any more.
        unsafe { self.destroy(element) };
    }

    /// Frees an element, and subtracts it from the account.
    ///
    /// # Safety
    /// The element is alive, and is not used afterwards.
    unsafe fn destroy(&mut self, element: Element<P>) -> P {
        let (key_len, behind_len) = (
            self.key(element).len(),
            self.payload(element).bytes_behind_key(),
        );
        self.bytes -= element_bytes::<P>(key_len, behind_len);
        // SAFETY: the caller gives the element up; `create` allocated it with this layout.
        unsafe {
            let payload = (&raw const (*element.0.as_ptr()).payload).read();
            std::alloc::dealloc(element.0.as_ptr().cast(), layout::<P>(key_len, behind_len));
            payload
        }
    }

    /// Calls a function with an index and keeps the account of its table's size.
    #[inline]
    fn change<R>(&mut self, sub: usize, change: impl FnOnce(&Index) -> R) -> R {
        let index = &self.subs[sub];
        let before = index.table_bytes();
        let result = change(index);
        self.bytes = self.bytes + index.table_bytes() - before;
        result
    }

    /// Splits the index at a position by the next hash bit.
    #[cold]
    #[inline(never)]
    fn split(&mut self, mut sub: usize, depth: u32) {
        if depth == self.depth {
            self.deepen();
            sub *= 2;
        }
        let width = 1 << (self.depth - depth);
        let other = sub + width / 2;
        let mut halves: [Vec<(Element<P>, u8)>; 2] = [Vec::new(), Vec::new()];
        self.subs[sub].for_each_tagged(|at, tag| {
            let element = Element::<P>(at.cast());
            let bit = (stored_hash(element) >> (63 - depth)) & 1;
            halves[bit as usize].push((element, tag));
        });
        self.change(sub, |index| index.clear(|_| ()));
        self.depths[sub..sub + width].fill(depth as u8 + 1);
        let [low, high] = halves;
        self.fill(sub, depth + 1, &low);
        self.fill(other, depth + 1, &high);
    }

    /// After a removal: merges the index with its other half as long as both are small.
    #[inline]
    fn merge_around(&mut self, sub: usize, depth: u32) {
        if depth > 0 && self.subs[sub].len() < MERGE_LEN {
            self.merge(sub, depth);
        }
    }

    #[inline(never)]
    fn merge(&mut self, mut sub: usize, mut depth: u32) {
        let mut merged = false;
        while depth > 0 {
            let width = 1 << (self.depth - depth);
            let (low, high) = (sub & !width, sub | width);
            let both = self.subs[low].len() + self.subs[high].len();
            if self.depths[low] != self.depths[high] || both >= MERGE_LEN {
                break;
            }
            let mut elements = Vec::with_capacity(both);
            for half in [low, high] {
                self.subs[half]
                    .for_each_tagged(|at, tag| elements.push((Element::<P>(at.cast()), tag)));
                self.change(half, |index| index.clear(|_| ()));
            }
            depth -= 1;
            sub = low;
            self.depths[low..low + 2 * width].fill(depth as u8);
            self.fill(low, depth, &elements);
            merged = true;
        }
        while merged
            && self.depth > 0
            && self
                .depths
                .iter()
                .all(|&depth| u32::from(depth) < self.depth)
        {
            self.flatten();
        }
    }

    /// Fills an empty index.
    fn fill(&mut self, sub: usize, depth: u32, elements: &[(Element<P>, u8)]) {
        self.change(sub, |index| {
            index.reserve(elements.len());
            for &(element, tag) in elements {
                index.insert(
                    order_hash(stored_hash(element) | u64::from(tag), depth),
                    element.0.cast(),
                );
            }
        });
    }

    /// Doubles the number of positions.
    fn deepen(&mut self) {
        // SAFETY: as in `begin`.
        let mut subs = unsafe { Index::slots(self.subs.len() * 2) };
        for (position, index) in self.subs.iter_mut().enumerate() {
            std::mem::swap(&mut subs[position * 2], index);
        }
        self.subs = subs;
        self.depths = self
            .depths
            .iter()
            .flat_map(|&depth| [depth, depth])
            .collect();
        self.depth += 1;
    }

    /// Halves the number of positions, of which no index needs the second of each pair.
    fn flatten(&mut self) {
        // SAFETY: as in `begin`.
        let mut subs = unsafe { Index::slots(self.subs.len() / 2) };
        for (position, index) in subs.iter_mut().enumerate() {
            std::mem::swap(&mut self.subs[position * 2], index);
        }
        self.subs = subs;
        self.depths = self.depths.iter().step_by(2).copied().collect();
        self.depth -= 1;
    }

    fn scan(&self, cursor: u64, mut visit: impl FnMut(Element<P>)) -> u64 {
        if cursor >> HASH_BITS != 0 || self.len == 0 {
            return 0;
        }
        let mut hash = cursor << LEN_BITS;
        loop {
            let (sub, depth) = self.sub_of(hash);
            let from = u32::from(crate::hash::h16(order_hash(hash, depth)));
            let mut given = false;
            let next = self.subs[sub].scan(from, |at| {
                given = true;
                visit(Element(at.cast()));
            });
            // The next cursor: where the next bucket begins, or the next index.
            let above = 64 - depth - ORDER_BITS;
            let start = if depth == 0 {
                0
            } else {
                hash >> (64 - depth) << (64 - depth)
            };
            let step = u64::from(next.unwrap_or(1 << ORDER_BITS));
            match start.checked_add(step.checked_mul(1 << above).unwrap_or(0)) {
                Some(following) if following > hash => hash = following,
                _ => return 0,
            }
            if given {
                return hash >> LEN_BITS;
            }
        }
    }

    fn random(&self, rng: &mut impl FnMut() -> u64) -> Option<Element<P>> {
        const DRAWS_MAX: usize = 1_000;
        if self.len == 0 {
            return None;
        }
        for _ in 0..DRAWS_MAX {
            let draw = rng();
            let (sub, depth) = self.sub_of(draw);
            let len = self.subs[sub].len() as u64;
            // An index was drawn by the number of its positions; that is made good by how full it is.
            let fullest = SPLIT_LEN.max(self.subs[sub].len()) as u64;
            let chance = len << depth;
            if self.depth == 0 || rng() % (fullest << self.depth) < chance {
                return self.subs[sub].random(rng()).map(|at| Element(at.cast()));
            }
        }
        self.elements().next()
    }

    fn elements(&self) -> impl Iterator<Item = Element<P>> + '_ {
        let entries = |index: &'_ Index| index.entries();
        self.subs
            .iter()
            .flat_map(entries)
            .map(|at| Element(at.cast()))
    }

    /// Removes all elements, giving key, payload and the bytes behind the key.
    fn drain(&mut self, mut visit: impl FnMut(&[u8], P, &[u8])) {
        let mut all = std::mem::take(self);
        for index in std::mem::take(&mut all.subs) {
            index.clear(|at| {
                let element = Element::<P>(at.cast());
                let (key_len, behind_len) = (
                    all.key(element).len(),
                    all.payload(element).bytes_behind_key(),
                );
                // SAFETY: the element is in no map any more, so the payload may be moved out and the memory freed,
                // which `create` allocated with this layout.
                unsafe {
                    let payload = (&raw const (*element.0.as_ptr()).payload).read();
                    visit(all.key(element), payload, {
                        let at = element.0.as_ptr().cast::<u8>().add(Self::KEY_AT + key_len);
                        std::slice::from_raw_parts(at, behind_len)
                    });
                    std::alloc::dealloc(
                        element.0.as_ptr().cast(),
                        layout::<P>(key_len, behind_len),
                    );
                }
            });
        }
    }

    fn compact(&mut self) {
        self.subs.iter().for_each(Index::compact);
    }
}

impl<P: Payload> Drop for Core<P> {
    fn drop(&mut self) {
        if !self.subs.is_empty() {
            self.drain(|_, payload, _| drop(payload));
        }
    }
}

/// Returns the hash that an index of this depth is given: its order bits follow the bits that chose the index, and the
/// tag is the hash's last byte, which no splitting changes.
#[inline]
fn order_hash(hash: u64, depth: u32) -> u64 {
    let order = hash << depth >> (64 - ORDER_BITS);
    order << 34 | (hash & 0xff) << 26
}

/// Returns the first bits of an element's hash, where they are in the hash; the others are 0.
#[inline]
fn stored_hash<P>(element: Element<P>) -> u64 {
    // SAFETY: called for elements of a map, which are alive.
    unsafe { element.0.as_ref().word & !LEN_MASK }
}

fn create<P: Payload>(hash: u64, key: &[u8], payload: P, behind_key: &[u8]) -> Element<P> {
    const {
        assert!(
            align_of::<Header<P>>() == 8,
            "values are aligned to at most 8 bytes"
        )
    };
    assert!(key.len() as u64 <= LEN_MASK, "a key is below 1 GiB");
    let layout = layout::<P>(key.len(), behind_key.len());
    // SAFETY: the layout holds at least a header; it is as large as what is written: header word, payload, key, bytes.
    unsafe {
        let Some(at) = NonNull::new(std::alloc::alloc(layout)) else {
            std::alloc::handle_alloc_error(layout)
        };
        let element = at.cast::<Header<P>>();
        (&raw mut (*element.as_ptr()).word).write(hash & !LEN_MASK | key.len() as u64);
        (&raw mut (*element.as_ptr()).payload).write(payload);
        let key_at = at.add(Core::<P>::KEY_AT);
        key_at
            .as_ptr()
            .copy_from_nonoverlapping(key.as_ptr(), key.len());
        key_at
            .add(key.len())
            .as_ptr()
            .copy_from_nonoverlapping(behind_key.as_ptr(), behind_key.len());
        Element(element)
    }
}

/// Returns the layout of an element's allocation; rounded up so that a value may grow a little in place.
fn layout<P: Payload>(key_len: usize, behind_len: usize) -> Layout {
    let bytes = (Core::<P>::KEY_AT + key_len + behind_len).next_multiple_of(8);
    Layout::from_size_align(bytes, 8).expect("an allocation below isize::MAX bytes")
}

/// Returns the number of bytes that an element counts as: the allocator rounds to 16.
fn element_bytes<P: Payload>(key_len: usize, behind_len: usize) -> usize {
    layout::<P>(key_len, behind_len).size().next_multiple_of(16)
}

#[cfg(test)]
mod tests;
