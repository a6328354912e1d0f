//! Known topology of each pool, and the routes that follow from it. Pure: its inputs are replies, its output a routing
//! table. Knows no connection.

use std::sync::Arc;

use redline_cluster::{SLOTS, Topology};
use redline_net::Address;
use redline_net::tls::ClientTls;
use redline_proxy_config::{self as config, PoolKind};
use redline_resp::Value;

use super::nodes::{Nodes, Who, address_of, is_at};
use super::sentinel;
use crate::cache::Caching;
use crate::hash::Distribution;
use crate::route::{NO_NODE, NO_SHARD, NodeId, Placement, Pool, Shard};

/// Time for which a primary that was replaced by its replica counts as a replica, though no reply names it: milliseconds. A
/// node learns within half of `cluster-node-timeout`, which is 15 s by default, that the last primary follows another one now.
const REPLACED_MS: u64 = 10_000;
/// Number of replies with an older view that are rejected in a row before the cluster counts as another one.
const OLDER_VIEWS_MAX: u32 = 30;

/// A pool.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its configuration.
    pub config: config::Pool,
    /// Its number.
    pub number: usize,
    shards: Vec<Shard>,
    /// Of a cluster: the shard's number of each slot.
    slots: Option<Box<[u16; SLOTS]>>,
    hashed: Option<Arc<Distribution>>,
    /// The highest known epoch: of the cluster, or of each shard's primary.
    epochs: Vec<u64>,
    older_views: u32,
    /// By shard: number of outdated Sentinels in a row.
    late: Vec<u32>,
    /// Members of a cluster without slots: a slot may be moving to them.
    others: Vec<NodeId>,
    /// Replaced primaries, their replacements, and the time until which they count as replicas: their messages matter
    /// meanwhile.
    replaced: Vec<(NodeId, NodeId, u64)>,
    /// TLS to its servers.
    pub tls: Option<ClientTls>,
}

impl Known {
    /// Returns a pool from the configuration alone.
    pub fn new(config: &config::Pool, number: usize, nodes: &mut Nodes, now_ms: u64) -> Known {
        let shards = match config.kind {
            PoolKind::Cluster => Vec::new(),
            _ => config
                .shards
                .iter()
                .map(|shard| {
                    let mut servers = shard.servers.iter().map(|server| {
                        let address = address_of(&server.address);
                        nodes.number(&address, number, who(config, &address), now_ms)
                    });
                    match config.kind {
                        // Sentinels name the primary.
                        PoolKind::Sentinel => Shard {
                            primary: NO_NODE,
                            replicas: servers.collect(),
                            readers: Vec::new(),
                        },
                        _ => Shard {
                            primary: servers.next().unwrap_or(NO_NODE),
                            replicas: servers.collect(),
                            readers: Vec::new(),
                        },
                    }
                })
                .collect(),
        };
        let names: Vec<(String, u32)> = config
            .shards
            .iter()
            .map(|shard| (shard.known_as(), shard.weight))
            .collect();
        let names: Vec<(&str, u32)> = names
            .iter()
            .map(|(name, weight)| (name.as_str(), *weight))
            .collect();
        let tag = match config.hash_tag.as_bytes() {
            &[open, close] => Some((open, close)),
            _ => None,
        };
        let hashed = (names.len() > 1).then(|| {
            let hashed = Distribution::new(config.distribution, config.hash, tag, &names);
            Arc::new(hashed)
        });
        Known {
            config: config.clone(),
            number,
            epochs: vec![0; shards.len().max(1)],
            late: vec![0; shards.len()],
            shards,
            slots: None,
            hashed,
            older_views: 0,
            others: Vec::new(),
            replaced: Vec::new(),
            tls: None,
        }
    }

    /// Keeps the known topology under another configuration, until a server has been asked under this one.
    pub fn inherit(&mut self, old: Known, nodes: &mut Nodes, now_ms: u64) {
        if old.config.kind != self.config.kind {
            return;
        }
        let same_sources =
            old.config.seeds == self.config.seeds && old.config.sentinels == self.config.sentinels;
        for node in old.members() {
            if let Some(address) = nodes.get(node).map(|known| known.address.clone()) {
                nodes.number(&address, self.number, who(&self.config, &address), now_ms);
            }
        }
        match self.config.kind {
            PoolKind::Servers => {}
            PoolKind::Cluster => {
                (self.shards, self.slots, self.others) = (old.shards, old.slots, old.others);
                if same_sources {
                    self.epochs = old.epochs;
                }
            }
            PoolKind::Sentinel => {
                for (at, shard) in self.config.shards.iter().enumerate() {
                    let mut before = old.config.shards.iter();
                    let Some(known) = before.position(|known| known.name == shard.name) else {
                        continue;
                    };
                    self.shards[at] = old.shards[known].clone();
                    if same_sources {
                        self.epochs[at] = old.epochs[known];
                    }
                }
            }
        }
    }

