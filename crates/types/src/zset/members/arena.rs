//! The storage of the members of a large sorted set. Must not know the indexes.
//!
//! A record is `score (8 bytes), length (1 byte), member`, in units of 4 bytes, in chunks of 32 KiB.
//! The few members above [`INLINE_BYTES_MAX`] have an allocation of their own, and a record that says
//! which.
//!
//! A removed record is linked into a list of free records of its size, from where the next insert takes it. A chunk
//! without any member is given back at once. When more than half of the arena is free, one sparse chunk after the other
//! becomes the *victim*: nothing is put there any more, and [`Arena::misplaced`] names its members one by one, to be
//! moved by a caller that knows all their handles. So memory follows the content down, in steps of constant size.
//!
//! A handle is checked like any index: a stale one would give the wrong member, never other memory.

use super::{Full, Handle};

const UNIT_BYTES: usize = 4;
const CHUNK_BYTES: usize = 32 << 10;
const CHUNK_UNITS: usize = CHUNK_BYTES / UNIT_BYTES;
/// Chunks that 32-bit handles can name; the last unit of the last one stays unused.
const CHUNKS_MAX: usize = (1 << 32) / CHUNK_UNITS;
const PAGE_BYTES: usize = 4096;
/// Bytes by which the first chunk grows at least.
const FIRST_STEP_BYTES: usize = 512;

const SCORE_BYTES: usize = 8;
const HEAD_BYTES: usize = SCORE_BYTES + 1;
/// The longest member that is stored in its record.
const INLINE_BYTES_MAX: usize = 253;
/// In place of a length: the record is free, its units follow; next and previous are in the score.
const FREE: u8 = 254;
/// In place of a length: the member is in `long`, at the index that follows.
const LONG: u8 = 255;
const LONG_RECORD_BYTES: usize = HEAD_BYTES + 4;

/// Sizes of records, in units.
const SIZES: usize = (HEAD_BYTES + INLINE_BYTES_MAX).div_ceil(UNIT_BYTES) + 1;
/// No record.
const NONE: u32 = u32::MAX;

/// Records of members.
#[derive(Clone)]
pub(super) struct Arena {
    chunks: Vec<Chunk>,
    /// Chunks that were given back.
    vacant: Vec<u32>,
    /// The chunk at whose end new records are written.
    open: usize,
    /// First free record of each size.
    free: [u32; SIZES],
    free_units: usize,
    used_units: usize,
    victim: Option<Victim>,
    /// Chunk from which the next victim is searched.
    next_victim: usize,
    long: Vec<Box<[u8]>>,
    long_vacant: Vec<u32>,
    chunk_bytes: usize,
    long_bytes: usize,
}

#[derive(Clone, Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Units of records in use.
    live: u32,
}

/// A chunk that is being emptied.
#[derive(Clone, Copy)]
struct Victim {
    chunk: usize,
    /// Offset from which the next member is searched, in bytes.
    at: usize,
}

impl Default for Arena {
    fn default() -> Arena {
        Arena {
            chunks: vec![Chunk::default()],
            vacant: Vec::new(),
            open: 0,
            free: [NONE; SIZES],
            free_units: 0,
            used_units: 0,
            victim: None,
            next_victim: 0,
            long: Vec::new(),
            long_vacant: Vec::new(),
            chunk_bytes: 0,
            long_bytes: 0,
        }
    }
}

#[inline]
fn position(handle: u32) -> (usize, usize) {
    let handle = handle as usize;
    (handle / CHUNK_UNITS, handle % CHUNK_UNITS * UNIT_BYTES)
}

fn handle_at(chunk: usize, at: usize) -> u32 {
    (chunk * CHUNK_UNITS + at / UNIT_BYTES) as u32
}

/// Returns the bytes of a record, from its score to its end and beyond.
#[inline]
fn record(chunks: &[Chunk], handle: u32) -> &[u8] {
    let (chunk, at) = position(handle);
    &chunks[chunk].bytes[at..]
}

#[inline]
fn record_mut(chunks: &mut [Chunk], handle: u32) -> &mut [u8] {
    let (chunk, at) = position(handle);
    &mut chunks[chunk].bytes[at..]
}

#[inline]
fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn write_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Units of the record that starts here.
fn record_units(record: &[u8]) -> usize {
    match record[SCORE_BYTES] {
        FREE => usize::from(record[HEAD_BYTES]),
        LONG => LONG_RECORD_BYTES.div_ceil(UNIT_BYTES),
        len => (HEAD_BYTES + usize::from(len)).div_ceil(UNIT_BYTES),
    }
}

