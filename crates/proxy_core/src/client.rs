//! A client's connection: its input, its output, and the order of its replies. Must not know upstreams or routes.
//!
//! Every request has a number, and replies leave in the order of the numbers. The next reply in that order goes straight
//! into the output. An early one, from a quicker server, is kept in [`EarlyReplies`] until then.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use redline_acl::User;
use redline_resp::{Proto, RequestDecoder};

use crate::ahead::Ahead;
use crate::cache::Asked;
use crate::client_info::ClientInfo;
use crate::leases::Session;
use crate::rate_limit::{Booking, Rates};
use crate::shell::Shell;
use crate::slab::Ref;
use crate::subscriptions::Subscribed;

/// A client.
pub struct Client<S: Shell> {
    /// Its socket.
    pub socket: S::ClientSocket,
    /// Its number in CLIENT LIST.
    pub id: u64,
    /// State of the client that other workers can see.
    pub info: Arc<ClientInfo>,
    /// Decoder state of an incomplete request.
    pub decoder: RequestDecoder,
    /// Bytes that were read and not decoded.
    pub query: Vec<u8>,
    /// Bytes that were read behind those, while the client does not read its replies.
    pub ahead: Ahead,
    /// Replies that were not sent.
    pub out: Vec<u8>,
    /// Number of bytes of `out` that were sent.
    pub sent: usize,
    /// The number of the next request.
    pub next: u32,
    /// The number of the request whose reply is next.
    pub head: u32,
    /// The number of the last request that may have written; kept if reads are spread.
    pub wrote: u32,
    /// Replies that arrived before their turn.
    pub early: Option<Box<EarlyReplies>>,
    /// Bytes of gathered replies that are incomplete.
    pub gathered: usize,
    /// The number of its pool: that of its listener.
    pub pool: u16,
    /// Its database.
    pub db: u16,
    /// Its protocol.
    pub proto: Proto,
    /// Bytes may be waiting in the socket.
    pub readable: bool,
    /// The peer will send no more; what it sent may still be unread.
    pub peer_closed: bool,
    /// It has sent out-of-band data: a short read need not have emptied the socket.
    pub urgent: bool,
    /// The peer will send no more, and everything was read.
    pub eof: bool,
    /// The connection ends once all due replies are sent.
    pub closing: bool,
    /// It is in the list of clients to serve.
    pub queued: bool,
    /// It is in the list of clients to write to.
    pub dirty: bool,
    /// The poller reports when the socket is writable.
    pub wants_room: bool,
    /// The tick before which bytes last arrived.
    pub heard_at_tick: u32,
    /// The reason why nothing more is decoded.
    pub pause: Pause,
    /// Set if earlier requests take another route than the next ones: see [`Client::settle`].
    pub must_settle: bool,
    /// Number of requests, or parts of them, that will be sent again.
    pub put_off: u32,
    /// The mode that CLIENT REPLY set.
    pub reply_mode: ReplyMode,
    /// The state of the client that lasts over several requests: a transaction, a blocking call, a large request.
    pub session: Session,
    /// Its subscriptions.
    pub subscribed: Option<Box<Subscribed>>,
    /// It is subscribed and speaks RESP2: few commands are allowed.
    pub restricted: bool,
    /// A reply is being sent in parts: nothing may be sent between them.
    pub mid_reply: bool,
    /// Messages that were pushed meanwhile.
    pub pushed: Vec<u8>,
    /// A connection to a server that is not read until this client has read more.
    pub feeds: Option<Ref>,
    /// The authenticated user; none: it has not authenticated, or need not.
    pub user: Option<Arc<User>>,
    /// Its user's rights are limited: see `access`.
    pub has_limits: bool,
    /// Its calls are checked one by one, for its limits or for `admission`.
    pub is_watched: bool,
    /// The rate limits of its user.
    pub rates: Option<Arc<Rates>>,
    /// The tokens that its next call has taken and waits for.
    pub booking: Option<Booking>,
    /// Time since which its next call waits for unused capacity: milliseconds.
    pub waits_since_ms: Option<u64>,
    /// The injected fault for which its next call has waited.
    pub waited_for: Option<u16>,
    /// Its next call was admitted before, and had to wait for something else.
    pub is_admitted: bool,
    /// Names set by CLIENT SETNAME and CLIENT SETINFO.
    pub about: Option<Box<About>>,
    /// The keys that it waits for.
    pub asked: Asked,
    /// It called MONITOR.
    pub monitors: bool,
    /// The command that it called last.
    pub last: Option<redline_spec::CommandId>,
}

