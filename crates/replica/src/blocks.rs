//! The bytes of the stream that are kept: counted blocks, the newest of which is still being filled.
//!
//! All who read the stream read the same blocks, each from a place of its own; a block
//! that is full never changes, so it can be sent from where it lies. Blocks hold the backlog and the debt of the slowest
//! reader.
//!
//! Must not know: what the bytes say, ids, sockets.

use std::{collections::VecDeque, sync::Arc};

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
    /// Full blocks and closed ones, oldest first.
    full: VecDeque<(u64, Arc<Vec<u8>>)>,
    /// The newest bytes; shorter than a block.
    open: Vec<u8>,
    /// Bytes at which a block is full.
    block_bytes: usize,
}

/// Bytes from some offset on.
#[derive(Debug)]
pub enum Found<'a> {
    /// A full block, and the place in it where they begin.
    Full(&'a Arc<Vec<u8>>, usize),
    /// The newest bytes, which are not a full block yet; empty at the end of the stream.
    Open(&'a [u8]),
}

impl Blocks {
    /// Begins to keep bytes at an offset.
    pub fn new(offset: u64) -> Blocks {
        Blocks {
            begin: offset,
            end: offset,
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
        let (begin, block) = &self.full[behind - 1];
        Some(Found::Full(block, (offset - begin) as usize))
    }

    /// Frees blocks that nobody wants: all their bytes are older than the newest `backlog_bytes`, and before the offset of
    /// the slowest reader. Later blocks are of a size that suits so small a backlog.
    pub fn trim(&mut self, backlog_bytes: u64, slowest: Option<u64>) {
        let suiting = usize::try_from(backlog_bytes / 16).unwrap_or(BLOCK_BYTES);
        self.block_bytes = suiting.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES);
        let kept_from = self.end.saturating_sub(backlog_bytes);
        let kept_from = slowest.map_or(kept_from, |slowest| kept_from.min(slowest));
        while let Some((begin, block)) = self.full.front()
            && begin + block.len() as u64 <= kept_from
        {
            self.begin = begin + block.len() as u64;
            self.full.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_backlog_has_small_blocks() {
        let backlog = BLOCK_BYTES_MIN as u64;
        let mut blocks = Blocks::new(0);
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
        let mut blocks = Blocks::new(1000);
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
        let mut blocks = Blocks::new(5);
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
        let mut blocks = Blocks::new(0);
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
}
