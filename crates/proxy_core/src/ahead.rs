//! Requests of a client that sends without reading replies: libraries write a whole pipeline before they read the first
//! reply. If only executed requests were read, such a client and the proxy would wait for each other for ever. So while
//! a client has to wait and its socket takes no more replies, its bytes are kept here, up to `limits.query-buffer`. A
//! client that reads is slowed down instead. Must not know what the bytes mean.

use std::collections::VecDeque;

/// Largest number of reads of one client in one turn.
pub const READS_MAX: usize = 16;

/// Bytes that were read ahead, in order of arrival.
#[derive(Debug, Default)]
pub struct Ahead {
    /// As they were read.
    pub pieces: VecDeque<Vec<u8>>,
    /// Number of bytes.
    pub bytes: usize,
}

impl Ahead {
    /// Returns true if it is empty.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns the next piece; in order of arrival.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let piece = self.pieces.pop_front()?;
        self.bytes -= piece.len();
        Some(piece)
    }
}
