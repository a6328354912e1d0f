//! Places of the buckets of an index: place word, directory and chunks in the tables' arena. Must not know entries.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::bucket::{BUCKET_BYTES, Bucket};
use crate::arena::{Arena, class_bytes, class_of};
use crate::magazine::Magazines;

/// Chunks and directories of all indexes. 256 GiB of addresses: 2^32 buckets.
pub(crate) static TABLES: Arena = Arena::new(BUCKET_BYTES << 32);

/// Buckets of a chunk. The last chunk of an index may have one.
const CHUNK_BUCKETS: u32 = 2;

/// Lower part of the place word: where the directory is, in units of 8 bytes. Above it stands the
/// count of buckets.
const PLACE_BITS: u32 = 44;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;

/// Place of a table: the place word, taken apart.
///
/// With one chunk, the place is that chunk's. With more it is the directory's: a number of 32 bits
/// for each chunk, two in a word; the number counts units of a bucket from the arena's base.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    buckets: u32,
    address: usize,
    /// Base of the arena; 0 if this thread has not read it yet.
    base: usize,
}

impl Layout {
    /// Largest count of buckets that the place word can hold.
    pub(super) const BUCKETS_MAX: u32 = (1 << (64 - PLACE_BITS)) - 1;

    #[inline]
    pub(super) fn of(place: u64) -> Layout {
        let base = TABLES.base();
        Layout {
            buckets: (place >> PLACE_BITS) as u32,
            address: base + (place & PLACE_MASK) as usize * 8,
            base,
        }
    }

    /// Returns the place word, 0 for no buckets.
    pub(super) fn place(self) -> u64 {
        if self.buckets == 0 {
            return 0;
        }
        u64::from(self.buckets) << PLACE_BITS | ((self.address - self.base) / 8) as u64
    }

    #[inline]
    pub(super) fn buckets(self) -> u32 {
        self.buckets
    }

    /// Returns true if a thread without the lock may ask for buckets.
    #[inline]
    pub(super) fn is_readable(self) -> bool {
        self.buckets != 0 && self.base != 0
    }

    /// Returns the bucket after this one.
    #[inline]
    pub(super) fn after(self, at: u32) -> u32 {
        if at + 1 == self.buckets { 0 } else { at + 1 }
    }

    #[inline]
    pub(super) fn bucket_address(self, at: u32) -> usize {
        self.chunk_address(at / CHUNK_BUCKETS) + (at % CHUNK_BUCKETS) as usize * BUCKET_BYTES
    }

    /// Returns the address of the directory's word that leads to a bucket, or of the only chunk.
    #[inline]
    pub(super) fn way_to(self, at: u32) -> usize {
        if self.buckets <= CHUNK_BUCKETS {
            return self.address;
        }
        self.address + (at / CHUNK_BUCKETS / 2) as usize * 8
    }

    /// Returns a bucket; for holders of the lock.
    #[inline]
    pub(super) fn bucket(self, at: u32) -> Bucket {
        debug_assert!(at < self.buckets);
        bucket_at(self.bucket_address(at))
    }

    /// Returns the number of bytes of chunks and directory.
    #[inline]
    pub(super) fn bytes(self) -> usize {
        let chunks = self.chunks();
        let directory = if chunks > 1 {
            directory_bytes(chunks)
        } else {
            0
        };
        self.buckets as usize * BUCKET_BYTES + directory
    }

    /// Brings the table to another count of buckets. The first ones keep their contents, but for the last of an odd
    /// count; none is cleared.
    pub(super) fn resized(self, buckets: u32) -> Layout {
        let mut new = Layout {
            buckets,
            address: 0,
            base: TABLES.reserved_base(),
        };
        let (old_chunks, chunks) = (self.chunks(), new.chunks());
        let keeps_directory =
            chunks > 1 && old_chunks > 1 && directory_bytes(chunks) == directory_bytes(old_chunks);
        if keeps_directory {
            new.address = self.address;
        } else if chunks > 1 {
            new.address = take(directory_bytes(chunks));
        }
        for number in 0..chunks.max(old_chunks) {
            let (have, want) = (self.chunk_bytes(number), new.chunk_bytes(number));
            let mut address = if have > 0 {
                self.chunk_address(number)
            } else {
                0
            };
            if have != want {
                give_back(address, have);
                address = take(want);
            }
            if want > 0 {
                new.set_chunk(number, address);
            }
        }
        if !keeps_directory {
            self.free_directory();
        }
        new
    }

    /// Frees everything.
    pub(super) fn free(self) {
        for number in 0..self.chunks() {
            give_back(self.chunk_address(number), self.chunk_bytes(number));
        }
        self.free_directory();
    }

    /// Moves chunks and directory out of memory that is being given back.
    pub(super) fn compacted(self) -> Layout {
        let mut new = self;
        if self.chunks() > 1 && TABLES.is_evacuating(self.address) {
            new.address = copied(self.address, directory_bytes(self.chunks()));
        }
        for number in 0..self.chunks() {
            let chunk = self.chunk_address(number);
            if TABLES.is_evacuating(chunk) {
                new.set_chunk(number, copied(chunk, self.chunk_bytes(number)));
                give_back(chunk, self.chunk_bytes(number));
            }
        }
        if new.address != self.address {
            self.free_directory();
        }
        new
    }

    #[inline]
    fn chunks(self) -> u32 {
        self.buckets.div_ceil(CHUNK_BUCKETS)
    }

