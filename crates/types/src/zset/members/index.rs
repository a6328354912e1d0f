//! Finds handles by hash. Must not know the members.
//!
//! The entries (32 bits of hash, 32 bits of handle) are kept in the order of their hashes, in
//! *segments*: sorted arrays of [`SEGMENT_MEAN`] entries on average. A segment holds all hashes that
//! start with its prefix. The table grows by splitting one segment at a time and shrinks by joining
//! two (linear hashing), so no operation ever moves more than one segment, and nothing is rehashed.
//! A segment's place in the table is its prefix read backwards: so the next one to split is always
//! the next in the table, and its new half goes to the table's end.
//!
//! Since entries are in the order of their hashes whatever the number of segments, the cursor of a
//! scan is simply the hash to continue from: it stays right across splits and joins.
//!
//! Compared with an open hash table: no empty places (8.5 to 9.5 bytes per entry against 8 / 0.44 to
//! 8 / 0.87), no pauses to grow, at the price of a short search instead of a probe.

use super::Handle;

/// Entries per segment at which the table grows; it shrinks at half of that.
const SEGMENT_MEAN: usize = 128;
/// Entries for which a segment makes room when it is full.
const SEGMENT_STEP: usize = 8;
const HASH_BITS: u32 = 32;

/// Handles by hash.
#[derive(Clone, Default)]
pub(super) struct Index {
    /// Empty, or more than `1 << level` and at most `2 << level` of them, or one at level 0.
    segments: Vec<Segment>,
    /// Bits of the prefix of those segments that are not yet split in this round.
    level: u32,
    len: usize,
    /// Entries that the segments have room for.
    room: usize,
}

type Segment = Vec<Entry>;

/// The hash above, the handle below: entries sort by hash.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry(u64);

impl Entry {
    #[inline]
    fn new(hash: u32, handle: Handle) -> Entry {
        Entry(u64::from(hash) << 32 | u64::from(handle.0))
    }

    #[inline]
    fn hash(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    fn handle(self) -> Handle {
        Handle(self.0 as u32)
    }
}

impl Index {
    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of allocations.
    pub(super) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Returns the number of bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.room * size_of::<Entry>() + self.segments.capacity() * size_of::<Segment>()
    }

