//! The control side: the servers, their health, and their keys.
//!
//! One thread beside the workers. It asks on connections of its own, receives reports from workers ([`Report`]), and
//! publishes a new routing table ([`Published`]) after every change. It never blocks: names are resolved on separate
//! threads, and a server that hangs delays only its own questions.
//!
//! | file | holds |
//! |---|---|
//! | `health` | when a server counts as failed |
//! | `pools` | known topology of each pool, and the routes that follow |
//! | `names` | resolution of servers' names |
//! | `nodes` | servers by number |
//! | `replication` | state of a replica's copy |
//! | `readers` | servers for reads |
//! | `freshness` | asks replicas and primaries for their replication state |
//! | `learning` | asks servers for their commands |
//! | `topology` | asks clusters and Sentinels for the topology |
//! | `sentinel` | parsers for Sentinels' replies |
//! | `line` | a connection with questions and replies |
//! | `reload` | another configuration at runtime |

mod freshness;
mod health;
mod learning;
mod line;
mod names;
mod nodes;
mod pools;
mod readers;
pub mod reload;
mod replication;
mod sentinel;
mod topology;

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, mem, thread};

use redline_net::tls::ClientTls;
use redline_net::{Address, Endpoint, Mailbox, Poller, Sender, clock};
use redline_proxy_config::{Arguments, Config, FailurePolicy, PoolKind, Secret};
use redline_resp::Value;

use self::line::{Line, Opening};
use self::names::{Found, Name};
use self::nodes::{Nodes, address_of, is_at};
use self::pools::{Known, picture, prefixes, who};
use crate::prefix::Prefixes;
use crate::published::{PoolsTls, Published};
use crate::report::Report;
use crate::route::NodeId;
use crate::start::spawn;
use crate::tls_config::{Doors, Secured};
pub use reload::Reload;

/// Largest number of events in one turn.
const EVENTS_MAX: usize = 256;
const WAKER_TOKEN: usize = usize::MAX;
/// Smallest interval between requested refreshes: redirects come in bursts.
const DEBOUNCE_MS: u64 = 100;
/// Longest wait for the first topology at the start.
const FIRST_PICTURE_MS: u64 = 3_000;
/// Longest interval between checks of the timers.
const TURN_MS: u64 = 50;

/// The result of a start.
pub struct Started {
    /// The published routing tables.
    pub routes: Arc<Published>,
    /// The queue of workers' reports.
    pub reports: Sender<Report>,
    /// The entry for another configuration.
    pub reload: Reload,
}

/// Finds the first routing table, or gives up waiting for it, and starts a thread that keeps it current.
pub fn start(
    config: &Config,
    secured: Secured,
    doors: Arc<Doors>,
    arguments: Arguments,
) -> io::Result<Started> {
    let mut control = Control::new(config, secured.pools)?;
    let deadline_ms = clock::monotonic_ms() + FIRST_PICTURE_MS;
    control.look_up_all_now();
    while !control.is_settled() && clock::monotonic_ms() < deadline_ms {
        control.turn()?;
    }
    for pool in control.pools.iter().filter(|pool| !pool.is_whole()) {
        say(&format!(
            "pool \"{}\": not all of its servers are known yet; asking goes on",
            pool.config.name
        ));
    }
    control.mark_used(clock::monotonic_ms());
    let routes = Arc::new(Published::new(control.picture(), control.pools_tls()));
    control.routes = Some(Arc::clone(&routes));
    let reports = control.reports.sender();
    let reload = Reload::new(arguments, config.clone(), doors, control.configs.sender());
    spawn("proxy-control", move || {
        loop {
            if let Err(error) = control.turn() {
                say(&format!(
                    "the control thread cannot wait for events: {error}"
                ));
                thread::sleep(Duration::from_millis(TURN_MS));
            }
        }
    })?;
    Ok(Started {
        routes,
        reports,
        reload,
    })
}

/// The target of a connection, and its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Peer {
    Node(NodeId),
    /// A Sentinel of a pool, by its index.
    Sentinel(usize, usize),
    /// A Sentinel of a pool, for its published messages.
    Watch(usize, usize),
}

/// The subject of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Probe,
    /// COMMAND, of a pool.
    Commands(usize),
    /// INFO REPLICATION, asked at this time.
    Replication(u64),
    /// CLUSTER INFO, SLOTS and SHARDS, by index.
    Cluster(usize),
    /// SENTINEL MASTER and REPLICAS of a shard, by index.
    Shard(usize, usize),
    /// SENTINEL SENTINELS of a shard.
    Sentinels(usize),
    Subscribe,
    Pulse,
}

