//! Readiness of sockets: an edge-triggered epoll behind a small interface.
//!
//! It must not know what is read or written; it reports tokens that its owner chose.
//!
//! # Why edges, and why mio
//!
//! Measured with an echo server on one of two CPUs, 50 connections with one request in flight each, CPU per request
//! (user + system, medians of seven runs of a million requests on a shared machine; in brackets the best run):
//!
//! | | us |
//! |---|---|
//! | epoll called directly, edges | 1.57 (1.51) |
//! | **mio, edges** | **1.63 (1.53)** |
//! | `polling`, edges | 1.63 (1.56) |
//! | mio, edges, reading until "would block" | 1.77 (1.69) |
//! | `polling`, levels | 2.08 (1.62) |
//! | epoll called directly, levels | 2.13 (1.59) |
//!
//! With levels the kernel puts every socket that it reports back on its list and asks it again in the next wait. With
//! edges it does not, and a short read stands for the "would block" (see [`crate::Stream`]). What is between mio and
//! bare epoll is below what can be told apart here, so the unsafe calls stay in mio.
//! The same exchange through this crate's whole loop (mailbox, pooled buffer, [`crate::flush`]) took 1.57 us when mio
//! alone took 1.53, the difference again being within the spread.
//!
//! # Letting events gather
//!
//! A thread that sleeps in the poller is woken by the first event, serves that one socket, and goes to sleep again
//! before the next has something to say: with many busy peers every few requests cost a wake-up. A poller with a span
//! of gathering that finds nothing first sleeps for that span, in which no socket can wake it (a [`Waker`] can), and
//! then looks again, a few times before it sleeps as any other. Network cards know this as interrupt coalescing. While
//! something is ready it never sleeps. Its owner decides when it pays.
//!
//! Measured with a server, 50 connections of redis-benchmark on another CPU, a span of 50 us and one request a read: 55 instead
//! of 180 sleeps in a thousand reads, 8 % less CPU time, of the server's own code a quarter less (its caches stay warm), and
//! 9 % more requests, since waking the server was work of the client's. Where requests come evenly spaced, it saves
//! nothing and they take some 40 us longer.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Poll, Token};
use rustix::thread::set_current_timer_slack;

use crate::clock;

/// Latest end of a gathering behind its time: nanoseconds. The kernel's default is 50 us, as much as the whole.
const GATHERING_SLACK_NS: NonZeroU64 = NonZeroU64::new(1_000).unwrap();

/// Number of gatherings without an event before the poller sleeps until one comes. A thread that is busy enough to let
/// events gather will have some soon, and their senders do not have to wake it.
const RESTS_MAX: u32 = 4;

/// The readiness that a source is watched for.
///
/// Every socket is registered once for reading and stays so. Only a short write asks for `ReadWrite`, and once the
/// rest has left, for `Read` again: a request that is answered at once costs no `epoll_ctl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Data, end of stream, errors.
    Read,
    /// Data, end of stream, errors, and room to write (also: a connection attempt has ended).
    ReadWrite,
}

impl From<Interest> for mio::Interest {
    fn from(interest: Interest) -> Self {
        match interest {
            Interest::Read => mio::Interest::READABLE | mio::Interest::PRIORITY,
            Interest::ReadWrite => Self::from(Interest::Read) | mio::Interest::WRITABLE,
        }
    }
}

/// A change of readiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The token that the source was registered with.
    pub token: usize,
    /// There is something to read: data, an end of stream, or a connection to accept.
    pub readable: bool,
    /// There is room to write, or the connection attempt has ended.
    pub writable: bool,
    /// The peer will send no more. What it sent before may still be unread: read until [`crate::Read::Eof`], also
    /// past a read that says `drained`, because no further event will come.
    pub closed: bool,
    /// The peer has sent a byte out of band (an interrupt from telnet, say). A read ends before it, so one that says
    /// `drained` may not have emptied the socket: read until it would block.
    pub urgent: bool,
    /// An error waits in the socket; a read or [`crate::Stream::take_error`] tells which.
    pub error: bool,
}

/// Waits for readiness of many sources.
///
/// Events are edges: one is reported when something *new* happened (bytes arrived, room appeared), not as long as it
/// lasts. So the owner reads until drained after a readable event, or remembers that it did not.
pub struct Poller {
    poll: Poll,
    events: Events,
    ready: Vec<Event>,
    waker: Option<(usize, Waker)>,
    gathering: Duration,
    has_gathered: bool,
    /// The next gathering is to be measured.
    measures: bool,
    /// See [`Poller::rest_cost`]: nanoseconds.
    rest_cost_ns: u64,
    /// The thread whose sleep a waker ends, since events may gather.
    sleeper: Arc<OnceLock<Thread>>,
}

impl Poller {
    /// Makes a poller that reports at most `events_max` events a turn; more wait for the next turn.
    pub fn new(events_max: usize) -> io::Result<Self> {
        assert!(
            events_max > 0,
            "a poller without room for events would never report any"
        );
        Ok(Poller {
            poll: Poll::new()?,
            events: Events::with_capacity(events_max),
            ready: Vec::with_capacity(events_max),
            waker: None,
            gathering: Duration::ZERO,
            has_gathered: false,
            measures: false,
            rest_cost_ns: 0,
            sleeper: Arc::default(),
        })
    }

    /// Sets for how long events are left to gather (see the head of this file); zero, as at first: not at all. A wait
    /// may end that much after its timeout. The same thread has to poll from then on.
    pub fn set_gathering(&mut self, span: Duration) {
        self.gathering = span;
        self.measures = true;
    }