    /// Returns the interval between refreshes of its topology without failures: milliseconds.
    pub fn refresh_ms(&self) -> u64 {
        self.config.refresh.0.as_millis() as u64
    }

    /// Returns true if every shard, or every slot, has a server.
    pub fn is_whole(&self) -> bool {
        let shards = self.shards.iter().all(|shard| shard.primary != NO_NODE);
        let slots = match (&self.slots, self.config.kind) {
            (Some(slots), _) => slots.iter().all(|&shard| shard != NO_SHARD),
            (None, kind) => kind != PoolKind::Cluster,
        };
        shards && slots
    }

    /// Returns all servers that belong to it.
    pub fn members(&self) -> impl Iterator<Item = NodeId> {
        let shards = self.shards.iter();
        let members = shards
            .flat_map(|shard| std::iter::once(shard.primary).chain(shard.replicas.iter().copied()));
        members
            .chain(self.others.iter().copied())
            .filter(|&node| node != NO_NODE)
    }

    /// Returns the primary and the replicas of each shard.
    pub fn replicas(&self) -> Vec<(NodeId, Vec<NodeId>)> {
        let shards = self.shards.iter();
        shards
            .map(|shard| (shard.primary, shard.replicas.clone()))
            .collect()
    }

    /// Takes a node's description of its cluster: CLUSTER INFO, SLOTS and SHARDS. `from` is its address. Returns false
    /// if it is rejected.
    pub fn take_cluster(
        &mut self,
        info: &Value,
        slots: &Value,
        shards: &Value,
        from: &Address,
        nodes: &mut Nodes,
        now_ms: u64,
    ) -> bool {
        let Some(topology) = Topology::from_slots(slots) else {
            return false;
        };
        let info = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
        let line = |name: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        let epoch = line("cluster_current_epoch")
            .and_then(|epoch| epoch.trim().parse().ok())
            .unwrap_or(0);
        // A node that has lost the others, or has not heard of a failover, would lead back to servers that are gone.
        let is_worse =
            epoch < self.epochs[0] || line("cluster_state") == Some("fail") && self.is_whole();
        if is_worse && self.older_views < OLDER_VIEWS_MAX {
            self.older_views += 1;
            return false;
        }
        self.older_views = 0;
        self.epochs[0] = epoch;
        let mut number = |node: &redline_cluster::Node| {
            let host = node.host.clone().or_else(|| match from {
                Address::Tcp { host, .. } => Some(host.clone()),
                Address::Unix(_) => Some("127.0.0.1".to_owned()),
            });
            let port = match (node.port, node.tls_port) {
                (0, port) => port.unwrap_or(0),
                (_, Some(port)) if self.tls.is_some() => port,
                (port, _) => port,
            };
            let address = Address::tcp(host.unwrap_or_default(), port);
            nodes.number(&address, self.number, who(&self.config, &address), now_ms)
        };
        let mut table = Box::new([NO_SHARD; SLOTS]);
        let before = std::mem::take(&mut self.shards);
        for shard in &topology.shards {
            let at = self.shards.len() as u16;
            for slots in &shard.slots {
                table[usize::from(*slots.start())..=usize::from(*slots.end())].fill(at);
            }
            let mut members = shard.nodes.iter().map(&mut number);
            self.shards.push(Shard {
                primary: members.next().unwrap_or(NO_NODE),
                replicas: members.filter(|&node| node != NO_NODE).collect(),
                readers: Vec::new(),
            });
        }
        stay(&before, &mut self.shards, &mut table);
        self.slots = Some(table);
        let everybody = Topology::from_shards(shards).unwrap_or_default();
        let without = everybody
            .shards
            .iter()
            .filter(|shard| shard.slots.is_empty());
        self.others = without
            .flat_map(|shard| &shard.nodes)
            .filter(|node| node.is_online)
            .map(number)
            .collect();
        self.keep_replaced(&before, now_ms);
        true
    }

