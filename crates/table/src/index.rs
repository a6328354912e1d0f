//! One slot's hash table: pointers to entries, found by hash. Never reads an entry, must not know keys.
//!
//! # The idea
//!
//! A *bucket* is one cache line: seven entries, seven tags (eight more bits of each entry's hash), and a byte with the
//! spill mark. A *chunk* is two buckets, the last one of an odd count is one. An index is a directory of
//! chunks; chunks of all indexes come from one arena, so that what one slot frees is what another needs. An index grows
//! by about 12 % (at least one bucket) when it is 92 % full: a keyspace has 16,384 slots, which fill in lockstep, and
//! tables that double would all be half empty at the same time.
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
//! Half of a request's time would be the misses on directory, bucket and entry. [`Index::prefetch_bucket`] and
//! [`Index::prefetch_entry`] start them early for a whole batch, before any lock is taken, while other threads may
//! rebuild the table. They are sound because nothing that they read can go away or be torn into something harmful:
//! - The place of the directory and its length are one atomic word, read once.
//! - Chunks, directories and the bitmaps between them live in the arena `TABLES`, whose range is reserved once and
//!   never unmapped. Memory given back to the operating system reads as zeros.
//! - Every access to that range, here and in `arena.rs`, is of a whole aligned `AtomicU64`, relaxed. So a stale read is
//!   a race in no formal sense; the value is old, or belongs to another table, or is zero.
//! - What comes of such values is checked (a chunk number has to lie inside the range) before it is read through, and
//!   an entry's pointer is given to the prefetch instruction, which cannot fault, and to nothing else until the index
//!   has recalled it under the lock.
//!
//! A wrong value costs a useless prefetch, and the search under the lock finds the truth.
//!
//! # Searching once
//!
//! Mostly the search would find what was seen: then it need not be made. Each change of the table ends with a new
//! number in the index. A thread that looks without the lock reads that number before anything else, and the holder of
//! the lock compares it ([`Index::recall`]). If it is the same, no change has ended in between, and none is under way;
//! and since the number is stored with release and loaded with acquire, all changes before it were visible. So the
//! entry that was seen is the one that is there. All other reads are relaxed: stronger ones would buy nothing.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::hash::{h16, tag};
use crate::prefetch;
use bucket::{Bucket, ENTRIES, SPILLED, Word};
use layout::Layout;

pub(crate) use layout::{TABLES, flush, tick};

mod bucket;
mod layout;

/// One slot's table. 16 bytes; all zero is the empty one. Entry pointers are 8-aligned, not null
/// and below 2^48; there are at most 3 million.
///
/// Its methods take `&self`, since prefetches run beside them; what makes them exclusive is a lock of
/// the caller's, as promised to [`Index::new`].
pub struct Index {
    /// See [`Layout`]: one word, so that directory and length always fit each other.
    place: AtomicU64,
    len: AtomicU32,
    /// Counts changes of the table (not those inside entries); wraps around.
    changes: AtomicU32,
}

/// Result of a look into an index without holding its lock: the bucket where an entry with a hash would be, and then
/// the entry that it may be. The default has seen nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sight {
    /// Of the bucket; once an entry was `found`, of that.
    address: usize,
    /// The count of changes before the look.
    changes: u32,
    found: bool,
}

impl Sight {
    #[inline]
    fn note(&mut self, found: Option<usize>) -> bool {
        if let Some(entry) = found {
            self.address = entry;
            self.found = true;
        }
        self.found
    }
}

impl Index {
    /// Makes an empty index, which takes no memory.
    ///
    /// # Safety
    /// From now on, every caller of a method of it holds the lock that guards it (or has it exclusively), but for those
    /// methods that say that they need none. Without that two tables could come to own the same memory.
    pub const unsafe fn new() -> Index {
        Index {
            place: AtomicU64::new(0),
            len: AtomicU32::new(0),
            changes: AtomicU32::new(0),
        }
    }

