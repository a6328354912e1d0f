//! A connection to a server: bytes to send, and requests that were sent and are not answered, with their clients. Must
//! not know clients beyond their places, nor routes.
//!
//! The bytes of a request stay until its reply has arrived: after a redirect, or if the connection breaks, they can be
//! sent again. The queue of waiting requests has one entry for each run of requests that one client sent in a row, not
//! for each request.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use redline_resp::{Framer, Proto};

use crate::cache::{Cache, Marks};
use crate::class::NO_COMMAND;
use crate::observability::{MIXED, NodeStats};
use crate::request::request_len;
use crate::route::NodeId;
use crate::shell::Shell;
use crate::slab::Ref;

/// The destination of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It goes to the client as it is.
    Client,
    /// It answers a request of a client that wants no reply.
    Silent,
    /// It is part number `seq` of the gathered reply at the place `to`.
    Part,
    /// It answers a request of the proxy itself when the connection was made: an error ends the connection.
    Setup,
    /// It answers a MULTI of the client `to`, which was answered already: nothing follows before the reply.
    Multi,
    /// It is dropped (of ASKING, and of calls that were answered already).
    Unwanted,
}

impl Kind {
    /// Returns true if it answers a client's request, and not a request of the proxy itself or one that was answered before.
    pub fn is_wanted(self) -> bool {
        matches!(self, Kind::Client | Kind::Silent | Kind::Part)
    }
}

/// Number of earlier attempts; and whether a redirect was followed whose text the caller may have made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tries(u8);

impl Tries {
    const LED: u8 = 0x80;

    /// Returns the number of earlier attempts.
    pub fn count(self) -> u8 {
        self.0 & !Tries::LED
    }

    /// Returns the same after this many more.
    #[must_use]
    pub fn and(self, more: u8) -> Tries {
        Tries(self.0 & Tries::LED | (self.count() + more).min(Tries::LED - 1))
    }

    /// Returns the same after such a redirect.
    #[must_use]
    pub fn led(self) -> Tries {
        Tries(self.0 | Tries::LED)
    }

    /// Returns true if such a redirect was followed.
    pub fn was_led(self) -> bool {
        self.0 & Tries::LED != 0
    }
}

/// A run of requests that wait for replies.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The destination: a client, or a gathered reply.
    pub to: Ref,
    /// The client's number of the first request of the run; of a gathered reply, the part.
    pub seq: u32,
    /// Bytes of the run, in `Upstream::out`.
    pub bytes: u32,
    /// Time at which it was queued: milliseconds of the worker's clock, in their lowest bits.
    pub since_ms: u32,
    /// Number of requests that are not answered.
    pub count: u16,
    /// Number of requests of the run that were answered.
    pub answered: u16,
    /// The destination of the replies.
    pub kind: Kind,
    /// Earlier attempts, and whether a redirect led on.
    pub tries: Tries,
    /// The command, as a number; [`MIXED`]: several, which [`Upstream::mix`] has; or [`NO_COMMAND`].
    pub command: u16,
    /// Time at which it arrived: microseconds of the worker's clock, in their lowest bits.
    pub since_us: u32,
}

const _: () = assert!(size_of::<Waiting>() <= 32, "two entries in a cache line");

impl Waiting {
    /// Returns the entry of one request of these bytes, queued at this time of the worker's clock in milliseconds.
    #[inline]
    pub fn one(to: Ref, seq: u32, kind: Kind, bytes: &[u8], now_ms: u64) -> Waiting {
        Waiting {
            to,
            seq,
            bytes: bytes.len() as u32,
            since_ms: now_ms as u32,
            count: 1,
            answered: 0,
            kind,
            tries: Tries::default(),
            command: NO_COMMAND,
            since_us: 0,
        }
    }