impl Arena {
    /// Returns the number of allocations.
    pub(super) fn allocation_count(&self) -> usize {
        self.chunks.len() + self.long.len()
    }

    /// Returns the number of bytes on the heap, but for pages at the end of the open chunk that were never touched.
    pub(super) fn heap_bytes(&self) -> usize {
        let open = &self.chunks[self.open].bytes;
        self.chunk_bytes - (open.capacity() - open.len()) / PAGE_BYTES * PAGE_BYTES
            + self.long_bytes
            + self.chunks.capacity() * size_of::<Chunk>()
            + self.long.capacity() * size_of::<Box<[u8]>>()
            + (self.vacant.capacity() + self.long_vacant.capacity()) * size_of::<u32>()
    }

    /// Returns the bytes of a member.
    #[inline]
    pub(super) fn member(&self, handle: Handle) -> &[u8] {
        let record = record(&self.chunks, handle.0);
        match record[SCORE_BYTES] {
            LONG => &self.long[read_u32(record, HEAD_BYTES) as usize],
            len => &record[HEAD_BYTES..HEAD_BYTES + usize::from(len)],
        }
    }

    /// Returns the score of a member.
    #[inline]
    pub(super) fn score(&self, handle: Handle) -> f64 {
        let mut bits = [0; SCORE_BYTES];
        bits.copy_from_slice(&record(&self.chunks, handle.0)[..SCORE_BYTES]);
        f64::from_le_bytes(bits)
    }

    /// Changes the score of a member.
    #[inline]
    pub(super) fn set_score(&mut self, handle: Handle, score: f64) {
        record_mut(&mut self.chunks, handle.0)[..SCORE_BYTES].copy_from_slice(&score.to_le_bytes());
    }

