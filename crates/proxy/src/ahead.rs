//! Requests of a client that sends on and does not read: libraries write a whole pipeline before they read the first reply.
//! Who does so would wait for us for ever, and we for it, if no more were read from it than we execute. So where a
//! client has to wait and its socket takes no more replies, what it sends is kept here, up to `limits.query-buffer`.
//! A client that reads is not read ahead of: it is slowed down. Must not know what the bytes mean.

use std::collections::VecDeque;

use redline_net::Read;

use crate::client::Pause;
use crate::private::Session;
use crate::worker::{CLIENT_READ_BYTES_MAX, Worker};

/// Reads of one client in one turn.
const READS_MAX: usize = 16;

/// Bytes that were read before their turn, in the order in which they came.
#[derive(Debug, Default)]
pub struct Ahead {
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
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

impl Worker {
    /// Reads what a client sends that has to wait, if it does not read either.
    pub(crate) fn read_ahead(&mut self, at: u32) {
        let query_bytes_max = self.shared.settings.query_bytes_max;
        for _ in 0..READS_MAX {
            let Some(client) = self.clients.get(at) else {
                return;
            };
            let sticks = client.pause != Pause::No && client.wants_room && !client.closing;
            let held = client.query.len() + client.ahead.bytes;
            if !sticks
                || !client.readable
                || held >= query_bytes_max
                || matches!(client.session, Session::Passing(_))
            {
                return;
            }
            let ahead = &mut client.ahead;
            if (ahead.pieces.back()).is_none_or(|last| last.len() >= CLIENT_READ_BYTES_MAX) {
                ahead.pieces.push_back(Vec::new());
            }
            let Some(last) = ahead.pieces.back_mut() else {
                return;
            };
            match client.stream.read_into(last, CLIENT_READ_BYTES_MAX) {
                Ok(Read::Data { drained, bytes }) => {
                    ahead.bytes += bytes;
                    self.counters.received_bytes += bytes as u64;
                    client.readable = !drained || client.peer_closed || client.urgent;
                    client.card.heard(self.now_ms);
                }
                Ok(Read::WouldBlock) => client.readable = false,
                Ok(Read::Eof) | Err(_) => (client.readable, client.eof) = (false, true),
            }
            if ahead.pieces.back().is_some_and(Vec::is_empty) {
                ahead.pieces.pop_back();
            }
        }
        self.enqueue(at);
    }
}
