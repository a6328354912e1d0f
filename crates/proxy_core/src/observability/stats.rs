//! Counters of a worker, readable by other threads at any time, and the sums of all workers.
//!
//! Every counter has one writer, the worker, and is written with plain stores. So no other thread may reset it: CONFIG
//! RESETSTAT remembers the sums of that moment ([`Totals`]), which are subtracted from the displayed ones.
//!
//! Must not know how it is shown.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use redline_observe::Counter;
use redline_observe::histogram::{Distribution, Histogram};
use redline_spec::CommandId;

use crate::cache::CacheCounts;
use crate::observability::keys::{Frequent, Largest};
use crate::observability::steps::{Monitors, StepTotals, Steps};
use crate::route::{Node, NodeId};

/// Counters that a worker updates in every turn of its loop; it publishes them at the turn's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests.
    pub requests: u64,
    /// Replies.
    pub responses: u64,
    /// Accepted clients.
    pub accepted: u64,
    /// Clients that were rejected, since there were too many.
    pub rejected: u64,
    /// Bytes received from clients.
    pub received_bytes: u64,
    /// Bytes sent to clients.
    pub sent_bytes: u64,
    /// Requests that were refused for want of memory.
    pub refused_for_memory: u64,
    /// Clients that were closed for want of memory.
    pub evicted_clients: u64,
    /// Slow calls that were left out of the slow log, since it had enough of them.
    pub slow_passed_over: u64,
    /// Bytes of buffers, at the last tick.
    pub buffer_bytes: u64,
    /// Requests per second, recently.
    pub requests_per_second: u64,
    /// Counters of the cache of servers' replies.
    pub cache: CacheCounts,
}

impl Counters {
    const COUNT: usize = 17;

    /// Returns its figures, in the order of publication.
    fn figures(&mut self) -> [&mut u64; Self::COUNT] {
        let Counters {
            requests,
            responses,
            accepted,
            rejected,
            received_bytes,
            sent_bytes,
            refused_for_memory,
            evicted_clients,
            slow_passed_over,
            buffer_bytes,
            requests_per_second,
            cache:
                CacheCounts {
                    hits,
                    misses,
                    invalidated,
                    evicted,
                    entries,
                    bytes,
                },
        } = self;
        [
            requests,
            responses,
            accepted,
            rejected,
            received_bytes,
            sent_bytes,
            refused_for_memory,
            evicted_clients,
            slow_passed_over,
            buffer_bytes,
            requests_per_second,
            hits,
            misses,
            invalidated,
            evicted,
            entries,
            bytes,
        ]
    }

    fn values(mut self) -> [u64; Self::COUNT] {
        self.figures().map(|figure| *figure)
    }

    fn of(values: [u64; Self::COUNT]) -> Counters {
        let mut counters = Counters::default();
        for (figure, value) in counters.figures().into_iter().zip(values) {
            *figure = value;
        }
        counters
    }
}

/// Counters of a worker for one server.
#[derive(Default)]
pub struct NodeStats {
    /// Requests, those of the proxy itself included.
    pub requests: Counter,
    /// Replies.
    pub responses: Counter,
    /// Replies to requests of the proxy itself.
    own_responses: Counter,
    /// Bytes sent to the server.
    pub sent_bytes: Counter,
    /// Bytes received from the server.
    pub received_bytes: Counter,
    /// Connections that were begun.
    pub connects: Counter,
    /// Number of those that have ended.
    pub closed: Counter,
    /// 1 if its replies are cached now.
    pub caches: Counter,
    /// Connections and requests that timed out.
    pub timed_out: Counter,
    /// Sum of the latencies of all replies: microseconds.
    pub us: Counter,
    /// Latencies of replies.
    pub latency: Histogram,
    /// Latencies of replies, in the steps of each latency monitor.
    pub steps: Box<[Steps]>,
}

impl NodeStats {
    /// Counts replies to requests of the proxy itself.
    pub fn answered_us(&self, count: u64) {
        self.responses.add(count);
        self.own_responses.add(count);
    }
}

/// Counters of a worker for one command.
#[derive(Default)]
pub struct CommandStats {
    /// Replies.
    pub calls: Counter,
    /// Error replies.
    pub failed: Counter,
    /// Calls that the proxy refused.
    pub rejected: Counter,
    /// Sum of the latencies of all calls: microseconds.
    pub us: Counter,
    /// Latencies of calls.
    pub latency: Histogram,
}

