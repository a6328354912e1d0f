//! One slot's hash table: pointers to entries, found by hash. Never reads an entry, knows no key.
//!
//! # The idea
//!
//! A *bucket* is one cache line: seven entries, seven tags (eight more bits of each entry's hash), and a byte for the
//! spill mark and the snapshot epoch. A *chunk* is two buckets. An index is a directory of equal chunks; chunks of all
//! indexes come from one arena, so that what one slot frees is what another needs. An index grows by about 12 % when it
//! is 92 % full: a keyspace has 16,384 slots, which fill in lockstep, and tables that double would all be half empty at
//! the same time.
//!
//! The bucket of an entry, its *home*, is the high half of the product of 16 hash bits and the bucket count. So any
//! count will do, and the order of the buckets is the order of the hashes, whatever the count: that makes a scan's
//! cursor a hash prefix that survives growing and shrinking. The 16 bits stand in the upper part of the entry's pointer,
//! which has them to spare: to rebuild a table no entry is touched, and comparing them makes a look at a wrong entry
//! rare.
//!
//! A full bucket spills into the next, and the last into the first. Two things always hold, so that a search can stop
//! early:
//! - a bucket has the spill mark if and only if an entry lies beyond it whose home is this bucket or one before;
//! - a bucket with the mark is full.
//!
//! # Reading without the lock
//!
//! Half of a request's time would be the misses on directory, bucket and entry. [`Index::prefetch_buckets`] and
//! [`Index::prefetch_entries`] start them early for a whole batch, before any lock is taken, while other threads may
//! rebuild the table. They are sound because nothing that they read can go away or be torn into something harmful:
//! - The place of the directory and its length are one atomic word, read once.
//! - Chunks, directories and the bitmaps between them live in the arena [`TABLES`], whose range is reserved once and
//!   never unmapped. Memory given back to the operating system reads as zeros.
//! - Every access to that range, here and in `arena.rs`, is of a whole aligned `AtomicU64`, relaxed. So a stale read is
//!   a race in no formal sense; the value is old, or belongs to another table, or is zero.
//! - What comes of such values is checked (a chunk number has to lie inside the range) before it is read through, and
//!   an entry's pointer is only ever given to the prefetch instruction, which cannot fault.
//!
//! A wrong value costs a useless prefetch, and the search under the lock finds the truth. Orderings stronger than
//! relaxed would buy nothing.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::arena::{Arena, class_bytes, class_of};
use crate::hash::{h16, tag};
use crate::os::prefetch;

/// Chunks and directories of all indexes. 512 GiB of addresses: 2^32 chunks.
pub(crate) static TABLES: Arena = Arena::new(CHUNK_BYTES << 32);

const ENTRIES: usize = 7;
const BUCKET_BYTES: usize = 64;
const CHUNK_BUCKETS: u32 = 2;
const CHUNK_BYTES: usize = CHUNK_BUCKETS as usize * BUCKET_BYTES;
const CHUNK_CLASS: usize = class_of(CHUNK_BYTES);
const CHUNK_ENTRIES: usize = CHUNK_BUCKETS as usize * ENTRIES;

/// Lower part of an entry word: the pointer. Above it stand the order bits.
const POINTER_BITS: u32 = 48;
const POINTER_MASK: u64 = (1 << POINTER_BITS) - 1;

/// Lower part of the place word: where the directory is, in units of 8 bytes. Above it stands the count of chunks.
const PLACE_BITS: u32 = 44;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;

/// In a bucket's last word: seven tags, then the epoch, then the spill mark.
const SPILLED: u64 = 1 << 63;
const EPOCH_SHIFT: u32 = 56;
const EPOCH_MASK: u64 = 0x7f << EPOCH_SHIFT;
const EACH_TAG: u64 = 0x0001_0101_0101_0101;

