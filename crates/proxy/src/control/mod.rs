//! The control side: the servers, their health, and their keys.
//!
//! One thread beside the workers. It asks on connections of its own, receives reports from workers ([`Report`]), and
//! publishes a new routing table ([`Published`]) after every change. It never blocks: names are resolved on separate
//! threads, and a server that hangs delays only its own questions.
//!
//! Each part owns its state and takes what it needs of the others as arguments. [`Control`] alone knows all of them: it
//! asks the questions that are due, and hands replies and failures on.
//!
//! | file | holds |
//! |---|---|
//! | `nodes` | servers by number, with their health and replication state |
//! | `health` | when a server counts as failed |
//! | `names` | resolution of servers' names |
//! | `pools` | known topology of each pool, and the routes that follow |
//! | `topology` | questions to clusters and Sentinels about the topology |
//! | `sentinel` | parsers for Sentinels' replies |
//! | `replication` | state of a replica's copy |
//! | `freshness` | questions to replicas and primaries about their replication state |
//! | `readers` | servers for reads |
//! | `learning` | the commands of a pool's servers |
//! | `table` | the routing table, and the log lines about its changes |
//! | `connections` | connections to servers, questions and their replies |
//! | `line` | one of them |
//! | `reload` | another configuration at runtime |

mod connections;
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
mod table;
mod topology;

use std::collections::HashSet;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, mem, thread};

use redline_net::tls::ClientTls;
use redline_net::{Address, Endpoint, Mailbox, Sender, clock};
use redline_proxy_config::{Arguments, Config, FailurePolicy, PoolKind};
use redline_resp::Value;

use self::connections::{Asking, Connections, Ended, Heard, Peer, Question, Target, is_violation};
use self::health::Health;
use self::learning::Learning;
use self::names::Names;
use self::nodes::{Nodes, is_at};
use self::pools::{Known, who};
use self::table::Table;
use self::topology::Refresh;
use crate::published::Published;
use crate::report::Report;
use crate::route::NodeId;
use crate::start::spawn;
use crate::tls_config::{Doors, Secured};
pub use reload::Reload;

/// Longest wait for the first topology at the start.
const FIRST_TABLE_MS: u64 = 3_000;
/// Longest interval between checks of the timers.
const TURN_MS: u64 = 50;
/// Shortest interval between probes of a server that is well.
const PROBE_MIN_MS: u64 = 1_000;

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
    let deadline_ms = clock::monotonic_ms() + FIRST_TABLE_MS;
    control.look_up_all_now();
    while !control.is_settled() && clock::monotonic_ms() < deadline_ms {
        control.turn()?;
    }
    for pool in control.pools.iter().filter(|pool| !pool.known.is_whole()) {
        say(&format!(
            "pool \"{}\": not all of its servers are known yet; asking goes on",
            pool.known.config.name
        ));
    }
    control.mark_used(clock::monotonic_ms());
    let Control {
        config: running,
        pools,
        nodes,
        table,
        ..
    } = &mut control;
    let routes = table.publish_first(running, pools, nodes);
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

/// Another configuration, and TLS to the servers of its pools.
pub struct Changed {
    config: Config,
    tls: Vec<Option<ClientTls>>,
    /// Dropped once the routing table of this configuration is published.
    taken: mpsc::Sender<()>,
}

/// A pool: its known topology, the questions about that, and the commands of its servers.
struct Pool {
    known: Known,
    refresh: Refresh,
    learning: Learning,
}

impl Pool {
    /// Returns a pool under this configuration. What was known of it before stays, as far as that still holds.
    fn new(
        config: &redline_proxy_config::Pool,
        number: usize,
        before: Option<Pool>,
        nodes: &mut Nodes,
        now_ms: u64,
    ) -> Pool {
        let before = match before {
            Some(before) if before.known.config == *config => return before,
            other => other,
        };
        let mut known = Known::new(config, number, nodes, now_ms);
        if let Some(before) = before {
            known.inherit(before.known, nodes, now_ms);
        }
        Pool {
            known,
            refresh: Refresh::new(config, now_ms),
            // Other servers may have other commands.
            learning: Learning::default(),
        }
    }
}