/// All counters of one worker.
pub struct WorkerStats {
    counters: [Counter; Counters::COUNT],
    nodes: Mutex<Vec<Option<Counted>>>,
    /// Bytes sent to, and received from, servers whose numbers were reused.
    past_bytes: [Counter; 2],
    commands: Box<[OnceLock<Box<CommandStats>>]>,
    users: Mutex<BTreeMap<Vec<u8>, u64>>,
    /// Frequent keys.
    pub frequent: Mutex<Frequent>,
    /// Large keys.
    pub largest: Mutex<Largest>,
}

/// A server, and a worker's counters for it.
struct Counted {
    name: String,
    pool: u16,
    stats: Arc<NodeStats>,
}

impl Counted {
    fn is(&self, node: &Node) -> bool {
        (&self.name, self.pool) == (&node.name, node.pool)
    }
}

/// Number of users that are counted by name; the rest is summed up.
const USERS_MAX: usize = 100;
/// The name of the rest.
pub const OTHERS: &[u8] = b"(others)";

impl Default for WorkerStats {
    fn default() -> WorkerStats {
        WorkerStats {
            counters: Default::default(),
            nodes: Mutex::default(),
            past_bytes: Default::default(),
            commands: (0..CommandId::COUNT).map(|_| OnceLock::new()).collect(),
            users: Mutex::default(),
            frequent: Mutex::default(),
            largest: Mutex::default(),
        }
    }
}

impl WorkerStats {
    /// Publishes counters; only the worker may.
    pub fn publish(&self, counters: &Counters) {
        for (to, value) in self.counters.iter().zip(counters.values()) {
            to.set(value);
        }
    }

    /// Returns the counters that were published last.
    pub fn counters(&self) -> Counters {
        Counters::of(std::array::from_fn(|at| self.counters[at].get()))
    }

    /// Returns the counters of the server `node`, whose number is `number`; only the worker may call this. They begin
    /// anew if the number was another server's before.
    pub fn node(&self, number: NodeId, node: &Node, monitors: &Monitors) -> Arc<NodeStats> {
        let mut nodes = lock(&self.nodes);
        let at = usize::from(number);
        if at >= nodes.len() {
            nodes.resize_with(at + 1, || None);
        }
        if let Some(past) = nodes[at].take_if(|counted| !counted.is(node)) {
            let [sent_bytes, received_bytes] = &self.past_bytes;
            sent_bytes.add(past.stats.sent_bytes.get());
            received_bytes.add(past.stats.received_bytes.get());
        }
        let fresh = || Counted {
            name: node.name.clone(),
            pool: node.pool,
            stats: Arc::new(NodeStats {
                steps: monitors.steps(),
                ..NodeStats::default()
            }),
        };
        Arc::clone(&nodes[at].get_or_insert_with(fresh).stats)
    }

    /// Returns the number of clients' requests that the server `node`, whose number is `number`, has answered.
    pub fn answers_of(&self, number: NodeId, node: &Node) -> u64 {
        let nodes = lock(&self.nodes);
        let counted = nodes.get(usize::from(number)).and_then(Option::as_ref);
        let counted = counted.filter(|counted| counted.is(node));
        counted.map_or(0, |Counted { stats, .. }| {
            // The other counter may have been incremented in between.
            let own = stats.own_responses.get();
            stats.responses.get().saturating_sub(own)
        })
    }

    /// Returns the counters of a command.
    #[inline]
    pub fn command(&self, number: u16) -> Option<&CommandStats> {
        let command = self.commands.get(usize::from(number))?;
        Some(command.get_or_init(Box::default))
    }

    /// Counts requests of a user.
    pub fn count_user(&self, name: &[u8], requests: u64) {
        let mut users = lock(&self.users);
        let is_full = users.len() >= USERS_MAX && !users.contains_key(name);
        let name = if is_full { OTHERS } else { name };
        match users.get_mut(name) {
            Some(count) => *count += requests,
            None => drop(users.insert(name.to_vec(), requests)),
        }
    }
}

/// Locks a mutex that no panic leaves poisoned.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Totals of all workers for one server.
#[derive(Clone, Debug, Default)]
pub struct NodeTotals {
    /// Its name, and the number of its pool.
    which: (String, u16),
    /// See [`NodeStats`].
    pub requests: u64,
    /// See [`NodeStats`].
    pub responses: u64,
    /// See [`NodeStats`].
    pub sent_bytes: u64,
    /// See [`NodeStats`].
    pub received_bytes: u64,
    /// See [`NodeStats`].
    pub connects: u64,
    /// Open connections.
    pub connections: u64,
    /// Number of workers that cache its replies now.
    pub caches: u64,
    /// See [`NodeStats`].
    pub timed_out: u64,
    /// See [`NodeStats`].
    pub us: u64,
    /// Latencies of replies.
    pub latency: Distribution,
    /// For each latency monitor.
    pub steps: Vec<StepTotals>,
}