/// One slot's table. 16 bytes; all zero is the empty one. Entry pointers are 8-aligned, not null and below 2^48.
///
/// Its methods take `&self`, since prefetches run beside them; what makes them exclusive is a lock of the caller's, as
/// promised to [`Index::new`].
pub struct Index {
    /// `chunks << PLACE_BITS | place`. With one chunk the place is the chunk's, with more the directory's: chunk
    /// numbers of 32 bits, two in a word.
    place: AtomicU64,
    len: AtomicU32,
    /// Room; keeps the size and the zero state what they are documented to be.
    _spare: AtomicU32,
}

/// A cache line of the tables' arena.
#[derive(Clone, Copy)]
struct Bucket(&'static [AtomicU64; ENTRIES + 1]);

/// Where a table lies; a copy of the place word, taken apart.
#[derive(Clone, Copy)]
struct Layout {
    chunks: u32,
    /// Of the directory, or of the only chunk.
    address: usize,
    /// Of the tables' arena.
    base: usize,
}

impl Index {
    /// An empty index. Takes no memory.
    ///
    /// # Safety
    /// From now on, whoever calls a method of it holds the lock that guards it (or has it for itself), but for those
    /// methods that say that they need none. Without that two tables could come to own the same memory.
    pub const unsafe fn new() -> Index {
        Index {
            place: AtomicU64::new(0),
            len: AtomicU32::new(0),
            _spare: AtomicU32::new(0),
        }
    }

    /// `n` empty indexes on zeroed memory: pages that are never used cost nothing.
    ///
    /// # Safety
    /// As for [`Index::new`], for each of them.
    pub unsafe fn slots(n: usize) -> Box<[Index]> {
        if n == 0 {
            return Box::default();
        }
        let layout = std::alloc::Layout::array::<Index>(n).expect("below isize::MAX bytes");
        // SAFETY: the layout is not empty, and is that of the box; all zero is a valid `Index` (three integers), the
        // empty one.
        unsafe {
            let Some(memory) = NonNull::new(std::alloc::alloc_zeroed(layout)) else {
                std::alloc::handle_alloc_error(layout)
            };
            Box::from_raw(std::ptr::slice_from_raw_parts_mut(
                memory.as_ptr().cast::<Index>(),
                n,
            ))
        }
    }

    /// Number of entries. **Needs no lock**; without it, it is a value of a moment ago.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }

    /// True if there are no entries. **Needs no lock**, as [`Index::len`].
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
        let mut found = None;
        self.locate(hash, |word| {
            let entry = pointer(word);
            let it = is_it(entry);
            if it {
                found = Some(entry);
            }
            it
        })?;
        found
    }

    /// Adds an entry. Does not look whether it is there already.
    #[inline]
    pub fn insert(&self, hash: u64, entry: NonNull<u8>) {
        let len = self.len();
        let mut layout = self.layout();
        if len >= entries_max(layout.chunks) {
            layout = self.rebuild(layout, grown(layout.chunks));
        }
        place(layout, entry_word(h16(hash), entry), tag(hash));
        self.len.store(len as u32 + 1, Relaxed);
    }

    /// Puts `new` in the place of `old`, an entry with the same hash. False, and nothing done, if `old` is not there.
    #[inline]
    pub fn replace(&self, hash: u64, old: NonNull<u8>, new: NonNull<u8>) -> bool {
        let wanted = entry_word(h16(hash), old);
        match self.locate(hash, |word| word == wanted) {
            Some((bucket, i)) => {
                bucket.0[i].store(entry_word(h16(hash), new), Relaxed);
                true
            }
            None => false,
        }
    }

    /// Takes the entry out. False if it was not there.
    #[inline]
    pub fn remove(&self, hash: u64, entry: NonNull<u8>) -> bool {
        let layout = self.layout();
        let wanted = entry_word(h16(hash), entry);
        let Some((at, i)) = locate(layout, hash, |word| word == wanted) else {
            return false;
        };
        let bucket = layout.bucket(at);
        bucket.clear(i);
        if bucket.meta() & SPILLED != 0 || at != home(h16(hash), layout.buckets()) {
            mend_spills(layout, home(h16(hash), layout.buckets()), at);
        }
        let len = self.len() - 1;
        self.len.store(len as u32, Relaxed);
        if let Some(chunks) = shrunk(layout.chunks, len) {
            self.rebuild(layout, chunks);
        }
        true
    }

    /// Gives the entries of one bucket, those whose order bits ([`crate::hash::h16`]) are at least `from`, and says from
    /// where to go on (`None`: that was the last). Called again and again from 0 it gives every entry that is there
    /// all the time exactly once, also when the index grows and shrinks between two calls.
    pub fn scan(&self, from: u32, mut visit: impl FnMut(NonNull<u8>)) -> Option<u32> {
        let layout = self.layout();
        let buckets = layout.buckets();
        if buckets == 0 || from > u32::from(u16::MAX) {
            return None;
        }
        let here = home(from as u16, buckets);
        let mut at = here;
        loop {
            let bucket = layout.bucket(at);
            for word in bucket.entries() {
                if home(order(word), buckets) == here && u32::from(order(word)) >= from {
                    visit(pointer(word));
                }
            }
            if bucket.meta() & SPILLED == 0 {
                break;
            }
            at = layout.after(at);
        }
        // The first order bits whose home is the next bucket.
        let next = (u64::from(here + 1) << 16).div_ceil(u64::from(buckets)) as u32;
        (next <= u32::from(u16::MAX)).then_some(next)
    }

    /// Gives every entry.
    pub fn for_each(&self, mut visit: impl FnMut(NonNull<u8>)) {
        let layout = self.layout();
        for at in 0..layout.buckets() {
            layout
                .bucket(at)
                .entries()
                .for_each(|word| visit(pointer(word)));
        }
    }

    /// An entry chosen by the random number, each equally likely.
    pub fn random(&self, rnd: u64) -> Option<NonNull<u8>> {
        /// A draw hits an empty place a third of the time, in a small table nine times in ten.
        const DRAWS_MAX: usize = 64;
        let layout = self.layout();
        if self.is_empty() {
            return None;
        }
        let places = u64::from(layout.buckets()) * ENTRIES as u64;
        let mut rnd = rnd;
        for _ in 0..DRAWS_MAX {
            let at = ((u128::from(rnd) * u128::from(places)) >> 64) as u64;
            let word = layout.bucket((at / ENTRIES as u64) as u32).0
                [(at % ENTRIES as u64) as usize]
                .load(Relaxed);
            if word != 0 {
                return Some(pointer(word));
            }
            rnd = next_random(rnd);
        }
        let from = home(rnd as u16, layout.buckets());
        let all = (from..layout.buckets()).chain(0..from);
        all.flat_map(|at| layout.bucket(at).entries())
            .next()
            .map(pointer)
    }

    /// Takes everything out, giving each entry to `visit`, and frees the table.
    pub fn clear(&self, mut visit: impl FnMut(NonNull<u8>)) {
        let layout = self.layout();
        self.place.store(0, Relaxed);
        self.len.store(0, Relaxed);
        for at in 0..layout.buckets() {
            layout
                .bucket(at)
                .entries()
                .for_each(|word| visit(pointer(word)));
        }
        for number in 0..layout.chunks {
            free_chunk(layout.chunk_address(number));
        }
        layout.free_directory();
    }

    /// Bytes that the table takes, without `Index` itself.
    #[inline]
    pub fn table_bytes(&self) -> usize {
        let chunks = self.layout().chunks;
        chunks as usize * CHUNK_BYTES
            + if chunks > 1 {
                directory_bytes(chunks)
            } else {
                0
            }
    }

    /// Starts to load the bucket in which an entry with this hash would be. **Needs no lock.**
    #[inline]
    pub fn prefetch_buckets(&self, hash: u64) {
        let layout = self.layout();
        // Without the lock we may not have heard yet where the arena is.
        if layout.chunks != 0 && layout.base != 0 {
            prefetch(layout.bucket_address(home(h16(hash), layout.buckets())));
        }
    }

    /// Starts to load the place word itself. **Needs no lock.**
    #[inline]
    pub fn prefetch_place(&self) {
        prefetch(std::ptr::from_ref(self) as usize);
    }

    /// Starts to load the directory's word that leads to the bucket; wants [`Index::prefetch_place`] some time before it.
    /// **Needs no lock.**
    #[inline]
    pub fn prefetch_directory(&self, hash: u64) {
        let layout = self.layout();
        if layout.chunks > 1 && layout.base != 0 {
            let chunk = home(h16(hash), layout.buckets()) / CHUNK_BUCKETS;
            prefetch(layout.address + chunk as usize * size_of::<u32>());
        }
    }

    /// Starts to load the entries that may have this hash; wants [`Index::prefetch_buckets`] some time before it.
    /// **Needs no lock.**
    #[inline]
    pub fn prefetch_entries(&self, hash: u64) {
        let layout = self.layout();
        if layout.chunks == 0 || layout.base == 0 {
            return;
        }
        let buckets = layout.buckets();
        let mut at = home(h16(hash), buckets);
        // A stale table could lead round and round.
        for _ in 0..2 {
            let Some(bucket) = layout.bucket_checked(at) else {
                return;
            };
            for i in bucket.matches(tag(hash)) {
                let word = bucket.0[i].load(Relaxed);
                if order(word) == h16(hash) {
                    let entry = (word & POINTER_MASK) as usize;
                    prefetch(entry);
                    // The end of an entry of 40 bytes, which lies in the next line half of the time.
                    prefetch(entry + 32);
                }
            }
            if bucket.meta() & SPILLED == 0 {
                return;
            }
            at = layout.after(at);
        }
    }

    /// The snapshot epoch (7 bits) of the bucket that is home to this hash.
    pub fn epoch(&self, hash: u64) -> u8 {
        let layout = self.layout();
        if layout.chunks == 0 {
            return 0;
        }
        ((layout.bucket(home(h16(hash), layout.buckets())).meta() & EPOCH_MASK) >> EPOCH_SHIFT)
            as u8
    }

    /// Sets the snapshot epoch of the bucket that is home to this hash. Growing and shrinking moves the borders between
    /// buckets: it keeps the epoch if all buckets have the same, and sets it to 0 otherwise. Who needs more brings all
    /// of them to one epoch before an insert of which [`Index::insert_rebuilds`] is true, and before a remove.
    pub fn set_epoch(&self, hash: u64, epoch: u8) {
        let layout = self.layout();
        if layout.chunks != 0 {
            let meta = &layout.bucket(home(h16(hash), layout.buckets())).0[ENTRIES];
            let epoch = (u64::from(epoch) << EPOCH_SHIFT) & EPOCH_MASK;
            meta.store(meta.load(Relaxed) & !EPOCH_MASK | epoch, Relaxed);
        }
    }

    /// True if the next insert will grow the table.
    pub fn insert_rebuilds(&self) -> bool {
        self.len() >= entries_max(self.layout().chunks)
    }

    /// Moves the table itself out of memory that a [`crate::heap::Compaction`] gives back. The background step that
    /// walks the entries calls it for every slot.
    pub fn compact(&self) {
        let layout = self.layout();
        for number in 0..layout.chunks {
            let old = layout.chunk_address(number);
            if !TABLES.is_evacuating(old) {
                continue;
            }
            let new = take_chunk();
            for at in 0..CHUNK_BYTES / 8 {
                word_at(new + at * 8).store(word_at(old + at * 8).load(Relaxed), Relaxed);
            }
            if layout.chunks == 1 {
                self.place.store(place_word(1, new), Relaxed);
            } else {
                layout.set_chunk(number, new);
            }
            free_chunk(old);
        }
        if layout.chunks > 1 && TABLES.is_evacuating(layout.address) {
            let moved = Layout {
                address: take_directory(layout.chunks),
                ..layout
            };
            for at in 0..(layout.chunks as usize).div_ceil(2) {
                let word = word_at(layout.address + at * 8).load(Relaxed);
                word_at(moved.address + at * 8).store(word, Relaxed);
            }
            self.place
                .store(place_word(moved.chunks, moved.address), Relaxed);
            layout.free_directory();
        }
    }

    /// Gives every entry with its tag.
    pub(crate) fn for_each_tagged(&self, mut visit: impl FnMut(NonNull<u8>, u8)) {
        let layout = self.layout();
        for at in 0..layout.buckets() {
            let bucket = layout.bucket(at);
            let tags = bucket.meta().to_le_bytes();
            for (i, tag) in tags.into_iter().enumerate().take(ENTRIES) {
                let word = bucket.0[i].load(Relaxed);
                if word != 0 {
                    visit(pointer(word), tag);
                }
            }
        }
    }

    /// Makes room for so many entries at once.
    pub(crate) fn reserve(&self, len: usize) {
        let layout = self.layout();
        if len > entries_max(layout.chunks) {
            // As full as a table that just grew.
            self.rebuild(layout, (len * 8).div_ceil(CHUNK_ENTRIES * 7) as u32);
        }
    }

    /// The entries, by bucket. Nobody may change the index meanwhile.
    pub(crate) fn entries(&self) -> impl Iterator<Item = NonNull<u8>> + use<> {
        let layout = self.layout();
        (0..layout.buckets())
            .flat_map(move |at| layout.bucket(at).entries())
            .map(pointer)
    }

    #[inline]
    fn layout(&self) -> Layout {
        let word = self.place.load(Relaxed);
        let chunks = (word >> PLACE_BITS) as u32;
        let base = TABLES.base();
        Layout {
            chunks,
            address: base + (word & PLACE_MASK) as usize * 8,
            base,
        }
    }

    #[inline]
    fn locate(&self, hash: u64, is_it: impl FnMut(u64) -> bool) -> Option<(Bucket, usize)> {
        let layout = self.layout();
        locate(layout, hash, is_it).map(|(at, i)| (layout.bucket(at), i))
    }

    /// Brings the table to another number of chunks. Touches no entry.
    #[cold]
    #[inline(never)]
    fn rebuild(&self, old: Layout, chunks: u32) -> Layout {
        let entries = take_entries(old);
        let epoch = common_epoch(old);
        let new = self.resize(old, chunks);
        for at in 0..new.buckets() {
            new.bucket(at).0[ENTRIES].store(epoch, Relaxed);
        }
        for (word, tag) in entries {
            place(new, word, tag);
        }
        new
    }

    /// Changes the count of chunks: they are all empty afterwards.
    fn resize(&self, old: Layout, chunks: u32) -> Layout {
        for number in chunks..old.chunks {
            free_chunk(old.chunk_address(number));
        }
        let address = match chunks {
            0 => 0,
            1 if old.chunks == 0 => take_chunk(),
            1 => old.chunk_address(0),
            _ if old.chunks > 1 && directory_bytes(old.chunks) == directory_bytes(chunks) => {
                old.address
            }
            _ => take_directory(chunks),
        };
        let new = Layout {
            chunks,
            address,
            base: TABLES.base(),
        };
        if chunks > 1 {
            for number in 0..chunks {
                let chunk = if number < old.chunks {
                    old.chunk_address(number)
                } else {
                    take_chunk()
                };
                new.set_chunk(number, chunk);
            }
        }
        self.place.store(
            if chunks == 0 {
                0
            } else {
                place_word(chunks, new.address)
            },
            Relaxed,
        );
        if new.address != old.address {
            old.free_directory();
        }
        new
    }
}