/// Another configuration, and TLS to the servers of its pools.
pub struct Changed {
    config: Config,
    tls: Vec<Option<ClientTls>>,
    /// Dropped once the routing table of this configuration is published.
    taken: mpsc::Sender<()>,
}

struct Connection {
    peer: Peer,
    endpoint: Endpoint,
    line: Line<Question>,
}

/// State of a pool's monitoring.
#[derive(Default)]
struct Watching {
    refresh_at_ms: u64,
    /// Deadline of the expected reply.
    asked_until_ms: u64,
    /// The server to ask next.
    turn: usize,
    sentinels: Vec<Address>,
    /// Parts of the cluster's description that the last node asked has sent so far.
    parts: Vec<Value>,
    asked: NodeId,
    /// SENTINEL MASTER of a shard, by Sentinel and shard, until REPLICAS arrives from the same one.
    masters: HashMap<(usize, usize), Value>,
    /// By shard: the Sentinels that others have named.
    heard: HashMap<usize, Vec<Address>>,
    /// Number of replies in a row that were rejected, incomplete, or missing.
    doubts: u32,
    /// Number of subscriptions to Sentinels in a row that were not confirmed.
    deaf: u32,
    /// A reply of a Sentinel was rejected in this round.
    is_doubted: bool,
    /// The last reason for that.
    complaint: Option<String>,
    pulse_at_ms: u64,
}

struct Control {
    /// The configuration in effect.
    config: Config,
    pools: Vec<Known>,
    watching: Vec<Watching>,
    /// By pool.
    learning: Vec<learning::Learning>,
    nodes: Nodes,
    prefixes: Arc<Prefixes>,
    routes: Option<Arc<Published>>,
    is_changed: bool,
    /// Log lines about the next routing table, written when it is published, so that readers can rely on them.
    news: Vec<String>,
    /// Everything that arrived before this time has been processed: a later deadline has not passed, by any clock. So a
    /// machine that stalls for a while does not make its servers look failed.
    heard_to_ms: u64,
    poller: Poller,
    reports: Mailbox<Report>,
    found: Mailbox<Found>,
    configs: Mailbox<Changed>,
    connections: Vec<Option<Connection>>,
    by_peer: HashMap<Peer, usize>,
    names: HashMap<Address, Name>,
    random: fastrand::Rng,
}

impl Control {
    fn new(config: &Config, tls: Vec<Option<ClientTls>>) -> io::Result<Control> {
        let mut poller = Poller::new(EVENTS_MAX)?;
        let waker = poller.waker(WAKER_TOKEN)?;
        let mut control = Control {
            config: Config::default(),
            pools: Vec::new(),
            watching: Vec::new(),
            learning: Vec::new(),
            nodes: Nodes::default(),
            prefixes: Arc::default(),
            routes: None,
            is_changed: false,
            news: Vec::new(),
            heard_to_ms: 0,
            reports: Mailbox::new(waker.clone()),
            found: Mailbox::new(waker.clone()),
            configs: Mailbox::new(waker),
            poller,
            connections: Vec::new(),
            by_peer: HashMap::new(),
            names: HashMap::new(),
            random: fastrand::Rng::new(),
        };
        control.set(config, tls);
        Ok(control)
    }