impl NodeTotals {
    fn add(&mut self, stats: &NodeStats) {
        self.requests += stats.requests.get();
        self.responses += stats.responses.get();
        self.sent_bytes += stats.sent_bytes.get();
        self.received_bytes += stats.received_bytes.get();
        self.connects += stats.connects.get();
        let closed = stats.closed.get();
        self.connections += stats.connects.get().saturating_sub(closed);
        self.caches += stats.caches.get();
        self.timed_out += stats.timed_out.get();
        self.us += stats.us.get();
        self.latency.add(&stats.latency);
        self.steps
            .resize_with(stats.steps.len(), StepTotals::default);
        for (sum, steps) in self.steps.iter_mut().zip(&stats.steps) {
            sum.add(steps);
        }
    }

    fn subtract(&mut self, earlier: &NodeTotals) {
        if self.which != earlier.which {
            return;
        }
        self.requests = self.requests.saturating_sub(earlier.requests);
        self.responses = self.responses.saturating_sub(earlier.responses);
        self.sent_bytes = self.sent_bytes.saturating_sub(earlier.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_sub(earlier.received_bytes);
        self.connects = self.connects.saturating_sub(earlier.connects);
        self.timed_out = self.timed_out.saturating_sub(earlier.timed_out);
        self.us = self.us.saturating_sub(earlier.us);
        self.latency.subtract(&earlier.latency);
        for (now, then) in self.steps.iter_mut().zip(&earlier.steps) {
            now.subtract(then);
        }
    }
}

/// Totals of all workers for one command.
#[derive(Clone, Debug, Default)]
pub struct CommandTotals {
    /// See [`CommandStats`].
    pub calls: u64,
    /// See [`CommandStats`].
    pub failed: u64,
    /// See [`CommandStats`].
    pub rejected: u64,
    /// See [`CommandStats`].
    pub us: u64,
    /// See [`CommandStats`].
    pub latency: Distribution,
}

/// The sums of all workers.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// See [`Counters`].
    pub counters: Counters,
    /// By server.
    pub nodes: Vec<NodeTotals>,
    /// Bytes sent to servers, removed ones included.
    pub server_sent_bytes: u64,
    /// Bytes received from servers.
    pub server_received_bytes: u64,
    /// Log lines for which the queue had no room.
    pub log_lines_left_out: u64,
    /// By command; those that were called.
    pub commands: BTreeMap<u16, CommandTotals>,
    /// Requests by user, if there are users.
    pub users: BTreeMap<Vec<u8>, u64>,
}

impl Totals {
    /// Returns the totals of these workers; `nodes`: the servers of the routing table.
    pub fn of(workers: &[Arc<WorkerStats>], nodes: &[Node], lines_left_out: u64) -> Totals {
        let fresh = |node: &Node| NodeTotals {
            which: (node.name.clone(), node.pool),
            ..NodeTotals::default()
        };
        let mut totals = Totals {
            nodes: nodes.iter().map(fresh).collect(),
            log_lines_left_out: lines_left_out,
            ..Totals::default()
        };
        let mut sums = [0_u64; Counters::COUNT];
        for worker in workers {
            for (sum, counter) in sums.iter_mut().zip(&worker.counters) {
                *sum += counter.get();
            }
            let [sent_bytes, received_bytes] = &worker.past_bytes;
            totals.server_sent_bytes += sent_bytes.get();
            totals.server_received_bytes += received_bytes.get();
            for (at, counted) in lock(&worker.nodes).iter().enumerate() {
                let Some(counted) = counted else { continue };
                totals.server_sent_bytes += counted.stats.sent_bytes.get();
                totals.server_received_bytes += counted.stats.received_bytes.get();
                // The number may be another server's by now, for which this worker has no counters.
                if nodes.get(at).is_some_and(|node| counted.is(node)) {
                    totals.nodes[at].add(&counted.stats);
                }
            }
            for (number, command) in worker.commands.iter().enumerate() {
                if let Some(command) = command.get() {
                    let sum = totals.commands.entry(number as u16).or_default();
                    sum.calls += command.calls.get();
                    sum.failed += command.failed.get();
                    sum.rejected += command.rejected.get();
                    sum.us += command.us.get();
                    sum.latency.add(&command.latency);
                }
            }
            for (name, count) in lock(&worker.users).iter() {
                *totals.users.entry(name.clone()).or_default() += count;
            }
        }
        totals.counters = Counters::of(sums);
        totals
    }