/// The control side: all of its parts, and the queues of what others send it.
struct Control {
    /// The configuration in effect.
    config: Config,
    pools: Vec<Pool>,
    nodes: Nodes,
    names: Names,
    table: Table,
    connections: Connections,
    reports: Mailbox<Report>,
    configs: Mailbox<Changed>,
    random: fastrand::Rng,
}

impl Control {
    fn new(config: &Config, tls: Vec<Option<ClientTls>>) -> io::Result<Control> {
        let mut connections = Connections::new()?;
        let waker = connections.waker()?;
        let mut control = Control {
            config: Config::default(),
            pools: Vec::new(),
            nodes: Nodes::default(),
            names: Names::new(waker.clone()),
            table: Table::default(),
            connections,
            reports: Mailbox::new(waker.clone()),
            configs: Mailbox::new(waker),
            random: fastrand::Rng::new(),
        };
        control.set(config, tls);
        Ok(control)
    }

    /// Sets the first or another configuration; servers that stay keep their numbers and their health.
    fn set(&mut self, config: &Config, tls: Vec<Option<ClientTls>>) {
        let now_ms = clock::monotonic_ms();
        let before = mem::take(&mut self.pools);
        for (number, old) in before.iter().enumerate() {
            if config.pools.get(number) != Some(&old.known.config) {
                // Data centres and credentials may have changed.
                self.connections.forget_where(|peer| match peer {
                    Peer::Node(node) => self
                        .nodes
                        .get(node)
                        .is_some_and(|known| known.pool == number),
                    Peer::Sentinel(pool, _) | Peer::Watch(pool, _) => pool == number,
                });
            }
        }
        let mut before = before.into_iter();
        let pools =
            config.pools.iter().enumerate().map(|(number, pool)| {
                Pool::new(pool, number, before.next(), &mut self.nodes, now_ms)
            });
        self.pools = pools.collect();
        for (pool, tls) in self.pools.iter_mut().zip(tls) {
            pool.known.tls = tls;
        }
        self.table.set_prefixes(config);
        self.config = config.clone();
    }

    /// Returns true if the first routing table is complete: every server in use has an address, and every pool is complete.
    fn is_settled(&self) -> bool {
        let is_named = self
            .nodes
            .iter()
            .all(|(_, known)| !known.is_used || known.endpoint.is_some());
        is_named && self.pools.iter().all(|pool| pool.known.is_whole())
    }

    fn turn(&mut self) -> io::Result<()> {
        let now_ms = clock::monotonic_ms();
        self.take_reports(now_ms);
        self.names.take();
        self.names.apply(&mut self.nodes, &mut self.table);
        let taken = self.take_configs();
        self.mark_used(now_ms);
        self.ask_due(now_ms);
        for at in self.connections.late() {
            self.close(at, "it does not answer in time", Vec::new(), now_ms);
        }
        self.publish(now_ms);
        drop(taken);
        let sleeps = self.reports.prepare_to_sleep()
            & self.names.prepare_to_sleep()
            & self.configs.prepare_to_sleep();
        let wait = if sleeps {
            Duration::from_millis(TURN_MS)
        } else {
            Duration::ZERO
        };
        for event in 0..self.connections.wait(wait)? {
            if let Some(heard) = self.connections.take_event(event) {
                self.take_heard(heard, clock::monotonic_ms());
            }
        }
        Ok(())
    }

    /// Takes the last of the configurations that have arrived. Those who sent one wait until the returned ends are dropped.
    fn take_configs(&mut self) -> Vec<mpsc::Sender<()>> {
        let mut configs = Vec::new();
        self.configs.drain(&mut configs);
        let mut taken = Vec::new();
        let mut last = None;
        for changed in configs {
            taken.push(changed.taken);
            last = Some((changed.config, changed.tls));
        }
        if let Some((config, tls)) = last {
            self.set(&config, tls);
            self.look_up_all_now();
        }
        taken
    }

    /// Begins to resolve all names, before anything else happens.
    fn look_up_all_now(&mut self) {
        let now_ms = clock::monotonic_ms();
        self.mark_used(now_ms);
        for (_, known) in self.nodes.iter() {
            self.names.endpoint_of(&known.address, now_ms);
        }
    }

    fn mark_used(&mut self, now_ms: u64) {
        let pools = self.pools.iter();
        let members: HashSet<NodeId> = pools.flat_map(|pool| pool.known.members()).collect();
        self.nodes.mark_used(|node| members.contains(&node), now_ms);
    }