    /// Sets the first or another configuration; servers that stay keep their numbers and their health.
    fn set(&mut self, config: &Config, tls: Vec<Option<ClientTls>>) {
        let now_ms = clock::monotonic_ms();
        let known = mem::take(&mut self.pools);
        for (number, old) in known.iter().enumerate() {
            if config.pools.get(number) != Some(&old.config) {
                // Data centres and credentials may have changed.
                let of_pool: Vec<NodeId> = self
                    .nodes
                    .iter()
                    .filter(|(_, node)| node.pool == number)
                    .map(|(node, _)| node)
                    .collect();
                self.hang_up(|peer| match peer {
                    Peer::Node(node) => of_pool.contains(&node),
                    Peer::Sentinel(pool, _) | Peer::Watch(pool, _) => pool == number,
                });
            }
        }
        let mut known = known.into_iter().map(Some).collect::<Vec<_>>();
        let mut watching = mem::take(&mut self.watching)
            .into_iter()
            .map(Some)
            .collect::<Vec<_>>();
        for (number, pool) in config.pools.iter().enumerate() {
            let old = known.get_mut(number).and_then(Option::take);
            let same = old.as_ref().is_some_and(|old| old.config == *pool);
            if !same && let Some(learning) = self.learning.get_mut(number) {
                // Other servers may have other commands.
                *learning = learning::Learning::default();
            }
            if let (true, Some(old)) = (same, old.as_ref()) {
                self.pools.push(old.clone());
                self.watching
                    .extend(watching.get_mut(number).and_then(Option::take));
                continue;
            }
            let mut fresh = Known::new(pool, number, &mut self.nodes, now_ms);
            if let Some(old) = old {
                fresh.inherit(old, &mut self.nodes, now_ms);
            }
            self.pools.push(fresh);
            self.watching.push(Watching {
                refresh_at_ms: now_ms,
                sentinels: pool
                    .sentinels
                    .iter()
                    .map(|sentinel| address_of(&sentinel.address))
                    .collect(),
                ..Watching::default()
            });
        }
        for (pool, tls) in self.pools.iter_mut().zip(tls) {
            pool.tls = tls;
        }
        self.prefixes = Arc::new(prefixes(config));
        self.config = config.clone();
        self.is_changed = true;
    }

    /// Returns true if the first routing table is complete: every server in use has an address, and every pool is complete.
    fn is_settled(&self) -> bool {
        let named = self
            .nodes
            .iter()
            .all(|(_, known)| !known.is_used || known.endpoint.is_some());
        named && self.pools.iter().all(Known::is_whole)
    }

    fn turn(&mut self) -> io::Result<()> {
        let now_ms = clock::monotonic_ms();
        self.take_reports(now_ms);
        self.take_names();
        let mut configs = Vec::new();
        self.configs.drain(&mut configs);
        let taken: Vec<_> = configs
            .iter()
            .map(|changed| changed.taken.clone())
            .collect();
        if let Some(Changed { config, tls, .. }) = configs.pop() {
            self.set(&config, tls);
            self.look_up_all_now();
        }
        drop(configs);
        self.mark_used(now_ms);
        self.probe(now_ms);
        for pool in 0..self.pools.len() {
            match self.pools[pool].config.kind {
                PoolKind::Servers => {}
                PoolKind::Cluster => self.ask_cluster(pool, now_ms),
                PoolKind::Sentinel => self.ask_sentinels(pool, now_ms),
            }
        }
        self.watch_replication(now_ms);
        self.expire(now_ms);
        self.publish(now_ms);
        drop(taken);
        let sleeps = self.reports.prepare_to_sleep()
            & self.found.prepare_to_sleep()
            & self.configs.prepare_to_sleep();
        let wait = if sleeps {
            Duration::from_millis(TURN_MS)
        } else {
            Duration::ZERO
        };
        let from_ms = clock::monotonic_ms();
        self.poller.poll(Some(wait))?;
        if self.poller.event_count() < EVENTS_MAX {
            self.heard_to_ms = from_ms;
        }
        for at in 0..self.poller.event_count() {
            self.take_event(at);
        }
        Ok(())
    }

    /// Returns the TLS of each pool.
    fn pools_tls(&self) -> PoolsTls {
        self.pools.iter().map(|pool| pool.tls.clone()).collect()
    }

    fn publish(&mut self, now_ms: u64) {
        if !mem::take(&mut self.is_changed) {
            return;
        }
        self.mark_used(now_ms);
        if let Some(routes) = &self.routes {
            routes.publish(self.picture(), self.pools_tls());
        }
        for line in self.news.drain(..) {
            say(&line);
        }
    }

    fn picture(&self) -> crate::route::Routes {
        let mut routes = picture(&self.pools, &self.nodes, &self.prefixes);
        readers::appoint(&mut routes, &self.config, &self.nodes);
        for (pool, learning) in routes.pools.iter_mut().zip(&self.learning) {
            pool.learned = learning.found.clone();
        }
        routes
    }

    fn mark_used(&mut self, now_ms: u64) {
        let members: std::collections::HashSet<NodeId> =
            self.pools.iter().flat_map(Known::members).collect();
        self.nodes.mark_used(|node| members.contains(&node), now_ms);
    }

    // ---- reports of workers --------------------------------------------------------------------

