//! When a value may be kept, and when it may be told. Must not know connections, clients or where keys are.
//!
//! Servers tell over a connection of their own which keys have changed ([`PoolCache::invalidated`]), so that news may come
//! before or behind the replies to which it is news. What a client has seen must not be undone for it by what is kept. So:
//!
//! - Every question gets a *ticket*, and a key's *floor* is the ticket of the next question at the moment at which anything was
//!   heard of the key: only an answer to a question that was asked behind that is kept.
//! - While a call is under way that may change a key, or that may tell more of it than is kept, nothing is told of it or kept
//!   for it; its reply is something that was heard of the key.
//! - Answers come over several connections, and the later one may be the older. So one is kept only if the last answer was the
//!   same, to a question of before; one that is another is something that was heard. This has the effect that keys that are
//!   asked for once are not kept.
//!
//! - A client that has asked a server for a key is not told of it before that answer ([`Asked`]): it would come behind, and may
//!   be the older.
//!
//! Keys share their floors with others of the same hash: that costs answers which could have been kept, never right ones.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use redline_resp::Args;

use super::Caching;
use super::calls::{Call, meaning};
use super::entries::{Entries, Entry, Fresh};
use crate::command_names::ForeignByName;
use crate::route::NodeId;

/// Longer replies are not kept: bytes. They come in one piece, see `replies`.
pub(super) const REPLY_BYTES_MAX: usize = 32 * 1024;
/// So many keys of one transaction are remembered one by one.
const QUEUED_MAX: usize = 4096;
/// Memory for which there is a floor, and how many floors there are at least and at most.
const BYTES_PER_FLOOR: usize = 512;
const FLOORS: (usize, usize) = (1 << 10, 1 << 16);

/// Requests on their way on a connection to a server of a pool with a cache.
#[derive(Debug)]
pub struct Marks {
    /// The pool's number.
    pub(super) pool: u16,
    /// Requests that were sent, and that were answered, since the connection began.
    pub(super) pushed: u64,
    pub(super) done: u64,
    queue: VecDeque<Mark>,
    /// MULTI came: what is done when EXEC does.
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
    /// The place of the key's floor.
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
    /// Of a connection to a server of this pool.
    pub fn new(pool: u16) -> Marks {
        Marks {
            pool,
            pushed: 0,
            done: 0,
            queue: VecDeque::new(),
            queued: None,
        }
    }

    /// So many requests were sent.
    #[inline]
    pub fn push(&mut self, count: u16) {
        self.pushed += u64::from(count);
    }

    /// So many requests were answered.
    #[inline]
    pub fn pop(&mut self, count: u16) {
        self.done += u64::from(count);
    }

    fn mark(&mut self, number: u64, what: What) {
        self.queue.push_back(Mark { number, what });
    }
}

/// The keys that a client has asked servers for and has no answer of: what it asks behind that must not be answered by less.
/// It may say yes where the answer is no; those that were asked for last are apart, so that who always waits for something is
/// not told so for good.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    old: [u64; 4],
    /// Behind request `last_of_old`.
    new: [u64; 4],
    /// The numbers of the last such requests.
    last_of_old: u32,
    last: u32,
}

impl Asked {
    /// Returns true if a key with this hash may be among them, if the requests from `head` to before `next` are not answered.
    /// Request `next` itself may be one that comes again.
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

    /// Request `number` asks for a key with this hash.
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
    /// The first ticket whose answer may be kept.
    ticket: u64,
    /// The hash of the last answer, and whose it was.
    said: u64,
    /// Calls under way that may change such a key.
    under_way: u32,
}

/// Invalidation state of a server: whether it reports changed keys.
#[derive(Clone, Copy, Debug, Default)]
struct Server {
    is_open: bool,
    /// The first ticket that was given since.
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
    /// Calls under way that may change any key.
    under_way: u32,
    next_ticket: u64,
    servers: Vec<Server>,
    pub counts: Counts,
}

impl PoolCache {
    /// With `bytes_max` for entries.
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

    /// A key's hash.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Where the value of a key that is covered is, if it may be told.
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

    /// A request is sent, as number `number` of its connection.
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

    /// A call is sent that may change this key.
    pub fn sent_key(&mut self, marks: &mut Marks, number: u64, key: &[u8]) {
        if self.covers(key) {
            let what = self.begin(self.hasher.hash_one(key), key);
            marks.mark(number, what);
        }
    }

    /// A call is sent that may change anything.
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

    /// The reply to request `number` is here; without it, it is of no use, or was not looked at.
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

    /// The connection is gone.
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

    /// A server says that a key has changed, in whichever database.
    pub fn invalidated(&mut self, key: &[u8]) {
        self.counts.invalidated += 1;
        let hash = self.hasher.hash_one(key);
        self.entries.remove_key(hash, key);
        let place = self.place(hash);
        self.floors[place].ticket = self.next_ticket;
    }

    /// Nothing that was told until now may be told again.
    pub fn forget(&mut self) {
        self.floor = self.next_ticket;
    }

    /// From now on a server tells what has changed, or no longer.
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

    /// Gives back the memory of what may not be told any more, a part of it each time.
    pub fn sweep(&mut self, count: usize, now_ms: u64) {
        let mut entries = std::mem::replace(&mut self.entries, Entries::new(0));
        entries.sweep(count, |entry| !self.is_alive(entry, now_ms));
        self.entries = entries;
    }
}

/// Returns the value in a reply to GET, if it may be cached: `Some(None)`, that there is no such key.
fn value_of(reply: &[u8]) -> Option<Option<&[u8]>> {
    match reply {
        b"$-1\r\n" | b"_\r\n" => Some(None),
        [b'$', ..] if reply.len() <= REPLY_BYTES_MAX => Some(Some(reply)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