    /// Returns the CPU time of the thread that a gathering costs: falling asleep and being woken, as of late. Zero until one
    /// was measured, which happens once after every [`Poller::set_gathering`].
    pub fn rest_cost(&self) -> Duration {
        Duration::from_nanos(self.rest_cost_ns)
    }

    /// Returns true if the poller lets events gather.
    pub fn is_gathering(&self) -> bool {
        !self.gathering.is_zero()
    }

    /// Returns true if the last [`Poller::poll`] has let events gather.
    pub fn has_gathered(&self) -> bool {
        self.has_gathered
    }

    /// Waits for events: at most `timeout` (rounded up to a millisecond), for ever if `None`, not at all if zero. A
    /// signal ends the wait early, without events.
    pub fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.has_gathered = false;
        if self.gathering.is_zero() || timeout == Some(Duration::ZERO) {
            return self.look(timeout);
        }
        // Before the look: a waker has to know the thread.
        self.know_thread();
        for _ in 0..RESTS_MAX {
            self.look(Some(Duration::ZERO))?;
            if !self.ready.is_empty() {
                return Ok(());
            }
            self.rest();
            self.has_gathered = true;
        }
        self.look(timeout)
    }

    /// Sleeps for a span in which a [`Waker`] ends the sleep and no socket does, then reports what is ready. The same thread
    /// has to poll from then on.
    pub fn poll_after(&mut self, span: Duration) -> io::Result<()> {
        self.has_gathered = false;
        if self.sleeper.get().is_none() {
            self.know_thread();
            // A waker that did not know the thread yet has left an event only.
            self.look(Some(Duration::ZERO))?;
            if !self.ready.is_empty() {
                return Ok(());
            }
        }
        thread::park_timeout(span);
        self.look(Some(Duration::ZERO))
    }

    /// Has wakers end the sleep of this thread.
    fn know_thread(&self) {
        self.sleeper.get_or_init(|| {
            // Where this is refused, a gathering takes longer.
            let _ = set_current_timer_slack(Some(GATHERING_SLACK_NS));
            thread::current()
        });
    }

    fn rest(&mut self) {
        let measures = std::mem::take(&mut self.measures);
        let before_ns = if measures { clock::thread_cpu_ns() } else { 0 };
        thread::park_timeout(self.gathering);
        if measures {
            let cost_ns = clock::thread_cpu_ns().saturating_sub(before_ns);
            self.rest_cost_ns = match self.rest_cost_ns {
                0 => cost_ns,
                // One that an interrupt fell into does not count for much.
                known => (known * 7 + cost_ns.min(known * 2)) / 8,
            };
        }
    }

    fn look(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.ready.clear();
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        self.ready.extend(self.events.iter().map(|event| Event {
            token: event.token().0,
            readable: event.is_readable(),
            writable: event.is_writable(),
            closed: event.is_read_closed(),
            urgent: event.is_priority(),
            error: event.is_error(),
        }));
        Ok(())
    }

    /// Returns the events of the last [`Poller::poll`].
    pub fn events(&self) -> impl ExactSizeIterator<Item = Event> + '_ {
        self.ready.iter().copied()
    }

    /// Returns the number of events that the last [`Poller::poll`] brought.
    pub fn event_count(&self) -> usize {
        self.ready.len()
    }

    /// Returns the event at `index`, for loops that must borrow their owner while they walk the events.
    pub fn event(&self, index: usize) -> Event {
        self.ready[index]
    }

    /// Starts to watch `source`. A source that is ready already is reported as an event.
    pub fn register(&self, source: &impl AsFd, token: usize, interest: Interest) -> io::Result<()> {
        let fd = source.as_fd().as_raw_fd();
        self.poll
            .registry()
            .register(&mut SourceFd(&fd), Token(token), interest.into())
    }

    /// Changes the readiness that a registered `source` is watched for. A source that is ready already is reported
    /// again, so nothing is lost between a short write and this call.
    pub fn reregister(
        &self,
        source: &impl AsFd,
        token: usize,
        interest: Interest,
    ) -> io::Result<()> {
        let fd = source.as_fd().as_raw_fd();
        self.poll
            .registry()
            .reregister(&mut SourceFd(&fd), Token(token), interest.into())
    }

    /// Stops watching `source`. Needed before a stream moves to another poller; a dropped stream leaves by itself.
    /// Events of this turn that are still to be looked at may name the token.
    pub fn deregister(&self, source: &impl AsFd) -> io::Result<()> {
        let fd = source.as_fd().as_raw_fd();
        self.poll.registry().deregister(&mut SourceFd(&fd))
    }

    /// Returns the waker for this poller, for use by other threads; the wake-up is an event with `token`. A poller has one
    /// waker: all calls must name the same token.
    pub fn waker(&mut self, token: usize) -> io::Result<Waker> {
        if let Some((first, waker)) = &self.waker {
            assert_eq!(
                *first, token,
                "a poller has one waker, and it has one token"
            );
            return Ok(waker.clone());
        }
        let waker = Waker {
            event: Arc::new(mio::Waker::new(self.poll.registry(), Token(token))?),
            sleeper: self.sleeper.clone(),
        };
        self.waker = Some((token, waker.clone()));
        Ok(waker)
    }
}

/// Wakes a [`Poller`] from any thread.
#[derive(Clone)]
pub struct Waker {
    event: Arc<mio::Waker>,
    sleeper: Arc<OnceLock<Thread>>,
}

impl Waker {
    /// Ends the poller's current wait, or else its next one. Costs a system call: [`crate::Mailbox`] makes it rarely.
    pub fn wake(&self) {
        // The eventfd is ours and open as long as we hold it, and an overflow of its counter is handled below us.
        self.event
            .wake()
            .expect("a write to our own eventfd succeeds");
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.unpark();
        }
    }
}
