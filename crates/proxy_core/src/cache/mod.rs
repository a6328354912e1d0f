//! A cache for hot keys: replies to GET are kept for a moment, and the servers report changed keys.
//!
//! | file | holds |
//! |---|---|
//! | `calls` | effect of a call on cached values |
//! | `rules` | when a value may be cached, and when it may be used |
//! | `entries` | the values, in bounded memory |
//!
//! Each worker has its own cache, and to each primary a connection with `CLIENT TRACKING ON BCAST`, so other connections
//! stay unchanged. All requests to a server of such a pool go by [`Cache::sent`], on any connection. If no pool has a
//! cache, this costs nothing.

mod calls;
mod entries;
mod rules;

use std::collections::HashMap;
use std::sync::Arc;

use redline_proxy_config as config;
use redline_resp::{Args, ReplyDecoder, Span, Value};
use rules::PoolCache;

use crate::command_names::ForeignByName;
use crate::route::{NO_NODE, NodeId, Pool, Routes, Shard};
use crate::slab::Ref;
pub use rules::{Asked, Marks};

/// Silence after which a server gets a PING, and after which it is given up without a reply: milliseconds.
const SILENCE_MS: u64 = 1_000;
/// Pause after a server's refusal of tracking, at first and at most: milliseconds.
const PAUSE_MS: (u64, u64) = (200, 30_000);
/// Number of places that are checked in one tick for invalid entries.
const SWEPT_MAX: usize = 16 * 1024;

/// Settings of a pool's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caching {
    /// Prefixes of the keys whose values are cached, as servers know them.
    pub prefixes: Vec<String>,
    /// Memory for all workers together: bytes.
    pub memory_bytes_max: u64,
    /// Largest age of a cached value: milliseconds.
    pub max_age_ms: u64,
}

impl Caching {
    /// Returns the cache settings for workers; none: there is no cache.
    pub fn of(config: &config::Cache) -> Option<Arc<Caching>> {
        let caching = || Caching {
            prefixes: config.prefixes.clone(),
            memory_bytes_max: config.memory.0,
            max_age_ms: (config.max_age.0.as_millis() as u64).max(1),
        };
        (!config.prefixes.is_empty()).then(|| Arc::new(caching()))
    }
}

/// The connection over which a server reports changed keys.
#[derive(Default)]
struct Link {
    upstream: Option<Ref>,
    /// Time of the last message, and whether a PING was sent since: milliseconds.
    heard_ms: u64,
    is_asked: bool,
    /// Time before which no attempt is made, and failed attempts in a row.
    retry_at_ms: u64,
    failures: u32,
}

/// The cache of a worker.
#[derive(Default)]
pub struct Cache {
    /// Some pool has a cache.
    pub is_on: bool,
    /// The time of the turn: milliseconds of the monotonic clock.
    pub now_ms: u64,
    /// By pool number.
    pools: Vec<Option<Box<PoolCache>>>,
    /// Commands that the servers of each pool have and the table has not.
    learned: Vec<Option<Arc<ForeignByName>>>,
    /// Commands that the configuration adds.
    custom: ForeignByName,
    /// Number of workers that share the memory for values.
    workers: usize,
    links: HashMap<NodeId, Link>,
    spans: Vec<Span>,
}

/// A cached value that is being read: [`Cache::take_back`] returns it at once.
pub struct Lent {
    /// The number of its pool.
    pool: u16,
    /// Its place.
    at: u32,
    /// The key, followed by the reply.
    bytes: Box<[u8]>,
    /// Start of the reply.
    start: usize,
    /// The key has no value.
    pub is_null: bool,
    /// The server that has sent the value.
    pub node: NodeId,
}

impl Lent {
    /// Returns the reply as the server sent it.
    pub fn reply(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// The action that is due for the connection over which a server reports changed keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// None.
    Nothing,
    /// The connection is to be made.
    Connect,
    /// The server is to get a PING.
    Ask(Ref),
    /// The server has not answered a PING.
    GiveUp(Ref),
}

/// Counters and sizes of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Calls of GET that were answered from the cache.
    pub hits: u64,
    /// Calls of GET that might have been, and went to a server.
    pub misses: u64,
    /// Keys that a server has reported as changed.
    pub invalidated: u64,
    /// Values that were evicted for want of room.
    pub evicted: u64,
    /// Number of values.
    pub entries: u64,
    /// Memory that the values take: bytes.
    pub bytes: u64,
}