    /// Makes `n` empty indexes on zeroed memory: pages that are never used cost nothing.
    ///
    /// # Safety
    /// As for [`Index::new`], for each of them.
    pub unsafe fn slots(n: usize) -> Box<[Index]> {
        if n == 0 {
            return Box::default();
        }
        let layout = std::alloc::Layout::array::<Index>(n).expect("below isize::MAX bytes");
        // SAFETY: the layout is not empty, and is that of the box; all zero is a valid `Index` (three
        // integers), the empty one.
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

    /// Returns the number of entries. **Needs no lock**; without it, the value may be outdated.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }

    /// Returns true if there are no entries. **Needs no lock**, as [`Index::len`].
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the entry with this hash for which `is_it` is true. `is_it` is called for entries whose tag and order
    /// bits match, hence almost never for a wrong one.
    #[inline]
    pub fn find(
        &self,
        hash: u64,
        mut is_it: impl FnMut(NonNull<u8>) -> bool,
    ) -> Option<NonNull<u8>> {
        let layout = self.layout();
        let (at, i) = locate(layout, hash, |word| is_it(word.entry()))?;
        Some(layout.bucket(at).word(i).entry())
    }

    /// Adds an entry. Does not look whether it is there already.
    #[inline]
    pub fn insert(&self, hash: u64, entry: NonNull<u8>) {
        let len = self.len();
        let mut layout = self.layout();
        if len >= entries_max(layout.buckets()) {
            layout = self.rebuild(layout, layout.buckets() + step(layout.buckets()));
        }
        place(layout, Word::new(h16(hash), entry), tag(hash));
        self.len.store(len as u32 + 1, Relaxed);
        self.note_change();
    }

    /// Puts `new` in the place of `old`, an entry with the same hash. Returns false, with nothing done, if `old` is not
    /// there.
    #[inline]
    pub fn replace(&self, hash: u64, old: NonNull<u8>, new: NonNull<u8>) -> bool {
        let layout = self.layout();
        let wanted = Word::new(h16(hash), old);
        let Some((at, i)) = locate(layout, hash, |word| word == wanted) else {
            return false;
        };
        layout.bucket(at).set_word(i, Word::new(h16(hash), new));
        self.note_change();
        true
    }

    /// Removes the entry. Returns false if it was not there.
    #[inline]
    pub fn remove(&self, hash: u64, entry: NonNull<u8>) -> bool {
        let layout = self.layout();
        let wanted = Word::new(h16(hash), entry);
        let Some((at, i)) = locate(layout, hash, |word| word == wanted) else {
            return false;
        };
        let bucket = layout.bucket(at);
        bucket.set_word(i, Word::EMPTY);
        let home = home(h16(hash), layout.buckets());
        if at != home || bucket.is_spilled() {
            mend_spills(layout, home, at);
        }
        let len = self.len() - 1;
        self.len.store(len as u32, Relaxed);
        if let Some(buckets) = shrunk(layout.buckets(), len) {
            self.rebuild(layout, buckets);
        }
        self.note_change();
        true
    }

    /// Gives the entries of one bucket, those whose order bits ([`crate::hash::h16`]) are at least `from`, and returns
    /// where to go on (`None`: that was the last). Called again and again from 0 it gives every entry that is there all
    /// the time exactly once, also when the index grows and shrinks between two calls.
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
            for word in bucket.words() {
                if home(word.order(), buckets) == here && u32::from(word.order()) >= from {
                    visit(word.entry());
                }
            }
            if !bucket.is_spilled() {
                break;
            }
            at = layout.after(at);
        }
        // The first order bits whose home is the next bucket.
        let next = (u64::from(here + 1) << 16).div_ceil(u64::from(buckets)) as u32;
        (next <= u32::from(u16::MAX)).then_some(next)
    }

    /// Gives every entry.
    pub fn for_each(&self, visit: impl FnMut(NonNull<u8>)) {
        self.entries().for_each(visit);
    }

    /// Returns an entry chosen by the random number, each equally likely.
    pub fn random(&self, rnd: u64) -> Option<NonNull<u8>> {
        /// A draw hits an empty place a third of the time, in a small table six times in seven.
        const DRAWS_MAX: usize = 64;
        if self.is_empty() {
            return None;
        }
        let layout = self.layout();
        let places = u64::from(layout.buckets()) * ENTRIES as u64;
        let mut rnd = rnd;
        for _ in 0..DRAWS_MAX {
            let at = ((u128::from(rnd) * u128::from(places)) >> 64) as usize;
            let word = layout.bucket((at / ENTRIES) as u32).word(at % ENTRIES);
            if !word.is_empty() {
                return Some(word.entry());
            }
            rnd = next_random(rnd);
        }
        self.entries().next()
    }

    /// Removes all entries, giving each to `visit`, and frees the table.
    pub fn clear(&self, visit: impl FnMut(NonNull<u8>)) {
        let layout = self.layout();
        // Of the many slots of a database most are often empty: they are not written to.
        if layout.buckets() == 0 {
            return;
        }
        self.place.store(0, Relaxed);
        self.len.store(0, Relaxed);
        entries(layout).for_each(visit);
        layout.free();
        self.note_change();
    }

    /// Returns the number of bytes that the table takes, without `Index` itself.
    #[inline]
    pub fn table_bytes(&self) -> usize {
        self.layout().bytes()
    }

    /// Prefetches the bucket in which an entry with this hash would be, and returns its place. **Needs no lock.**
    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) -> Sight {
        let changes = self.changes.load(Acquire);
        let layout = self.layout();
        if !layout.is_readable() {
            return Sight::default();
        }
        let address = layout.bucket_address(home(h16(hash), layout.buckets()));
        prefetch(address);
        Sight {
            address,
            changes,
            found: false,
        }
    }

    /// Prefetches the place word itself. **Needs no lock.**
    #[inline]
    pub fn prefetch_place(&self) {
        prefetch(std::ptr::from_ref(self).addr());
    }

    /// Prefetches the directory's word that leads to the bucket; wants [`Index::prefetch_place`] some time before it.
    /// **Needs no lock.**
    #[inline]
    pub fn prefetch_directory(&self, hash: u64) {
        let layout = self.layout();
        if layout.is_readable() {
            prefetch(layout.way_to(home(h16(hash), layout.buckets())));
        }
    }

    /// Prefetches the entry that may have this hash, from its home bucket, and notes it in the sight, which
    /// [`Index::prefetch_bucket`] returned some time before. **Needs no lock.**
    ///
    /// Returns true if it is not in that bucket, but may have spilled. The next bucket is being loaded then; the caller
    /// goes on with the other keys of its batch and comes back with [`Index::prefetch_entry_beyond`]. (Looking there at
    /// once would wait for it: with buckets as full as these two in five have spilled.)
    #[inline]
    pub fn prefetch_entry(&self, sight: &mut Sight, hash: u64) -> bool {
        let Some(bucket) = layout::bucket_checked(sight.address) else {
            return false;
        };
        if sight.note(prefetch_match(bucket, hash)) || !bucket.is_spilled() {
            return false;
        }
        let layout = self.layout();
        if layout.is_readable() {
            let home = home(h16(hash), layout.buckets());
            prefetch(layout.bucket_address(layout.after(home)));
        }
        true
    }

    /// Does the same from the bucket `step` places after the home.
    pub fn prefetch_entry_beyond(&self, sight: &mut Sight, hash: u64, step: u32) -> bool {
        let layout = self.layout();
        if !layout.is_readable() {
            return false;
        }
        let mut at = home(h16(hash), layout.buckets());
        for _ in 0..step {
            at = layout.after(at);
        }
        let Some(bucket) = layout::bucket_checked(layout.bucket_address(at)) else {
            return false;
        };
        if sight.note(prefetch_match(bucket, hash)) || !bucket.is_spilled() {
            return false;
        }
        prefetch(layout.bucket_address(layout.after(at)));
        true
    }

    /// Returns the entry that was seen in this index, if it is certainly still in it. It may have another key with the
    /// same tag and order bits; then, and where nothing is recalled, [`Index::find`] decides.
    #[inline]
    pub fn recall(&self, sight: &Sight) -> Option<NonNull<u8>> {
        if !sight.found || sight.changes != self.changes.load(Relaxed) {
            return None;
        }
        NonNull::new(std::ptr::with_exposed_provenance_mut(sight.address))
    }

    /// Moves the table itself out of memory that a [`crate::heap::Compaction`] gives back. The
    /// background step that walks the entries calls it for every slot.
    pub fn compact(&self) {
        self.place.store(self.layout().compacted().place(), Relaxed);
        self.note_change();
    }

    /// Gives every entry with its tag.
    pub(crate) fn for_each_tagged(&self, mut visit: impl FnMut(NonNull<u8>, u8)) {
        let layout = self.layout();
        for bucket in (0..layout.buckets()).map(|at| layout.bucket(at)) {
            for i in (0..ENTRIES).filter(|&i| !bucket.word(i).is_empty()) {
                visit(bucket.word(i).entry(), bucket.tag(i));
            }
        }
    }

    /// Makes room for so many entries at once.
    pub(crate) fn reserve(&self, len: usize) {
        let layout = self.layout();
        if len > entries_max(layout.buckets()) {
            // As full as a table that just grew.
            self.rebuild(layout, (len * 8).div_ceil(ENTRIES * 7) as u32);
            self.note_change();
        }
    }

    /// Returns the entries, by bucket. The index must not change meanwhile.
    pub(crate) fn entries(&self) -> impl Iterator<Item = NonNull<u8>> + use<> {
        entries(self.layout())
    }

    #[inline]
    fn layout(&self) -> Layout {
        Layout::of(self.place.load(Relaxed))
    }

    /// Ends a change, for threads that look without the lock.
    #[inline]
    fn note_change(&self) {
        let changes = self.changes.load(Relaxed).wrapping_add(1);
        self.changes.store(changes, Release);
    }

    /// Brings the table to another number of buckets. Touches no entry.
    #[cold]
    #[inline(never)]
    fn rebuild(&self, old: Layout, buckets: u32) -> Layout {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.take_from(old);
            assert!(
                buckets <= Layout::BUCKETS_MAX,
                "an index of more entries than its place word can count"
            );
            let new = old.resized(buckets);
            scratch.put_into(new);
            self.place.store(new.place(), Relaxed);
            new
        })
    }
}