    /// Returns the handle with this hash that `is_it` accepts.
    #[inline]
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(Handle) -> bool) -> Option<Handle> {
        let place = self.place(hash);
        let segment = self.segments.get(place)?;
        segment[self.search(place, hash)..]
            .iter()
            .take_while(|entry| entry.hash() == hash)
            .map(|entry| entry.handle())
            .find(|handle| is_it(*handle))
    }

    /// Adds a handle.
    pub(super) fn insert(&mut self, hash: u32, handle: Handle) {
        if self.segments.is_empty() {
            self.segments.push(Segment::new());
        }
        let place = self.place(hash);
        let at = self.search(place, hash);
        let segment = &mut self.segments[place];
        if segment.len() == segment.capacity() {
            self.room -= segment.capacity();
            segment.reserve_exact(SEGMENT_STEP);
            self.room += segment.capacity();
        }
        segment.insert(at, Entry::new(hash, handle));
        self.len += 1;
        if self.len > self.segments.len() * SEGMENT_MEAN {
            self.split_one();
        }
    }

    /// Removes a handle.
    pub(super) fn remove(&mut self, hash: u32, handle: Handle) {
        let Some((place, at)) = self.locate(hash, handle) else {
            return;
        };
        let segment = &mut self.segments[place];
        segment.remove(at);
        self.len -= 1;
        if segment.capacity() - segment.len() > 2 * SEGMENT_STEP {
            self.fit(place);
        }
        if self.len == 0 {
            *self = Index::default();
        } else if self.segments.len() > 1 && self.len < self.segments.len() * SEGMENT_MEAN / 2 {
            self.join_one();
        }
    }

    /// Replaces a handle.
    pub(super) fn replace(&mut self, hash: u32, old: Handle, new: Handle) {
        if let Some((place, at)) = self.locate(hash, old) {
            self.segments[place][at] = Entry::new(hash, new);
        }
    }

    /// Returns the segment and the index of an entry.
    fn locate(&self, hash: u32, handle: Handle) -> Option<(usize, usize)> {
        let place = self.place(hash);
        let start = self.search(place, hash);
        let wanted = Entry::new(hash, handle);
        let mut rest = self.segments.get(place)?[start..].iter();
        Some((place, start + rest.position(|entry| *entry == wanted)?))
    }

    /// Returns where entries of this hash start in a segment. Hashes are evenly spread, so the hash says almost where:
    /// some steps aside, mostly in the same line of memory.
    #[inline]
    fn search(&self, place: usize, hash: u32) -> usize {
        let Some(segment) = self.segments.get(place) else {
            return 0;
        };
        let within = u64::from(hash << self.prefix_bits(place));
        let mut at = ((within * segment.len() as u64) >> HASH_BITS) as usize;
        while at < segment.len() && segment[at].hash() < hash {
            at += 1;
        }
        while at > 0 && segment[at - 1].hash() >= hash {
            at -= 1;
        }
        at
    }

    /// Returns all handles, segment by segment.
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> + '_ {
        self.segments.iter().flatten().map(|entry| entry.handle())
    }

    /// Visits handles from a cursor on, `count` (at least one) or, where hashes are equal, a few
    /// more; returns the next cursor, 0 at the end.
    pub(super) fn scan(&self, cursor: u64, count: usize, visit: &mut impl FnMut(Handle)) -> u64 {
        let mut visited = 0;
        let mut next = cursor;
        let mut previous = None;
        while let Ok(from) = u32::try_from(next) {
            let place = self.place(from);
            let Some(segment) = self.segments.get(place) else {
                return 0;
            };
            let start = self.search(place, from);
            for entry in &segment[start..] {
                if visited >= count.max(1) && previous != Some(entry.hash()) {
                    return u64::from(entry.hash());
                }
                visit(entry.handle());
                visited += 1;
                previous = Some(entry.hash());
            }
            let span = HASH_BITS - self.prefix_bits(place);
            next = ((u64::from(from) >> span) + 1) << span;
        }
        0
    }

    /// Returns the segment that a hash belongs to.
    #[inline]
    fn place(&self, hash: u32) -> usize {
        let backwards = u64::from(hash.reverse_bits());
        let wide = (backwards & ((2 << self.level) - 1)) as usize;
        if wide < self.segments.len() {
            wide
        } else {
            wide & ((1 << self.level) - 1)
        }
    }

    /// Returns the number of hash bits that a segment stands for.
    fn prefix_bits(&self, place: usize) -> u32 {
        let round = 1 << self.level;
        let is_split = place >= round || place + round < self.segments.len();
        self.level + u32::from(is_split)
    }

    /// Splits the next segment in turn.
    fn split_one(&mut self) {
        if self.segments.len() == 2 << self.level {
            self.level += 1;
        }
        if self.level + 1 >= HASH_BITS {
            return;
        }
        let place = self.segments.len() - (1 << self.level);
        let half = 1 << (HASH_BITS - 1 - self.level);
        let segment = &mut self.segments[place];
        let at = segment.partition_point(|entry| entry.hash() & half == 0);
        let upper = segment[at..].to_vec();
        segment.truncate(at);
        self.room += upper.capacity();
        self.segments.push(upper);
        self.fit(place);
    }

    /// Joins the last segment to the one that it was split from.
    fn join_one(&mut self) {
        if self.segments.len() == 1 << self.level {
            self.level -= 1;
        }
        let Some(upper) = self.segments.pop() else {
            return;
        };
        let place = self.segments.len() - (1 << self.level);
        let segment = &mut self.segments[place];
        self.room -= upper.capacity() + segment.capacity();
        segment.reserve_exact(upper.len());
        segment.extend_from_slice(&upper);
        self.room += segment.capacity();
        if self.segments.len() <= self.segments.capacity() / 4 {
            self.segments.shrink_to(self.segments.len() * 2);
        }
    }

    /// Gives back the room that a segment does not need.
    fn fit(&mut self, place: usize) {
        let segment = &mut self.segments[place];
        self.room -= segment.capacity();
        segment.shrink_to(segment.len() + SEGMENT_STEP / 2);
        self.room += segment.capacity();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    impl Index {
        fn check(&self) {
            let room: usize = self.segments.iter().map(Vec::capacity).sum();
            let len: usize = self.segments.iter().map(Vec::len).sum();
            assert_eq!((room, len), (self.room, self.len));
            for (place, segment) in self.segments.iter().enumerate() {
                assert!(segment.is_sorted_by_key(|entry| entry.hash()));
                assert!(
                    segment
                        .iter()
                        .all(|entry| self.place(entry.hash()) == place)
                );
            }
        }
    }

    #[test]
    fn random_changes_agree_with_a_set() {
        let mut random = fastrand::Rng::with_seed(1);
        // Few distinct hashes test collisions, many test the segments.
        for mask in [0x8000_0003, 0xff00_0000, u32::MAX] {
            let mut index = Index::default();
            let mut model = BTreeSet::new();
            for step in 0..60_000u32 {
                let growing = step % 30_000 < 20_000;
                let (hash, handle) = (random.u32(..) & mask, Handle(random.u32(..1000)));
                let known = model.iter().nth(random.usize(..8)).copied();
                match known {
                    Some((hash, handle)) if random.u8(..10) < if growing { 2 } else { 8 } => {
                        let new = Handle(handle + 1_000_000);
                        if random.bool() {
                            index.replace(hash, Handle(handle), new);
                            index.remove(hash, new);
                        } else {
                            index.remove(hash, Handle(handle));
                        }
                        model.remove(&(hash, handle));
                    }
                    _ if index.find(hash, |found| found == handle).is_none() => {
                        index.insert(hash, handle);
                        assert!(model.insert((hash, handle.0)));
                    }
                    _ => assert!(model.contains(&(hash, handle.0))),
                }
                if step % 5000 == 0 {
                    index.check();
                }
            }
            index.check();
            assert_eq!(index.len(), model.len());
            for (hash, handle) in model {
                assert!(index.find(hash, |found| found.0 == handle).is_some());
                index.remove(hash, Handle(handle));
            }
            assert_eq!(index.heap_bytes(), 0);
        }
    }

    #[test]
    fn a_scan_sees_all_that_stays_while_the_table_grows_and_shrinks() {
        let mut random = fastrand::Rng::with_seed(2);
        for count in [1, 10, 1000] {
            let mut index = Index::default();
            let stay: Vec<u32> = (0..500).map(|_| random.u32(..)).collect();
            for (i, hash) in stay.iter().enumerate() {
                index.insert(*hash, Handle(i as u32));
            }
            let mut others: Vec<u32> = Vec::new();
            let mut seen = BTreeSet::new();
            let (mut cursor, mut calls) = (0, 0);
            loop {
                let mut visited = 0;
                cursor = index.scan(cursor, count, &mut |handle| {
                    visited += 1;
                    seen.insert(handle.0);
                });
                assert!(visited <= count, "no two hashes are equal here");
                calls += 1;
                if cursor == 0 {
                    break;
                }
                if calls % 100 < 60 {
                    for _ in 0..200 / (calls / 100 + 1) {
                        others.push(random.u32(..));
                        index.insert(*others.last().unwrap(), Handle(others.len() as u32 + 1000));
                    }
                } else {
                    while others.len() > 100 {
                        let handle = Handle(others.len() as u32 + 1000);
                        index.remove(others.pop().unwrap(), handle);
                    }
                }
            }
            assert!((0..500).all(|handle| seen.contains(&handle)));
            assert_eq!(index.scan(1 << 32, 10, &mut |_| unreachable!()), 0);
            assert_eq!(index.scan(u64::MAX, 10, &mut |_| unreachable!()), 0);
        }
    }
}
