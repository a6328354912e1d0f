//! The load of redis-benchmark's command line: the same batch again and again, the next after the last reply.
//!
//! Knows no socket: it provides bytes to send, and counts replies.
//!
//! # Latency
//!
//! A request's latency lasts from the write of its batch to the arrival of its own reply. Replies that arrive together
//! are recorded together, which also makes recording cheap: a batch of 50 mostly comes back in one piece.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use redline_resp::Skipper;

use crate::load::failure::{Failure, said};
use crate::load::worker::{Arrived, Load, Taken, Then};
use crate::redis_benchmark::batch::Batch;

/// Batches still to be sent. Threads take some at a time, so that the counter is accessed rarely and a fast thread takes
/// over the rest of a slow one.
pub struct Quota {
    left: AtomicU64,
    threads: u64,
}

/// Maximum number of batches that one thread takes from the quota at once.
const TAKEN_MAX: u64 = 1024;

impl Quota {
    /// Returns a quota of `batches` for this many threads.
    pub fn new(batches: u64, threads: usize) -> Quota {
        Quota {
            left: AtomicU64::new(batches),
            threads: threads as u64,
        }
    }

    /// Takes some of the rest; returns 0 if there is none.
    fn take(&self) -> u64 {
        let share = |left: u64| match self.threads {
            1 => left,
            threads => (left / (8 * threads)).clamp(1, TAKEN_MAX).min(left),
        };
        // Relaxed: only the number is shared.
        match self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left - share(left))
            }) {
            Ok(left) => share(left),
            Err(_) => 0,
        }
    }
}

/// The batches that a thread sends: one for all of its connections, or one for each server.
pub trait Batches {
    /// Returns the server's index of a connection: among all, modulo their number.
    fn place(&self, token: usize) -> usize {
        token
    }

    /// Returns the number of requests of a batch.
    fn requests(&self) -> u64;

    /// Returns the next batch of a connection.
    fn next(&mut self, token: usize, random: &mut fastrand::Rng) -> &[u8];

    /// Returns the bytes that [`Batches::next`] has just returned for this connection, without a copy.
    fn share(&self, token: usize) -> Arc<Vec<u8>>;

    /// Returns `Ok` if the test continues after a connection got this error: then it counts as a reply.
    fn excuse(&mut self, _token: usize, error: String) -> Result<(), Failure> {
        Err(Failure::Reply(error))
    }
}

impl Batches for Batch {
    #[inline]
    fn requests(&self) -> u64 {
        Batch::requests(self)
    }

    #[inline]
    fn next(&mut self, _token: usize, random: &mut fastrand::Rng) -> &[u8] {
        Batch::next(self, random)
    }

    fn share(&self, _token: usize) -> Arc<Vec<u8>> {
        Batch::share(self)
    }
}

/// One thread's part of a closed loop with batches.
pub struct Closed<'a, B> {
    quota: &'a Quota,
    /// False: each batch gets a connection of its own.
    keep_alive: bool,
    batches: B,
    random: fastrand::Rng,
    latency: Histogram<u64>,
    /// Batches taken from the quota and not sent.
    granted: u64,
    /// Number of connections that wait for replies, or are being established.
    busy: usize,
    finished: u64,
    latency_us: u64,
}

/// A batch in flight.
#[derive(Default)]
pub struct UnderWay {
    /// Time at which it was written.
    sent_ns: u64,
    /// Number of due replies.
    awaited: u64,
}

impl<'a, B: Batches> Closed<'a, B> {
    /// Returns a part that takes batches from `quota` and records into `latency`.
    pub fn new(
        quota: &'a Quota,
        keep_alive: bool,
        batches: B,
        random: fastrand::Rng,
        latency: Histogram<u64>,
    ) -> Closed<'a, B> {
        Closed {
            quota,
            keep_alive,
            batches,
            random,
            latency,
            granted: 0,
            busy: 0,
            finished: 0,
            latency_us: 0,
        }
    }

    /// Returns the number of answered requests.
    pub fn finished(&self) -> u64 {
        self.finished
    }

    /// Returns the latencies in microseconds.
    pub fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }

    /// Takes one batch from the quota; returns false if it is used up.
    fn grant(&mut self) -> bool {
        if self.granted == 0 {
            self.granted = self.quota.take();
        }
        if self.granted == 0 {
            return false;
        }
        self.granted -= 1;
        true
    }

    /// Handles an error, which ends the test, unless the batches excuse it.
    #[cold]
    fn excuse(&mut self, token: usize, skipper: &mut Skipper) -> Result<(), Failure> {
        let text = skipper.take_first_error().unwrap_or_default();
        self.batches.excuse(token, said(&text))
    }

    /// Records replies that arrived together; returns their number for the batch in flight.
    fn count(&mut self, arrived: &mut Arrived<'_, UnderWay>, mut replies: u64) -> u64 {
        if *arrived.prefix_awaited > 0 {
            let prefix = replies.min(*arrived.prefix_awaited);
            *arrived.prefix_awaited -= prefix;
            replies -= prefix;
        }
        let under_way = &mut *arrived.pending;
        // Unexpected replies (messages of a subscription) are not counted.
        let replies = replies.min(under_way.awaited);
        if replies == 0 {
            return 0;
        }
        under_way.awaited -= replies;
        let latency_us = (arrived.now_ns.saturating_sub(under_way.sent_ns) + 500) / 1000;
        self.latency.saturating_record_n(latency_us, replies);
        self.finished += replies;
        self.latency_us += latency_us * replies;
        replies
    }
}

impl<B: Batches> Load for Closed<'_, B> {
    type Pending = UnderWay;

    fn place(&self, token: usize) -> usize {
        self.batches.place(token)
    }

    fn pending(&self) -> UnderWay {
        UnderWay::default()
    }

    fn begin(&mut self, _connections: usize, _now_ns: u64) {}

    fn start(&mut self, _token: usize) -> bool {
        let granted = self.grant();
        self.busy += usize::from(granted);
        granted
    }

    #[inline]
    fn next(&mut self, token: usize, under_way: &mut UnderWay, now_ns: u64) -> &[u8] {
        under_way.sent_ns = now_ns;
        under_way.awaited = self.batches.requests();
        self.batches.next(token, &mut self.random)
    }

    fn part_with(&mut self, token: usize) -> Arc<Vec<u8>> {
        self.batches.share(token)
    }

    #[inline]
    fn take(&mut self, mut arrived: Arrived<'_, UnderWay>) -> Result<Taken, Failure> {
        let skipped = arrived.skipper.skip(arrived.bytes)?;
        if skipped.errors > 0 {
            self.excuse(arrived.token, arrived.skipper)?;
        }
        let replies = self.count(&mut arrived, skipped.replies);
        let then = if replies == 0 || arrived.pending.awaited > 0 {
            Then::Wait
        } else if !self.grant() {
            self.busy -= 1;
            Then::Wait
        } else if self.keep_alive {
            Then::Send
        } else {
            Then::Reconnect
        };
        Ok(Taken {
            consumed: skipped.consumed,
            counted: replies > 0,
            then,
        })
    }

    fn needs(&self, under_way: &UnderWay) -> bool {
        under_way.awaited > 0
    }

    fn is_active(&self) -> bool {
        self.busy > 0
    }

    fn progress(&self) -> (u64, u64) {
        (self.finished, self.latency_us)
    }
}
