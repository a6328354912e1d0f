//! A connection to a server: what is to be sent, what was sent and is not answered, and for whom. Must not know clients
//! beyond their places, nor routes.
//!
//! The bytes of a request stay until its reply has come: should the server say that somebody else has the key, or the
//! connection break, they can be sent again. The queue of who waits has one entry for each run of requests that one client
//! sent in a row, not for each request.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use redline_net::{Pipe, Stream};
use redline_resp::{Framer, Proto};

use crate::cache::{Cache, Marks};
use crate::class::NO_COMMAND;
use crate::observability::{MIXED, NodeStats};
use crate::request::request_len;
use crate::route::NodeId;
use crate::slab::Ref;

/// The destination of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It goes to the client as it is.
    Client,
    /// It answers a request of a client that wants no reply.
    Silent,
    /// It is a part of a reply: of the gathering at the place `to`, part number `seq`.
    Part,
    /// It answers what the proxy itself asked when the connection was made: an error there ends the connection.
    Setup,
    /// It answers a MULTI of the client `to`, which was told already that all is well: nothing follows before it is here.
    Multi,
    /// Nobody wants it (of ASKING, of calls that the client was answered already).
    Unwanted,
}

impl Kind {
    /// Returns true if it answers a client's request, and not a request of the proxy itself or one that was answered before.
    pub fn is_wanted(self) -> bool {
        matches!(self, Kind::Client | Kind::Silent | Kind::Part)
    }
}

/// How often a request was sent before; and whether a redirect was followed that may have been of its caller's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tries(u8);

impl Tries {
    const LED: u8 = 0x80;

    /// How often it was sent before.
    pub fn count(self) -> u8 {
        self.0 & !Tries::LED
    }

    /// The same after so many more.
    #[must_use]
    pub fn and(self, more: u8) -> Tries {
        Tries(self.0 & Tries::LED | (self.count() + more).min(Tries::LED - 1))
    }

    /// The same once such a redirect is followed.
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
    /// For whom: a client, or a gathering.
    pub to: Ref,
    /// The number of the first request of the run, as the client counts them; of a gathering, the part.
    pub seq: u32,
    /// Bytes of the run, in `Upstream::out`.
    pub bytes: u32,
    /// When it was queued: milliseconds of the worker's clock, in their lowest bits.
    pub since_ms: u32,
    /// How many requests are not answered.
    pub count: u16,
    /// How many of the run were answered.
    pub answered: u16,
    /// The destination of the replies.
    pub kind: Kind,
    /// How often the request was sent before, and whether anybody's words have led it on.
    pub tries: Tries,
    /// Which command, as a number; [`MIXED`]: several, which [`Upstream::mix`] has; or [`NO_COMMAND`].
    pub command: u16,
    /// When it came in: microseconds of the worker's clock, in their lowest bits.
    pub since_us: u32,
}

const _: () = assert!(size_of::<Waiting>() <= 32, "two entries in a cache line");

impl Waiting {
    /// For one request of these bytes, queued at this time of the worker's clock in milliseconds.
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

    /// The same as a call of this command, which came in at this time in microseconds.
    #[inline]
    pub fn of(self, command: u16, now_us: u64) -> Waiting {
        Waiting {
            command,
            since_us: now_us as u32,
            ..self
        }
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The attempt has not ended.
    Connecting,
    /// The server has not said yet that it takes us: only what introduces us is sent.
    Greeting,
    /// It stands.
    Open,
}

/// Why the connection exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The requests of all clients of a worker.
    Shared,
    /// One client's, or in the pool for the next one.
    Private,
    /// The subscriptions of clients.
    Subscriptions,
    /// Messages of a server about keys that have changed: see `cache`.
    Tracking,
}

/// A connection to a server.
pub struct Upstream {
    /// Its socket.
    pub stream: Stream,
    /// Which server.
    pub node: NodeId,
    /// Which database.
    pub db: u16,
    /// Which protocol.
    pub proto: Proto,
    /// Why it exists.
    pub purpose: Purpose,
    /// How far it is.
    pub state: State,
    /// When it was begun.
    pub since_ms: u64,
    /// Requests: answered ones, sent ones, those to send.
    pub out: Vec<u8>,
    /// Up to here they are answered.
    pub acked: usize,
    /// Up to here they are sent.
    pub sent: usize,
    /// Runs of requests that wait for replies, in the order of the requests.
    pub waiting: VecDeque<Waiting>,
    /// A reply that is not whole.
    pub partial: Vec<u8>,
    /// Where replies end.
    pub framer: Framer,
    /// The front reply is passed on in parts: its first bytes are gone.
    pub streaming: bool,
    /// It is in the list of upstreams to write to, or of those that linger.
    pub dirty: bool,
    /// In so many turns what is queued was left to wait for more.
    pub lingers: u8,
    /// It is in the list of upstreams to read.
    pub queued: bool,
    /// The peer has closed: read until the end is seen.
    pub closed: bool,
    /// The poller tells when there is room to write.
    pub wants_room: bool,
    /// Clients that wait until less is queued.
    pub held_back: Vec<Ref>,
    /// Bytes of what introduces us.
    pub greeting: usize,
    /// How many requests of the front run are known to take how many bytes.
    walked: (u16, usize),
    /// Nothing new is sent: when everything is answered it is closed, or put by.
    pub retired: bool,
    /// A large request goes through: what was sent is not kept.
    pub passes: bool,
    /// It was retired for a long reply only: once it is answered, it is as good as a new one.
    pub may_return: bool,
    /// It was made, or taken, for one call that must not wait behind others, and ends with it.
    pub is_lone: bool,
    /// It is not read until the client that it has a long reply for has read more.
    pub rests: bool,
    /// Requests that came back from it and will be sent again.
    pub retries: u32,
    /// The server has begun a transaction on it: it may be told the calls of the next one together with its MULTI.
    pub takes_multi: bool,
    /// Scripts that were given to it since they were last flushed (see `Scripts::epoch`).
    pub scripts: (u64, HashSet<Vec<u8>>),
    /// Since when that client has taken nothing, in milliseconds, and how much it had to take then.
    pub rested: Option<(u64, usize)>,
    /// The long bulk that is being passed on goes through this.
    pub pipe: Option<Pipe>,
    /// Of a private one: whose it is.
    pub owner: Option<Ref>,
    /// The commands of the runs that have several, in their order, and how many of each in a row.
    pub mix: VecDeque<(u16, u16)>,
    /// Bytes of the front reply that are passed on.
    pub passed: usize,
    /// Counters of the server.
    pub stats: Arc<NodeStats>,
    /// Requests on their way that concern the cache of its pool.
    pub marks: Option<Box<Marks>>,
}