    /// Keeps replaced primaries in their shards for a while.
    fn keep_replaced(&mut self, before: &[Shard], now_ms: u64) {
        for old in before {
            let mut heirs = self.shards.iter().map(|shard| shard.primary);
            if let Some(heir) = heirs.find(|heir| old.replicas.contains(heir)) {
                self.note_replaced(old.primary, heir, now_ms);
            }
        }
        self.replaced.retain(|(.., until_ms)| now_ms < *until_ms);
        for (node, heir, _) in &self.replaced {
            if !self.shards.iter().any(|shard| shard.has(*node))
                && let Some(shard) = self.shards.iter_mut().find(|shard| shard.has(*heir))
            {
                shard.replicas.push(*node);
            }
        }
    }

    fn note_replaced(&mut self, node: NodeId, heir: NodeId, now_ms: u64) {
        self.replaced.retain(|(of, ..)| *of != node && *of != heir);
        if node != NO_NODE && node != heir {
            self.replaced.push((node, heir, now_ms + REPLACED_MS));
        }
    }

    /// Moves a slot to the node of a redirect; returns true if that changes the routes.
    pub fn moved(&mut self, slot: u16, to: NodeId, now_ms: u64) -> bool {
        let (Some(slots), false) = (&mut self.slots, to == NO_NODE) else {
            return false;
        };
        let known = self.shards.iter().position(|shard| shard.has(to));
        let shard = known.unwrap_or_else(|| {
            self.shards.push(Shard {
                primary: to,
                replicas: Vec::new(),
                readers: Vec::new(),
            });
            self.shards.len() - 1
        });
        // A replica that takes writes now: the shard stays one.
        let place = &mut slots[usize::from(slot)];
        let is_elsewhere = std::mem::replace(place, shard as u16) != shard as u16;
        let last = self.shards[shard].primary;
        let is_new = self.shards[shard].promote(to);
        if is_new {
            self.note_replaced(last, to, now_ms);
        }
        is_elsewhere || is_new
    }

    /// Takes a Sentinel's description of a shard: SENTINEL MASTER and REPLICAS. Returns false if it is rejected.
    pub fn take_primary(
        &mut self,
        shard: usize,
        master: &Value,
        replicas: &Value,
        nodes: &mut Nodes,
        now_ms: u64,
    ) -> bool {
        let Some(primary) = sentinel::primary(master) else {
            return false;
        };
        let (Some(known), Some(epoch)) = (self.shards.get_mut(shard), self.epochs.get_mut(shard))
        else {
            return false;
        };
        // A reply to another question.
        if primary.name != self.config.shards[shard].name {
            return false;
        }
        // A Sentinel that has not heard of the last failover. If all of them say so, the shard was created anew.
        let late = &mut self.late[shard];
        if primary.epoch < *epoch && *late < OLDER_VIEWS_MAX {
            *late += 1;
            return false;
        }
        *late = 0;
        *epoch = primary.epoch;
        let others = sentinel::others(replicas);
        let others = others
            .iter()
            .flatten()
            .filter(|&address| *address != primary.address);
        let mut numbers = std::iter::once(&primary.address)
            .chain(others)
            .map(|address| nodes.number(address, self.number, who(&self.config, address), now_ms));
        known.primary = numbers.next().unwrap_or(NO_NODE);
        known.replicas = numbers.filter(|&node| node != NO_NODE).collect();
        true
    }

    /// Handles a Sentinel's message that a shard has a new primary. Returns false if that is known.
    pub fn switched(&mut self, name: &str, to: &Address, nodes: &mut Nodes, now_ms: u64) -> bool {
        let Some(shard) = self
            .config
            .shards
            .iter()
            .position(|shard| shard.name == name)
        else {
            return false;
        };
        let node = nodes.number(to, self.number, who(&self.config, to), now_ms);
        let known = &mut self.shards[shard];
        if known.primary == node || node == NO_NODE {
            return false;
        }
        known.replicas.retain(|&replica| replica != node);
        known.primary = node;
        // A failover raises the epoch by one at least: a lower one is outdated.
        self.epochs[shard] += 1;
        true
    }