    /// Stores a member.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) -> Result<Handle, Full> {
        if member.len() <= INLINE_BYTES_MAX {
            let handle = self.allocate(HEAD_BYTES + member.len())?;
            let record = record_mut(&mut self.chunks, handle);
            record[..SCORE_BYTES].copy_from_slice(&score.to_le_bytes());
            record[SCORE_BYTES] = member.len() as u8;
            record[HEAD_BYTES..HEAD_BYTES + member.len()].copy_from_slice(member);
            return Ok(Handle(handle));
        }
        let handle = self.allocate(LONG_RECORD_BYTES)?;
        let place = self.long_vacant.pop().unwrap_or_else(|| {
            self.long.push(Box::default());
            self.long.len() as u32 - 1
        });
        self.long[place as usize] = member.into();
        self.long_bytes += member.len();
        let record = record_mut(&mut self.chunks, handle);
        record[..SCORE_BYTES].copy_from_slice(&score.to_le_bytes());
        record[SCORE_BYTES] = LONG;
        write_u32(record, HEAD_BYTES, place);
        Ok(Handle(handle))
    }

    /// Removes a member.
    pub(super) fn remove(&mut self, handle: Handle) {
        let record = record(&self.chunks, handle.0);
        if record[SCORE_BYTES] == LONG {
            let place = read_u32(record, HEAD_BYTES);
            self.long_bytes -= self.long[place as usize].len();
            self.long[place as usize] = Box::default();
            self.long_vacant.push(place);
            if self.long_vacant.len() == self.long.len() {
                self.long = Vec::new();
                self.long_vacant = Vec::new();
            }
        }
        self.release(handle.0);
    }

    /// Returns a member of a chunk that should become empty.
    pub(super) fn misplaced(&mut self) -> Option<Handle> {
        if self.victim.is_none() {
            self.choose_victim();
        }
        let victim = self.victim.as_mut()?;
        let bytes = &self.chunks[victim.chunk].bytes;
        while let Some(record) = bytes.get(victim.at..).filter(|rest| !rest.is_empty()) {
            let at = victim.at;
            victim.at += record_units(record) * UNIT_BYTES;
            if record[SCORE_BYTES] != FREE {
                return Some(Handle(handle_at(victim.chunk, at)));
            }
        }
        None
    }

    /// Copies a record to a better place and frees the old one.
    pub(super) fn relocate(&mut self, handle: Handle) -> Result<Handle, Full> {
        let (chunk, at) = position(handle.0);
        let bytes = record_units(record(&self.chunks, handle.0)) * UNIT_BYTES;
        let new = self.allocate(bytes)?;
        let (new_chunk, new_at) = position(new);
        match self.chunks.get_disjoint_mut([chunk, new_chunk]) {
            Ok([from, to]) => {
                to.bytes[new_at..new_at + bytes].copy_from_slice(&from.bytes[at..at + bytes]);
            }
            // The same chunk twice.
            Err(_) => self.chunks[chunk].bytes.copy_within(at..at + bytes, new_at),
        }
        self.release(handle.0);
        Ok(Handle(new))
    }

    /// Finds room for a record.
    fn allocate(&mut self, bytes: usize) -> Result<u32, Full> {
        let units = bytes.div_ceil(UNIT_BYTES);
        let first = self.free[units];
        let handle = if first == NONE {
            self.extend(units * UNIT_BYTES)?
        } else {
            self.unlink(first);
            first
        };
        self.chunks[position(handle).0].live += units as u32;
        self.used_units += units;
        Ok(handle)
    }

    /// Makes room at the end of the open chunk, or opens another.
    fn extend(&mut self, bytes: usize) -> Result<u32, Full> {
        let limit = CHUNK_BYTES
            - if self.open + 1 == CHUNKS_MAX {
                UNIT_BYTES
            } else {
                0
            };
        if self.chunks[self.open].bytes.len() + bytes > limit {
            self.open = match self.vacant.pop() {
                Some(vacant) => vacant as usize,
                None if self.chunks.len() < CHUNKS_MAX => {
                    self.chunks.push(Chunk::default());
                    self.chunks.len() - 1
                }
                None => return Err(Full),
            };
        }
        let is_first = self.chunks.len() == 1;
        let chunk = &mut self.chunks[self.open].bytes;
        let at = chunk.len();
        if chunk.capacity() - at < bytes {
            // A set that is just large enough to be here should not pay for a whole chunk.
            let step = if is_first {
                FIRST_STEP_BYTES.max(at / 4)
            } else {
                CHUNK_BYTES
            };
            self.chunk_bytes -= chunk.capacity();
            chunk.reserve_exact(step.min(CHUNK_BYTES - at));
            self.chunk_bytes += chunk.capacity();
        }
        chunk.resize(at + bytes, 0);
        Ok(handle_at(self.open, at))
    }

    /// Frees a record.
    fn release(&mut self, handle: u32) {
        let (chunk, _) = position(handle);
        let units = record_units(record(&self.chunks, handle));
        self.chunks[chunk].live -= units as u32;
        self.used_units -= units;
        let is_victim = self.victim.is_some_and(|victim| victim.chunk == chunk);
        if is_victim {
            let record = record_mut(&mut self.chunks, handle);
            record[SCORE_BYTES] = FREE;
            record[HEAD_BYTES] = units as u8;
        } else {
            self.link(handle, units);
        }
        if self.chunks[chunk].live == 0 {
            if is_victim {
                self.victim = None;
            } else {
                self.unlink_all(chunk);
            }
            let empty = std::mem::take(&mut self.chunks[chunk].bytes);
            self.chunk_bytes -= empty.capacity();
            if chunk != self.open {
                self.vacant.push(chunk as u32);
            }
        }
    }

    /// Puts a record at the head of the list of its size.
    fn link(&mut self, handle: u32, units: usize) {
        let next = std::mem::replace(&mut self.free[units], handle);
        let record = record_mut(&mut self.chunks, handle);
        write_u32(record, 0, next);
        write_u32(record, 4, NONE);
        record[SCORE_BYTES] = FREE;
        record[HEAD_BYTES] = units as u8;
        if next != NONE {
            write_u32(record_mut(&mut self.chunks, next), 4, handle);
        }
        self.free_units += units;
    }

    /// Removes a record from the list of its size.
    fn unlink(&mut self, handle: u32) {
        let record = record(&self.chunks, handle);
        let (next, previous) = (read_u32(record, 0), read_u32(record, 4));
        let units = record_units(record);
        if previous == NONE {
            self.free[units] = next;
        } else {
            write_u32(record_mut(&mut self.chunks, previous), 0, next);
        }
        if next != NONE {
            write_u32(record_mut(&mut self.chunks, next), 4, previous);
        }
        self.free_units -= units;
    }

    /// Removes all free records of a chunk from their lists.
    fn unlink_all(&mut self, chunk: usize) {
        let mut at = 0;
        while at < self.chunks[chunk].bytes.len() {
            let record = &self.chunks[chunk].bytes[at..];
            let is_free = record[SCORE_BYTES] == FREE;
            let step = record_units(record) * UNIT_BYTES;
            if is_free {
                self.unlink(handle_at(chunk, at));
            }
            at += step;
        }
    }

    /// Starts to empty a chunk, if most of the arena is free.
    fn choose_victim(&mut self) {
        if self.free_units <= self.used_units.max(CHUNK_UNITS) {
            return;
        }
        // Bounded, since a caller asks after every removal.
        for _ in 0..16.min(self.chunks.len()) {
            let chunk = self.next_victim % self.chunks.len();
            self.next_victim = chunk + 1;
            let live = self.chunks[chunk].live as usize;
            if chunk != self.open && live > 0 && live <= CHUNK_UNITS / 2 {
                self.unlink_all(chunk);
                self.victim = Some(Victim { chunk, at: 0 });
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    impl Arena {
        fn check(&self) {
            let mut free = [0; SIZES];
            let (mut used, mut linked) = (0, 0);
            for (i, chunk) in self.chunks.iter().enumerate() {
                let (mut at, mut live) = (0, 0);
                while at < chunk.bytes.len() {
                    let record = &chunk.bytes[at..];
                    let units = record_units(record);
                    if record[SCORE_BYTES] != FREE {
                        live += units;
                    } else if self.victim.is_none_or(|victim| victim.chunk != i) {
                        free[units] += 1;
                        linked += units;
                    }
                    at += units * UNIT_BYTES;
                }
                assert_eq!(at, chunk.bytes.len());
                assert_eq!(live, chunk.live as usize);
                used += live;
            }
            assert_eq!((used, linked), (self.used_units, self.free_units));
            for (units, count) in free.into_iter().enumerate() {
                let (mut handle, mut previous) = (self.free[units], NONE);
                for _ in 0..count {
                    let record = record(&self.chunks, handle);
                    assert_eq!(record_units(record), units);
                    assert_eq!(read_u32(record, 4), previous);
                    previous = handle;
                    handle = read_u32(record, 0);
                }
                assert_eq!(handle, NONE);
            }
            let bytes: usize = self.chunks.iter().map(|chunk| chunk.bytes.capacity()).sum();
            assert_eq!(bytes, self.chunk_bytes);
        }
    }

    fn member(random: &mut fastrand::Rng) -> Vec<u8> {
        let len = match random.u8(..20) {
            0 => 0,
            1 => random.usize(250..260),
            2 => random.usize(1000..3000),
            3..10 => random.usize(1..60),
            _ => 16,
        };
        std::iter::repeat_with(|| random.u8(..)).take(len).collect()
    }

    #[test]
    fn random_changes_agree_with_a_map() {
        let mut random = fastrand::Rng::with_seed(8);
        let mut arena = Arena::default();
        let mut model: HashMap<u32, (Vec<u8>, f64)> = HashMap::new();
        let mut handles: Vec<u32> = Vec::new();
        let mut moved = 0;
        for step in 0..60_000 {
            let growing = step % 20_000 < 10_000;
            if handles.is_empty() || random.u8(..10) < if growing { 7 } else { 2 } {
                let (member, score) = (member(&mut random), random.f64());
                let handle = arena.insert(&member, score).unwrap().0;
                assert!(model.insert(handle, (member, score)).is_none());
                handles.push(handle);
            } else {
                let handle = handles.swap_remove(random.usize(..handles.len()));
                let (member, score) = model.remove(&handle).unwrap();
                assert_eq!(arena.member(Handle(handle)), member);
                assert_eq!(arena.score(Handle(handle)), score);
                arena.remove(Handle(handle));
                while let Some(handle) = arena.misplaced() {
                    let new = arena.relocate(handle).unwrap();
                    let value = model.remove(&handle.0).unwrap();
                    assert!(model.insert(new.0, value).is_none());
                    let place = handles.iter().position(|known| *known == handle.0);
                    handles[place.unwrap()] = new.0;
                    moved += 1;
                }
            }
            if step % 1000 == 0 {
                arena.check();
            }
        }
        arena.check();
        assert!(moved > 100, "{moved}");
        for handle in handles {
            arena.set_score(Handle(handle), 1.5);
            assert_eq!(arena.score(Handle(handle)), 1.5);
            assert_eq!(arena.member(Handle(handle)), model[&handle].0);
            arena.remove(Handle(handle));
        }
        arena.check();
        assert_eq!((arena.chunk_bytes, arena.long_bytes), (0, 0));
    }

    #[test]
    fn a_queue_takes_no_more_than_its_content() {
        let mut arena = Arena::default();
        let mut queue = std::collections::VecDeque::new();
        for i in 0..200_000u32 {
            let len = 8 + i as usize % 32;
            queue.push_back(arena.insert(&vec![1; len], 0.0).unwrap());
            if queue.len() > 10_000 {
                arena.remove(queue.pop_front().unwrap());
            }
        }
        assert!(arena.heap_bytes() < 500_000, "{}", arena.heap_bytes());
    }
}
