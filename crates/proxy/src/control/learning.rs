//! The commands of a pool's servers, which are asked for them when a client calls an unknown one. Knows no connection.

use std::sync::Arc;

use redline_resp::Value;

use super::connections::{Asking, Peer, Question};
use super::nodes::Nodes;
use super::pools::Known;
use super::table::Table;
use crate::command_names::{ForeignByName, learned};
use crate::route::{NO_NODE, NodeId};

/// Smallest interval between questions to a pool: clients may call nonsense.
const EVERY_MS: u64 = 5_000;

/// Known commands of a pool's servers.
#[derive(Clone, Default)]
pub struct Learning {
    /// Time of the last question.
    asked_ms: Option<u64>,
    /// The commands that it reported; none: it has not been asked.
    pub found: Option<Arc<ForeignByName>>,
}

impl Learning {
    /// Returns the question to one of the pool's servers after a client's call of an unknown command; none: it was
    /// asked a moment ago, or no server is well.
    pub fn question(
        &mut self,
        pool: &Known,
        nodes: &Nodes,
        table: &mut Table,
        now_ms: u64,
    ) -> Option<Asking> {
        let is_early = |asked_ms| now_ms < asked_ms + EVERY_MS;
        if self.asked_ms.is_some_and(is_early) {
            return None;
        }
        self.asked_ms = Some(now_ms);
        let is_well = |node: &NodeId| {
            let known = nodes.get(*node);
            *node != NO_NODE && known.is_some_and(|known| !known.health.is_ejected())
        };
        let shards = pool.replicas();
        let node = shards.iter().map(|(primary, _)| *primary).find(is_well);
        if node.is_none() {
            table.note(self.take(None));
        }
        let question = Question::Commands(pool.number);
        node.map(|node| Asking::new(Peer::Node(node), question, &["COMMAND"]))
    }

    /// Takes a server's commands; none: it did not answer. Returns true if that is new: clients may call nonsense for
    /// ever, and a new routing table makes workers drop their cached values.
    pub fn take(&mut self, reply: Option<&Value>) -> bool {
        let found = match (reply, &self.found) {
            (Some(reply), _) => learned(reply),
            // Clients that wait get an error: the command does not exist.
            (None, None) => ForeignByName::new(),
            (None, Some(_)) => return false,
        };
        let is_new = self.found.as_deref() != Some(&found);
        if is_new {
            self.found = Some(Arc::new(found));
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_already_is_nothing_new() {
        let row = |name: &str| {
            let flags = Value::Array(vec![Value::Simple(b"readonly".to_vec())]);
            let name = Value::Bulk(name.into());
            let [arity, first, last, step] = [2, 1, 1, 1].map(Value::Integer);
            Value::Array(vec![name, arity, flags, first, last, step])
        };
        let one = Value::Array(vec![row("doc.get")]);
        let two = Value::Array(vec![row("doc.get"), row("doc.len")]);
        let mut learning = Learning::default();
        // Clients wait for the first reply, of any content.
        assert!(learning.take(None) && learning.found.is_some());
        assert!(!learning.take(None));
        assert!(!learning.take(Some(&Value::Array(Vec::new()))));
        assert!(learning.take(Some(&one)));
        assert!(!learning.take(Some(&one)) && !learning.take(None));
        assert!(learning.take(Some(&two)));
        assert_eq!(learning.found.map(|found| found.len()), Some(2));
    }
}