    fn take_reports(&mut self, now_ms: u64) {
        let mut reports = Vec::new();
        self.reports.drain(&mut reports);
        for report in reports {
            match report {
                Report::Moved {
                    pool,
                    slot,
                    node,
                    host,
                    port,
                } => {
                    self.moved(usize::from(pool), slot, node, host, port, now_ms);
                }
                Report::Unknown { pool, host, port } => {
                    self.unknown(usize::from(pool), Address::tcp(host, port), now_ms);
                }
                Report::Failed { node, answers } | Report::TimedOut { node, answers } => {
                    let why = match report {
                        Report::TimedOut { .. } => "it keeps requests waiting",
                        _ => "connections to it cannot be made, or break",
                    };
                    let chance = self.random.f64();
                    let Some(known) = self.nodes.get_mut(node) else {
                        continue;
                    };
                    let pool = known.pool;
                    let policy = policy(&self.pools, pool);
                    let was_in_doubt = known.health.is_in_doubt();
                    if known.health.doubted(now_ms, answers, &policy, chance) {
                        self.ejected(node, why);
                    }
                    self.doubts(node, was_in_doubt);
                    self.refresh(pool, now_ms);
                }
                // A connection is established; a probe tells whether requests are answered.
                Report::Well { .. } => {}
                Report::Foreign { pool } => self.learn(usize::from(pool), now_ms),
                Report::Lost { pool } => self.refresh(usize::from(pool), now_ms),
            }
        }
    }

    fn moved(
        &mut self,
        pool: usize,
        slot: u16,
        from: NodeId,
        host: String,
        port: u16,
        now_ms: u64,
    ) {
        let (Some(known), Some(asked)) = (self.pools.get_mut(pool), self.nodes.get(from)) else {
            return;
        };
        // Other kinds have no slots.
        if known.config.kind != PoolKind::Cluster {
            return;
        }
        let host = match &asked.address {
            Address::Tcp { host: own, .. } if host.is_empty() => own.clone(),
            _ => host,
        };
        let address = Address::tcp(host, port);
        let to = self
            .nodes
            .number(&address, pool, who(&known.config, &address), now_ms);
        self.is_changed |= known.moved(slot, to, now_ms);
        self.refresh(pool, now_ms);
    }

    /// Handles a redirect to a server without a route, such as one to which the first slot moves.
    fn unknown(&mut self, pool: usize, address: Address, now_ms: u64) {
        let Some(known) = self.pools.get(pool) else {
            return;
        };
        if known.config.kind != PoolKind::Cluster {
            return;
        }
        self.nodes
            .number(&address, pool, who(&known.config, &address), now_ms);
        self.endpoint_of(&address, now_ms);
        self.is_changed = true;
        self.refresh(pool, now_ms);
    }

    /// Schedules a refresh of a pool's topology.
    fn refresh(&mut self, pool: usize, now_ms: u64) {
        if let Some(watching) = self.watching.get_mut(pool) {
            watching.refresh_at_ms = watching.refresh_at_ms.min(now_ms + DEBOUNCE_MS);
        }
    }

    /// Notes that the doubt about a server may have changed: if replicas are read from, the routing table has to reflect that.
    fn doubts(&mut self, node: NodeId, was_in_doubt: bool) {
        let known = self.nodes.get(node);
        self.is_changed |= known.is_some_and(|known| {
            let pool = self.pools.get(known.pool);
            known.health.is_in_doubt() != was_in_doubt
                && pool.is_some_and(|pool| readers::spreads(&pool.config))
        });
    }

    fn ejected(&mut self, node: NodeId, why: &str) {
        if let Some(known) = self.nodes.get(node) {
            let line = format!("{} is left alone: {why}", known.address);
            self.news.push(line);
        }
        self.is_changed = true;
    }

    // ---- health -------------------------------------------------------------------------------