    /// Returns the same for a call of this command, which arrived at this time in microseconds.
    #[inline]
    pub fn of(self, command: u16, now_us: u64) -> Waiting {
        Waiting {
            command,
            since_us: now_us as u32,
            ..self
        }
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The attempt has not ended.
    Connecting,
    /// The server has not accepted the greeting: only that is sent.
    Greeting,
    /// It is established.
    Open,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The requests of all clients of a worker.
    Shared,
    /// One client's, or in the pool for the next one.
    Private,
    /// The subscriptions of clients.
    Subscriptions,
    /// A server's messages about changed keys: see `cache`.
    Tracking,
}

/// A connection to a server.
pub struct Upstream<S: Shell> {
    /// Its socket.
    pub socket: S::ServerSocket,
    /// The server.
    pub node: NodeId,
    /// The database.
    pub db: u16,
    /// The protocol.
    pub proto: Proto,
    /// Its purpose.
    pub purpose: Purpose,
    /// Its state.
    pub state: State,
    /// Time at which the attempt began.
    pub since_ms: u64,
    /// Requests: answered ones, sent ones, those to send.
    pub out: Vec<u8>,
    /// End of the answered ones.
    pub acked: usize,
    /// End of the sent ones.
    pub sent: usize,
    /// Runs of requests that wait for replies, in the order of the requests.
    pub waiting: VecDeque<Waiting>,
    /// An incomplete reply.
    pub partial: Vec<u8>,
    /// Finds the ends of replies.
    pub framer: Framer,
    /// The front reply is passed on in parts: its first bytes are dropped.
    pub streaming: bool,
    /// It is in the list of upstreams to write to, or of those that linger.
    pub dirty: bool,
    /// Number of turns for which queued requests have waited for more.
    pub lingers: u8,
    /// It is in the list of upstreams to read.
    pub queued: bool,
    /// The peer has closed: read until the end is seen.
    pub closed: bool,
    /// The poller reports when the socket is writable.
    pub wants_room: bool,
    /// Clients that wait until less is queued.
    pub held_back: Vec<Ref>,
    /// Bytes of the greeting.
    pub greeting: usize,
    /// Number of requests of the front run whose length is known, and their bytes.
    walked: (u16, usize),
    /// Nothing new is sent: once everything is answered it is closed, or pooled.
    pub retired: bool,
    /// A large request is passed through: sent bytes are not kept.
    pub passes: bool,
    /// It was retired only for a long reply: once that is answered, it is usable again.
    pub may_return: bool,
    /// It was made, or taken, for one call that must not wait behind others, and ends with it.
    pub is_lone: bool,
    /// It is not read until the client of its long reply has read more.
    pub rests: bool,
    /// Number of requests that came back from it and will be sent again.
    pub retries: u32,
    /// The server has begun a transaction on it: the calls of the next one may be sent together with its MULTI.
    pub takes_multi: bool,
    /// Scripts loaded over it since the last flush (see `Scripts::epoch`).
    pub scripts: (u64, HashSet<Vec<u8>>),
    /// Time since which that client has read nothing, in milliseconds, and its unread bytes then.
    pub rested: Option<(u64, usize)>,
    /// All bytes of its front reply were passed on: the rest of a long bulk may be spliced from socket to socket.
    pub may_splice: bool,
    /// The owner of a private connection.
    pub owner: Option<Ref>,
    /// The commands of runs of several commands, in order, each with its number of consecutive calls.
    pub mix: VecDeque<(u16, u16)>,
    /// Bytes of the front reply that were passed on.
    pub passed: usize,
    /// Counters of the server.
    pub stats: Arc<NodeStats>,
    /// Requests in flight that concern the cache of its pool.
    pub marks: Option<Box<Marks>>,
}

/// Largest number of turns for which queued requests wait for more.
const LINGERS_MAX: u8 = 4;
/// Number of queued bytes that are worth a write of their own.
const LINGERING_BYTES_MAX: usize = 16 * 1024;
/// Largest capacity of an empty buffer that is kept.
const BYTES_KEPT_MAX: usize = 256 * 1024;
/// Smallest number of answered bytes that are dropped from the front at once.
const DROP_BYTES_MIN: usize = 64 * 1024;

impl<S: Shell> Upstream<S> {
    /// Returns a connection whose attempt has begun.
    pub fn new(
        socket: S::ServerSocket,
        node: NodeId,
        db: u16,
        proto: Proto,
        purpose: Purpose,
        now_ms: u64,
        stats: Arc<NodeStats>,
    ) -> Upstream<S> {
        Upstream {
            socket,
            node,
            db,
            proto,
            purpose,
            state: State::Connecting,
            since_ms: now_ms,
            out: Vec::new(),
            acked: 0,
            sent: 0,
            waiting: VecDeque::new(),
            partial: Vec::new(),
            framer: Framer::new(),
            streaming: false,
            dirty: false,
            lingers: 0,
            queued: false,
            closed: false,
            wants_room: false,
            held_back: Vec::new(),
            greeting: 0,
            walked: (0, 0),
            retired: false,
            passes: false,
            may_return: false,
            is_lone: false,
            rests: false,
            retries: 0,
            takes_multi: false,
            scripts: (0, HashSet::new()),
            rested: None,
            may_splice: false,
            owner: None,
            mix: VecDeque::new(),
            passed: 0,
            stats,
            marks: None,
        }
    }