/// Number of turns, at most, for which queued requests wait for more.
const LINGERS_MAX: u8 = 4;
/// So much that is queued is worth a write of its own.
const LINGERING_BYTES_MAX: usize = 16 * 1024;
/// Capacity of an empty buffer that is kept at most.
const BYTES_KEPT_MAX: usize = 256 * 1024;
/// Answered requests are dropped from the front in steps of at least this size.
const DROP_BYTES_MIN: usize = 64 * 1024;

impl Upstream {
    /// A connection whose attempt was begun.
    pub fn new(
        stream: Stream,
        node: NodeId,
        db: u16,
        proto: Proto,
        purpose: Purpose,
        now_ms: u64,
        stats: Arc<NodeStats>,
    ) -> Upstream {
        Upstream {
            stream,
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
            pipe: None,
            owner: None,
            mix: VecDeque::new(),
            passed: 0,
            stats,
            marks: None,
        }
    }

    /// Queues a run of `waiting.count` requests, of which `cache` has to know.
    #[inline]
    pub fn push(&mut self, waiting: Waiting, bytes: &[u8], cache: &mut Cache) {
        if let Some(marks) = &mut self.marks {
            cache.sent(marks, (self.node, self.db), waiting.count, bytes);
        }
        self.push_own(waiting, bytes);
    }

    /// Queues a run of `waiting.count` requests that concern no key, so the cache need not know of them.
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

    /// Returns true if no client but the one whose reply is next waits for anything here, now or later.
    pub fn is_for_one_alone(&self) -> bool {
        self.owner.is_some() || self.retired && self.waiting.len() == 1
    }

    /// Returns the bytes of the front run that are not answered. However often it is asked for, no request is walked over
    /// twice.
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

    /// The command of the front call.
    pub fn front_command(&self) -> Option<u16> {
        match self.waiting.front()?.command {
            MIXED => self.mix.front().map(|(command, _)| *command),
            command => Some(command),
        }
    }

    /// The front request has got on a little: how long it takes counts from now, in milliseconds.
    pub fn goes_on(&mut self, now_ms: u64) {
        if let Some(front) = self.waiting.front_mut() {
            front.since_ms = now_ms as u32;
        }
    }

    /// Forgets what was sent, if it will never be sent again.
    pub fn forget_sent(&mut self) {
        if !self.passes || self.state != State::Open || self.sent == 0 {
            return;
        }
        // Nothing but one large request is on this connection, and its entry has no bytes.
        self.out.drain(..self.sent);
        (self.sent, self.acked) = (0, 0);
    }

    /// Bytes that were not sent.
    #[inline]
    pub fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Returns true if requests are on their way that the server will have to answer before any new one.
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.sent > self.acked
    }

    /// Returns true if queued requests may wait for more, so that they leave in one write and arrive in one read: the server
    /// has something to do on this connection meanwhile. Counts the turns.
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

    /// Bytes that were not answered, sent or not.
    #[inline]
    pub fn unanswered(&self) -> usize {
        self.out.len() - self.acked
    }

    /// Up to where bytes may be sent now.
    #[inline]
    pub fn may_send(&self) -> usize {
        match self.state {
            State::Connecting => self.sent,
            State::Greeting => self.greeting.max(self.sent),
            State::Open => self.out.len(),
        }
    }

    /// The front run has got `count` replies.
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

/// So many calls of the front run are answered.
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
        let (stream, _) = Stream::pair().unwrap();
        let mut upstream = Upstream::new(
            stream,
            0,
            0,
            Proto::Resp2,
            Purpose::Shared,
            0,
            Arc::default(),
        );
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
        let (stream, _) = Stream::pair().unwrap();
        let mut upstream = Upstream::new(
            stream,
            0,
            0,
            Proto::Resp2,
            Purpose::Shared,
            0,
            Arc::default(),
        );
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
        let (stream, _) = Stream::pair().unwrap();
        let purpose = Purpose::Shared;
        let stats = Arc::default();
        let mut upstream = Upstream::new(stream, 0, 0, Proto::Resp2, purpose, 0, stats);
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
        let (stream, _) = Stream::pair().unwrap();
        let purpose = Purpose::Shared;
        let stats = Arc::default();
        let mut upstream = Upstream::new(stream, 0, 0, Proto::Resp2, purpose, 0, stats);
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
