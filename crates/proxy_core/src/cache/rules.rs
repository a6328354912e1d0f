//! When a value may be cached, and when it may be used. Must not know connections, clients or the servers of keys.
//!
//! Servers report changed keys over a separate connection ([`PoolCache::invalidated`]), so a report may arrive before or
//! after the replies that it concerns. A client must never see an older value than it has seen. So:
//!
//! - Every GET gets a *ticket*, and a key's *floor* is the ticket of the next GET at the time of the last event of the
//!   key: only a reply to a later GET is cached.
//! - While a call is in flight that may change a key, or return a newer value than the cached one, the key's value is
//!   neither used nor cached; its reply is an event of the key.
//! - Replies arrive over several connections, and the later one may be the older. So one is cached only if the last
//!   reply was the same, to an earlier GET; a different one is an event. As an effect, keys that are read once are not
//!   cached.
//!
//! - A client that has sent a GET to a server is not answered from the cache before that reply ([`Asked`]): the cached
//!   value would come later, and may be older.
//!
//! Keys share their floors with others of the same hash: that costs replies which could have been cached, never correctness.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use redline_resp::Args;

use super::Caching;
use super::calls::{Call, meaning};
use super::entries::{Entries, Entry, Fresh};
use crate::command_names::ForeignByName;
use crate::route::NodeId;

/// Largest reply that is cached: bytes. These arrive in one piece, see `replies`.
pub(super) const REPLY_BYTES_MAX: usize = 32 * 1024;
/// Largest number of keys of one transaction that are tracked one by one.
const QUEUED_MAX: usize = 4096;
/// Memory per floor, and the smallest and largest number of floors.
const BYTES_PER_FLOOR: usize = 512;
const FLOORS: (usize, usize) = (1 << 10, 1 << 16);

/// Requests in flight on a connection to a server of a pool with a cache.
#[derive(Debug)]
pub struct Marks {
    /// The pool's number.
    pub(super) pool: u16,
    /// Number of requests that were sent, and that were answered, since the connection began.
    pub(super) pushed: u64,
    pub(super) done: u64,
    queue: VecDeque<Mark>,
    /// After MULTI: the effects of EXEC.
    queued: Option<Vec<Queued>>,
}

#[derive(Debug)]
struct Mark {
    /// The number of the request.
    number: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Read(Question),
    /// Place of the key's floor.
    Key(u32),
    Everything,
}

#[derive(Debug)]
struct Question {
    hash: u64,
    ticket: u64,
    asked_ms: u64,
    node: NodeId,
    db: u16,
    key: Box<[u8]>,
}

#[derive(Debug)]
enum Queued {
    Key(u64, Box<[u8]>),
    Everything,
}

impl Marks {
    /// Returns the marks of a connection to a server of this pool.
    pub fn new(pool: u16) -> Marks {
        Marks {
            pool,
            pushed: 0,
            done: 0,
            queue: VecDeque::new(),
            queued: None,
        }
    }

    /// Counts requests that were sent.
    #[inline]
    pub fn push(&mut self, count: u16) {
        self.pushed += u64::from(count);
    }

    /// Counts requests that were answered.
    #[inline]
    pub fn pop(&mut self, count: u16) {
        self.done += u64::from(count);
    }

    fn mark(&mut self, number: u64, what: What) {
        self.queue.push_back(Mark { number, what });
    }
}

/// The keys of a client's unanswered GETs: its later ones must not get older values. False positives occur; the latest
/// keys are kept apart, so that a client that always waits for something does not get them for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    old: [u64; 4],
    /// Keys of requests after `last_of_old`.
    new: [u64; 4],
    /// The numbers of the last such requests.
    last_of_old: u32,
    last: u32,
}

impl Asked {
    /// Returns true if a key with this hash may be among them, if the requests from `head` to before `next` are not
    /// answered. Request `next` itself may be decoded again.
    #[inline]
    pub fn has(&mut self, hash: u64, head: u32, next: u32) -> bool {
        let is_answered = |number: u32| number.wrapping_sub(head) > next.wrapping_sub(head);
        if is_answered(self.last) {
            (self.old, self.new) = ([0; 4], [0; 4]);
            return false;
        }
        if is_answered(self.last_of_old) {
            (self.old, self.last_of_old) = (self.new, self.last);
            self.new = [0; 4];
        }
        let (word, bit) = Asked::place(hash);
        (self.old[word] | self.new[word]) & bit != 0
    }

    /// Adds the key with this hash of request `number`.
    pub fn add(&mut self, hash: u64, number: u32) {
        let (word, bit) = Asked::place(hash);
        self.new[word] |= bit;
        self.last = number;
    }

    fn place(hash: u64) -> (usize, u64) {
        // Other bits than those that choose a floor.
        let number = hash >> 56;
        ((number >> 6) as usize, 1 << (number & 63))
    }
}