impl Drop for Index {
    /// Frees the table. The entries are the owner's to free, before.
    fn drop(&mut self) {
        self.clear(|_| ());
    }
}

impl Layout {
    #[inline]
    fn buckets(self) -> u32 {
        self.chunks * CHUNK_BUCKETS
    }

    #[inline]
    fn after(self, at: u32) -> u32 {
        if at + 1 == self.buckets() { 0 } else { at + 1 }
    }

    #[inline]
    fn chunk_address(self, number: u32) -> usize {
        if self.chunks == 1 {
            return self.address;
        }
        let pair = word_at(self.address + number as usize / 2 * 8).load(Relaxed);
        let chunk = (pair >> (number % 2 * 32)) as u32;
        self.base + chunk as usize * CHUNK_BYTES
    }

    fn set_chunk(self, number: u32, address: usize) {
        let chunk = ((address - self.base) / CHUNK_BYTES) as u64;
        let pair = word_at(self.address + number as usize / 2 * 8);
        let shift = number % 2 * 32;
        pair.store(
            pair.load(Relaxed) & !(u64::from(u32::MAX) << shift) | chunk << shift,
            Relaxed,
        );
    }

    #[inline]
    fn bucket_address(self, at: u32) -> usize {
        self.chunk_address(at / CHUNK_BUCKETS) + (at % CHUNK_BUCKETS) as usize * BUCKET_BYTES
    }