impl Cache {
    /// Returns the cache of one of `workers` workers. `custom`: the commands that the configuration adds.
    pub fn new(custom: &ForeignByName, workers: usize, routes: &Routes) -> Cache {
        let mut cache = Cache {
            custom: custom.clone(),
            workers,
            ..Cache::default()
        };
        cache.adopt(None, routes);
        cache
    }

    /// Adopts a new routing table in place of this one: keys may have moved.
    pub fn adopt(&mut self, old: Option<&Routes>, routes: &Routes) {
        let workers = self.workers.max(1);
        for (number, pool) in routes.pools.iter().enumerate() {
            if number == self.pools.len() {
                let share = |caching: &Arc<Caching>| {
                    let bytes = usize::try_from(caching.memory_bytes_max).unwrap_or(usize::MAX);
                    Box::new(PoolCache::new(caching, bytes / workers))
                };
                self.pools.push(pool.caching.as_ref().map(share));
                self.learned.push(None);
            }
            self.learned[number] = pool.learned.clone();
        }
        for (&node, link) in &mut self.links {
            let at = usize::from(node);
            let before = old.and_then(|old| old.nodes.get(at));
            if let (Some(before), Some(now)) = (before, routes.nodes.get(at))
                && now.is_another(before)
            {
                (link.failures, link.retry_at_ms) = (0, 0);
            }
        }
        self.is_on = self.pools.iter().any(Option::is_some);
        for (number, pool) in self.pools.iter_mut().enumerate() {
            if let Some(pool) = pool
                && old.is_none_or(|old| !has_values_as(number, routes, old))
            {
                pool.forget();
            }
        }
    }

    fn pool(&mut self, number: u16) -> Option<&mut PoolCache> {
        self.pools.get_mut(usize::from(number))?.as_deref_mut()
    }

    /// Returns the marks to keep of a new connection to a server of this pool; `None` if the pool has no cache.
    pub fn marks(&self, pool: u16) -> Option<Box<Marks>> {
        let is_kept = matches!(self.pools.get(usize::from(pool)), Some(Some(_)));
        is_kept.then(|| Box::new(Marks::new(pool)))
    }

    /// Tracks requests that are sent to a server: those with the next numbers of the connection.
    pub fn sent(&mut self, marks: &mut Marks, to: (NodeId, u16), count: u16, bytes: &[u8]) {
        let number = usize::from(marks.pool);
        let Some(Some(pool)) = self.pools.get_mut(number) else {
            return;
        };
        let learned = self.learned.get(number).and_then(|it| it.as_deref());
        let foreign: [Option<&ForeignByName>; 2] = [Some(&self.custom), learned];
        let (mut at, mut request) = (0, marks.pushed);
        while at < bytes.len() {
            request += 1;
            let Some(len) = calls::arguments(&bytes[at..], &mut self.spans) else {
                let last = marks.pushed + u64::from(count);
                return pool.sent_anything(marks, last);
            };
            let args = Args::new(&bytes[at..at + len], &self.spans);
            pool.sent(marks, request, to, args, foreign, self.now_ms);
            at += len;
        }
    }

    /// Tracks the last request, which is passed through in pieces and may change this key.
    pub fn sent_in_pieces(&mut self, marks: &mut Marks, key: &[u8]) {
        let number = marks.pushed;
        if let Some(pool) = self.pool(marks.pool) {
            pool.sent_key(marks, number, key);
        }
    }

    /// Handles the reply to the request with `before` unanswered others before it.
    #[inline]
    pub fn answered(&mut self, marks: &mut Marks, before: u16, reply: &[u8]) {
        let (number, now_ms) = (marks.done + 1 + u64::from(before), self.now_ms);
        if let Some(pool) = self.pool(marks.pool) {
            pool.answered(marks, number, Some(reply), now_ms);
        }
    }

    /// Takes note of replies that were not checked.
    pub fn settle(&mut self, marks: &mut Marks) {
        let (number, now_ms) = (marks.done, self.now_ms);
        if let Some(pool) = self.pool(marks.pool) {
            pool.answered(marks, number, None, now_ms);
        }
    }

