//! The invariants of each step: facts that the world collects beside the nodes, and compares with them.
//!
//! Must not know: why a node does what it does.

use super::{super::Acks, world::World};
use crate::records::Incarnation;

/// See the head of the module.
#[derive(Default)]
pub(super) struct Ledger {
    /// The log as far as a reply has told of it.
    pub told: Vec<u64>,
    /// First thing that was wrong.
    pub broken: Option<String>,
    /// Writes that were confirmed.
    pub confirmed: u64,
}

impl World {
    pub(super) fn broken(&mut self, what: String) {
        let at_ms = self.now / 1000;
        let broken = &mut self.ledger.broken;
        broken.get_or_insert_with(|| format!("at {at_ms} ms: {what}"));
    }

    /// I1.
    pub(super) fn check_one_serves(&mut self) {
        let serving = (0..self.nodes.len()).filter(|&n| self.serves(n));
        let serving: Vec<usize> = serving.collect();
        if serving.len() > 1 {
            self.broken(format!("I1: nodes {serving:?} serve"));
        }
    }

    /// A reply of this node tells of its log up to a length.
    pub(super) fn confirm(&mut self, n: usize, len: usize, is_write: bool) {
        self.ledger.confirmed += u64::from(is_write);
        if self.acks == Acks::None {
            return;
        }
        let (log, told) = (&self.nodes[n].log, &self.ledger.told);
        let common = len.min(told.len());
        if common > 0 && log[common - 1] != told[common - 1] {
            self.broken(format!(
                "I2: node {n} tells of another past than was told before"
            ));
            return;
        }
        if log.len() < told.len() {
            let (has, was) = (log.len(), told.len());
            self.broken(format!(
                "I2: node {n} serves {has} records, and {was} were told of"
            ));
            return;
        }
        if len > told.len() {
            let more = log[told.len()..len].to_vec();
            self.ledger.told.extend(more);
            if let Some(record) = &self.record {
                let me = &self.nodes[n].me;
                if is_write && record.primary == *me && record.candidates.is_empty() {
                    self.broken(format!(
                        "I2: node {n} alone has record {len}, of which it told"
                    ));
                }
            }
            self.check_told_is_kept();
        }
    }

    /// I2.
    pub(super) fn check_told_is_kept(&mut self) {
        let Some(record) = self.record.clone() else {
            return;
        };
        let told = self.ledger.told.len();
        for who in record.candidates.iter().chain([&record.primary]) {
            let Some(n) = self.process(who) else {
                continue;
            };
            let log = &self.nodes[n].log;
            if told > 0 && log.get(told - 1) != self.ledger.told.get(told - 1) {
                let has = log.len();
                self.broken(format!(
                    "I2: node {n} may serve term {} and lacks what was told ({has} records of {told})",
                    record.term + 1
                ));
            }
        }
    }

    /// Returns the node that runs this process.
    fn process(&self, who: &Incarnation) -> Option<usize> {
        self.nodes
            .iter()
            .position(|node| node.is_up && node.me == *who)
    }
}