    /// Returns the pool for the routing table.
    pub fn routed(&self) -> Pool {
        let placement = match (&self.slots, &self.hashed, self.config.kind) {
            (Some(slots), _, _) => Placement::Slots(slots.clone()),
            (None, _, PoolKind::Cluster) => Placement::Slots(Box::new([NO_SHARD; SLOTS])),
            (None, Some(hashed), _) => Placement::Hashed(Arc::clone(hashed)),
            (None, None, _) => Placement::One,
        };
        let mut shards = self.shards.clone();
        if shards.is_empty() {
            // A pool has at least one; nothing is known of this one yet.
            shards.push(Shard {
                primary: NO_NODE,
                replicas: Vec::new(),
                readers: Vec::new(),
            });
        }
        Pool {
            name: self.config.name.clone(),
            shards,
            placement,
            databases: if self.config.kind == PoolKind::Cluster {
                1
            } else {
                self.config.databases
            },
            spreads_reads: false,
            learned: None,
            caching: Caching::of(&self.config.cache),
            keepalive_s: self.config.keepalive.whole_seconds(),
            has_tls: self.tls.is_some(),
        }
    }
}

/// Gives shards the numbers that they had before, in any order of the nodes' replies: cursors of SCAN depend on them. A
/// shard is the same as long as it keeps one of its servers.
fn stay(before: &[Shard], shards: &mut Vec<Shard>, table: &mut [u16; SLOTS]) {
    let mut left: Vec<usize> = (0..shards.len()).collect();
    let mut order = Vec::with_capacity(shards.len());
    for old in before {
        let mut members = std::iter::once(&old.primary).chain(&old.replicas);
        let found = members.find_map(|node| {
            left.iter().position(|&at| {
                let shard = &shards[at];
                *node != NO_NODE && (shard.primary == *node || shard.replicas.contains(node))
            })
        });
        order.extend(found.map(|found| left.remove(found)));
    }
    order.append(&mut left);
    let mut numbers = vec![NO_SHARD; order.len()];
    for (number, &at) in order.iter().enumerate() {
        numbers[at] = number as u16;
    }
    for place in table.iter_mut().filter(|place| **place != NO_SHARD) {
        *place = numbers[usize::from(*place)];
    }
    *shards = order.iter().map(|&at| shards[at].clone()).collect();
}

/// Returns the credentials for a server: its own, or those of its pool.
pub fn who<'a>(config: &'a config::Pool, address: &Address) -> Who<'a> {
    let servers = config
        .shards
        .iter()
        .flat_map(|shard| &shard.servers)
        .chain(&config.seeds);
    let own = servers
        .clone()
        .find(|server| is_at(&server.address, address));
    match own.and_then(|server| {
        server
            .password
            .as_deref()
            .map(|password| (server, password))
    }) {
        Some((server, password)) => Who {
            user: server.user.as_deref(),
            password: Some(password),
        },
        None => Who {
            user: config.user.as_deref(),
            password: config.password.as_deref(),
        },
    }
}

#[cfg(test)]
mod tests {
    use redline_proxy_config::{Config, Server};

    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn slots(owners: &[(i64, i64, i64)]) -> Value {
        let range = |&(first, last, port): &(i64, i64, i64)| {
            let node = Value::Array(vec![bulk("10.0.0.1"), Value::Integer(port), bulk("id")]);
            Value::Array(vec![Value::Integer(first), Value::Integer(last), node])
        };
        Value::Array(owners.iter().map(range).collect())
    }

    #[test]
    fn shards_keep_their_numbers_when_slots_move_and_when_a_replica_takes_over() {
        let config: Config =
            Config::from_toml("[[pool]]\nkind = 'cluster'\nseed = [{ address = '10.0.0.1:1' }]")
                .unwrap();
        let mut nodes = Nodes::default();
        let mut known = Known::new(&config.pools[0], 0, &mut nodes, 0);
        let from = Address::tcp("10.0.0.1", 1);
        let none = Value::Array(Vec::new());
        let mut take = |known: &mut Known, owners: &[(i64, i64, i64)]| {
            let said =
                known.take_cluster(&info("ok", 1), &slots(owners), &none, &from, &mut nodes, 0);
            assert!(said);
            let ports: Vec<String> = known
                .shards
                .iter()
                .map(|shard| nodes.get(shard.primary).unwrap().address.to_string())
                .collect();
            ports.join(" ")
        };
        let first = take(
            &mut known,
            &[(0, 5000, 1), (5001, 10_000, 2), (10_001, 16_383, 3)],
        );
        assert_eq!(first, "10.0.0.1:1 10.0.0.1:2 10.0.0.1:3");
        // The first slots go to the last one, and some to one that is new.
        let moved = [
            (0, 99, 3),
            (100, 199, 4),
            (200, 5000, 1),
            (5001, 10_000, 2),
            (10_001, 16_383, 3),
        ];
        let second = take(&mut known, &moved);
        assert_eq!(second, format!("{first} 10.0.0.1:4"));
        let slots = known.slots.as_ref().unwrap();
        assert_eq!(
            [slots[0], slots[100], slots[200], slots[5001]],
            [2, 3, 0, 1]
        );
        known.shards[1].replicas.push(9);
        let last = known.shards[1].primary;
        assert!(known.moved(5001, 9, 0));
        assert_eq!((known.shards.len(), known.shards[1].primary), (4, 9));
        // A replaced primary still belongs to the shard.
        assert_eq!(known.shards[1].replicas, [last]);
        assert!(!known.moved(5001, 9, 0));
    }