    /// Handles the loss of a connection.
    pub fn gone(&mut self, marks: &mut Marks) {
        let now_ms = self.now_ms;
        if let Some(pool) = self.pool(marks.pool) {
            pool.gone(marks, now_ms);
        }
    }

    /// Invalidates a pool: its keys may have moved.
    pub fn forget(&mut self, pool: u16) {
        if let Some(pool) = self.pool(pool) {
            pool.forget();
        }
    }

    /// Notes bytes on a connection over which a server reports changed keys.
    pub fn heard(&mut self, node: NodeId) {
        let now_ms = self.now_ms;
        if let Some(link) = self.links.get_mut(&node) {
            (link.heard_ms, link.is_asked) = (now_ms, false);
        }
    }

    /// Returns true if the value of this key, as its servers know it, may be cached.
    #[inline]
    pub fn covers(&self, pool: u16, key: &[u8]) -> bool {
        let pool = self.pools.get(usize::from(pool));
        matches!(pool, Some(Some(pool)) if pool.covers(key))
    }

    /// Returns the cached reply to GET of a client whose unanswered requests have these numbers: from `head` on, below
    /// `next`. A miss is noted as asked for.
    #[inline]
    pub fn look_up(
        &mut self,
        (pool_number, db): (u16, u16),
        key: &[u8],
        asked: &mut Asked,
        (head, next): (u32, u32),
    ) -> Option<Lent> {
        let pool = self
            .pools
            .get_mut(usize::from(pool_number))?
            .as_deref_mut()?;
        if !pool.covers(key) {
            return None;
        }
        let hash = pool.hash(key);
        let found = match asked.has(hash, head, next) {
            true => None,
            false => pool.find(db, hash, key, self.now_ms),
        };
        let Some(at) = found else {
            asked.add(hash, next);
            return None;
        };
        pool.counts.hits += 1;
        let entry = pool.entries.at_mut(at)?;
        Some(Lent {
            pool: pool_number,
            at,
            bytes: entry.lend(),
            start: entry.key_len(),
            is_null: entry.is_null,
            node: entry.node,
        })
    }

    /// Takes a lent value back.
    pub fn take_back(&mut self, lent: Lent) {
        if let Some(entry) = self
            .pool(lent.pool)
            .and_then(|it| it.entries.at_mut(lent.at))
        {
            entry.take_back(lent.bytes);
        }
    }

