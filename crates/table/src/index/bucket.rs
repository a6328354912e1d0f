//! One bucket: a cache line of seven entries, their tags and the spill mark.
//! Must not know other buckets.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Entries of a bucket.
pub(super) const ENTRIES: usize = 7;
/// A cache line.
pub(super) const BUCKET_BYTES: usize = (ENTRIES + 1) * 8;

/// Lower part of an entry word: the pointer. Above it stand the order bits.
const POINTER_BITS: u32 = 48;
const POINTER_MASK: u64 = (1 << POINTER_BITS) - 1;

/// In the last word, the meta word, seven tags, then seven bits that are free, then the spill mark.
pub(super) const SPILLED: u64 = 1 << 63;
const EACH_TAG: u64 = 0x0001_0101_0101_0101;

/// Seven entry words and the meta word, in the tables' arena.
#[derive(Clone, Copy)]
pub(super) struct Bucket(pub(super) &'static [AtomicU64; ENTRIES + 1]);

/// An entry's pointer and, above it, its order bits; 0 where there is no entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    pub(super) const EMPTY: Word = Word(0);

    #[inline]
    pub(super) fn new(order_bits: u16, entry: NonNull<u8>) -> Word {
        let address = entry.as_ptr().expose_provenance() as u64;
        debug_assert!(address <= POINTER_MASK && address.is_multiple_of(8));
        Word(u64::from(order_bits) << POINTER_BITS | address)
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self == Word::EMPTY
    }

    #[inline]
    pub(super) fn order(self) -> u16 {
        (self.0 >> POINTER_BITS) as u16
    }

    #[inline]
    pub(super) fn address(self) -> usize {
        (self.0 & POINTER_MASK) as usize
    }

    /// Returns the entry of a word that is not empty.
    #[inline]
    pub(super) fn entry(self) -> NonNull<u8> {
        debug_assert!(self.address() != 0);
        // SAFETY: words that are not empty are made by `new`, of a pointer that is not null.
        unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(self.address())) }
    }
}

impl Bucket {
    #[inline]
    pub(super) fn word(self, i: usize) -> Word {
        Word(self.0[i].load(Relaxed))
    }

    #[inline]
    pub(super) fn set_word(self, i: usize, word: Word) {
        self.0[i].store(word.0, Relaxed);
    }

    #[inline]
    pub(super) fn meta(self) -> u64 {
        self.0[ENTRIES].load(Relaxed)
    }

    #[inline]
    pub(super) fn set_meta(self, meta: u64) {
        self.0[ENTRIES].store(meta, Relaxed);
    }

    #[inline]
    pub(super) fn is_spilled(self) -> bool {
        self.meta() & SPILLED != 0
    }

    pub(super) fn set_spilled(self, spilled: bool) {
        self.set_meta(self.meta() & !SPILLED | if spilled { SPILLED } else { 0 });
    }

    pub(super) fn tag(self, i: usize) -> u8 {
        (self.meta() >> (i * 8)) as u8
    }

    /// Returns the places whose tag is this one; now and then also one whose tag differs by one, and places that are
    /// empty.
    #[inline]
    pub(super) fn matches(self, tag: u8) -> impl Iterator<Item = usize> {
        let differ = self.meta() ^ (u64::from(tag) * EACH_TAG);
        // Sets the upper bit of each byte that is zero, and of a few above such a byte that are one.
        let mut hits = differ.wrapping_sub(EACH_TAG) & !differ & (0x80 * EACH_TAG);
        std::iter::from_fn(move || {
            if hits == 0 {
                return None;
            }
            let at = hits.trailing_zeros() / 8;
            hits &= hits - 1;
            Some(at as usize)
        })
    }

    /// Returns the words of the entries.
    #[inline]
    pub(super) fn words(self) -> impl Iterator<Item = Word> {
        (0..ENTRIES)
            .map(move |i| self.word(i))
            .filter(|word| !word.is_empty())
    }

    #[inline]
    pub(super) fn free_place(self) -> Option<usize> {
        (0..ENTRIES).find(|&i| self.word(i).is_empty())
    }

    #[inline]
    pub(super) fn put(self, i: usize, word: Word, tag: u8) {
        self.set_word(i, word);
        let shift = i * 8;
        self.set_meta(self.meta() & !(0xff << shift) | u64::from(tag) << shift);
    }
}
