//! The load of redis-benchmark's command line: the same batch again and again, the next when the last is answered.
//!
//! Knows no socket: it says what to send, and counts what came back.
//!
//! # Latency
//!
//! A request's latency lasts from the write of its batch to the arrival of its own reply. Replies that arrive
//! together are recorded together, which is also what makes recording cheap: a batch of 50 mostly comes back in
//! one piece.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use redline_resp::Skipper;

use crate::batch::Batch;
use crate::failure::{Failure, said};
use crate::worker::{Arrived, Load, Taken, Then};

/// Batches still to be sent. Threads take some at a time, so that the counter is touched rarely and a fast thread
/// takes over what a slow one leaves.
pub struct Quota {
    left: AtomicU64,
    threads: u64,
}

/// Maximum number of batches that one thread takes from the quota at once.
const TAKEN_MAX: u64 = 1024;

impl Quota {
    /// `batches` for so many threads.
    pub fn new(batches: u64, threads: usize) -> Quota {
        Quota {
            left: AtomicU64::new(batches),
            threads: threads as u64,
        }
    }

    /// Some of what is left; 0 if nothing is.
    fn take(&self) -> u64 {
        let share = |left: u64| match self.threads {
            1 => left,
            threads => (left / (8 * threads)).clamp(1, TAKEN_MAX).min(left),
        };
        // Relaxed: the number is all that is shared.
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
    /// Which of the servers a connection is to: its place among all, or any number that leads there in turns.
    fn place(&self, token: usize) -> usize {
        token
    }

    /// Requests of a batch.
    fn requests(&self) -> u64;

    /// The next batch of a connection.
    fn next(&mut self, token: usize, random: &mut fastrand::Rng) -> &[u8];

    /// Returns the bytes that [`Batches::next`] has just given to this connection, without a copy.
    fn share(&self, token: usize) -> Arc<Vec<u8>>;

    /// Returns `Ok` if the test can go on although a connection got this error: then it counts as a reply.
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
    /// Batches taken of the quota and not sent.
    granted: u64,
    /// Connections that wait for replies, or for their connection to stand.
    busy: usize,
    finished: u64,
    latency_us: u64,
}

/// A batch under way.
#[derive(Default)]
pub struct UnderWay {
    /// When it was written.
    sent_ns: u64,
    /// Replies that it still waits for.
    awaited: u64,
}

impl<'a, B: Batches> Closed<'a, B> {
    /// A part that takes batches from `quota` and records into `latency`.
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

    /// Requests answered.
    pub fn finished(&self) -> u64 {
        self.finished
    }

    /// Latencies in microseconds.
    pub fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }

    /// Takes leave to send one batch.
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

    /// Errors end the test, unless who sends has a use for them.
    #[cold]
    fn excuse(&mut self, token: usize, skipper: &mut Skipper) -> Result<(), Failure> {
        let text = skipper.take_first_error().unwrap_or_default();
        self.batches.excuse(token, said(&text))
    }

    /// Records replies that arrived together; how many there were for the batch under way.
    fn count(&mut self, arrived: &mut Arrived<'_, UnderWay>, mut replies: u64) -> u64 {
        if *arrived.prefix_awaited > 0 {
            let prefix = replies.min(*arrived.prefix_awaited);
            *arrived.prefix_awaited -= prefix;
            replies -= prefix;
        }
        let under_way = &mut *arrived.pending;
        // A server that says more than it was asked for (messages of a subscription) is not counted for it.
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