    /// A bucket; for holders of the lock.
    #[inline]
    fn bucket(self, at: u32) -> Bucket {
        debug_assert!(at < self.buckets());
        bucket_at(self.bucket_address(at))
    }

    /// A bucket as a stale directory may tell it.
    #[inline]
    fn bucket_checked(self, at: u32) -> Option<Bucket> {
        let address = self.bucket_address(at);
        (address.wrapping_sub(self.base) < TABLES.bytes()).then(|| bucket_at(address))
    }

    fn free_directory(self) {
        if self.chunks > 1 {
            let class = class_of(directory_bytes(self.chunks));
            // SAFETY: the directory came from `take_directory` with this class, and is not in the place word any more.
            unsafe { TABLES.give_back(class, &[table_pointer(self.address)]) };
        }
    }
}

impl Bucket {
    #[inline]
    fn meta(&self) -> u64 {
        self.0[ENTRIES].load(Relaxed)
    }

    /// Places whose tag is this one; now and then also one whose tag differs by one, and places that are empty.
    #[inline]
    fn matches(&self, tag: u8) -> impl Iterator<Item = usize> + use<> {
        let differ = self.meta() ^ (u64::from(tag) * EACH_TAG);
        // The lowest zero byte gets its upper bit set, and bytes without a zero byte below them never do.
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

    /// Words of the entries.
    #[inline]
    fn entries(self) -> impl Iterator<Item = u64> {
        self.0[..ENTRIES]
            .iter()
            .map(|word| word.load(Relaxed))
            .filter(|&word| word != 0)
    }

    #[inline]
    fn free_place(&self) -> Option<usize> {
        self.0[..ENTRIES]
            .iter()
            .position(|word| word.load(Relaxed) == 0)
    }

    #[inline]
    fn put(&self, i: usize, word: u64, tag: u8) {
        self.0[i].store(word, Relaxed);
        let shift = i * 8;
        self.0[ENTRIES].store(
            self.meta() & !(0xff << shift) | u64::from(tag) << shift,
            Relaxed,
        );
    }

    #[inline]
    fn clear(&self, i: usize) {
        self.0[i].store(0, Relaxed);
    }

    fn tag(&self, i: usize) -> u8 {
        (self.meta() >> (i * 8)) as u8
    }

    fn set_spilled(&self, spilled: bool) {
        let meta = self.meta() & !SPILLED;
        self.0[ENTRIES].store(if spilled { meta | SPILLED } else { meta }, Relaxed);
    }
}

/// The bucket and place of the entry with this hash that it is.
#[inline]
fn locate(layout: Layout, hash: u64, mut is_it: impl FnMut(u64) -> bool) -> Option<(u32, usize)> {
    if layout.chunks == 0 {
        return None;
    }
    let (order_bits, tag) = (h16(hash), tag(hash));
    let mut at = home(order_bits, layout.buckets());
    loop {
        let bucket = layout.bucket(at);
        for i in bucket.matches(tag) {
            let word = bucket.0[i].load(Relaxed);
            if order(word) == order_bits && word & POINTER_MASK != 0 && is_it(word) {
                return Some((at, i));
            }
        }
        if bucket.meta() & SPILLED == 0 {
            return None;
        }
        at = layout.after(at);
    }
}

/// Puts an entry where it belongs; there is room.
#[inline]
fn place(layout: Layout, word: u64, tag: u8) {
    let mut at = home(order(word), layout.buckets());
    loop {
        let bucket = layout.bucket(at);
        if let Some(i) = bucket.free_place() {
            return bucket.put(i, word, tag);
        }
        if bucket.meta() & SPILLED == 0 {
            bucket.set_spilled(true);
        }
        at = layout.after(at);
    }
}

/// After an entry with this home was taken out of bucket `at`: draws spilled entries back into the hole, and brings the
/// spill marks up to date.
#[cold]
fn mend_spills(layout: Layout, home: u32, at: u32) {
    let mut hole = at;
    while layout.bucket(hole).meta() & SPILLED != 0 {
        let Some((from, i)) = spilled_past(layout, hole) else {
            layout.bucket(hole).set_spilled(false);
            break;
        };
        let (bucket, source) = (layout.bucket(hole), layout.bucket(from));
        let free = bucket.free_place().expect("the hole");
        bucket.put(free, source.0[i].load(Relaxed), source.tag(i));
        source.clear(i);
        hole = from;
    }
    // Those before the last hole may have been marked for the sake of what has moved or gone.
    let mut bucket = home;
    while bucket != hole {
        if layout.bucket(bucket).meta() & SPILLED != 0 && spilled_past(layout, bucket).is_none() {
            layout.bucket(bucket).set_spilled(false);
        }
        bucket = layout.after(bucket);
    }
}

/// The first entry beyond a bucket with the spill mark whose home is that bucket or one before.
fn spilled_past(layout: Layout, bucket: u32) -> Option<(u32, usize)> {
    let buckets = layout.buckets();
    let distance = |from: u32, to: u32| {
        if to >= from {
            to - from
        } else {
            to + buckets - from
        }
    };
    let mut at = layout.after(bucket);
    while at != bucket {
        let here = layout.bucket(at);
        for (i, word) in here.0[..ENTRIES].iter().enumerate() {
            let word = word.load(Relaxed);
            // Further from home than from the bucket in question: it came past it.
            if word != 0 && distance(home(order(word), buckets), at) >= distance(bucket, at) {
                return Some((at, i));
            }
        }
        if here.meta() & SPILLED == 0 {
            return None;
        }
        at = layout.after(at);
    }
    None
}

/// Takes all entries and tags out of a table, leaving its buckets zero.
fn take_entries(layout: Layout) -> Vec<(u64, u8)> {
    let mut entries = Vec::with_capacity(layout.buckets() as usize * ENTRIES);
    for at in 0..layout.buckets() {
        let bucket = layout.bucket(at);
        for i in 0..ENTRIES {
            let word = bucket.0[i].load(Relaxed);
            if word != 0 {
                entries.push((word, bucket.tag(i)));
                bucket.clear(i);
            }
        }
    }
    entries
}

/// The epoch bits that all buckets share, or 0.
fn common_epoch(layout: Layout) -> u64 {
    let mut epochs = (0..layout.buckets()).map(|at| layout.bucket(at).meta() & EPOCH_MASK);
    let first = epochs.next().unwrap_or(0);
    if epochs.all(|epoch| epoch == first) {
        first
    } else {
        0
    }
}

/// The bucket of an entry. Above 2^16 buckets the homes are spread over them, and each spills into those after it.
#[inline]
fn home(order_bits: u16, buckets: u32) -> u32 {
    ((u64::from(order_bits) * u64::from(buckets)) >> 16) as u32
}

#[inline]
fn order(word: u64) -> u16 {
    (word >> POINTER_BITS) as u16
}

#[inline]
fn entry_word(order_bits: u16, entry: NonNull<u8>) -> u64 {
    let address = entry.as_ptr().expose_provenance() as u64;
    debug_assert!(address <= POINTER_MASK && address.is_multiple_of(8));
    u64::from(order_bits) << POINTER_BITS | address
}

/// The entry of a word that is not zero.
#[inline]
fn pointer(word: u64) -> NonNull<u8> {
    let address = (word & POINTER_MASK) as usize;
    debug_assert!(address != 0);
    // SAFETY: words that are not zero are made by `entry_word` of a pointer that is not null.
    unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(address)) }
}