    fn info(state: &str, epoch: u64) -> Value {
        bulk(&format!(
            "cluster_state:{state}\r\ncluster_current_epoch:{epoch}\r\n"
        ))
    }

    fn cluster() -> config::Pool {
        config::Pool {
            kind: PoolKind::Cluster,
            seeds: vec![Server {
                address: "10.0.0.1:1".parse().unwrap(),
                user: None,
                password: Some("p".into()),
            }],
            ..config::Pool::default()
        }
    }

    #[test]
    fn who_has_lost_the_others_or_missed_a_failover_is_not_believed() {
        let (config, mut nodes) = (cluster(), Nodes::default());
        let from = Address::tcp("10.0.0.1", 1);
        let mut pool = Known::new(&config, 0, &mut nodes, 0);
        assert!(!pool.is_whole());
        let nothing = Value::Array(Vec::new());
        let mut take = |pool: &mut Known, info: Value, slots: Value| {
            pool.take_cluster(&info, &slots, &nothing, &from, &mut nodes, 0)
        };
        assert!(take(&mut pool, info("ok", 5), slots(&[(0, 16383, 1)])));
        assert!(pool.is_whole());
        assert!(!take(&mut pool, info("fail", 6), slots(&[(0, 16383, 2)])));
        assert!(!take(&mut pool, info("ok", 4), slots(&[(0, 16383, 2)])));
        assert!(!take(
            &mut pool,
            info("ok", 7),
            Value::Error(b"ERR".to_vec())
        ));
        assert!(take(
            &mut pool,
            info("ok", 6),
            slots(&[(0, 99, 1), (100, 16383, 2)])
        ));
        assert_eq!(pool.shards.len(), 2);
        // Departed nodes are not routed to any more.
        assert!(take(&mut pool, info("ok", 6), slots(&[(0, 16383, 2)])));
        assert_eq!(pool.members().collect::<Vec<_>>(), [1]);
        // A cluster that was created anew is accepted in the end.
        let tries = (0..100).find(|_| take(&mut pool, info("ok", 1), slots(&[(0, 16383, 3)])));
        assert_eq!(tries, Some(OLDER_VIEWS_MAX as i32 as usize));
        assert_eq!(nodes.get(0).unwrap().password.as_deref(), Some("p"));
    }

    #[test]
    fn whose_place_a_replica_takes_is_of_the_shard_for_a_while() {
        let (config, mut nodes) = (cluster(), Nodes::default());
        let from = Address::tcp("10.0.0.1", 1);
        let nothing = Value::Array(Vec::new());
        let mut pool = Known::new(&config, 0, &mut nodes, 0);
        // The replicas after a node's reply that this one is the primary.
        let mut take = |pool: &mut Known, port: i64, now_ms: u64| {
            let all = slots(&[(0, 16383, port)]);
            assert!(pool.take_cluster(&info("ok", 1), &all, &nothing, &from, &mut nodes, now_ms));
            pool.shards[0].replicas.clone()
        };
        take(&mut pool, 2, 0);
        // That was no replica: the slots have moved.
        assert!(take(&mut pool, 1, 0).is_empty());
        let first = pool.shards[0].primary;
        pool.shards[0].replicas.push(9);
        assert!(pool.moved(7, 9, 0));
        // An older map, which names no replicas, and a current one.
        assert_eq!(take(&mut pool, 1, 1), [9]);
        assert_eq!(pool.shards[0].primary, first);
        assert_eq!(take(&mut pool, 1, 2), [9]);
        assert!(take(&mut pool, 1, 1 + REPLACED_MS).is_empty());
    }