impl Drop for Index {
    /// Frees the table. The entries are the owner's to free, before.
    fn drop(&mut self) {
        self.clear(|_| ());
    }
}

/// Prefetches the entry of the bucket that may have this hash, and returns its place.
#[inline]
fn prefetch_match(bucket: Bucket, hash: u64) -> Option<usize> {
    for i in bucket.matches(tag(hash)) {
        let word = bucket.word(i);
        let address = word.address();
        if word.order() == h16(hash) && address != 0 {
            prefetch(address);
            // The end of an entry of 40 bytes, which half of the time lies in the next line.
            prefetch(address + 32);
            // Tag and order agree by chance once in a few thousand times.
            return Some(address);
        }
    }
    None
}

fn entries(layout: Layout) -> impl Iterator<Item = NonNull<u8>> {
    (0..layout.buckets())
        .flat_map(move |at| layout.bucket(at).words())
        .map(Word::entry)
}

/// Returns bucket and place of the entry with this hash for which the function is true.
#[inline]
fn locate(layout: Layout, hash: u64, mut is_it: impl FnMut(Word) -> bool) -> Option<(u32, usize)> {
    if layout.buckets() == 0 {
        return None;
    }
    let (order_bits, tag) = (h16(hash), tag(hash));
    let mut at = home(order_bits, layout.buckets());
    loop {
        let bucket = layout.bucket(at);
        for i in bucket.matches(tag) {
            let word = bucket.word(i);
            if word.order() == order_bits && word.address() != 0 && is_it(word) {
                return Some((at, i));
            }
        }
        if !bucket.is_spilled() {
            return None;
        }
        at = layout.after(at);
    }
}