    /// Publishes the routing table, if it is another one now.
    fn publish(&mut self, now_ms: u64) {
        if self.table.take_change() {
            self.mark_used(now_ms);
            self.table.publish(&self.config, &self.pools, &self.nodes);
        }
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
                    self.note_failure(node, why, now_ms, |health, policy, chance| {
                        health.doubted(now_ms, answers, policy, chance)
                    });
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
        let (Some(Pool { known, refresh, .. }), Some(asked)) =
            (self.pools.get_mut(pool), self.nodes.get(from))
        else {
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
        let who = who(&known.config, &address);
        let to = self.nodes.number(&address, pool, who, now_ms);
        self.table.note(known.moved(slot, to, now_ms));
        refresh.schedule(now_ms);
    }

    /// Handles a redirect to a server without a route, such as one to which the first slot moves.
    fn unknown(&mut self, pool: usize, address: Address, now_ms: u64) {
        let Some(Pool { known, refresh, .. }) = self.pools.get_mut(pool) else {
            return;
        };
        if known.config.kind != PoolKind::Cluster {
            return;
        }
        let who = who(&known.config, &address);
        self.nodes.number(&address, pool, who, now_ms);
        self.names.endpoint_of(&address, now_ms);
        self.table.note(true);
        refresh.schedule(now_ms);
    }

    /// Handles a client's call of an unknown command.
    fn learn(&mut self, pool: usize, now_ms: u64) {
        if let Some(Pool {
            known, learning, ..
        }) = self.pools.get_mut(pool)
        {
            let asking = learning.question(known, &self.nodes, &mut self.table, now_ms);
            self.ask(asking, now_ms);
        }
    }

    /// Schedules a refresh of a pool's topology.
    fn refresh(&mut self, pool: usize, now_ms: u64) {
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.refresh.schedule(now_ms);
        }
    }

    // ---- health -------------------------------------------------------------------------------

    /// Notes the failure of a server, which `note` returns true for if it ejects the server.
    fn note_failure(
        &mut self,
        node: NodeId,
        why: &str,
        now_ms: u64,
        note: impl FnOnce(&mut Health, &FailurePolicy, f64) -> bool,
    ) {
        let chance = self.random.f64();
        let Some(known) = self.nodes.get_mut(node) else {
            return;
        };
        let pool = known.pool;
        let policy = self.pools.get(pool);
        let policy = policy.map(|pool| pool.known.config.failure.clone());
        let was_in_doubt = known.health.is_in_doubt();
        if note(&mut known.health, &policy.unwrap_or_default(), chance) {
            let retry_ms = known.health.probe_at_ms().saturating_sub(now_ms);
            let line = format!(
                "{} is marked down (retry in {retry_ms} ms): {why}",
                known.address
            );
            self.table.note_news(line);
        }
        self.note_doubt(node, was_in_doubt);
        self.refresh(pool, now_ms);
    }

    /// Handles a probe or another question that a server has not answered as it should.
    fn failed(&mut self, node: NodeId, why: &str, now_ms: u64) {
        self.note_failure(node, why, now_ms, |health, policy, chance| {
            health.failed(now_ms, policy, chance)
        });
        // Its name may resolve differently by now.
        if let Some(known) = self.nodes.get(node) {
            self.names.look_up(&known.address, now_ms);
        }
    }

    /// Handles an answered probe.
    fn well(&mut self, node: NodeId, now_ms: u64) {
        let Some(known) = self.nodes.get_mut(node) else {
            return;
        };
        let pool = known.pool;
        let every_ms = self.pools.get(pool).map(|pool| pool.known.refresh_ms());
        let every_ms = every_ms.unwrap_or_default().max(PROBE_MIN_MS);
        let was_in_doubt = known.health.is_in_doubt();
        self.names.answers(&known.address);
        if known.health.well(now_ms, every_ms) {
            self.table.note_news(format!("{} is back", known.address));
            self.refresh(pool, now_ms);
        }
        self.note_doubt(node, was_in_doubt);
    }

    /// Notes that the doubt about a server may have changed: if replicas are read from, the routing table has to reflect that.
    fn note_doubt(&mut self, node: NodeId, was_in_doubt: bool) {
        if let Some(known) = self.nodes.get(node) {
            let pool = self.pools.get(known.pool);
            self.table.note(
                known.health.is_in_doubt() != was_in_doubt
                    && pool.is_some_and(|pool| readers::spreads(&pool.known.config)),
            );
        }
    }