    #[test]
    fn a_slot_that_moved_is_patched_at_once() {
        let (config, mut nodes) = (cluster(), Nodes::default());
        let mut pool = Known::new(&config, 0, &mut nodes, 0);
        let from = Address::tcp("10.0.0.1", 1);
        let nothing = Value::Array(Vec::new());
        assert!(pool.take_cluster(
            &info("ok", 1),
            &slots(&[(0, 16383, 1)]),
            &nothing,
            &from,
            &mut nodes,
            0
        ));
        let new = nodes.number(&Address::tcp("10.0.0.9", 9), 0, Who::default(), 0);
        assert!(pool.moved(7, new, 0) && !pool.moved(7, new, 0));
        assert_eq!(pool.slots.as_ref().unwrap()[7], 1);
        assert_eq!(pool.shards[1].primary, new);
    }

    fn master(port: &str, epoch: &str) -> Value {
        let words = [
            "name",
            "m",
            "ip",
            "10.0.0.1",
            "port",
            port,
            "config-epoch",
            epoch,
        ];
        Value::Array(words.iter().map(|word| bulk(word)).collect())
    }

    #[test]
    fn a_switch_is_not_taken_back_by_a_sentinel_that_is_late() {
        let text = "[[pool]]\nkind = 'sentinel'\nsentinel = [{ address = 'h:1' }]\nshard = [{ name = 'm' }]";
        let config = Config::from_toml(text).unwrap().pools.remove(0);
        let mut nodes = Nodes::default();
        let mut pool = Known::new(&config, 0, &mut nodes, 0);
        assert!(!pool.is_whole());
        assert!(pool.take_primary(0, &master("1", "3"), &Value::NullArray, &mut nodes, 0));
        assert!(pool.is_whole());
        let new = Address::tcp("10.0.0.1", 2);
        assert!(pool.switched("m", &new, &mut nodes, 0));
        assert!(!pool.switched("other", &new, &mut nodes, 0));
        assert!(!pool.take_primary(0, &master("1", "3"), &Value::NullArray, &mut nodes, 0));
        assert!(pool.take_primary(0, &master("2", "4"), &Value::NullArray, &mut nodes, 0));
        assert_eq!(pool.shards[0].primary, 1);
    }

    #[test]
    fn a_shard_that_was_made_anew_is_believed_in_the_end_and_answers_are_not_mixed_up() {
        let text = "[[pool]]\nkind = 'sentinel'\nsentinel = [{ address = 'h:1' }]\nshard = [{ name = 'm' }, { name = 'n' }]";
        let config = Config::from_toml(text).unwrap().pools.remove(0);
        let mut nodes = Nodes::default();
        let mut pool = Known::new(&config, 0, &mut nodes, 0);
        let mut take = |pool: &mut Known, shard, port, epoch| {
            pool.take_primary(
                shard,
                &master(port, epoch),
                &Value::NullArray,
                &mut nodes,
                0,
            )
        };
        assert!(take(&mut pool, 0, "1", "7"));
        // Replies about "m" are not taken for "n".
        assert!(!take(&mut pool, 1, "1", "7"));
        let tries = (0..100).find(|_| take(&mut pool, 0, "2", "0"));
        assert_eq!(tries, Some(OLDER_VIEWS_MAX as usize));
    }

    #[test]
    fn another_configuration_goes_on_with_what_was_known() {
        let (config, mut nodes) = (cluster(), Nodes::default());
        let from = Address::tcp("10.0.0.1", 1);
        let mut pool = Known::new(&config, 0, &mut nodes, 0);
        let nothing = Value::Array(Vec::new());
        let whole = slots(&[(0, 16383, 1)]);
        assert!(pool.take_cluster(&info("ok", 5), &whole, &nothing, &from, &mut nodes, 0));
        let changed = config::Pool {
            password: Some("other".into()),
            seeds: Vec::new(),
            ..config
        };
        let mut fresh = Known::new(&changed, 0, &mut nodes, 0);
        assert!(!fresh.is_whole());
        fresh.inherit(pool, &mut nodes, 0);
        assert!(fresh.is_whole());
        assert_eq!(nodes.get(0).unwrap().password.as_deref(), Some("other"));
    }
}
