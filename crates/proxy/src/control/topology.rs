//! Questions to clusters and Sentinels about the topology, to one server of each pool at a time, and what follows from
//! the replies. Their meaning for the routes is in `pools`. Knows no connection.

use std::collections::HashMap;
use std::mem;

use redline_net::Address;
use redline_proxy_config::{self as config, PoolKind};
use redline_resp::Value;

use super::connections::{Asking, Peer, Question};
use super::nodes::{Nodes, address_of};
use super::pools::{Known, who};
use super::table::Table;
use super::{say, sentinel};
use crate::route::{NO_NODE, NodeId, Placement, Pool};

/// Smallest interval between requested refreshes: redirects come in bursts.
const DEBOUNCE_MS: u64 = 100;
/// Shortest interval between questions to a Sentinel that keep a subscription's connection alive.
const PULSE_MIN_MS: u64 = 1_000;

/// State of the refreshes of a pool's topology.
#[derive(Clone, Default)]
pub struct Refresh {
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

impl Refresh {
    /// Returns the state of a pool under this configuration: its topology is asked for at once.
    pub fn new(config: &config::Pool, now_ms: u64) -> Refresh {
        let sentinels = config.sentinels.iter();
        Refresh {
            refresh_at_ms: now_ms,
            sentinels: sentinels
                .map(|sentinel| address_of(&sentinel.address))
                .collect(),
            ..Refresh::default()
        }
    }

    /// Schedules a refresh, in a moment.
    pub fn schedule(&mut self, now_ms: u64) {
        self.refresh_at_ms = self.refresh_at_ms.min(now_ms + DEBOUNCE_MS);
    }

    /// Returns the address of a Sentinel, by its index.
    pub fn sentinel(&self, at: usize) -> Option<&Address> {
        self.sentinels.get(at)
    }

    /// Returns the questions to one of a cluster's nodes, if they are due. A reply is expected for `patience_ms`.
    pub fn ask_cluster(
        &mut self,
        pool: &Known,
        nodes: &mut Nodes,
        patience_ms: u64,
        now_ms: u64,
    ) -> Vec<Asking> {
        if now_ms < self.refresh_at_ms || now_ms < self.asked_until_ms {
            return Vec::new();
        }
        let is_well = |node: &NodeId| {
            let known = nodes.get(*node);
            known.is_some_and(|known| !known.health.is_ejected())
        };
        let mut candidates: Vec<NodeId> = pool.members().filter(is_well).collect();
        // Servers of the file are asked as well: all others may be gone.
        for seed in &pool.config.seeds {
            let address = address_of(&seed.address);
            let who = who(&pool.config, &address);
            let seed = nodes.number(&address, pool.number, who, now_ms);
            if seed != NO_NODE && !candidates.contains(&seed) {
                candidates.push(seed);
            }
        }
        self.refresh_at_ms = now_ms + pool.refresh_ms();
        // With too many servers a seed may have no number.
        if candidates.is_empty() {
            return Vec::new();
        }
        let node = candidates[self.turn % candidates.len()];
        self.turn = self.turn.wrapping_add(1);
        self.parts.clear();
        self.asked = node;
        self.asked_until_ms = now_ms + patience_ms;
        let questions = ["INFO", "SLOTS", "SHARDS"].into_iter().enumerate();
        let questions = questions.map(|(part, word)| {
            let words = ["CLUSTER", word];
            Asking::new(Peer::Node(node), Question::Cluster(part), &words)
        });
        questions.collect()
    }

    /// Takes a part of a node's description of its cluster; the last one completes it.
    pub fn take_cluster(
        &mut self,
        (node, part, value): (NodeId, usize, Value),
        pool: &mut Known,
        nodes: &mut Nodes,
        table: &mut Table,
        now_ms: u64,
    ) {
        let Some(from) = nodes.get(node).map(|known| known.address.clone()) else {
            return;
        };
        // A server that was given up may answer after all.
        if self.asked != node || self.parts.len() != part {
            return;
        }
        self.parts.push(value);
        let [info, slots, shards] = self.parts.as_slice() else {
            return;
        };
        let complaint = [info, slots].into_iter().find(|value| value.is_error());
        let complaint = complaint.map(|value| format!("{from} says: {}", text_of(value)));
        let before = pool.routed();
        let is_believed = pool.take_cluster(info, slots, shards, &from, nodes, now_ms);
        self.parts.clear();
        self.asked_until_ms = 0;
        if is_believed && pool.is_whole() {
            self.doubts = 0;
        } else {
            // Another one may know better; after failures of all, they are asked less and less often.
            let pause_ms = DEBOUNCE_MS << self.doubts.min(10);
            self.doubts += 1;
            self.refresh_at_ms = now_ms + pause_ms.min(pool.refresh_ms().max(DEBOUNCE_MS));
        }
        table.note(differ(&before, &pool.routed()));
        self.complain(pool, complaint);
    }