/// The reason why a client's requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// They do not wait.
    No,
    /// The client does not read its replies.
    Output,
    /// Too much is queued for a server.
    Upstream,
    /// Earlier requests must be answered first.
    Order,
    /// The server must answer MULTI first.
    Multi,
    /// A time must come (see `Clients::delay`).
    Time,
}

/// The mode that CLIENT REPLY sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    /// Replies are sent.
    On,
    /// No replies.
    Off,
    /// The reply of the next request is not sent; then on again.
    SkipNext,
    /// The reply of this request is not sent.
    Skipping,
}

/// Names set by CLIENT SETNAME and CLIENT SETINFO.
#[derive(Default)]
pub struct About {
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub lib_ver: Vec<u8>,
}

/// Replies that arrived before their turn: their bytes in order of arrival, and an index.
#[derive(Default)]
pub struct EarlyReplies {
    bytes: Vec<u8>,
    /// In the order of their numbers.
    replies: VecDeque<EarlyReply>,
    /// Bytes of replies that were not delivered.
    alive: usize,
}

#[derive(Clone, Copy)]
struct EarlyReply {
    first: u32,
    count: u32,
    start: usize,
    len: usize,
}

/// Largest output buffer that is kept for other clients: bytes.
pub const OUT_BYTES_KEPT_MAX: usize = 64 * 1024;

impl<S: Shell> Client<S> {
    /// Publishes its last command for CLIENT LIST.
    pub fn show_last(&self) {
        if let Some(id) = self.last {
            self.info.last.store(id as u16, Ordering::Relaxed);
        }
    }

    /// Returns a new client.
    pub fn new(socket: S::ClientSocket, id: u64, info: Arc<ClientInfo>) -> Client<S> {
        Client {
            socket,
            id,
            info,
            decoder: RequestDecoder::new(),
            query: Vec::new(),
            ahead: Ahead::default(),
            out: Vec::new(),
            sent: 0,
            next: 0,
            head: 0,
            wrote: u32::MAX,
            early: None,
            gathered: 0,
            pool: 0,
            db: 0,
            proto: Proto::Resp2,
            readable: true,
            peer_closed: false,
            urgent: false,
            eof: false,
            closing: false,
            queued: false,
            dirty: false,
            wants_room: false,
            heard_at_tick: 0,
            pause: Pause::No,
            must_settle: false,
            put_off: 0,
            reply_mode: ReplyMode::On,
            session: Session::Shared,
            subscribed: None,
            restricted: false,
            mid_reply: false,
            pushed: Vec::new(),
            feeds: None,
            user: None,
            has_limits: false,
            is_watched: false,
            rates: None,
            booking: None,
            waits_since_ms: None,
            waited_for: None,
            is_admitted: false,
            about: None,
            asked: Asked::default(),
            monitors: false,
            last: None,
        }
    }

    /// Returns the number of requests that are not answered.
    #[inline]
    pub fn pending(&self) -> u32 {
        self.next.wrapping_sub(self.head)
    }

    /// Returns true if a request that may have written is not answered: the client's next reads have to see that write.
    #[inline]
    pub fn has_unanswered_write(&self) -> bool {
        self.wrote.wrapping_sub(self.head) < self.pending()
    }

    /// Returns the number of requests without any reply, not even an early one.
    pub fn under_way(&self) -> u32 {
        let early = self.early.as_ref();
        let early = early.map_or(0, |early| {
            early.replies.iter().map(|reply| reply.count).sum()
        });
        self.pending().wrapping_sub(early)
    }

