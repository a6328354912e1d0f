//! The bytes of the stream that are kept: counted blocks, the newest of which is still being filled.
//!
//! All who read the stream read the same blocks, each from a place of its own; a block
//! that is full never changes, so it can be sent from where it lies. Blocks hold the backlog and the debt of the slowest
//! reader.
//!
//! The oldest may be *spilled*: the caller writes those that it is given into a slot of a file of its own, and reads them from
//! there when it is asked for. A slot has room for a block of the largest size, and takes as many small ones in a row as
//! fit, so that two slots in a row hold more than one has room for. Those of blocks that are freed are used again.
//!
//! Must not know: what the bytes say, ids, sockets, the file.

use std::{collections::VecDeque, ops::Range, sync::Arc};

/// Most bytes of a full block.
pub const BLOCK_BYTES: usize = 64 * 1024;
/// Fewest bytes of a full block, where little is to be kept.
const BLOCK_BYTES_MIN: usize = 16 * 1024;
/// Bytes from which on an open block is closed for its readers: fewer are cheaper to copy.
pub const CLOSED_BYTES_MIN: usize = 8 * 1024;

/// The bytes of the stream from one offset to another.
#[derive(Debug)]
pub struct Blocks {
    /// The offset before the first byte that is kept.
    begin: u64,
    /// The offset behind the last byte.
    end: u64,
    /// Number of the file for blocks that are spilled: no other stream has it.
    spool: u64,
    /// Slots of the file that are in use, in the order of the stream: all before the blocks in memory.
    spilled: VecDeque<Spilled>,
    /// Slots of the file that are free, and the number of those that were ever in use.
    free: Vec<u32>,
    /// See `free`.
    slots: u32,
    /// Full blocks and closed ones in memory, oldest first; of [`BLOCK_BYTES`] at most.
    full: VecDeque<(u64, Arc<Vec<u8>>)>,
    /// The newest bytes; shorter than a block.
    open: Vec<u8>,
    /// Bytes at which a block is full.
    block_bytes: usize,
}

/// A slot of the file, and the bytes in it.
#[derive(Debug)]
struct Spilled {
    /// The offset before the first of them.
    begin: u64,
    /// The offset behind the last.
    end: u64,
    number: u32,
}

/// Bytes from some offset on.
#[derive(Debug)]
pub enum Found<'a> {
    /// A full or closed block, and the place in it where they begin.
    Full(&'a Arc<Vec<u8>>, usize),
    /// The newest bytes, which are not a full block yet; empty at the end of the stream.
    Open(&'a [u8]),
    /// A slot of the file, and their place in it; never empty.
    Spilled(Slot, Range<usize>),
}

/// A place for [`BLOCK_BYTES`] in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of the file.
    pub spool: u64,
    /// Number of the slot, from the beginning of the file.
    pub number: u32,
}

/// Blocks that are to be written into the file.
#[derive(Clone, Debug)]
pub struct Spill {
    /// Where to.
    pub slot: Slot,
    /// One or more blocks, each behind the other: of [`BLOCK_BYTES`] at most together.
    pub blocks: Vec<Arc<Vec<u8>>>,
    /// The offset before the first byte.
    begin: u64,
    /// The offset behind the last.
    end: u64,
}

impl Blocks {
    /// Begins to keep bytes at an offset. `spool`: a number that no other stream has had.
    pub fn new(offset: u64, spool: u64) -> Blocks {
        Blocks {
            begin: offset,
            end: offset,
            spool,
            spilled: VecDeque::new(),
            free: Vec::new(),
            slots: 0,
            full: VecDeque::new(),
            open: Vec::new(),
            block_bytes: BLOCK_BYTES,
        }
    }

    /// Returns the offset before the first byte that is kept.
    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// Returns the offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of bytes that are kept.
    pub fn len(&self) -> u64 {
        self.end - self.begin
    }

    /// Returns the offset before the first byte that is in memory.
    pub fn memory_begin(&self) -> u64 {
        let open_begin = self.end - self.open.len() as u64;
        self.full.front().map_or(open_begin, |(begin, _)| *begin)
    }