    /// Logs once why a pool is not known; `None`: it is.
    fn complain(&mut self, pool: &Known, complaint: Option<String>) {
        if let Some(text) = &complaint
            && self.complaint != complaint
        {
            say(&format!("pool \"{}\": {text}", pool.config.name));
        }
        self.complaint = complaint;
    }

    /// Returns the questions to one of the pool's Sentinels, if they are due. A reply is expected for `patience_ms`.
    pub fn ask_sentinel(&mut self, pool: &Known, patience_ms: u64, now_ms: u64) -> Vec<Asking> {
        if now_ms < self.refresh_at_ms || now_ms < self.asked_until_ms || self.sentinels.is_empty()
        {
            return Vec::new();
        }
        let at = self.turn % self.sentinels.len();
        self.turn = self.turn.wrapping_add(1);
        self.parts.clear();
        self.refresh_at_ms = now_ms + pool.refresh_ms();
        self.asked_until_ms = now_ms + patience_ms;
        let peer = Peer::Sentinel(pool.number, at);
        let shards = pool.config.shards.iter().enumerate();
        let questions = shards.flat_map(|(shard, config)| {
            [
                (Question::Shard(shard, 0), "MASTER"),
                (Question::Shard(shard, 1), "REPLICAS"),
                (Question::Sentinels(shard), "SENTINELS"),
            ]
            .map(|(question, word)| Asking::new(peer, question, &["SENTINEL", word, &config.name]))
        });
        questions.collect()
    }

    /// Returns what keeps one subscription to one Sentinel of the pool, and its connection alive, if that is due.
    /// `watched`: the Sentinel to which there is one.
    pub fn watch_sentinel(
        &mut self,
        pool: &Known,
        watched: Option<Peer>,
        now_ms: u64,
    ) -> Option<Asking> {
        if now_ms < self.pulse_at_ms || self.sentinels.is_empty() {
            return None;
        }
        self.pulse_at_ms = now_ms + pool.refresh_ms().max(PULSE_MIN_MS);
        Some(match watched {
            Some(peer) => Asking::new(peer, Question::Pulse, &["PING"]),
            None => {
                let at = self.turn.wrapping_add(1) % self.sentinels.len();
                let words = ["SUBSCRIBE", "+switch-master"];
                Asking::new(Peer::Watch(pool.number, at), Question::Subscribe, &words)
            }
        })
    }

    /// Takes a reply of the Sentinel of this index.
    pub fn take_sentinel(
        &mut self,
        (from, question, value): (usize, Question, Value),
        pool: &mut Known,
        nodes: &mut Nodes,
        table: &mut Table,
        now_ms: u64,
    ) {
        self.asked_until_ms = 0;
        match question {
            Question::Shard(shard, 0) => drop(self.masters.insert((from, shard), value)),
            Question::Shard(shard, _) => {
                let Some(master) = self.masters.remove(&(from, shard)) else {
                    return;
                };
                let from = self.sentinels.get(from);
                let complaint = from
                    .filter(|_| master.is_error())
                    .map(|from| format!("Sentinel {from} says: {}", text_of(&master)));
                let before = pool.routed();
                if !pool.take_primary(shard, &master, &value, nodes, now_ms) {
                    self.is_doubted = true;
                }
                table.note(differ(&before, &pool.routed()));
                self.complain(pool, complaint);
            }
            Question::Sentinels(shard) => {
                // The last question of a round.
                if shard + 1 == pool.config.shards.len() {
                    match mem::take(&mut self.is_doubted) {
                        true => self.ask_another(pool, now_ms),
                        false => self.doubts = 0,
                    }
                }
                if let Some(others) = sentinel::others(&value) {
                    self.take_sentinels(shard, others, pool);
                }
            }
            _ => {}
        }
    }

    /// Takes the Sentinels that one of them knows. Those of the file stay; others come and go.
    fn take_sentinels(&mut self, shard: usize, others: Vec<Address>, pool: &Known) {
        self.heard.insert(shard, others);
        let own = pool.config.sentinels.iter();
        let mut sentinels: Vec<Address> =
            own.map(|sentinel| address_of(&sentinel.address)).collect();
        for address in self.heard.values().flatten() {
            if !sentinels.contains(address) {
                sentinels.push(address.clone());
            }
        }
        self.sentinels = sentinels;
    }