    // ---- questions ----------------------------------------------------------------------------

    /// Returns the longest wait for a reply: milliseconds.
    fn patience_ms(&self) -> u64 {
        self.config.timeouts.connect.0.as_millis().max(1) as u64
    }

    /// Asks all questions that are due: probes, then those about the topology, then those about replication.
    fn ask_due(&mut self, now_ms: u64) {
        for node in self.nodes.due_for_probe(now_ms) {
            let peer = Peer::Node(node);
            if !self.connections.is_asked(peer) {
                self.ask([Asking::new(peer, Question::Probe, &["PING"])], now_ms);
            }
        }
        let patience_ms = self.patience_ms();
        for pool in 0..self.pools.len() {
            let Pool { known, refresh, .. } = &mut self.pools[pool];
            match known.config.kind {
                PoolKind::Servers => {}
                PoolKind::Cluster => {
                    let due = refresh.ask_cluster(known, &mut self.nodes, patience_ms, now_ms);
                    self.ask(due, now_ms);
                }
                PoolKind::Sentinel => {
                    let watched = self.connections.watched(pool);
                    let due = refresh.watch_sentinel(known, watched, now_ms);
                    self.ask(due, now_ms);
                    // A subscription that has failed may ask for another Sentinel.
                    let Pool { known, refresh, .. } = &mut self.pools[pool];
                    let due = refresh.ask_sentinel(known, patience_ms, now_ms);
                    self.ask(due, now_ms);
                }
            }
        }
        for pool in 0..self.pools.len() {
            let is_asked = |peer| self.connections.is_asked(peer);
            let known = &self.pools[pool].known;
            let due = freshness::questions(known, &mut self.nodes, is_asked, now_ms);
            self.ask(due, now_ms);
            let known = &self.pools[pool].known;
            freshness::judge(known, &mut self.nodes, &mut self.table, now_ms);
        }
    }

    /// Returns the target of a connection to a peer; none: it is not known.
    fn target_of(&mut self, peer: Peer, now_ms: u64) -> Option<Target> {
        match peer {
            Peer::Node(node) => {
                let known = self.nodes.get(node)?;
                let pool = self.pools.get(known.pool);
                Some(Target {
                    endpoint: self.names.endpoint_of(&known.address, now_ms)?,
                    user: known.user.clone(),
                    password: known.password.clone(),
                    tls: pool.and_then(|pool| pool.known.tls.clone()),
                })
            }
            Peer::Sentinel(pool, at) | Peer::Watch(pool, at) => {
                let Pool { known, refresh, .. } = self.pools.get(pool)?;
                let address = refresh.sentinel(at)?;
                let config = &known.config;
                let mut sentinels = config.sentinels.iter();
                let own = sentinels.find(|sentinel| is_at(&sentinel.address, address));
                let (user, password) = match own {
                    Some(own) if own.password.is_some() => (&own.user, &own.password),
                    _ => (&config.sentinel_user, &config.sentinel_password),
                };
                Some(Target {
                    endpoint: self.names.endpoint_of(address, now_ms)?,
                    user: user.clone(),
                    password: password.clone(),
                    tls: known.tls.clone(),
                })
            }
        }
    }

    /// Asks questions in their order.
    fn ask(&mut self, questions: impl IntoIterator<Item = Asking>, now_ms: u64) {
        let deadline_ms = now_ms + self.patience_ms();
        for asking in questions {
            let peer = asking.peer;
            let Some(target) = self.target_of(peer, now_ms) else {
                self.connections.forget(peer);
                self.lost(peer, &[asking.question], "its name means nothing", now_ms);
                continue;
            };
            if let Err(ended) = self.connections.ask(asking, target, deadline_ms) {
                self.ended(ended, now_ms);
            }
        }
    }