    /// Queues a run of `waiting.count` requests, and tracks them in `cache`.
    #[inline]
    pub fn push(&mut self, waiting: Waiting, bytes: &[u8], cache: &mut Cache) {
        if let Some(marks) = &mut self.marks {
            cache.sent(marks, (self.node, self.db), waiting.count, bytes);
        }
        self.push_own(waiting, bytes);
    }

    /// Queues a run of `waiting.count` requests without keys, which the cache need not know.
    #[inline]
    pub fn push_own(&mut self, waiting: Waiting, bytes: &[u8]) {
        if let Some(marks) = &mut self.marks {
            marks.push(waiting.count);
        }
        debug_assert_eq!(waiting.bytes as usize, bytes.len());
        self.stats.requests.add(waiting.count.into());
        self.out.extend_from_slice(bytes);
        self.waiting.push_back(waiting);
    }

    /// Queues ASKING, which the next request needs.
    pub fn push_asking(&mut self, now_ms: u64) {
        const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";
        let waiting = Waiting::one(Ref::NONE, 0, Kind::Unwanted, ASKING, now_ms);
        self.push_own(waiting, ASKING);
    }

    /// Returns true if the client of the next reply is the only one that waits for replies here, now or later.
    pub fn is_for_one_alone(&self) -> bool {
        self.owner.is_some() || self.retired && self.waiting.len() == 1
    }

    /// Returns the bytes of the front run that are not answered. Repeated calls scan no request twice.
    pub fn front_unanswered(&mut self) -> Option<&[u8]> {
        let front = self.waiting.front()?;
        let run = self
            .out
            .get(self.acked..self.acked + front.bytes as usize)?;
        let (count, bytes) = &mut self.walked;
        while *count < front.answered {
            *bytes += request_len(run.get(*bytes..)?)?;
            *count += 1;
        }
        run.get(*bytes..)
    }

    /// Returns the command of the front call.
    pub fn front_command(&self) -> Option<u16> {
        match self.waiting.front()?.command {
            MIXED => self.mix.front().map(|(command, _)| *command),
            command => Some(command),
        }
    }

    /// Notes progress of the front request: its time-out counts from now, in milliseconds.
    pub fn goes_on(&mut self, now_ms: u64) {
        if let Some(front) = self.waiting.front_mut() {
            front.since_ms = now_ms as u32;
        }
    }

    /// Drops sent bytes, if they will never be sent again.
    pub fn forget_sent(&mut self) {
        if !self.passes || self.state != State::Open || self.sent == 0 {
            return;
        }
        // Nothing but one large request is on this connection, and its entry has no bytes.
        self.out.drain(..self.sent);
        (self.sent, self.acked) = (0, 0);
    }

    /// Returns the number of bytes that were not sent.
    #[inline]
    pub fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Returns true if requests are in flight that the server has to answer before any new one.
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.sent > self.acked
    }

    /// Returns true if queued requests may wait for more, so that they leave in one write and arrive in one read: the
    /// server is busy on this connection meanwhile. Counts the turns.
    pub fn may_linger(&mut self) -> bool {
        let may = self.purpose == Purpose::Shared
            && self.state == State::Open
            && self.is_under_way()
            && self.unsent() <= LINGERING_BYTES_MAX
            && self.held_back.is_empty()
            && self.lingers < LINGERS_MAX;
        self.lingers = if may { self.lingers + 1 } else { 0 };
        may
    }

    /// Returns the number of bytes that were not answered, sent or not.
    #[inline]
    pub fn unanswered(&self) -> usize {
        self.out.len() - self.acked
    }

    /// Returns the end of the bytes that may be sent now.
    #[inline]
    pub fn may_send(&self) -> usize {
        match self.state {
            State::Connecting => self.sent,
            State::Greeting => self.greeting.max(self.sent),
            State::Open => self.out.len(),
        }
    }

    /// Takes note of `count` replies to the front run.
    #[inline]
    pub fn answered(&mut self, count: u16) {
        let Some(front) = self.waiting.front_mut() else {
            return;
        };
        if let Some(marks) = &mut self.marks {
            marks.pop(count);
        }
        if front.command == MIXED {
            unmix(&mut self.mix, count);
        }
        front.count -= count;
        front.answered += count;
        front.seq = front.seq.wrapping_add(count.into());
        if front.count > 0 {
            return;
        }
        self.acked += front.bytes as usize;
        self.walked = (0, 0);
        self.waiting.pop_front();
        if self.waiting.is_empty() && self.acked == self.out.len() {
            (self.acked, self.sent) = (0, 0);
            self.out.clear();
            if self.out.capacity() > BYTES_KEPT_MAX {
                self.out.shrink_to(BYTES_KEPT_MAX);
            }
        } else if self.acked >= DROP_BYTES_MIN && self.acked > self.out.len() / 2 {
            self.out.drain(..self.acked);
            self.sent -= self.acked;
            self.acked = 0;
        }
    }
}