    fn chunk_bytes(self, number: u32) -> usize {
        let first = number * CHUNK_BUCKETS;
        self.buckets.saturating_sub(first).min(CHUNK_BUCKETS) as usize * BUCKET_BYTES
    }

    #[inline]
    fn chunk_address(self, number: u32) -> usize {
        if self.buckets <= CHUNK_BUCKETS {
            return self.address;
        }
        let pair = word_at(self.way_to(number * CHUNK_BUCKETS)).load(Relaxed);
        let chunk = (pair >> (number % 2 * 32)) as u32;
        self.base + chunk as usize * BUCKET_BYTES
    }

    fn set_chunk(&mut self, number: u32, address: usize) {
        if self.buckets <= CHUNK_BUCKETS {
            self.address = address;
            return;
        }
        let chunk = ((address - self.base) / BUCKET_BYTES) as u64;
        let pair = word_at(self.way_to(number * CHUNK_BUCKETS));
        let shift = number % 2 * 32;
        pair.store(
            pair.load(Relaxed) & !(u64::from(u32::MAX) << shift) | chunk << shift,
            Relaxed,
        );
    }

    fn free_directory(self) {
        if self.chunks() > 1 {
            give_back(self.address, directory_bytes(self.chunks()));
        }
    }
}

/// Returns a directory's size, in few steps: not every growth moves it, and the sizes that tables have grown out of,
/// each with spans of its own in the arena, are few as well. A quarter of a directory is a tenth of a byte for each
/// entry.
#[inline]
fn directory_bytes(chunks: u32) -> usize {
    let bytes = chunks as usize * 4;
    let step = (bytes.next_power_of_two() / 4).max(8);
    class_bytes(class_of(bytes.next_multiple_of(step)))
}

/// Directories and chunks up to this size go through the thread's magazines.
const CACHED_BYTES_MAX: usize = 256;
const CACHED_CLASSES: usize = class_of(CACHED_BYTES_MAX) + 1;
/// Bytes of a batch between a magazine and the arena, about.
const BATCH_BYTES: usize = 4 << 10;

thread_local! {
    static MAGAZINES: RefCell<Magazines<CACHED_CLASSES>> =
        RefCell::new(Magazines::new(&TABLES, BATCH_BYTES));
}

/// Allocates so many bytes of the arena, with their old contents; 0 for none.
fn take(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let class = class_of(bytes);
    let cached = if class < CACHED_CLASSES {
        with_magazines(|magazines| magazines.take(class))
    } else {
        None
    };
    cached
        .unwrap_or_else(|| TABLES.take_one(class))
        .addr()
        .get()
}

fn give_back(address: usize, bytes: usize) {
    if bytes == 0 {
        return;
    }
    let (class, object) = (class_of(bytes), pointer_to(address));
    // SAFETY: it came from `take` with this size, and its last owner does not use it any more.
    unsafe {
        let cached = class < CACHED_CLASSES
            && with_magazines(|magazines| magazines.give_back(class, object)).is_some();
        if !cached {
            TABLES.give_back(class, &[object]);
        }
    }
}

/// Calls a function with this thread's magazines, if it still has them: an index may be dropped while the thread ends.
fn with_magazines<R>(act: impl FnOnce(&mut Magazines<CACHED_CLASSES>) -> R) -> Option<R> {
    let with = |magazines: &RefCell<Magazines<CACHED_CLASSES>>| {
        let mut magazines = magazines.borrow_mut();
        magazines.tick();
        act(&mut magazines)
    };
    MAGAZINES.try_with(with).ok()
}

/// Releases cached memory that a compaction waits for.
pub(crate) fn tick() {
    with_magazines(|_| ());
}

/// Gives all cached memory of this thread back to the arena.
pub(crate) fn flush() {
    with_magazines(Magazines::flush);
}

fn copied(from: usize, bytes: usize) -> usize {
    let to = take(bytes);
    for at in (0..bytes).step_by(8) {
        word_at(to + at).store(word_at(from + at).load(Relaxed), Relaxed);
    }
    to
}

#[inline]
fn pointer_to(address: usize) -> NonNull<u8> {
    debug_assert!(address.wrapping_sub(TABLES.base()) < TABLES.bytes());
    // SAFETY: no address of the arena is 0.
    unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(address)) }
}

/// Returns a word of the arena.
#[inline]
fn word_at(address: usize) -> &'static AtomicU64 {
    debug_assert!(address.is_multiple_of(8));
    // SAFETY: callers give aligned addresses inside the range: those of directories named by a place
    // word, and of chunks that the holder of the lock found in one. The range is never unmapped, and
    // is only ever accessed as `AtomicU64`.
    unsafe { pointer_to(address).cast::<AtomicU64>().as_ref() }
}

/// Returns a bucket whose address may come from a stale directory, if it lies in the arena.
#[inline]
pub(super) fn bucket_checked(address: usize) -> Option<Bucket> {
    (address.wrapping_sub(TABLES.base()) < TABLES.bytes()).then(|| bucket_at(address))
}

/// Returns a bucket of the arena.
#[inline]
fn bucket_at(address: usize) -> Bucket {
    debug_assert!(address.is_multiple_of(BUCKET_BYTES));
    // SAFETY: as for `word_at`, or checked to be inside the range by `bucket_checked`; buckets, and
    // the numbers that stand for them, are aligned to their size, so that all its words are inside.
    Bucket(unsafe { pointer_to(address).cast().as_ref() })
}