    /// Hands the replies of a connection on.
    fn take_heard(&mut self, heard: Heard, now_ms: u64) {
        let Heard {
            at,
            peer,
            answers,
            error,
        } = heard;
        if let Some(error) = error.as_ref().filter(|error| is_violation(error)) {
            // A peer that violates the protocol is not trusted, and has failed a probe by it.
            let asked = answers.into_iter().filter_map(|(question, _)| question);
            let asked = asked.chain([Question::Probe]).collect();
            self.close(at, &redline_net::error_text(error), asked, now_ms);
            return;
        }
        for (question, value) in answers {
            let is_taken = match peer {
                Peer::Node(node) => {
                    self.take_of_node(node, question, value, now_ms);
                    true
                }
                Peer::Sentinel(pool, _) | Peer::Watch(pool, _) => {
                    self.take_of_sentinel(pool, peer, question, value, now_ms)
                }
            };
            if !is_taken {
                let why = "it does not confirm the subscription";
                self.close(at, why, Vec::new(), now_ms);
                return;
            }
        }
        if let Some(error) = error {
            self.close(at, &redline_net::error_text(&error), Vec::new(), now_ms);
        }
    }

    /// Takes a server's reply.
    fn take_of_node(
        &mut self,
        node: NodeId,
        question: Option<Question>,
        value: Value,
        now_ms: u64,
    ) {
        match question {
            Some(Question::Probe) => self.probed(node, &value, now_ms),
            Some(Question::Commands(pool)) => self.take_commands(pool, Some(&value)),
            Some(Question::Replication(asked_ms)) => {
                freshness::take(node, &value, asked_ms, &mut self.nodes, &mut self.table);
            }
            Some(Question::Cluster(part)) => {
                let pool = self.nodes.get(node).map(|known| known.pool);
                if let Some(Pool { known, refresh, .. }) =
                    pool.and_then(|pool| self.pools.get_mut(pool))
                {
                    let part = (node, part, value);
                    refresh.take_cluster(part, known, &mut self.nodes, &mut self.table, now_ms);
                }
            }
            _ => {}
        }
    }