    /// Returns the servers that have to report changed keys, in the order of their numbers.
    pub fn wanted(routes: &Routes) -> Vec<NodeId> {
        let is_kept = |pool: &&Pool| pool.caching.is_some();
        let pools = routes.pools.iter().filter(is_kept);
        let mut wanted: Vec<NodeId> = pools
            .flat_map(|pool| &pool.shards)
            .map(|shard| shard.primary)
            .filter(|node| *node != NO_NODE && !routes.nodes[usize::from(*node)].ejected)
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    /// Returns the connections to servers that are not among these.
    pub fn unwanted(&self, wanted: &[NodeId]) -> Vec<Ref> {
        let links = self.links.iter();
        links
            .filter(|(node, _)| wanted.binary_search(node).is_err())
            .filter_map(|(_, link)| link.upstream)
            .collect()
    }

    /// Returns the action that is due for the connection to a server, and counts it as done, except [`Due::Connect`].
    pub fn due(&mut self, node: NodeId) -> Due {
        let now_ms = self.now_ms;
        let link = self.links.entry(node).or_default();
        let Some(place) = link.upstream else {
            return match now_ms < link.retry_at_ms {
                true => Due::Nothing,
                false => Due::Connect,
            };
        };
        if now_ms.saturating_sub(link.heard_ms) <= SILENCE_MS {
            return Due::Nothing;
        }
        link.heard_ms = now_ms;
        match std::mem::replace(&mut link.is_asked, true) {
            true => Due::GiveUp(place),
            false => Due::Ask(place),
        }
    }

    /// Notes that the connection to a server is being made.
    pub fn connects(&mut self, node: NodeId, place: Ref) {
        let now_ms = self.now_ms;
        let link = self.links.entry(node).or_default();
        link.upstream = Some(place);
        (link.heard_ms, link.is_asked) = (now_ms, false);
    }

    /// Notes that a server of this pool reports changed keys from now on.
    pub fn opened(&mut self, node: NodeId, pool: u16) {
        if let Some(link) = self.links.get_mut(&node) {
            link.failures = 0;
        }
        if let Some(pool) = self.pool(pool) {
            pool.set_open(node, true);
        }
    }

    /// Notes that a server of this pool no longer reports changed keys, or has refused to: its values become invalid.
    /// Returns true if that is new.
    pub fn closed(&mut self, node: NodeId, pool: u16, has_refused: bool) -> bool {
        let now_ms = self.now_ms;
        let was_open = self.pool(pool).is_some_and(|pool| {
            let was_open = pool.is_open(node);
            pool.set_open(node, false);
            was_open
        });
        let link = self.links.entry(node).or_default();
        link.upstream = None;
        let is_news = was_open || has_refused && link.failures == 0;
        if has_refused {
            let (first, most) = PAUSE_MS;
            link.retry_at_ms = now_ms + (first << link.failures.min(16)).min(most);
            link.failures += 1;
        }
        is_news
    }

    /// Handles a server's report of changed keys: `>2 invalidate [key …]`, or null for all.
    pub fn invalidated(&mut self, pool: u16, frame: &[u8]) {
        let Some(pool) = self.pool(pool) else {
            return;
        };
        let decoded = ReplyDecoder::new().decode(frame);
        let value = decoded.ok().and_then(|decoded| decoded.value);
        let words = match value {
            Some(Value::Push(words)) => words,
            // Any other form.
            _ => return pool.forget(),
        };
        if words.first().and_then(Value::as_bytes) != Some(b"invalidate") {
            return;
        }
        match words.get(1) {
            Some(Value::Array(keys)) => {
                for key in keys {
                    match key.as_bytes() {
                        Some(key) => pool.invalidated(key),
                        None => pool.forget(),
                    }
                }
            }
            _ => pool.forget(),
        }
    }

    /// Checks some of the values, and removes invalid ones.
    pub fn sweep(&mut self) {
        let now_ms = self.now_ms;
        for pool in self.pools.iter_mut().flatten() {
            pool.sweep(SWEPT_MAX, now_ms);
        }
    }

    /// Returns the counters and sizes, summed over all pools.
    pub fn counts(&self) -> CacheCounts {
        let mut sum = CacheCounts::default();
        for pool in self.pools.iter().flatten() {
            sum.hits += pool.counts.hits;
            sum.misses += pool.counts.misses;
            sum.invalidated += pool.counts.invalidated;
            sum.evicted += pool.entries.evicted;
            sum.entries += pool.entries.len() as u64;
            sum.bytes += pool.entries.bytes() as u64;
        }
        sum
    }
}

/// Returns true if the cached values of a pool under another routing table are valid under this one: the same servers
/// have its keys, and clients mean the same keys.
fn has_values_as(number: usize, routes: &Routes, other: &Routes) -> bool {
    let (Some(pool), Some(before)) = (routes.pools.get(number), other.pools.get(number)) else {
        return false;
    };
    let is_same = |shard: &Shard| {
        let at = usize::from(shard.primary);
        shard.primary == NO_NODE || routes.nodes.get(at) == other.nodes.get(at)
    };
    pool.has_keys_as(before)
        && pool.shards.iter().all(is_same)
        && pool.has_tls == before.has_tls
        && routes.prefixes == other.prefixes
}

/// Returns the request that turns on reports of changed keys: in all databases, by any client.
pub fn tracking(caching: &Caching) -> Vec<&str> {
    let mut words = vec!["CLIENT", "TRACKING", "ON", "BCAST"];
    for prefix in caching.prefixes.iter().filter(|prefix| !prefix.is_empty()) {
        words.extend(["PREFIX", prefix]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Node;

    #[test]
    fn a_server_is_asked_though_another_of_its_number_has_refused_to_tell() {
        let routes = |name| Routes {
            nodes: vec![Node::here(name, 1)],
            pools: Vec::new(),
            prefixes: Arc::default(),
        };
        let before = routes("a:1");
        for (now, left) in [("a:1", (7, 5_000)), ("b:1", (0, 0))] {
            let mut cache = Cache::default();
            let link = cache.links.entry(0).or_default();
            (link.failures, link.retry_at_ms) = (7, 5_000);
            cache.adopt(Some(&before), &routes(now));
            let link = &cache.links[&0];
            assert_eq!((link.failures, link.retry_at_ms), left, "{now}");
        }
    }
}
