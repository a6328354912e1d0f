//! Asks clusters and Sentinels for the topology, one server of each pool at a time, and takes their replies. Their
//! meaning for the routes is in `pools`.

use redline_net::Address;
use redline_resp::Value;

use super::nodes::address_of;
use super::pools::who;
use super::{Control, DEBOUNCE_MS, Peer, Question, say, sentinel};
use crate::route::{NO_NODE, NodeId, Placement, Pool};

impl Control {
    pub(super) fn ask_cluster(&mut self, pool: usize, now_ms: u64) {
        let watching = &mut self.watching[pool];
        if now_ms < watching.refresh_at_ms || now_ms < watching.asked_until_ms {
            return;
        }
        let config = self.pools[pool].config.clone();
        let well = |node: &NodeId| {
            self.nodes
                .get(*node)
                .is_some_and(|known| !known.health.is_ejected())
        };
        let mut candidates: Vec<NodeId> = self.pools[pool].members().filter(well).collect();
        // Servers of the file are asked as well: all others may be gone.
        for seed in &config.seeds {
            let address = address_of(&seed.address);
            let who = who(&config, &address);
            let seed = self.nodes.number(&address, pool, who, now_ms);
            if seed != NO_NODE && !candidates.contains(&seed) {
                candidates.push(seed);
            }
        }
        let patience_ms = self.patience_ms();
        let watching = &mut self.watching[pool];
        watching.refresh_at_ms = now_ms + config.refresh.0.as_millis() as u64;
        // With too many servers a seed may have no number.
        if candidates.is_empty() {
            return;
        }
        let node = candidates[watching.turn % candidates.len()];
        watching.turn = watching.turn.wrapping_add(1);
        watching.parts.clear();
        watching.asked = node;
        watching.asked_until_ms = now_ms + patience_ms;
        let questions = [
            &["CLUSTER", "INFO"][..],
            &["CLUSTER", "SLOTS"],
            &["CLUSTER", "SHARDS"],
        ];
        for (part, words) in questions.iter().enumerate() {
            self.ask(Peer::Node(node), Question::Cluster(part), words, now_ms);
        }
    }

    pub(super) fn take_cluster(&mut self, node: NodeId, part: usize, value: Value, now_ms: u64) {
        let Some(known) = self.nodes.get(node) else {
            return;
        };
        let (pool, from) = (known.pool, known.address.clone());
        let (Some(watching), Some(known)) = (self.watching.get_mut(pool), self.pools.get_mut(pool))
        else {
            return;
        };
        // A server that was given up may answer after all.
        if watching.asked != node || watching.parts.len() != part {
            return;
        }
        watching.parts.push(value);
        let [info, slots, shards] = watching.parts.as_slice() else {
            return;
        };
        let complaint = [info, slots].into_iter().find(|value| value.is_error());
        let complaint = complaint.map(|value| format!("{from} says: {}", text_of(value)));
        let before = known.picture();
        let believed = known.take_cluster(info, slots, shards, &from, &mut self.nodes, now_ms);
        watching.parts.clear();
        watching.asked_until_ms = 0;
        if believed && known.is_whole() {
            watching.doubts = 0;
        } else {
            // Another one may know better; after failures of all, they are asked less and less often.
            let pause_ms = DEBOUNCE_MS << watching.doubts.min(10);
            watching.doubts += 1;
            let usual_ms = known.config.refresh.0.as_millis() as u64;
            watching.refresh_at_ms = now_ms + pause_ms.min(usual_ms.max(DEBOUNCE_MS));
        }
        let after = known.picture();
        self.is_changed |= differ(&before, &after);
        self.complain(pool, complaint);
    }

    /// Logs once why a pool is not known; `None`: it is.
    fn complain(&mut self, pool: usize, complaint: Option<String>) {
        let (Some(watching), Some(known)) = (self.watching.get_mut(pool), self.pools.get(pool))
        else {
            return;
        };
        if let Some(text) = &complaint
            && watching.complaint != complaint
        {
            say(&format!("pool \"{}\": {text}", known.config.name));
        }
        watching.complaint = complaint;
    }