    /// Returns true if this confirms the subscription to a Sentinel.
    pub fn is_confirmed(&mut self, answer: &Value) -> bool {
        let confirms = sentinel::confirms(answer);
        if confirms {
            self.deaf = 0;
        }
        confirms
    }

    /// Takes a message of a Sentinel: a shard may have a new primary.
    pub fn take_message(
        &mut self,
        message: &Value,
        pool: &mut Known,
        nodes: &mut Nodes,
        table: &mut Table,
        now_ms: u64,
    ) {
        let Some((name, address)) = sentinel::switched(message) else {
            return;
        };
        if pool.switched(&name, &address, nodes, now_ms) {
            table.note_news(format!(
                "Sentinel says that {address} is the primary of \"{name}\" now"
            ));
        }
        self.schedule(now_ms);
    }

    /// Schedules the questions to another server of the pool, after one that does not answer, or is not believed; after
    /// failures of all, less and less often.
    pub fn ask_another(&mut self, pool: &Known, now_ms: u64) {
        self.asked_until_ms = 0;
        self.parts.clear();
        self.doubts = self.doubts.saturating_add(1);
        let others = match pool.config.kind {
            PoolKind::Cluster => pool.members().count().max(pool.config.seeds.len()),
            _ => self.sentinels.len(),
        };
        let pause_ms = pause_ms(self.doubts, others, pool.refresh_ms());
        self.refresh_at_ms = self.refresh_at_ms.min(now_ms + pause_ms);
    }

    /// Schedules the subscription to another Sentinel, after the end of one; meanwhile messages may have been missed.
    pub fn watch_another(&mut self, pool: &Known, now_ms: u64) {
        self.turn = self.turn.wrapping_add(1);
        let was_heard = self.deaf == 0;
        self.deaf = self.deaf.saturating_add(1);
        let pause_ms = pause_ms(self.deaf, self.sentinels.len(), pool.refresh_ms());
        self.pulse_at_ms = now_ms + pause_ms;
        if was_heard {
            self.schedule(now_ms);
        }
    }
}

/// Returns the pause before the next of `of` servers is asked, after `failures` in a row: the shortest until each of
/// them was asked, then doubled in each round, but no longer than usual.
fn pause_ms(failures: u32, of: usize, usual_ms: u64) -> u64 {
    let rounds = failures.saturating_sub(1) / (of as u32).max(1);
    (DEBOUNCE_MS << rounds.min(10)).min(usual_ms.max(DEBOUNCE_MS))
}

fn differ(one: &Pool, other: &Pool) -> bool {
    one.shards != other.shards
        || match (&one.placement, &other.placement) {
            (Placement::Slots(one), Placement::Slots(other)) => one != other,
            _ => false,
        }
}

fn text_of(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use redline_proxy_config::Config;

    use super::*;

    const PATIENCE_MS: u64 = 1_000;

    /// A pool under this configuration, and the refreshes of its topology.
    struct Given {
        refresh: Refresh,
        pool: Known,
        nodes: Nodes,
        table: Table,
    }

    impl Given {
        fn new(text: &str) -> Given {
            let config = Config::from_toml(text).unwrap().pools.remove(0);
            let mut nodes = Nodes::default();
            Given {
                refresh: Refresh::new(&config, 0),
                pool: Known::new(&config, 0, &mut nodes, 0),
                nodes,
                table: Table::default(),
            }
        }

        /// Asks the next node; returns it, none if that is not due.
        fn ask_cluster(&mut self, now_ms: u64) -> Option<NodeId> {
            let (pool, nodes) = (&self.pool, &mut self.nodes);
            let asked = self.refresh.ask_cluster(pool, nodes, PATIENCE_MS, now_ms);
            let first = asked.first()?;
            let words: Vec<String> = asked.iter().map(|one| one.words.join(" ")).collect();
            assert_eq!(words, ["CLUSTER INFO", "CLUSTER SLOTS", "CLUSTER SHARDS"]);
            match first.peer {
                Peer::Node(node) => Some(node),
                _ => panic!("{first:?}"),
            }
        }

        /// Takes a node's parts: all slots belong to the server with this port.
        fn take_cluster(&mut self, node: NodeId, port: i64, now_ms: u64) {
            let bulk = |text: &str| Value::Bulk(text.into());
            let owner = Value::Array(vec![bulk("10.0.0.1"), Value::Integer(port), bulk("id")]);
            let range = vec![Value::Integer(0), Value::Integer(16_383), owner];
            let info = bulk("cluster_state:ok\r\ncluster_current_epoch:1\r\n");
            let slots = Value::Array(vec![Value::Array(range)]);
            for (part, value) in [info, slots, Value::Array(Vec::new())]
                .into_iter()
                .enumerate()
            {
                let Given {
                    refresh,
                    pool,
                    nodes,
                    table,
                } = self;
                refresh.take_cluster((node, part, value), pool, nodes, table, now_ms);
            }
        }
    }

    const CLUSTER: &str = "[[pool]]\nkind = 'cluster'\nrefresh = '5s'\n\
        seed = [{ address = '10.0.0.1:1' }, { address = '10.0.0.1:2' }]";

    #[test]
    fn nodes_are_asked_in_turn_and_less_often_while_none_of_them_answers() {
        let mut given = Given::new(CLUSTER);
        let mut now_ms = 1;
        let mut asked = Vec::new();
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let at_ms = now_ms;
            let node = loop {
                match given.ask_cluster(now_ms) {
                    Some(node) => break node,
                    None => now_ms += 1,
                }
            };
            asked.push(node);
            pauses.push(now_ms - at_ms);
            // While a reply is expected, and until the next question is due, nobody is asked.
            assert_eq!(given.ask_cluster(now_ms), None);
            given.refresh.ask_another(&given.pool, now_ms);
        }
        assert_eq!(asked, [0, 1, 0, 1, 0, 1]);
        assert_eq!(pauses, [0, 100, 100, 200, 200, 400]);
    }