    /// Returns the number of bytes that are in memory.
    pub fn memory_len(&self) -> u64 {
        self.end - self.memory_begin()
    }

    /// Returns true if no byte is kept.
    pub fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    /// Adds bytes to the stream.
    pub fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.open.capacity() == 0 {
                self.open.reserve_exact(self.block_bytes);
            }
            let room = self.block_bytes.saturating_sub(self.open.len());
            let (now, rest) = bytes.split_at(bytes.len().min(room));
            self.open.extend_from_slice(now);
            self.end += now.len() as u64;
            bytes = rest;
            if self.open.len() >= self.block_bytes {
                let full = std::mem::take(&mut self.open);
                let begin = self.end - full.len() as u64;
                self.full.push_back((begin, Arc::new(full)));
            }
        }
    }

    /// Closes the open block if it is worth it, so that all who are behind it read it from where it lies.
    pub fn close(&mut self) {
        if self.open.len() < CLOSED_BYTES_MIN {
            return;
        }
        let mut closed = std::mem::take(&mut self.open);
        if closed.len() < BLOCK_BYTES / 2 {
            closed.shrink_to_fit();
        }
        let begin = self.end - closed.len() as u64;
        self.full.push_back((begin, Arc::new(closed)));
    }

    /// Returns bytes that come after an offset. `None`: they are not kept, or are yet to come.
    pub fn at(&self, offset: u64) -> Option<Found<'_>> {
        if offset < self.begin || offset > self.end {
            return None;
        }
        let open_begin = self.end - self.open.len() as u64;
        if offset >= open_begin {
            return Some(Found::Open(&self.open[(offset - open_begin) as usize..]));
        }
        let behind = self.full.partition_point(|(begin, _)| *begin <= offset);
        if let Some((begin, block)) = behind.checked_sub(1).map(|at| &self.full[at]) {
            return Some(Found::Full(block, (offset - begin) as usize));
        }
        let behind = self
            .spilled
            .partition_point(|spilled| spilled.begin <= offset);
        let spilled = &self.spilled[behind - 1];
        let slot = Slot {
            spool: self.spool,
            number: spilled.number,
        };
        let place = (offset - spilled.begin) as usize..(spilled.end - spilled.begin) as usize;
        Some(Found::Spilled(slot, place))
    }

    /// Returns the oldest blocks in memory and a slot for them, if there are more than `memory_bytes` in memory and another slot
    /// is within `spool_bytes`, and if they fill half of it or a later one fits in no more. The caller writes them and says
    /// so: until then they stay in memory.
    pub fn spill(&mut self, memory_bytes: u64, spool_bytes: u64) -> Option<Spill> {
        let is_room = (self.spilled.len() as u64 + 1) * BLOCK_BYTES as u64 <= spool_bytes;
        if self.memory_len() <= memory_bytes || !is_room {
            return None;
        }
        let begin = self.full.front()?.0;
        let mut bytes = 0;
        let mut blocks = Vec::new();
        for (_, block) in &self.full {
            if bytes + block.len() > BLOCK_BYTES {
                break;
            }
            bytes += block.len();
            blocks.push(block.clone());
        }
        // More may come that fits.
        if blocks.len() == self.full.len() && bytes <= BLOCK_BYTES / 2 {
            return None;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        Some(Spill {
            slot: Slot {
                spool: self.spool,
                number,
            },
            blocks,
            begin,
            end: begin + bytes as u64,
        })
    }

    /// Notes that blocks are in the file (`is_written`), or could not be written.
    pub fn spilled(&mut self, spill: &Spill, is_written: bool) {
        if spill.slot.spool != self.spool {
            return;
        }
        let is_front = (self.full.front()).is_some_and(|(begin, _)| *begin == spill.begin);
        if is_written && is_front {
            self.full.drain(..spill.blocks.len());
            self.spilled.push_back(Spilled {
                begin: spill.begin,
                end: spill.end,
                number: spill.slot.number,
            });
        } else {
            // The first was freed meanwhile, or all stay where they are.
            self.free.push(spill.slot.number);
        }
    }

    /// Returns the number of the file, if a block is in it.
    pub fn spool(&self) -> Option<u64> {
        (!self.spilled.is_empty()).then_some(self.spool)
    }

    /// Frees blocks that nobody wants: all their bytes are older than the newest `backlog_bytes`, and before the offset of
    /// the slowest reader. Later blocks are of a size that suits so small a backlog.
    pub fn trim(&mut self, backlog_bytes: u64, slowest: Option<u64>) {
        let suiting = usize::try_from(backlog_bytes / 16).unwrap_or(BLOCK_BYTES);
        self.block_bytes = suiting.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES);
        let kept_from = self.end.saturating_sub(backlog_bytes);
        let kept_from = slowest.map_or(kept_from, |slowest| kept_from.min(slowest));
        while let Some(spilled) = self.spilled.front()
            && spilled.end <= kept_from
        {
            self.free.push(spilled.number);
            self.spilled.pop_front();
        }
        while self.spilled.is_empty()
            && let Some((begin, block)) = self.full.front()
            && begin + block.len() as u64 <= kept_from
        {
            self.full.pop_front();
        }
        let spilled = self.spilled.front().map(|spilled| spilled.begin);
        self.begin = spilled.unwrap_or_else(|| self.memory_begin());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_backlog_has_small_blocks() {
        let backlog = BLOCK_BYTES_MIN as u64;
        let mut blocks = Blocks::new(0, 1);
        blocks.append(&bytes(BLOCK_BYTES - 1));
        blocks.trim(backlog, None);
        let end = BLOCK_BYTES - 1 + 10 * BLOCK_BYTES_MIN + 7;
        blocks.append(&bytes(end)[BLOCK_BYTES - 1..]);
        blocks.trim(backlog, None);
        assert_eq!(blocks.end(), end as u64);
        assert!((backlog..2 * backlog).contains(&blocks.len()));
        let begin = blocks.begin();
        assert_eq!(read(&blocks, begin), bytes(end)[begin as usize..]);
    }

    /// Reads everything from an offset on.
    fn read(blocks: &Blocks, mut offset: u64) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let found = match blocks.at(offset).expect("it is kept") {
                Found::Full(block, at) => &block[at..],
                Found::Open(bytes) => bytes,
                Found::Spilled(..) => unreachable!("nothing was spilled"),
            };
            if found.is_empty() {
                return all;
            }
            all.extend_from_slice(found);
            offset += found.len() as u64;
        }
    }

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn what_is_added_is_read_from_any_offset() {
        let all = bytes(3 * BLOCK_BYTES + 100);
        let mut blocks = Blocks::new(1000, 1);
        let pieces = [1, BLOCK_BYTES - 2, 1, 1, 2 * BLOCK_BYTES, 5, 94];
        let mut at = 0;
        for piece in pieces {
            blocks.append(&all[at..at + piece]);
            at += piece;
            assert_eq!(blocks.end(), 1000 + at as u64);
            assert_eq!(read(&blocks, 1000), all[..at]);
        }
        for offset in [
            0,
            1,
            BLOCK_BYTES - 1,
            BLOCK_BYTES,
            3 * BLOCK_BYTES,
            at - 1,
            at,
        ] {
            assert_eq!(read(&blocks, 1000 + offset as u64), all[offset..at]);
        }
        assert!(blocks.at(999).is_none() && blocks.at(1001 + at as u64).is_none());
    }

    #[test]
    fn a_block_that_was_closed_is_read_and_freed_as_any() {
        let all = bytes(2 * BLOCK_BYTES + 3 * CLOSED_BYTES_MIN);
        let mut blocks = Blocks::new(5, 1);
        let pieces = [
            CLOSED_BYTES_MIN - 1,
            1,
            BLOCK_BYTES - 1,
            CLOSED_BYTES_MIN + 1,
            BLOCK_BYTES / 2,
            BLOCK_BYTES / 2 + CLOSED_BYTES_MIN,
        ];
        let mut at = 0;
        for piece in pieces {
            blocks.append(&all[at..at + piece]);
            at += piece;
            blocks.close();
            for offset in [0, at / 2, at - 1, at] {
                assert_eq!(read(&blocks, 5 + offset as u64), all[offset..at]);
            }
        }
        assert_eq!(at, all.len());
        assert_eq!(blocks.full.len(), 5, "all but the first piece were closed");
        blocks.trim(0, Some(5 + BLOCK_BYTES as u64));
        assert_eq!(blocks.begin(), 5 + CLOSED_BYTES_MIN as u64);
        blocks.trim(0, None);
        assert!(blocks.is_empty());
    }

    #[test]
    fn blocks_older_than_the_backlog_and_behind_every_reader_are_freed() {
        let size = BLOCK_BYTES as u64;
        let mut blocks = Blocks::new(0, 1);
        blocks.append(&bytes(4 * BLOCK_BYTES + 10));
        blocks.trim(u64::MAX, None);
        assert_eq!(blocks.begin(), 0);
        blocks.trim(100, Some(size + 1));
        assert_eq!(blocks.begin(), size, "a reader is in the second block");
        blocks.trim(2 * size + 11, None);
        assert_eq!(
            blocks.begin(),
            size,
            "one byte of the second is in the backlog"
        );
        blocks.trim(2 * size + 10, None);
        assert_eq!((blocks.begin(), blocks.len()), (2 * size, 2 * size + 10));
        assert!(blocks.at(size).is_none());
        assert_eq!(
            read(&blocks, 2 * size),
            bytes(4 * BLOCK_BYTES + 10)[2 * BLOCK_BYTES..]
        );
    }

    /// A file with the slots that were written.
    #[derive(Default)]
    struct File(std::collections::HashMap<u32, Vec<u8>>);

    impl File {
        /// Spills all that may be, of which `refuses` says how many are not written.
        fn take(&mut self, blocks: &mut Blocks, memory: u64, room: u64, mut refuses: u32) {
            while let Some(spill) = blocks.spill(memory, room) {
                let is_written = refuses == 0;
                refuses = refuses.saturating_sub(1);
                if is_written {
                    let written: Vec<u8> = spill.blocks.iter().flat_map(|it| it.to_vec()).collect();
                    assert!(!written.is_empty() && written.len() <= BLOCK_BYTES);
                    self.0.insert(spill.slot.number, written);
                }
                blocks.spilled(&spill, is_written);
            }
        }

        fn read(&self, blocks: &Blocks, mut offset: u64) -> Vec<u8> {
            let mut all = Vec::new();
            loop {
                let found = match blocks.at(offset).expect("it is kept") {
                    Found::Full(block, at) => &block[at..],
                    Found::Open(bytes) => bytes,
                    Found::Spilled(slot, place) => &self.0[&slot.number][place],
                };
                if found.is_empty() {
                    return all;
                }
                all.extend_from_slice(found);
                offset += found.len() as u64;
            }
        }
    }

    #[test]
    fn old_blocks_are_read_from_the_file_and_its_slots_are_used_again() {
        let size = BLOCK_BYTES as u64;
        let all = bytes(12 * BLOCK_BYTES + 5);
        let (mut blocks, mut file) = (Blocks::new(0, 1), File::default());
        blocks.append(&all[..6 * BLOCK_BYTES + 5]);
        assert!(blocks.spill(u64::MAX, u64::MAX).is_none() && blocks.spill(0, size - 1).is_none());
        file.take(&mut blocks, 2 * size, 10 * size, 1);
        assert_eq!((blocks.memory_begin(), blocks.begin()), (5 * size, 0));
        for offset in [0, 1, size, 3 * size - 1, 5 * size, 6 * size + 1] {
            assert_eq!(
                file.read(&blocks, offset),
                all[offset as usize..6 * BLOCK_BYTES + 5]
            );
        }
        // Half of a spilled block is still wanted.
        blocks.trim(0, Some(3 * size + 7));
        assert_eq!((blocks.begin(), blocks.spool()), (3 * size, Some(1)));
        blocks.append(&all[6 * BLOCK_BYTES + 5..]);
        // Room for five blocks, two of which are taken.
        file.take(&mut blocks, 2 * size, 5 * size, 0);
        assert_eq!(blocks.memory_begin(), 8 * size);
        assert!(file.0.len() <= 6, "slots were used again");
        assert_eq!(file.read(&blocks, 3 * size), all[3 * BLOCK_BYTES..]);
        blocks.trim(size, None);
        assert_eq!((blocks.spool(), blocks.begin()), (None, 11 * size));
        assert_eq!(file.read(&blocks, 11 * size), all[11 * BLOCK_BYTES..]);
    }

    #[test]
    fn small_blocks_share_a_slot_and_are_read_and_freed_with_it() {
        let (size, small) = (BLOCK_BYTES as u64, CLOSED_BYTES_MIN as u64);
        let lengths = [1, 2, 3, 8, 1, 7, 2, 1, 1].map(|times| times * CLOSED_BYTES_MIN);
        let all = bytes(lengths.iter().sum());
        let (mut blocks, mut file) = (Blocks::new(0, 1), File::default());
        let mut at = 0;
        for length in lengths {
            blocks.append(&all[at..at + length]);
            blocks.close();
            at += length;
        }
        // One is in no slot that has no room for it, and the rest waits until it fills half of one.
        file.take(&mut blocks, 0, u64::MAX, 0);
        let slots = |blocks: &Blocks| {
            let slots = blocks.spilled.iter();
            slots
                .map(|it| (it.end - it.begin) / small)
                .collect::<Vec<_>>()
        };
        assert_eq!(slots(&blocks), [6, 8, 8]);
        assert_eq!(blocks.memory_begin(), 22 * small);
        for offset in 0..26 {
            let offset = offset * small + offset;
            assert_eq!(file.read(&blocks, offset), all[offset as usize..]);
        }
        blocks.trim(0, Some(6 * small - 1));
        assert_eq!(blocks.begin(), 0, "a reader is in the last block of a slot");
        blocks.trim(0, Some(6 * small));
        assert_eq!((blocks.begin(), slots(&blocks)), (6 * small, vec![8, 8]));
        blocks.append(&bytes(BLOCK_BYTES));
        // The file's size goes by its slots, as full as they may be.
        file.take(&mut blocks, 0, 3 * size - 1, 0);
        assert_eq!(slots(&blocks), [8, 8]);
        file.take(&mut blocks, 0, 3 * size, 0);
        assert_eq!(slots(&blocks), [8, 8, 8]);
        assert_eq!(file.0.len(), 3, "the freed slot was used again");
        let read = file.read(&blocks, 6 * small);
        assert_eq!(
            read,
            [&all[6 * CLOSED_BYTES_MIN..], &bytes(BLOCK_BYTES)].concat()
        );
    }

    #[test]
    fn a_block_that_is_freed_while_it_is_written_is_not_in_the_file() {
        let size = BLOCK_BYTES as u64;
        let mut blocks = Blocks::new(0, 1);
        blocks.append(&bytes(3 * BLOCK_BYTES));
        let spill = blocks.spill(0, 10 * size).expect("there is one");
        blocks.trim(0, None);
        blocks.append(&bytes(BLOCK_BYTES));
        blocks.spilled(&spill, true);
        assert_eq!((blocks.spool(), blocks.begin()), (None, 3 * size));
        // Nor is one of another stream.
        let mut other = Blocks::new(0, 2);
        other.append(&bytes(2 * BLOCK_BYTES));
        other.spilled(&spill, true);
        assert_eq!((other.spool(), other.begin()), (None, 0));
        // If the first of many was freed, the others are given out again.
        let mut many = Blocks::new(0, 3);
        for _ in 0..6 {
            many.append(&bytes(CLOSED_BYTES_MIN));
            many.close();
        }
        let spill = many.spill(0, size).expect("they fill half a slot");
        many.trim(0, Some(CLOSED_BYTES_MIN as u64));
        many.spilled(&spill, true);
        assert_eq!(
            (many.spool(), many.begin()),
            (None, CLOSED_BYTES_MIN as u64)
        );
        let spill = many.spill(0, size).expect("so do these");
        assert_eq!((spill.blocks.len(), spill.slot.number), (5, 0));
        many.spilled(&spill, true);
        assert_eq!((many.spool(), many.memory_len()), (Some(3), 0));
    }
}