    /// Takes a Sentinel's reply or message. Returns false if it does not confirm the subscription that was asked for.
    fn take_of_sentinel(
        &mut self,
        pool: usize,
        peer: Peer,
        question: Option<Question>,
        value: Value,
        now_ms: u64,
    ) -> bool {
        let Some(Pool { known, refresh, .. }) = self.pools.get_mut(pool) else {
            return true;
        };
        let (nodes, table) = (&mut self.nodes, &mut self.table);
        match (peer, question) {
            (Peer::Watch(..), Some(Question::Subscribe)) => return refresh.is_confirmed(&value),
            (Peer::Watch(..), _) => refresh.take_message(&value, known, nodes, table, now_ms),
            (Peer::Sentinel(_, from), Some(question)) => {
                refresh.take_sentinel((from, question, value), known, nodes, table, now_ms);
            }
            _ => {}
        }
        true
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

    /// Takes the commands of a pool's servers; none: the server did not answer.
    fn take_commands(&mut self, pool: usize, reply: Option<&Value>) {
        if let Some(pool) = self.pools.get_mut(pool) {
            self.table.note(pool.learning.take(reply));
        }
    }

    // ---- ends of connections ------------------------------------------------------------------

    /// Ends a connection; `questions` are those whose replies are not trusted.
    fn close(&mut self, at: usize, why: &str, questions: Vec<Question>, now_ms: u64) {
        if let Some(ended) = self.connections.close(at, why, questions) {
            self.ended(ended, now_ms);
        }
    }

    /// Handles the end of a connection.
    fn ended(&mut self, ended: Ended, now_ms: u64) {
        self.lost(ended.peer, &ended.questions, &ended.why, now_ms);
        self.leave_endpoint(ended.peer, &ended.endpoint, now_ms);
    }

    /// Handles the failure of an endpoint of a peer: its name may resolve differently now.
    fn leave_endpoint(&mut self, peer: Peer, endpoint: &Endpoint, now_ms: u64) {
        let (address, is_given_up) = match peer {
            Peer::Node(node) => {
                let Some(known) = self.nodes.get(node) else {
                    return;
                };
                (&known.address, known.health.is_ejected())
            }
            Peer::Sentinel(pool, at) | Peer::Watch(pool, at) => {
                let pool = self.pools.get(pool);
                let Some(address) = pool.and_then(|pool| pool.refresh.sentinel(at)) else {
                    return;
                };
                (address, true)
            }
        };
        if self.names.fails(address, endpoint, is_given_up, now_ms) {
            self.names.apply(&mut self.nodes, &mut self.table);
        }
    }

    /// Handles questions that will not be answered.
    fn lost(&mut self, peer: Peer, questions: &[Question], why: &str, now_ms: u64) {
        let pool = match peer {
            Peer::Node(node) => {
                self.lost_by_node(node, questions, why, now_ms);
                let is_cluster = |question: &Question| matches!(question, Question::Cluster(_));
                let known = self.nodes.get(node);
                let known = known.filter(|_| questions.iter().any(is_cluster));
                known.map(|known| known.pool)
            }
            Peer::Sentinel(pool, _) | Peer::Watch(pool, _) => Some(pool),
        };
        let Some(Pool { known, refresh, .. }) = pool.and_then(|pool| self.pools.get_mut(pool))
        else {
            return;
        };
        match peer {
            Peer::Watch(..) => refresh.watch_another(known, now_ms),
            Peer::Node(_) | Peer::Sentinel(..) => refresh.ask_another(known, now_ms),
        }
    }

    /// Handles a server's questions about commands, replication, and its health, that will not be answered.
    fn lost_by_node(&mut self, node: NodeId, questions: &[Question], why: &str, now_ms: u64) {
        for question in questions {
            if let Question::Commands(pool) = question {
                self.take_commands(*pool, None);
            }
        }
        let concerns_health =
            |question: &Question| matches!(question, Question::Replication(_) | Question::Probe);
        if questions.iter().any(concerns_health) {
            freshness::lost(node, &mut self.nodes, &mut self.table);
            self.failed(node, why, now_ms);
        }
    }
}

/// Logs a line for operators.
fn say(text: &str) {
    crate::observability::log::notice(text);
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Turns until this is true of the published table's only server.
    fn turn_until(control: &mut Control, published: &Published, is: impl Fn(bool) -> bool) {
        let deadline_ms = clock::monotonic_ms() + 20_000;
        while !is(published.current().nodes[0].ejected) {
            assert!(clock::monotonic_ms() < deadline_ms, "nothing changes");
            control.turn().unwrap();
        }
    }

    /// Answers one PING, and leaves.
    fn answer_one(listener: TcpListener) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut request = [0; b"*1\r\n$4\r\nPING\r\n".len()];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(b"+PONG\r\n").unwrap();
        })
    }

    #[test]
    fn a_server_that_is_gone_is_ejected_in_the_table_and_one_answer_brings_it_back() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let text = format!(
            "[[pool]]\nshard = [{{ server = [{{ address = '{address}' }}] }}]\n\
             [pool.failure]\nlimit = 2\nretry = '1ms'\nretry-max = '1ms'\n"
        );
        let config = Config::from_toml(&text).unwrap();
        let mut control = Control::new(&config, vec![None]).unwrap();
        control.mark_used(clock::monotonic_ms());
        let Control {
            config,
            pools,
            nodes,
            table,
            ..
        } = &mut control;
        let published = table.publish_first(config, pools, nodes);
        assert!(control.is_settled() && !published.current().nodes[0].ejected);
        turn_until(&mut control, &published, |ejected| ejected);
        let server = answer_one(TcpListener::bind(address).unwrap());
        turn_until(&mut control, &published, |ejected| !ejected);
        server.join().unwrap();
    }

    #[test]
    fn what_was_known_of_a_pool_stays_unless_its_configuration_is_another_one() {
        let text = "[[pool]]\nname = 'a'\n[[pool.shard]]\nserver = [{ address = '10.0.0.1:1' }]\n\
            [[pool]]\nname = 'b'\n[[pool.shard]]\nserver = [{ address = '10.0.0.2:1' }]\n";
        let config = Config::from_toml(text).unwrap();
        let mut control = Control::new(&config, vec![None, None]).unwrap();
        for pool in &mut control.pools {
            assert!(pool.learning.take(None));
        }
        let changed = Config::from_toml(&text.replace("10.0.0.2:1", "10.0.0.3:1")).unwrap();
        control.set(&changed, vec![None, None]);
        let learned = control
            .pools
            .iter()
            .map(|pool| pool.learning.found.is_some());
        assert_eq!(learned.collect::<Vec<_>>(), [true, false]);
        let members = control.pools.iter().flat_map(|pool| pool.known.members());
        let members = members.map(|node| control.nodes.get(node).unwrap().address.to_string());
        assert_eq!(members.collect::<Vec<_>>(), ["10.0.0.1:1", "10.0.0.3:1"]);
    }
}