    #[test]
    fn a_change_is_noted_once_and_a_late_reply_of_another_node_is_ignored() {
        let mut given = Given::new(CLUSTER);
        let first = given.ask_cluster(1).unwrap();
        given.take_cluster(first + 1, 9, 2);
        assert!(!given.pool.is_whole() && !given.table.take_change());
        given.take_cluster(first, 1, 2);
        assert!(given.pool.is_whole() && given.table.take_change());
        // The next refresh is the usual one, unless a redirect asks for it.
        assert_eq!(given.ask_cluster(5_000), None);
        given.refresh.schedule(4_000);
        let next = given.ask_cluster(4_100).unwrap();
        given.take_cluster(next, 1, 4_101);
        assert!(!given.table.take_change(), "nothing is new");
    }

    const SENTINELS: &str = "[[pool]]\nkind = 'sentinel'\nrefresh = '5s'\n\
        sentinel = [{ address = '10.0.0.1:1' }, { address = '10.0.0.1:2' }]\nshard = [{ name = 'm' }]";

    #[test]
    fn a_subscription_is_kept_alive_and_moves_on_to_another_sentinel() {
        let mut given = Given::new(SENTINELS);
        let watch = |given: &mut Given, watched, now_ms| {
            let due = given.refresh.watch_sentinel(&given.pool, watched, now_ms);
            due.map(|asking| (asking.peer, asking.question))
        };
        let (first, second) = (Peer::Watch(0, 1), Peer::Watch(0, 0));
        let due = watch(&mut given, None, 1);
        assert_eq!(due, Some((first, Question::Subscribe)));
        assert_eq!(watch(&mut given, Some(first), 5_000), None);
        let due = watch(&mut given, Some(first), 5_001);
        assert_eq!(due, Some((first, Question::Pulse)));
        given.refresh.watch_another(&given.pool, 6_000);
        assert_eq!(watch(&mut given, None, 6_099), None);
        let due = watch(&mut given, None, 6_100);
        assert_eq!(due, Some((second, Question::Subscribe)));
    }

    #[test]
    fn a_message_of_a_switch_changes_the_primary_and_asks_for_a_refresh() {
        let mut given = Given::new(SENTINELS);
        let asked = given.refresh.ask_sentinel(&given.pool, PATIENCE_MS, 1);
        let words: Vec<String> = asked.iter().map(|one| one.words.join(" ")).collect();
        let wanted = [
            "SENTINEL MASTER m",
            "SENTINEL REPLICAS m",
            "SENTINEL SENTINELS m",
        ];
        assert_eq!(words, wanted);
        let words = ["message", "+switch-master", "m 10.0.0.1 6379 10.0.0.2 6380"];
        let message = words.map(|word| Value::Bulk(word.into()));
        let message = Value::Array(message.to_vec());
        let Given {
            refresh,
            pool,
            nodes,
            table,
        } = &mut given;
        for is_new in [true, false] {
            refresh.take_message(&message, pool, nodes, table, 2_000);
            assert_eq!(table.take_change(), is_new);
        }
        assert!(pool.is_whole());
        assert!(refresh.ask_sentinel(pool, PATIENCE_MS, 2_099).is_empty());
        assert!(!refresh.ask_sentinel(pool, PATIENCE_MS, 2_100).is_empty());
    }
}
