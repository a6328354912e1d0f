//! A session: a connection, and the caller whose commands come by it.
//!
//! A session belongs to one worker. Must not know: how commands run.

use std::{
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicU64, Ordering},
};

use redline_engine::Caller;
use redline_net::{PeerAddr, Stream};
use redline_resp::{Args, Blob, ProtocolError, RequestDecoder, Span};

/// One connection.
// As with `Caller`.
#[repr(C, align(64))]
pub struct Session {
    /// The socket.
    pub stream: Stream,
    /// Input that was read and not yet decoded; without capacity while idle.
    pub query: Vec<u8>,
    /// Turns `query` into requests.
    pub decoder: RequestDecoder,
    /// Write readiness has been asked for.
    pub writable_wanted: bool,
    /// There may be whole requests in `query`: the group had no room for more.
    pub undecoded: bool,
    /// The peer has sent its last byte, and all are read.
    pub eof_seen: bool,
    /// Decoded, not run yet.
    pub deferred: Option<Box<Deferred>>,
    /// Its replies may not leave before the journal's gate has reached this record; until then it runs nothing.
    pub gate: Option<u64>,
    /// The client, as its commands know it.
    pub caller: Caller,
    /// The output exceeds its soft limit since this time (Unix, in seconds).
    pub soft_limit_since_s: Option<u64>,
    /// Where from.
    pub peer: PeerAddr,
    /// Value of the client info's `net_out` when the timer last looked.
    pub sent_before: u64,
    /// Value of [`Session::work`] when the timer last looked, and its growth since the time before.
    pub worked_before: u64,
    /// See `worked_before`.
    pub work_lately: u64,
}

impl Deref for Session {
    type Target = Caller;

    #[inline]
    fn deref(&self) -> &Caller {
        &self.caller
    }
}

impl DerefMut for Session {
    #[inline]
    fn deref_mut(&mut self) -> &mut Caller {
        &mut self.caller
    }
}

impl Session {
    /// Does it wait for anything, so that nothing of its may run?
    #[inline]
    pub fn is_suspended(&self) -> bool {
        self.suspended.is_some() || self.gate.is_some()
    }

    /// Returns the work that the client has asked for so far, as far as that can be told from the client info: a command counts as
    /// much as 256 bytes.
    pub fn work(&self) -> u64 {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bytes = count(&self.info.net_in) + count(&self.info.net_out);
        count(&self.info.commands) + bytes / 256
    }

    /// Has it no buffers, nor anything in them?
    #[inline]
    pub fn holds_nothing(&self) -> bool {
        self.query.capacity() == 0
            && !self.out.has_memory()
            && self.decoder.is_idle()
            && self.multi.bytes == 0
            && self.deferred.is_none()
    }
}

/// Requests that were decoded but not run, because the session was suspended.
pub struct Deferred {
    /// The bytes that the spans refer to.
    pub buffer: Vec<u8>,
    /// Spans of all of them.
    pub spans: Vec<Span>,
    /// Each request: where its bytes begin, and which spans are its arguments.
    pub requests: std::collections::VecDeque<(usize, std::ops::Range<usize>)>,
    /// Their large arguments.
    pub blobs: Vec<Blob>,
    /// Protocol error in the input that came behind them, if any.
    pub broken: Option<ProtocolError>,
}

impl Deferred {
    /// The request whose turn it is.
    pub fn first(&self) -> Option<Args<'_>> {
        let (at, spans) = self.requests.front()?;
        let spans = &self.spans[spans.clone()];
        Some(Args::with_big(&self.buffer[*at..], spans, &self.blobs))
    }

    /// Returns the heap bytes that they take, for the accounting of memory per client.
    pub fn heap_bytes(&self) -> usize {
        let blobs = self.blobs.iter().map(|blob| blob.capacity());
        self.buffer.capacity()
            + self.spans.capacity() * size_of::<Span>()
            + self.requests.capacity() * size_of::<(usize, std::ops::Range<usize>)>()
            + blobs.sum::<usize>()
    }
}