/// How many entries a table takes before it grows: 92 % of its places.
#[inline]
fn entries_max(chunks: u32) -> usize {
    (chunks as usize * CHUNK_ENTRIES * 59) >> 6
}

fn grown(chunks: u32) -> u32 {
    chunks + ((chunks + 4) / 8).max(1)
}

/// The count of chunks to go down to when the table has become too empty: one step down, if that would be 75 % full.
#[inline]
fn shrunk(chunks: u32, len: usize) -> Option<u32> {
    let fewer = chunks - ((chunks + 4) / 8).max(1);
    (len * 4 <= fewer as usize * CHUNK_ENTRIES * 3).then_some(fewer)
}

/// A directory's size: exact to 16 bytes while small, then in steps of an eighth, so that not every growth moves it.
#[inline]
fn directory_bytes(chunks: u32) -> usize {
    let bytes = chunks as usize * 4;
    let step = (bytes.next_power_of_two() / 16).max(16);
    class_bytes(class_of(bytes.next_multiple_of(step)))
}

fn take_directory(chunks: u32) -> usize {
    let class = class_of(directory_bytes(chunks));
    TABLES.take_one(class).addr().get()
}

/// A chunk, all zero: empty.
fn take_chunk() -> usize {
    let address = TABLES.take_one(CHUNK_CLASS).addr().get();
    for at in 0..CHUNK_BYTES / 8 {
        word_at(address + at * 8).store(0, Relaxed);
    }
    address
}