/// Puts an entry where it belongs; there is room.
#[inline]
fn place(layout: Layout, word: Word, tag: u8) {
    let mut at = home(word.order(), layout.buckets());
    loop {
        let bucket = layout.bucket(at);
        if let Some(i) = bucket.free_place() {
            return bucket.put(i, word, tag);
        }
        bucket.set_spilled(true);
        at = layout.after(at);
    }
}

/// Draws spilled entries back into the hole, after an entry with this home was removed from bucket `at`, and brings the
/// spill marks up to date.
#[cold]
fn mend_spills(layout: Layout, home: u32, at: u32) {
    let mut hole = at;
    while layout.bucket(hole).is_spilled() {
        let Some((from, i)) = spilled_past(layout, hole) else {
            layout.bucket(hole).set_spilled(false);
            break;
        };
        let (bucket, source) = (layout.bucket(hole), layout.bucket(from));
        let free = bucket.free_place().expect("the hole");
        bucket.put(free, source.word(i), source.tag(i));
        source.set_word(i, Word::EMPTY);
        hole = from;
    }
    // Those before the last hole may have been marked for the sake of what has moved or gone.
    let mut bucket = home;
    while bucket != hole {
        if layout.bucket(bucket).is_spilled() && spilled_past(layout, bucket).is_none() {
            layout.bucket(bucket).set_spilled(false);
        }
        bucket = layout.after(bucket);
    }
}