/// State of all keys with one hash.
#[derive(Clone, Copy, Debug, Default)]
struct Floor {
    /// The first ticket whose reply may be cached.
    ticket: u64,
    /// The hash of the last reply and of its key.
    said: u64,
    /// Number of calls in flight that may change such a key.
    under_way: u32,
}

/// Invalidation state of a server: whether it reports changed keys.
#[derive(Clone, Copy, Debug, Default)]
struct Server {
    is_open: bool,
    /// The first ticket since then.
    since: u64,
}

/// Counters of a pool's cache.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub hits: u64,
    pub misses: u64,
    pub invalidated: u64,
}

/// The cache of a pool.
pub(super) struct PoolCache {
    prefixes: Vec<Box<[u8]>>,
    max_age_ms: u64,
    pub entries: Entries,
    hasher: RandomState,
    floors: Box<[Floor]>,
    /// The floor of all keys.
    floor: u64,
    /// Number of calls in flight that may change any key.
    under_way: u32,
    next_ticket: u64,
    servers: Vec<Server>,
    pub counts: Counts,
}

impl PoolCache {
    /// Returns an empty cache with `bytes_max` for entries.
    pub fn new(caching: &Caching, bytes_max: usize) -> PoolCache {
        let floors = (bytes_max / BYTES_PER_FLOOR).next_power_of_two();
        let floors = floors.clamp(FLOORS.0, FLOORS.1);
        PoolCache {
            prefixes: caching
                .prefixes
                .iter()
                .map(|it| it.as_bytes().into())
                .collect(),
            max_age_ms: caching.max_age_ms,
            entries: Entries::new(bytes_max),
            hasher: RandomState::new(),
            floors: vec![Floor::default(); floors].into(),
            floor: 0,
            under_way: 0,
            next_ticket: 1,
            servers: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Returns true if such keys are cached.
    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }

    fn place(&self, hash: u64) -> usize {
        hash as usize & (self.floors.len() - 1)
    }

    fn is_alive(&self, entry: &Entry, now_ms: u64) -> bool {
        let server = self.server(entry.node);
        server.is_open
            && entry.ticket >= self.floor.max(server.since)
            && now_ms.saturating_sub(entry.asked_ms) < self.max_age_ms
    }

    fn server(&self, node: NodeId) -> Server {
        let server = self.servers.get(usize::from(node));
        server.copied().unwrap_or_default()
    }

    /// Returns a key's hash.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Returns the place of the value of a covered key, if it may be used.
    #[inline]
    pub fn find(&mut self, db: u16, hash: u64, key: &[u8], now_ms: u64) -> Option<u32> {
        if self.under_way > 0 {
            return None;
        }
        let at = self.entries.find(hash, db, key)?;
        if !self
            .entries
            .at(at)
            .is_some_and(|it| self.is_alive(it, now_ms))
        {
            self.entries.remove(at);
            return None;
        }
        self.entries.at_mut(at)?.was_used = true;
        Some(at)
    }

    /// Tracks a request, number `number` of its connection.
    pub fn sent(
        &mut self,
        marks: &mut Marks,
        number: u64,
        (node, db): (NodeId, u16),
        args: Args<'_>,
        foreign: [Option<&ForeignByName>; 2],
        now_ms: u64,
    ) {
        let call = meaning(args, foreign);
        if let Some(queued) = &mut marks.queued {
            let keys = match call {
                Call::Exec => {
                    for queued in marks.queued.take().unwrap_or_default() {
                        let what = match queued {
                            Queued::Key(hash, key) => self.begin(hash, &key),
                            Queued::Everything => self.begin_everything(),
                        };
                        marks.mark(number, what);
                    }
                    return;
                }
                Call::Discard => {
                    marks.queued = None;
                    return;
                }
                Call::Get(key) => vec![key],
                Call::Keys(keys) => keys,
                Call::Everything => return queued.push(Queued::Everything),
                Call::Multi | Call::Nothing => return,
            };
            for key in keys.into_iter().filter(|key| self.covers(key)) {
                queued.push(Queued::Key(self.hasher.hash_one(key), key.into()));
            }
            if queued.len() > QUEUED_MAX {
                *queued = vec![Queued::Everything];
            }
            return;
        }
        match call {
            Call::Get(key) if self.covers(key) => {
                self.counts.misses += 1;
                let ticket = self.next_ticket;
                self.next_ticket += 1;
                let question = Question {
                    hash: self.hasher.hash_one(key),
                    ticket,
                    asked_ms: now_ms,
                    node,
                    db,
                    key: key.into(),
                };
                marks.mark(number, What::Read(question));
            }
            Call::Keys(keys) => keys
                .into_iter()
                .for_each(|key| self.sent_key(marks, number, key)),
            Call::Everything | Call::Exec => {
                let what = self.begin_everything();
                marks.mark(number, what);
            }
            Call::Multi => marks.queued = Some(Vec::new()),
            Call::Get(_) | Call::Nothing | Call::Discard => {}
        }
    }

    /// Tracks a call that may change this key.
    pub fn sent_key(&mut self, marks: &mut Marks, number: u64, key: &[u8]) {
        if self.covers(key) {
            let what = self.begin(self.hasher.hash_one(key), key);
            marks.mark(number, what);
        }
    }

    /// Tracks a call that may change any key.
    pub fn sent_anything(&mut self, marks: &mut Marks, number: u64) {
        let what = self.begin_everything();
        marks.mark(number, what);
    }

    fn begin(&mut self, hash: u64, key: &[u8]) -> What {
        self.entries.remove_key(hash, key);
        let place = self.place(hash);
        self.floors[place].under_way += 1;
        What::Key(place as u32)
    }

    fn begin_everything(&mut self) -> What {
        self.under_way += 1;
        self.forget();
        What::Everything
    }

    /// Handles the reply to request `number`; none if it is lost, or was not checked.
    pub fn answered(&mut self, marks: &mut Marks, number: u64, reply: Option<&[u8]>, now_ms: u64) {
        while let Some(front) = marks.queue.front()
            && front.number <= number
            && let Some(mark) = marks.queue.pop_front()
        {
            match mark.what {
                What::Read(question) => {
                    let reply = reply.filter(|_| mark.number == number);
                    self.heard(question, reply, now_ms);
                }
                What::Key(place) => {
                    let floor = &mut self.floors[place as usize];
                    floor.under_way = floor.under_way.saturating_sub(1);
                    floor.ticket = self.next_ticket;
                }
                What::Everything => {
                    self.under_way = self.under_way.saturating_sub(1);
                    self.forget();
                }
            }
        }
    }

    /// Handles the loss of a connection.
    pub fn gone(&mut self, marks: &mut Marks, now_ms: u64) {
        self.answered(marks, u64::MAX, None, now_ms);
    }

    fn heard(&mut self, question: Question, reply: Option<&[u8]>, now_ms: u64) {
        let Question { hash, db, node, .. } = question;
        let value = reply.and_then(value_of);
        let found = self.entries.find(hash, db, &question.key);
        if let Some(at) = found {
            let entry = self.entries.at(at).filter(|it| self.is_alive(it, now_ms));
            let is_same = entry.zip(value).is_some_and(|(entry, value)| match value {
                None => entry.is_null,
                Some(reply) => !entry.is_null && entry.reply() == reply,
            });
            if is_same {
                return;
            }
            self.entries.remove(at);
        }
        let said = match value {
            None => 0,
            Some(value) => self.hasher.hash_one((&question.key, db, value)).max(1),
        };
        let place = self.place(hash);
        let server = self.server(node);
        let floor = &mut self.floors[place];
        if floor.said != said || said == 0 {
            (floor.said, floor.ticket) = (said, self.next_ticket);
            return;
        }
        let from = floor.ticket.max(self.floor).max(server.since);
        let may = question.ticket >= from && floor.under_way == 0 && server.is_open;
        if let (true, Some(reply)) = (may, value) {
            self.entries.put(Fresh {
                hash,
                db,
                node,
                ticket: question.ticket,
                asked_ms: question.asked_ms,
                key: &question.key,
                reply,
            });
        }
    }

    /// Invalidates a key that a server has reported as changed, in any database.
    pub fn invalidated(&mut self, key: &[u8]) {
        self.counts.invalidated += 1;
        let hash = self.hasher.hash_one(key);
        self.entries.remove_key(hash, key);
        let place = self.place(hash);
        self.floors[place].ticket = self.next_ticket;
    }

    /// Invalidates all values.
    pub fn forget(&mut self) {
        self.floor = self.next_ticket;
    }

    /// Notes that a server begins to report changed keys, or no longer does.
    pub fn set_open(&mut self, node: NodeId, is_open: bool) {
        let at = usize::from(node);
        if at >= self.servers.len() {
            self.servers.resize(at + 1, Server::default());
        }
        let since = self.next_ticket;
        self.servers[at] = Server { is_open, since };
    }

    /// Returns true if the server reports changed keys.
    pub fn is_open(&self, node: NodeId) -> bool {
        self.server(node).is_open
    }

    /// Frees invalid values, a part of them each time.
    pub fn sweep(&mut self, count: usize, now_ms: u64) {
        let mut entries = std::mem::replace(&mut self.entries, Entries::new(0));
        entries.sweep(count, |entry| !self.is_alive(entry, now_ms));
        self.entries = entries;
    }
}

/// Returns the value in a reply to GET, if it may be cached: `Some(None)`: the key does not exist.
fn value_of(reply: &[u8]) -> Option<Option<&[u8]>> {
    match reply {
        b"$-1\r\n" | b"_\r\n" => Some(None),
        [b'$', ..] if reply.len() <= REPLY_BYTES_MAX => Some(Some(reply)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