    /// Subtracts earlier totals; buffer bytes, cache sizes, the rate and connections stay as they are now.
    pub fn subtract(&mut self, earlier: &Totals) {
        let then = earlier.counters.values();
        let mut now = self.counters.values();
        for (now, then) in now.iter_mut().zip(then) {
            *now = now.saturating_sub(then);
        }
        let Counters {
            buffer_bytes,
            requests_per_second,
            cache: CacheCounts { entries, bytes, .. },
            ..
        } = self.counters;
        let counted = Counters::of(now);
        self.counters = Counters {
            buffer_bytes,
            requests_per_second,
            cache: CacheCounts {
                entries,
                bytes,
                ..counted.cache
            },
            ..counted
        };
        for (now, then) in self.nodes.iter_mut().zip(&earlier.nodes) {
            now.subtract(then);
        }
        let single = [
            (&mut self.server_sent_bytes, earlier.server_sent_bytes),
            (
                &mut self.server_received_bytes,
                earlier.server_received_bytes,
            ),
            (&mut self.log_lines_left_out, earlier.log_lines_left_out),
        ];
        for (now, then) in single {
            *now = now.saturating_sub(then);
        }
        for (number, now) in &mut self.commands {
            if let Some(then) = earlier.commands.get(number) {
                now.calls = now.calls.saturating_sub(then.calls);
                now.failed = now.failed.saturating_sub(then.failed);
                now.rejected = now.rejected.saturating_sub(then.rejected);
                now.us = now.us.saturating_sub(then.us);
                now.latency.subtract(&then.latency);
            }
        }
        self.commands
            .retain(|_, command| command.calls + command.rejected > 0);
        for (name, now) in &mut self.users {
            *now -= earlier.users.get(name).copied().unwrap_or(0).min(*now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_is_taken_away_and_what_is_now_stays() {
        let workers = [Arc::new(WorkerStats::default()), Arc::default()];
        let monitors = Monitors::default();
        let nodes = ["a", "b", "c", "d"].map(|name| Node::here(name, 1));
        let count = |times: u64| {
            for worker in &workers {
                let counters = Counters {
                    requests: 10 * times,
                    buffer_bytes: 7,
                    ..Counters::default()
                };
                worker.publish(&counters);
                let stats = worker.node(3, &nodes[3], &monitors);
                stats.requests.add(1);
                stats.connects.add(1);
                let get = worker.command(CommandId::Get as u16).unwrap();
                get.calls.add(2);
                get.latency.record(5_000, 2);
            }
        };
        count(1);
        let before = Totals::of(&workers, &nodes, 0);
        assert_eq!(before.counters.requests, 20);
        assert_eq!(before.nodes[3].connections, 2);
        count(3);
        let mut now = Totals::of(&workers, &nodes, 0);
        now.subtract(&before);
        assert_eq!((now.counters.requests, now.counters.buffer_bytes), (40, 14));
        assert_eq!((now.nodes[3].requests, now.nodes[3].connections), (2, 4));
        let get = &now.commands[&(CommandId::Get as u16)];
        assert_eq!((get.calls, get.latency.count()), (4, 4));
        let again = Totals::of(&workers, &nodes, 0);
        let mut nothing = again.clone();
        nothing.subtract(&again);
        assert!(nothing.commands.is_empty());
    }

    #[test]
    fn a_server_does_not_inherit_what_was_counted_of_another_with_its_number() {
        let workers = [Arc::new(WorkerStats::default()), Arc::default()];
        let monitors = Monitors::default();
        let count = |worker: &WorkerStats, node: &Node, bytes: u64| {
            let stats = worker.node(0, node, &monitors);
            stats.requests.add(1);
            stats.sent_bytes.add(bytes);
        };
        let [old, new] = ["old", "new"].map(|name| Node::here(name, 1));
        workers.iter().for_each(|worker| count(worker, &old, 100));
        let before = Totals::of(&workers, std::slice::from_ref(&old), 0);
        assert_eq!(
            (before.nodes[0].requests, before.server_sent_bytes),
            (2, 200)
        );
        count(&workers[0], &new, 7);
        let mut now = Totals::of(&workers, std::slice::from_ref(&new), 0);
        assert_eq!(
            (now.nodes[0].requests, now.nodes[0].sent_bytes),
            (1, 7),
            "the other worker has not met it"
        );
        assert_eq!(now.server_sent_bytes, 207);
        now.subtract(&before);
        assert_eq!((now.nodes[0].requests, now.server_sent_bytes), (1, 7));
    }

    #[test]
    fn users_have_a_limit() {
        let worker = Arc::new(WorkerStats::default());
        for number in 0..USERS_MAX + 20 {
            worker.count_user(format!("u{number}").as_bytes(), 1);
        }
        worker.count_user(b"u0", 5);
        let users = Totals::of(&[worker], &[], 0).users;
        assert_eq!(users.len(), USERS_MAX + 1);
        assert_eq!((users[OTHERS], users[&b"u0"[..]]), (20, 6));
    }
}
