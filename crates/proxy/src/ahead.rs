//! Requests of a client that sends on and does not read: libraries write a whole pipeline before they read the first reply.
//! Who does so would wait for us for ever, and we for it, if no more were read from it than we execute. So where a
//! client has to wait and its socket takes no more replies, what it sends is kept here, up to `limits.query-buffer`.
//! A client that reads is not read ahead of: it is slowed down. Must not know what the bytes mean.

use std::collections::VecDeque;

/// Reads of one client in one turn.
pub(crate) const READS_MAX: usize = 16;

/// Bytes that were read before their turn, in the order in which they came.
#[derive(Debug, Default)]
pub struct Ahead {
    pub(crate) pieces: VecDeque<Vec<u8>>,
    pub(crate) bytes: usize,
}

impl Ahead {
    /// Returns true if it is empty.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The next of them; what came first goes first.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let piece = self.pieces.pop_front()?;
        self.bytes -= piece.len();
        Some(piece)
    }
}