    pub(super) fn ask_sentinels(&mut self, pool: usize, now_ms: u64) {
        self.watch_sentinel(pool, now_ms);
        let patience_ms = self.patience_ms();
        let watching = &mut self.watching[pool];
        if now_ms < watching.refresh_at_ms
            || now_ms < watching.asked_until_ms
            || watching.sentinels.is_empty()
        {
            return;
        }
        let at = watching.turn % watching.sentinels.len();
        watching.turn = watching.turn.wrapping_add(1);
        watching.parts.clear();
        watching.refresh_at_ms = now_ms + self.pools[pool].config.refresh.0.as_millis() as u64;
        watching.asked_until_ms = now_ms + patience_ms;
        let names: Vec<String> = self.pools[pool]
            .config
            .shards
            .iter()
            .map(|shard| shard.name.clone())
            .collect();
        let peer = Peer::Sentinel(pool, at);
        for (shard, name) in names.iter().enumerate() {
            self.ask(
                peer,
                Question::Shard(shard, 0),
                &["SENTINEL", "MASTER", name],
                now_ms,
            );
            self.ask(
                peer,
                Question::Shard(shard, 1),
                &["SENTINEL", "REPLICAS", name],
                now_ms,
            );
            self.ask(
                peer,
                Question::Sentinels(shard),
                &["SENTINEL", "SENTINELS", name],
                now_ms,
            );
        }
    }

    /// Keeps one subscription to one Sentinel of the pool, and its connection alive.
    fn watch_sentinel(&mut self, pool: usize, now_ms: u64) {
        let watches = |peer: &&Peer| matches!(peer, Peer::Watch(watched, _) if *watched == pool);
        let peer = self.by_peer.keys().find(watches).copied();
        let watching = &mut self.watching[pool];
        if now_ms < watching.pulse_at_ms || watching.sentinels.is_empty() {
            return;
        }
        watching.pulse_at_ms =
            now_ms + self.pools[pool].config.refresh.0.as_millis().max(1_000) as u64;
        match peer {
            Some(peer) => self.ask(peer, Question::Pulse, &["PING"], now_ms),
            None => {
                let at = watching.turn.wrapping_add(1) % watching.sentinels.len();
                self.ask(
                    Peer::Watch(pool, at),
                    Question::Subscribe,
                    &["SUBSCRIBE", "+switch-master"],
                    now_ms,
                );
            }
        }
    }

    pub(super) fn take_sentinel(
        &mut self,
        pool: usize,
        from: usize,
        question: Question,
        value: Value,
        now_ms: u64,
    ) {
        let (Some(watching), Some(known)) = (self.watching.get_mut(pool), self.pools.get_mut(pool))
        else {
            return;
        };
        watching.asked_until_ms = 0;
        match question {
            Question::Shard(shard, 0) => drop(watching.masters.insert((from, shard), value)),
            Question::Shard(shard, _) => {
                let Some(master) = watching.masters.remove(&(from, shard)) else {
                    return;
                };
                let from = &watching.sentinels.get(from);
                let complaint = from
                    .filter(|_| master.is_error())
                    .map(|from| format!("Sentinel {from} says: {}", text_of(&master)));
                let before = known.picture();
                if !known.take_primary(shard, &master, &value, &mut self.nodes, now_ms) {
                    watching.is_doubted = true;
                }
                let after = known.picture();
                self.is_changed |= differ(&before, &after);
                self.complain(pool, complaint);
            }
            Question::Sentinels(shard) => {
                // The last question of a round.
                if shard + 1 == known.config.shards.len() {
                    match std::mem::take(&mut watching.is_doubted) {
                        true => self.ask_another(pool, now_ms),
                        false => watching.doubts = 0,
                    }
                }
                let (Some(watching), Some(known)) =
                    (self.watching.get_mut(pool), self.pools.get(pool))
                else {
                    return;
                };
                let Some(others) = sentinel::others(&value) else {
                    return;
                };
                watching.heard.insert(shard, others);
                // Sentinels of the file stay; others come and go.
                let own = known.config.sentinels.iter();
                let mut sentinels: Vec<Address> =
                    own.map(|sentinel| address_of(&sentinel.address)).collect();
                for address in watching.heard.values().flatten() {
                    if !sentinels.contains(address) {
                        sentinels.push(address.clone());
                    }
                }
                watching.sentinels = sentinels;
            }
            _ => {}
        }
    }

    /// Returns true if this confirms the subscription to a Sentinel.
    pub(super) fn is_watching(&mut self, pool: usize, answer: &Value) -> bool {
        let confirms = sentinel::confirms(answer);
        if let Some(watching) = self.watching.get_mut(pool).filter(|_| confirms) {
            watching.deaf = 0;
        }
        confirms
    }

    pub(super) fn take_message(&mut self, pool: usize, message: &Value, now_ms: u64) {
        let Some((name, address)) = sentinel::switched(message) else {
            return;
        };
        let Some(known) = self.pools.get_mut(pool) else {
            return;
        };
        if known.switched(&name, &address, &mut self.nodes, now_ms) {
            self.news.push(format!(
                "Sentinel says that {address} is the primary of \"{name}\" now"
            ));
            self.is_changed = true;
        }
        self.refresh(pool, now_ms);
    }
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