    /// Numbers a request.
    #[inline]
    pub fn number(&mut self) -> u32 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        number
    }

    /// Decodes nothing more until all requests are answered, whatever else the client waits for, since its earlier
    /// requests take another route than its next ones.
    pub fn settle(&mut self) {
        self.must_settle = true;
        if self.pause == Pause::No {
            self.pause = Pause::Order;
        }
    }

    /// Ends the pause, since the awaited event has occurred; returns true if the client goes on.
    pub fn go_on(&mut self) -> bool {
        self.must_settle &= self.pending() > 0;
        self.pause = match self.must_settle {
            true => Pause::Order,
            false => Pause::No,
        };
        !self.must_settle
    }

    /// Returns true if it is in a call that may wait for ever.
    pub fn waits_in_vain(&self) -> bool {
        let may_wait = self.last.is_some_and(|id| {
            redline_spec::gate(id)
                .flags
                .has(redline_spec::Flags::BLOCKING)
        });
        let is_waiting = match &self.session {
            Session::Leaving(_) => true,
            Session::Transaction(transaction) => transaction.waits(),
            _ => false,
        };
        may_wait && is_waiting && self.pending() > 0
    }

    /// Returns the time-out of the blocking call that it is in: milliseconds; none: no time-out.
    pub fn waits_ms(&self) -> Option<u64> {
        match &self.session {
            Session::Leaving(lease) => lease.waits_ms(),
            Session::Transaction(transaction) => transaction.waits_ms(),
            _ => None,
        }
    }

    /// Returns true if a peer that has closed its side needs nothing more: all is answered, or it is in a call that may
    /// wait for ever, or its last request is incomplete.
    pub fn is_forsaken(&self) -> bool {
        match self.session {
            Session::Leaving(_) | Session::Transaction(_) if self.waits_in_vain() => true,
            Session::Passing(_) => self.pause == Pause::No && !self.queued,
            _ => self.pending() == 0 && self.pause == Pause::No && !self.queued,
        }
    }

    /// Returns the number of bytes that wait to be sent.
    #[inline]
    pub fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Returns the number of bytes held for it: output, early replies, and parts of replies.
    pub fn owed(&self) -> usize {
        let early = self.early.as_ref().map_or(0, |early| early.alive);
        self.unsent() + self.pushed.len() + early + self.gathered
    }

    /// Takes the replies of `count` requests from number `first` on.
    #[inline]
    pub fn deliver(&mut self, first: u32, count: u32, bytes: &[u8]) {
        if first != self.head {
            return self.keep_early(first, count, bytes);
        }
        self.out.extend_from_slice(bytes);
        self.head = self.head.wrapping_add(count);
        if self.mid_reply {
            self.mid_reply = false;
            self.out.append(&mut self.pushed);
        }
        if self.early.is_some() {
            self.release();
        }
    }

    /// Takes a part of the reply whose turn it is; the rest follows before anything else does.
    pub fn deliver_part(&mut self, bytes: &[u8]) {
        self.mid_reply = true;
        self.out.extend_from_slice(bytes);
    }

    /// Takes output that is neither a reply nor a message: lines of MONITOR.
    pub fn tell(&mut self, lines: &[u8]) {
        match self.mid_reply {
            true => self.pushed.extend_from_slice(lines),
            false => self.out.extend_from_slice(lines),
        }
    }

    /// Takes a message, which was encoded for RESP2.
    pub fn push(&mut self, frame: &[u8]) {
        let out = match self.mid_reply {
            true => &mut self.pushed,
            false => &mut self.out,
        };
        let start = out.len();
        out.extend_from_slice(frame);
        if self.proto == Proto::Resp3 {
            out[start] = b'>';
        }
    }

    fn keep_early(&mut self, first: u32, count: u32, bytes: &[u8]) {
        let early = self.early.get_or_insert_default();
        let reply = EarlyReply {
            first,
            count,
            start: early.bytes.len(),
            len: bytes.len(),
        };
        early.bytes.extend_from_slice(bytes);
        early.alive += bytes.len();
        let distance = |reply: &EarlyReply| reply.first.wrapping_sub(self.head);
        let at = match early.replies.back() {
            Some(last) if distance(last) > distance(&reply) => early
                .replies
                .partition_point(|other| distance(other) < distance(&reply)),
            _ => early.replies.len(),
        };
        early.replies.insert(at, reply);
    }

    fn release(&mut self) {
        let Some(early) = &mut self.early else { return };
        while let Some(reply) = early.replies.front()
            && reply.first == self.head
        {
            self.out
                .extend_from_slice(&early.bytes[reply.start..reply.start + reply.len]);
            self.head = self.head.wrapping_add(reply.count);
            early.alive -= reply.len;
            early.replies.pop_front();
        }
        early.tidy();
    }

    /// Drops bytes that were sent.
    #[inline]
    pub fn advance(&mut self, written: usize) {
        self.sent += written;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        } else if self.sent > self.out.len() / 2 {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }
}