/// Removes this many answered calls of the front run.
#[cold]
fn unmix(mix: &mut VecDeque<(u16, u16)>, count: u16) {
    let mut left = count;
    while left > 0
        && let Some((_, many)) = mix.front_mut()
    {
        let step = left.min(*many);
        *many -= step;
        left -= step;
        if *many == 0 {
            mix.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestShell;

    fn run(count: u16, bytes: usize) -> Waiting {
        Waiting {
            to: Ref {
                at: 0,
                generation: 0,
            },
            seq: 7,
            bytes: bytes as u32,
            since_ms: 0,
            count,
            answered: 0,
            kind: Kind::Client,
            tries: Tries::default(),
            command: NO_COMMAND,
            since_us: 0,
        }
    }

    #[test]
    fn a_request_lingers_for_a_while_and_only_while_others_are_under_way() {
        let mut upstream =
            Upstream::<TestShell>::new((), 0, 0, Proto::Resp2, Purpose::Shared, 0, Arc::default());
        upstream.state = State::Open;
        upstream.push_own(run(1, 3), b"abc");
        assert!(!upstream.may_linger());
        upstream.sent = 3;
        upstream.push_own(run(1, 3), b"xyz");
        assert!((0..LINGERS_MAX).all(|_| upstream.may_linger()));
        assert!(!upstream.may_linger());
        assert!(upstream.may_linger());
        upstream.answered(1);
        assert!(!upstream.may_linger());
    }

    #[test]
    fn requests_stay_until_they_are_answered() {
        let mut upstream =
            Upstream::<TestShell>::new((), 0, 0, Proto::Resp2, Purpose::Shared, 0, Arc::default());
        let big = vec![b'a'; DROP_BYTES_MIN];
        upstream.push_own(run(2, big.len()), &big);
        upstream.push_own(run(1, 3), b"xyz");
        upstream.sent = big.len();
        upstream.answered(1);
        assert_eq!((upstream.acked, upstream.out.len()), (0, big.len() + 3));
        assert_eq!(upstream.waiting[0].seq, 8);
        upstream.answered(1);
        assert_eq!((upstream.acked, upstream.sent), (0, 0));
        assert_eq!(upstream.out, b"xyz");
        upstream.sent = 3;
        upstream.answered(1);
        assert!(upstream.out.is_empty() && upstream.waiting.is_empty());
    }

    #[test]
    fn what_is_not_answered_of_a_run_is_found_from_where_it_was_left() {
        let purpose = Purpose::Shared;
        let stats = Arc::default();
        let mut upstream = Upstream::<TestShell>::new((), 0, 0, Proto::Resp2, purpose, 0, stats);
        let calls = [
            &b"*1\r\n$1\r\na\r\n"[..],
            b"*2\r\n$2\r\n\r\n\r\n$0\r\n\r\n",
            b"*1\r\n$1\r\nc\r\n",
        ];
        for _ in 0..2 {
            let bytes = calls.concat();
            upstream.push_own(run(3, bytes.len()), &bytes);
        }
        for _ in 0..2 {
            assert_eq!(upstream.front_unanswered(), Some(&calls.concat()[..]));
            upstream.answered(2);
            assert_eq!(upstream.front_unanswered(), Some(calls[2]));
            assert_eq!(request_len(calls[2]), Some(calls[2].len()));
            upstream.answered(1);
        }
        assert_eq!(upstream.front_unanswered(), None);
    }

    #[test]
    fn a_run_of_several_commands_knows_which_is_next() {
        let purpose = Purpose::Shared;
        let stats = Arc::default();
        let mut upstream = Upstream::<TestShell>::new((), 0, 0, Proto::Resp2, purpose, 0, stats);
        for (calls, commands) in [(5, MIXED), (2, 9), (3, MIXED)] {
            upstream.push_own(run(calls, 1).of(commands, 0), b"x");
        }
        upstream.mix.extend([(1, 2), (2, 3), (3, 1), (4, 2)]);
        let mut seen = Vec::new();
        while let Some(command) = upstream.front_command() {
            seen.push(command);
            upstream.answered(1);
        }
        assert_eq!(seen, [1, 1, 2, 2, 2, 9, 9, 3, 4, 4]);
        assert!(upstream.mix.is_empty());
    }
}