fn free_chunk(address: usize) {
    // SAFETY: the chunk came from `take_chunk`, and the directory that named it is gone or names it no more.
    unsafe { TABLES.give_back(CHUNK_CLASS, &[table_pointer(address)]) };
}

fn place_word(chunks: u32, address: usize) -> u64 {
    u64::from(chunks) << PLACE_BITS | ((address - TABLES.base()) / 8) as u64
}

/// The pointer of an address in the tables' arena.
#[inline]
fn table_pointer(address: usize) -> NonNull<u8> {
    debug_assert!(address.wrapping_sub(TABLES.base()) < TABLES.bytes());
    // SAFETY: no address of the arena is 0.
    unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(address)) }
}

/// A word of the tables' arena.
#[inline]
fn word_at(address: usize) -> &'static AtomicU64 {
    debug_assert!(address.is_multiple_of(8));
    // SAFETY: callers give aligned addresses inside the range: those of a place word, of a chunk in a directory that
    // they hold the lock of, or checked ones. The range is never unmapped and only ever accessed as `AtomicU64`.
    unsafe { table_pointer(address).cast::<AtomicU64>().as_ref() }
}

/// A bucket of the tables' arena.
#[inline]
fn bucket_at(address: usize) -> Bucket {
    debug_assert!(address.is_multiple_of(BUCKET_BYTES));
    // SAFETY: as for `word_at`; a bucket is eight words.
    Bucket(unsafe {
        table_pointer(address)
            .cast::<[AtomicU64; ENTRIES + 1]>()
            .as_ref()
    })
}

/// The next number of a sequence of random ones (an xorshift-multiply step).
fn next_random(rnd: u64) -> u64 {
    let mixed = (rnd ^ (rnd >> 32))
        .wrapping_add(0x9e37_79b9_7f4a_7c15)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests;