impl EarlyReplies {
    /// Releases the memory of delivered replies.
    fn tidy(&mut self) {
        if self.replies.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(OUT_BYTES_KEPT_MAX);
            return;
        }
        if self.bytes.len() > OUT_BYTES_KEPT_MAX && self.alive < self.bytes.len() / 2 {
            let mut kept = Vec::with_capacity(self.alive);
            for reply in &mut self.replies {
                let start = kept.len();
                kept.extend_from_slice(&self.bytes[reply.start..reply.start + reply.len]);
                reply.start = start;
            }
            self.bytes = kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::client;

    #[test]
    fn replies_leave_in_the_order_of_the_requests_whatever_the_order_they_come_in() {
        for start in [0, u32::MAX - 3] {
            let mut client = client();
            (client.next, client.head) = (start, start);
            let numbers: Vec<u32> = (0..8).map(|_| client.number()).collect();
            client.deliver(numbers[5], 1, b"f");
            client.deliver(numbers[2], 2, b"cd");
            client.deliver(numbers[6], 1, b"g");
            assert_eq!(client.unsent(), 0);
            assert_eq!(client.owed(), 4);
            client.deliver(numbers[0], 1, b"a");
            assert_eq!(client.out, b"a");
            client.deliver(numbers[1], 1, b"b");
            assert_eq!(client.out, b"abcd");
            client.deliver(numbers[7], 1, b"h");
            client.deliver(numbers[4], 1, b"e");
            assert_eq!(client.out, b"abcdefgh");
            assert_eq!((client.pending(), client.owed()), (0, 8));
        }
    }

    #[test]
    fn who_has_to_settle_waits_for_all_replies_whatever_else_it_waited_for() {
        let mut client = client();
        let (first, second) = (client.number(), client.number());
        client.pause = Pause::Output;
        client.settle();
        assert_eq!(client.pause, Pause::Output);
        client.deliver(first, 1, b"a");
        assert!(!client.go_on() && client.pause == Pause::Order);
        client.deliver(second, 1, b"b");
        assert!(client.go_on() && client.pause == Pause::No);
        let third = client.number();
        client.settle();
        assert_eq!(client.pause, Pause::Order);
        client.deliver(third, 1, b"c");
        assert!(client.go_on() && !client.must_settle);
    }

    #[test]
    fn replies_that_wait_long_do_not_pile_up() {
        let mut client = client();
        let piece = vec![b'x'; 1000];
        let slow = client.number();
        for _ in 0..1000 {
            client.number();
        }
        let last = client.number();
        client.deliver(last, 1, b"l");
        client.deliver(slow, 1, b"s");
        for number in 1..=1000 {
            client.deliver(number + 1 - 1, 1, &piece);
            let len = client.out.len();
            client.advance(len);
        }
        assert_eq!(client.pending(), 0);
        assert_eq!(client.owed(), 0);
    }
}
