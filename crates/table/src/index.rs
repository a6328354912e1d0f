//! One slot's hash table: pointers to entries, found by hash. Never reads an entry, knows no key.
//!
//! All methods take `&self`. Unless their text says otherwise **the caller holds the lock that guards this index**,
//! without which they give wrong answers; they stay memory-safe in any case, because only the caller follows pointers.

use crate::hash::{h16, tag};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// One slot's table. 16 bytes; all zero is the empty one. Entry pointers are 8-aligned and below 2^48.
#[derive(Default)]
pub struct Index {
    word: AtomicU64,
    len: AtomicU32,
    #[allow(dead_code)]
    spare: AtomicU32,
}

type Naive = Vec<(u16, u8, u64)>;

impl Index {
    /// An empty index. Takes no memory.
    pub const fn new() -> Index {
        Index {
            word: AtomicU64::new(0),
            len: AtomicU32::new(0),
            spare: AtomicU32::new(0),
        }
    }

    /// `n` empty indexes on zeroed memory: pages that are never used cost nothing.
    pub fn slots(n: usize) -> Box<[Index]> {
        // SAFETY: all zero is a valid `Index` (three integers), the empty one.
        unsafe { Box::new_zeroed_slice(n).assume_init() }
    }

    /// Number of entries. May be read without the lock, and is then a value of a moment ago.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }

    /// True if there are no entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry with this hash for which `is_it` is true. `is_it` is asked about entries whose tag and order bits
    /// match, hence almost never about a wrong one.
    #[inline]
    pub fn find(
        &self,
        hash: u64,
        mut is_it: impl FnMut(NonNull<u8>) -> bool,
    ) -> Option<NonNull<u8>> {
        let table = self.naive()?;
        table
            .iter()
            .filter(|e| e.0 == h16(hash) && e.1 == tag(hash))
            .map(|e| pointer(e.2))
            .find(|&p| is_it(p))
    }

    /// Adds an entry. Does not look whether it is there already.
    pub fn insert(&self, hash: u64, entry: NonNull<u8>) {
        if self.word.load(Relaxed) == 0 {
            let table: Box<Naive> = Box::default();
            self.word.store(Box::into_raw(table) as u64, Relaxed);
        }
        let table = self.naive().expect("just made");
        let at = table.partition_point(|e| e.0 <= h16(hash));
        table.insert(at, (h16(hash), tag(hash), entry.as_ptr() as u64));
        self.len.store(table.len() as u32, Relaxed);
    }

    /// Puts `new` in the place of `old`, an entry with the same hash. False, and nothing done, if `old` is not there.
    #[inline]
    pub fn replace(&self, hash: u64, old: NonNull<u8>, new: NonNull<u8>) -> bool {
        let Some(table) = self.naive() else {
            return false;
        };
        let found = table
            .iter_mut()
            .find(|e| e.0 == h16(hash) && e.2 == old.as_ptr() as u64);
        found.map(|e| e.2 = new.as_ptr() as u64).is_some()
    }

    /// Takes the entry out. False if it was not there.
    pub fn remove(&self, hash: u64, entry: NonNull<u8>) -> bool {
        let Some(table) = self.naive() else {
            return false;
        };
        let Some(at) = table
            .iter()
            .position(|e| e.0 == h16(hash) && e.2 == entry.as_ptr() as u64)
        else {
            return false;
        };
        table.remove(at);
        self.len.store(table.len() as u32, Relaxed);
        true
    }

    /// Gives the entries of one bucket, those whose order bits ([`crate::hash::h16`]) are at least `from`, and says from
    /// where to go on (`None`: that was the last). Called again and again from 0 it gives every entry that is there
    /// all the time exactly once, also when the index grows and shrinks between two calls.
    pub fn scan(&self, from: u32, mut visit: impl FnMut(NonNull<u8>)) -> Option<u32> {
        let table = self.naive()?;
        let first = table.partition_point(|e| u32::from(e.0) < from);
        let h = table.get(first)?.0;
        table[first..]
            .iter()
            .take_while(|e| e.0 == h)
            .for_each(|e| visit(pointer(e.2)));
        (h < u16::MAX).then_some(u32::from(h) + 1)
    }

    /// Gives every entry.
    pub fn for_each(&self, mut visit: impl FnMut(NonNull<u8>)) {
        if let Some(table) = self.naive() {
            table.iter().for_each(|e| visit(pointer(e.2)));
        }
    }

    /// An entry chosen by the random number.
    pub fn random(&self, rnd: u64) -> Option<NonNull<u8>> {
        let table = self.naive().filter(|t| !t.is_empty())?;
        Some(pointer(table[(rnd % table.len() as u64) as usize].2))
    }

    /// Takes everything out, giving each entry to `visit`, and frees the table.
    pub fn clear(&self, mut visit: impl FnMut(NonNull<u8>)) {
        let word = self.word.swap(0, Relaxed);
        self.len.store(0, Relaxed);
        if word != 0 {
            // SAFETY: a word that is not zero came from `Box::into_raw` in `insert` and was ours alone until now.
            let table = unsafe { Box::from_raw(word as *mut Naive) };
            table.iter().for_each(|e| visit(pointer(e.2)));
        }
    }

    /// Bytes that the table takes, without `Index` itself.
    pub fn table_bytes(&self) -> usize {
        self.naive().map_or(0, |t| t.capacity() * 16)
    }

    /// Starts to load the bucket in which an entry with this hash would be. **Needs no lock.**
    #[inline]
    pub fn prefetch_buckets(&self, _hash: u64) {}

    /// Starts to load the entries that may have this hash; wants [`Index::prefetch_buckets`] some time before it.
    /// **Needs no lock.**
    #[inline]
    pub fn prefetch_entries(&self, _hash: u64) {}

    /// Moves the table itself out of memory that is being given back. A background step calls it for every slot.
    pub fn compact(&self) {}

    #[allow(clippy::mut_from_ref)]
    fn naive(&self) -> Option<&mut Naive> {
        let word = self.word.load(Relaxed);
        // SAFETY: a word that is not zero came from `Box::into_raw`; the caller's lock makes this the only reference.
        (word != 0).then(|| unsafe { &mut *(word as *mut Naive) })
    }
}

impl Drop for Index {
    /// Frees the table. The entries are the owner's to free, before.
    fn drop(&mut self) {
        self.clear(|_| ());
    }
}

fn pointer(word: u64) -> NonNull<u8> {
    NonNull::new(word as *mut u8).expect("entries are not null")
}