/// Returns the first entry beyond a bucket with the spill mark whose home is that bucket or one before.
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
        // Further from home than from the bucket in question: it came past it.
        let came_past = |word: Word| {
            !word.is_empty() && distance(home(word.order(), buckets), at) >= distance(bucket, at)
        };
        if let Some(i) = (0..ENTRIES).find(|&i| came_past(here.word(i))) {
            return Some((at, i));
        }
        if !here.is_spilled() {
            return None;
        }
        at = layout.after(at);
    }
    None
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        const { RefCell::new(Scratch { entries: Vec::new(), buckets: Vec::new() }) };
}

/// The contents of a table while its count of buckets changes.
struct Scratch {
    /// Words and tags.
    entries: Vec<(Word, u8)>,
    /// Meta word and number of entries of each new bucket.
    buckets: Vec<(u64, u8)>,
}

impl Scratch {
    /// Memory kept for the next table.
    const ENTRIES_KEPT_MAX: usize = 4_096;

    fn take_from(&mut self, layout: Layout) {
        (0..layout.buckets()).for_each(|at| prefetch(layout.bucket_address(at)));
        self.entries.clear();
        self.entries.reserve(layout.buckets() as usize * ENTRIES);
        for at in 0..layout.buckets() {
            let bucket = layout.bucket(at);
            let meta = bucket.meta();
            for i in 0..ENTRIES {
                let word = bucket.word(i);
                if !word.is_empty() {
                    self.entries.push((word, (meta >> (i * 8)) as u8));
                }
            }
        }
    }

    /// Overwrites all buckets of a table that has room for the entries.
    fn put_into(&mut self, layout: Layout) {
        let buckets = layout.buckets();
        for bucket in (0..buckets).map(|at| layout.bucket(at)) {
            (0..ENTRIES).for_each(|i| bucket.set_word(i, Word::EMPTY));
        }
        self.buckets.clear();
        self.buckets.resize(buckets as usize, (0, 0));
        for &(word, tag) in &self.entries {
            let mut at = home(word.order(), buckets);
            while self.buckets[at as usize].1 == ENTRIES as u8 {
                self.buckets[at as usize].0 |= SPILLED;
                at = layout.after(at);
            }
            let (meta, len) = &mut self.buckets[at as usize];
            layout.bucket(at).set_word(usize::from(*len), word);
            *meta |= u64::from(tag) << (*len * 8);
            *len += 1;
        }
        for (at, (meta, _)) in self.buckets.iter().enumerate() {
            layout.bucket(at as u32).set_meta(*meta);
        }
        self.entries.shrink_to(Self::ENTRIES_KEPT_MAX);
        self.buckets.shrink_to(Self::ENTRIES_KEPT_MAX / ENTRIES);
    }
}

/// Returns the bucket of an entry. Above 2^16 buckets the homes are spread over them, and each spills into those after
/// it.
#[inline]
fn home(order_bits: u16, buckets: u32) -> u32 {
    ((u64::from(order_bits) * u64::from(buckets)) >> 16) as u32
}

/// Returns how many entries a table takes before it grows: 92 % of its places.
#[inline]
fn entries_max(buckets: u32) -> usize {
    (buckets as usize * ENTRIES * 59) >> 6
}

/// Returns the number of buckets by which a table grows and shrinks.
#[inline]
fn step(buckets: u32) -> u32 {
    ((buckets + 4) / 8).max(1)
}

/// Returns the count of buckets to go down to when the table has become too empty: one step down, if that would be 75 %
/// full.
#[inline]
fn shrunk(buckets: u32, len: usize) -> Option<u32> {
    let fewer = buckets - step(buckets);
    (len * 4 <= fewer as usize * ENTRIES * 3).then_some(fewer)
}

/// Returns the next number of a sequence of random ones.
fn next_random(rnd: u64) -> u64 {
    let mixed = (rnd ^ (rnd >> 32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests;