    fn probe(&mut self, now_ms: u64) {
        let due = |known: &nodes::Known| {
            (known.is_used || known.health.is_ejected()) && now_ms >= known.health.probe_at_ms()
        };
        let due: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(_, known)| due(known))
            .map(|(node, _)| node)
            .collect();
        for node in due {
            let is_asked = |connection: &Connection| connection.line.deadline_ms().is_some();
            let peer = Peer::Node(node);
            let connection = self
                .by_peer
                .get(&peer)
                .and_then(|&at| self.connections[at].as_ref());
            if connection.is_some_and(is_asked) {
                continue;
            }
            self.ask(peer, Question::Probe, &["PING"], now_ms);
        }
    }

    fn well(&mut self, node: NodeId, now_ms: u64) {
        let Some(known) = self.nodes.get_mut(node) else {
            return;
        };
        let refresh = self
            .pools
            .get(known.pool)
            .map_or(1_000, |pool| pool.config.refresh.0.as_millis() as u64);
        let (pool, address) = (known.pool, known.address.clone());
        let was_in_doubt = known.health.is_in_doubt();
        if known.health.well(now_ms, refresh.max(1_000)) {
            self.news.push(format!("{address} is back"));
            self.is_changed = true;
            self.refresh(pool, now_ms);
        }
        self.doubts(node, was_in_doubt);
        self.name_answers(&address);
    }

    fn failed(&mut self, node: NodeId, why: &str, now_ms: u64) {
        let chance = self.random.f64();
        let Some(known) = self.nodes.get_mut(node) else {
            return;
        };
        let (pool, address) = (known.pool, known.address.clone());
        let policy = policy(&self.pools, pool);
        let was_in_doubt = known.health.is_in_doubt();
        if known.health.failed(now_ms, &policy, chance) {
            self.ejected(node, why);
        }
        self.doubts(node, was_in_doubt);
        // Its name may resolve differently by now.
        self.look_up(&address, now_ms);
        self.refresh(pool, now_ms);
    }

    // ---- connections --------------------------------------------------------------------------

    fn patience_ms(&self) -> u64 {
        self.config.timeouts.connect.0.as_millis().max(1) as u64
    }

    /// Returns the endpoint of a peer, and the credentials for it.
    fn place_of(
        &mut self,
        peer: Peer,
        now_ms: u64,
    ) -> Option<(Endpoint, Option<String>, Option<Secret>)> {
        match peer {
            Peer::Node(node) => {
                let known = self.nodes.get(node)?;
                let (address, user, password) = (
                    known.address.clone(),
                    known.user.clone(),
                    known.password.clone(),
                );
                let endpoint = self.endpoint_of(&address, now_ms)?;
                Some((endpoint, user, password))
            }
            Peer::Sentinel(pool, at) | Peer::Watch(pool, at) => {
                let address = self.watching.get(pool)?.sentinels.get(at)?.clone();
                let config = &self.pools.get(pool)?.config;
                let own = config
                    .sentinels
                    .iter()
                    .find(|sentinel| is_at(&sentinel.address, &address));
                let own = own.filter(|sentinel| sentinel.password.is_some());
                let (user, password) = match own {
                    Some(own) => (own.user.clone(), own.password.clone()),
                    None => (
                        config.sentinel_user.clone(),
                        config.sentinel_password.clone(),
                    ),
                };
                let endpoint = self.endpoint_of(&address, now_ms)?;
                Some((endpoint, user, password))
            }
        }
    }

    /// Asks a peer a question, on the existing connection or on a new one.
    fn ask(&mut self, peer: Peer, question: Question, words: &[&str], now_ms: u64) {
        let deadline_ms = now_ms + self.patience_ms();
        let Some((endpoint, user, password)) = self.place_of(peer, now_ms) else {
            if let Some(at) = self.by_peer.remove(&peer) {
                self.connections[at] = None;
            }
            self.lost(peer, &[question], "its name means nothing", now_ms);
            return;
        };
        let pool = match peer {
            Peer::Node(node) => self.nodes.get(node).map(|known| known.pool),
            Peer::Sentinel(pool, _) | Peer::Watch(pool, _) => Some(pool),
        };
        let tls = pool.and_then(|pool| self.pools.get(pool)?.tls.clone());
        let stands = |connection: &Connection| connection.endpoint == endpoint;
        let mut is_new = false;
        let at = match self.by_peer.get(&peer) {
            Some(&at) if self.connections[at].as_ref().is_some_and(stands) => at,
            other => {
                if let Some(&at) = other {
                    self.connections[at] = None;
                    self.by_peer.remove(&peer);
                }
                let at = self
                    .connections
                    .iter()
                    .position(Option::is_none)
                    .unwrap_or_else(|| {
                        self.connections.push(None);
                        self.connections.len() - 1
                    });
                let who = password
                    .as_deref()
                    .map(|password| (user.as_deref(), password));
                let opening = Opening {
                    token: at,
                    endpoint: &endpoint,
                    tls,
                    who,
                    deadline_ms,
                    hears: matches!(peer, Peer::Watch(..)),
                };
                match Line::open(&self.poller, opening) {
                    Ok(line) => {
                        self.connections[at] = Some(Connection {
                            peer,
                            endpoint,
                            line,
                        })
                    }
                    Err(error) => {
                        self.lost(peer, &[question], &redline_net::error_text(&error), now_ms);
                        self.leave_place(peer, &endpoint, now_ms);
                        return;
                    }
                }
                self.by_peer.insert(peer, at);
                is_new = true;
                at
            }
        };
        // A new connection has no subscription yet.
        let subscribe = ["SUBSCRIBE", "+switch-master"];
        let (question, words) = match (is_new, peer, question) {
            (true, Peer::Watch(..), Question::Pulse) => (Question::Subscribe, &subscribe[..]),
            _ => (question, words),
        };
        let asked = match &mut self.connections[at] {
            Some(connection) => connection
                .line
                .ask(question, words.iter().copied(), deadline_ms),
            None => Ok(()),
        };
        if let Err(error) = asked {
            self.close(at, &redline_net::error_text(&error), Vec::new(), now_ms);
        }
    }

    fn take_event(&mut self, at: usize) {
        let event = self.poller.event(at);
        let now_ms = clock::monotonic_ms();
        let Some(Some(connection)) = self.connections.get_mut(event.token) else {
            return;
        };
        let peer = connection.peer;
        let mut answers = Vec::new();
        let turned = connection.line.turn(&self.poller, event, &mut answers);
        if let Err(error) = &turned
            && error.kind() == io::ErrorKind::InvalidData
        {
            // A peer that violates the protocol is not trusted, and has failed a probe by it.
            let asked = answers.into_iter().filter_map(|(question, _)| question);
            let asked = asked.chain([Question::Probe]).collect();
            self.close(event.token, &redline_net::error_text(error), asked, now_ms);
            return;
        }
        for (question, value) in answers {
            match (peer, question) {
                (Peer::Node(node), Some(Question::Probe)) => self.probed(node, &value, now_ms),
                (Peer::Node(_), Some(Question::Commands(pool))) => {
                    self.took_commands(pool, Some(&value))
                }
                (Peer::Node(node), Some(Question::Replication(asked_ms))) => {
                    self.take_replication(node, &value, asked_ms)
                }
                (Peer::Node(node), Some(Question::Cluster(part))) => {
                    self.take_cluster(node, part, value, now_ms)
                }
                (Peer::Sentinel(pool, from), Some(question)) => {
                    self.take_sentinel(pool, from, question, value, now_ms)
                }
                (Peer::Watch(pool, _), Some(Question::Subscribe)) => {
                    if self.is_watching(pool, &value) {
                        continue;
                    }
                    let why = "it does not confirm the subscription";
                    self.close(event.token, why, Vec::new(), now_ms);
                    return;
                }
                (Peer::Watch(pool, _), _) => self.take_message(pool, &value, now_ms),
                _ => {}
            }
        }
        if let Err(error) = turned {
            let why = redline_net::error_text(&error);
            self.close(event.token, &why, Vec::new(), now_ms);
        }
    }

    fn probed(&mut self, node: NodeId, value: &Value, now_ms: u64) {
        let text = value.as_bytes().unwrap_or_default();
        let is_unready = [&b"LOADING"[..], b"MASTERDOWN"]
            .iter()
            .any(|kind| text.starts_with(kind));
        match value.is_error() && is_unready {
            true => self.failed(node, &String::from_utf8_lossy(text), now_ms),
            // Any other error is a reply: the server works, and clients will see the error.
            false => self.well(node, now_ms),
        }
    }

    /// Closes connections whose oldest question has timed out.
    fn expire(&mut self, now_ms: u64) {
        for at in 0..self.connections.len() {
            let deadline_ms = self.connections[at]
                .as_ref()
                .and_then(|connection| connection.line.deadline_ms());
            if deadline_ms.is_some_and(|deadline_ms| self.heard_to_ms >= deadline_ms) {
                self.close(at, "it does not answer in time", Vec::new(), now_ms);
            }
        }
    }

    /// Ends a connection; `questions` are those whose replies are not trusted.
    fn close(&mut self, at: usize, why: &str, mut questions: Vec<Question>, now_ms: u64) {
        let Some(connection) = self.connections[at].take() else {
            return;
        };
        self.by_peer.remove(&connection.peer);
        questions.extend(connection.line.unanswered());
        self.lost(connection.peer, &questions, why, now_ms);
        self.leave_place(connection.peer, &connection.endpoint, now_ms);
    }

    /// Handles the failure of an endpoint of a peer: its name may resolve differently now.
    fn leave_place(&mut self, peer: Peer, place: &Endpoint, now_ms: u64) {
        let (address, is_given_up) = match peer {
            Peer::Node(node) => {
                let known = self.nodes.get(node);
                let of = known.map(|known| (known.address.clone(), known.health.is_ejected()));
                let Some(of) = of else { return };
                of
            }
            Peer::Sentinel(pool, at) | Peer::Watch(pool, at) => {
                let watching = self.watching.get(pool);
                let Some(address) = watching.and_then(|it| it.sentinels.get(at)) else {
                    return;
                };
                (address.clone(), true)
            }
        };
        self.name_fails(&address, place, is_given_up, now_ms);
    }

    /// Handles questions that will not be answered.
    fn lost(&mut self, peer: Peer, questions: &[Question], why: &str, now_ms: u64) {
        match peer {
            Peer::Node(node) => {
                for question in questions {
                    if let Question::Commands(pool) = question {
                        self.took_commands(*pool, None);
                    }
                }
                if self.lost_replication(node, questions) {
                    self.failed(node, why, now_ms);
                }
                let asked = questions
                    .iter()
                    .any(|question| matches!(question, Question::Cluster(_)));
                let pool = self.nodes.get(node).map(|known| known.pool);
                if let (true, Some(pool)) = (asked, pool) {
                    self.ask_another(pool, now_ms);
                }
            }
            Peer::Sentinel(pool, _) => self.ask_another(pool, now_ms),
            // The subscription moves on to another Sentinel; meanwhile messages may have been missed.
            Peer::Watch(pool, _) => {
                let usual_ms = self.usual_ms(pool);
                let Some(watching) = self.watching.get_mut(pool) else {
                    return;
                };
                watching.turn = watching.turn.wrapping_add(1);
                let was_heard = watching.deaf == 0;
                watching.deaf = watching.deaf.saturating_add(1);
                let pause_ms = patient_ms(watching.deaf, watching.sentinels.len(), usual_ms);
                watching.pulse_at_ms = now_ms + pause_ms;
                if was_heard {
                    self.refresh(pool, now_ms);
                }
            }
        }
    }

    /// Returns the refresh interval of a pool's topology without failures.
    fn usual_ms(&self, pool: usize) -> u64 {
        let refresh = self.pools.get(pool).map(|pool| pool.config.refresh.0);
        refresh.map_or(1_000, |refresh| refresh.as_millis() as u64)
    }

    /// Asks another server of the pool; after failures of all, less and less often.
    fn ask_another(&mut self, pool: usize, now_ms: u64) {
        let usual_ms = self.usual_ms(pool);
        let (Some(watching), Some(known)) = (self.watching.get_mut(pool), self.pools.get(pool))
        else {
            return;
        };
        watching.asked_until_ms = 0;
        watching.parts.clear();
        watching.doubts = watching.doubts.saturating_add(1);
        let others = match known.config.kind {
            PoolKind::Cluster => known.members().count().max(known.config.seeds.len()),
            _ => watching.sentinels.len(),
        };
        let pause_ms = patient_ms(watching.doubts, others, usual_ms);
        watching.refresh_at_ms = watching.refresh_at_ms.min(now_ms + pause_ms);
    }

    fn hang_up(&mut self, which: impl Fn(Peer) -> bool) {
        for at in 0..self.connections.len() {
            if let Some(connection) =
                self.connections[at].take_if(|connection| which(connection.peer))
            {
                self.by_peer.remove(&connection.peer);
            }
        }
    }
}

/// Returns the pause before the next of `of` servers is asked, after `failures` in a row: the shortest until each of
/// them was asked, then doubled in each round, but no longer than usual.
fn patient_ms(failures: u32, of: usize, usual_ms: u64) -> u64 {
    let rounds = failures.saturating_sub(1) / (of as u32).max(1);
    (DEBOUNCE_MS << rounds.min(10)).min(usual_ms.max(DEBOUNCE_MS))
}

fn policy(pools: &[Known], pool: usize) -> FailurePolicy {
    pools
        .get(pool)
        .map(|pool| pool.config.failure.clone())
        .unwrap_or_default()
}

/// Logs a line for operators.
fn say(text: &str) {
    crate::observability::log::notice(text);
}
