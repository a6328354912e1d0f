//! A session: a connection and its caller.
//!
//! A session belongs to one worker. Must not know: how commands run.

use std::{
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicU64, Ordering},
};

use redline_engine::Caller;
use redline_keyspace::journal::Until;
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
    /// Decoder of `query`.
    pub decoder: RequestDecoder,
    /// True if the poller reports write readiness.
    pub writable_wanted: bool,
    /// True if there may be whole requests in `query`: the group had no room for more.
    pub undecoded: bool,
    /// True if the peer has ended its direction, and all its bytes are read.
    pub eof_seen: bool,
    /// Requests that are decoded and not yet run.
    pub deferred: Option<Box<Deferred>>,
    /// The fact that has to come about at the journal's gate before the replies are sent; until then no request runs.
    pub gate: Option<Until>,
    /// State of the client that its commands use.
    pub caller: Caller,
    /// Time since which the output exceeds its soft limit (Unix, in seconds).
    pub soft_limit_since_s: Option<u64>,
    /// Address of the peer.
    pub peer: PeerAddr,
    /// Value of the client info's `net_out` at the timer's last check.
    pub sent_before: u64,
    /// Value of [`Session::work`] at the timer's last check, and its growth since the check before.
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
    /// Returns true if it waits, so that none of its requests may run.
    #[inline]
    pub fn is_suspended(&self) -> bool {
        self.suspended.is_some() || self.gate.is_some()
    }

    /// Returns the client's work so far, estimated by its info: a command counts as much as 256 bytes.
    pub fn work(&self) -> u64 {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bytes = count(&self.info.net_in) + count(&self.info.net_out);
        count(&self.info.commands) + bytes / 256
    }

    /// Returns true if it has no buffers, or only empty ones.
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
    /// Bytes that the spans refer to.
    pub buffer: Vec<u8>,
    /// Spans of all requests.
    pub spans: Vec<Span>,
    /// Start of each request's bytes, and range of its arguments' spans.
    pub requests: std::collections::VecDeque<(usize, std::ops::Range<usize>)>,
    /// Large arguments of the requests.
    pub blobs: Vec<Blob>,
    /// Protocol error in the input behind them, if any.
    pub broken: Option<ProtocolError>,
}

impl Deferred {
    /// Returns the first request.
    pub fn first(&self) -> Option<Args<'_>> {
        let (at, spans) = self.requests.front()?;
        let spans = &self.spans[spans.clone()];
        Some(Args::with_big(&self.buffer[*at..], spans, &self.blobs))
    }

    /// Returns the heap bytes of the requests, for the accounting of memory per client.
    pub fn heap_bytes(&self) -> usize {
        let blobs = self.blobs.iter().map(|blob| blob.capacity());
        self.buffer.capacity()
            + self.spans.capacity() * size_of::<Span>()
            + self.requests.capacity() * size_of::<(usize, std::ops::Range<usize>)>()
            + blobs.sum::<usize>()
    }
}
