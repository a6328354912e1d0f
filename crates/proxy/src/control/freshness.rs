//! Asks the servers of pools whose replicas are read from for their replication state, and judges the replicas by it.

use redline_resp::Value;

use super::replication::Said;
use super::{Control, Peer, Question, readers};
use crate::route::NodeId;

/// Interval of the question, unless a lag is bounded: milliseconds.
const EVERY_MS: u64 = 1_000;
/// Number of questions within the smallest lag bound, but not more often than the control side turns.
const QUESTIONS_PER_LAG: u64 = 8;
const EVERY_MIN_MS: u64 = 50;

impl Control {
    /// Asks the servers that are due, and checks which replicas have become too old meanwhile.
    pub(super) fn watch_replication(&mut self, now_ms: u64) {
        for pool in 0..self.pools.len() {
            if !readers::spreads(&self.pools[pool].config) {
                continue;
            }
            self.ask_replication(pool, now_ms);
            self.judge_replicas(pool, now_ms);
        }
    }

    fn every_ms(&self, pool: usize) -> u64 {
        match self.pools[pool].config.reads.lag_max.on() {
            Some(lag_max) => {
                let part_ms = lag_max.as_millis() as u64 / QUESTIONS_PER_LAG;
                part_ms.clamp(EVERY_MIN_MS, EVERY_MS)
            }
            None => EVERY_MS,
        }
    }

    fn ask_replication(&mut self, pool: usize, now_ms: u64) {
        let every_ms = self.every_ms(pool);
        let nodes: Vec<NodeId> = self.pools[pool].members().collect();
        for node in nodes {
            // Failed servers are probed first.
            let is_due = self.nodes.get(node).is_some_and(|known| {
                !known.health.is_ejected()
                    && !known.health.is_in_doubt()
                    && known.replication.is_due(now_ms, every_ms)
            });
            let peer = Peer::Node(node);
            // One question at a time: a late reply says nothing.
            let is_asked = self
                .by_peer
                .get(&peer)
                .and_then(|&at| self.connections[at].as_ref())
                .is_some_and(|connection| connection.line.deadline_ms().is_some());
            if is_due && !is_asked {
                if let Some(known) = self.nodes.get_mut(node) {
                    known.replication.asked(now_ms);
                }
                let question = Question::Replication(now_ms);
                self.ask(peer, question, &["INFO", "REPLICATION"], now_ms);
            }
        }
    }

    pub(super) fn take_replication(&mut self, node: NodeId, value: &Value, asked_ms: u64) {
        let text = value.as_bytes().unwrap_or_default();
        // A server without this command, or without permission for it, may be well; one that is loading is not.
        let may_be_well = text.starts_with(b"ERR") || text.starts_with(b"NOPERM");
        let said = match value.is_error() {
            true if may_be_well => Said::Nothing,
            true => Said::Replica {
                is_linked: false,
                offset: 0,
            },
            false => Said::of(text),
        };
        if let Some(known) = self.nodes.get_mut(node) {
            let was_orphan = known.replication.is_orphan();
            known.replication.heard(said, asked_ms);
            self.is_changed |= known.replication.is_orphan() != was_orphan;
        }
    }

    /// Notes questions that will not be answered; returns whether one of them was about replication, or a probe.
    pub(super) fn lost_replication(&mut self, node: NodeId, questions: &[Question]) -> bool {
        let concerns =
            |question: &Question| matches!(question, Question::Replication(_) | Question::Probe);
        let was_asked = questions.iter().any(concerns);
        if let (true, Some(known)) = (was_asked, self.nodes.get_mut(node)) {
            self.is_changed |= known.replication.lost();
        }
        was_asked
    }

    fn judge_replicas(&mut self, pool: usize, now_ms: u64) {
        let lag_max = self.pools[pool].config.reads.lag_max.on();
        let shards = self.pools[pool].replicas();
        for (primary, replicas) in shards {
            let primary = self
                .nodes
                .get(primary)
                .map(|known| known.replication.clone());
            for node in replicas {
                let Some(known) = self.nodes.get_mut(node) else {
                    continue;
                };
                if known.replication.judge(primary.as_ref(), lag_max, now_ms) {
                    let now = match known.replication.is_fit() {
                        true => "may answer reads",
                        false => {
                            "answers no reads while another can: it is behind its primary, or has lost it"
                        }
                    };
                    self.news.push(format!("{} {now}", known.address));
                    self.is_changed = true;
                }
            }
        }
    }
}
