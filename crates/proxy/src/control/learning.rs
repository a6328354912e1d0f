//! Asks a pool's servers which commands they have, when a client calls one that nobody here knows.

use std::sync::Arc;

use redline_resp::Value;

use super::{Control, Peer, Question};
use crate::custom::{ForeignByName, learned};
use crate::route::NOBODY;

/// How often a pool is asked, at most: clients may call nonsense.
const EVERY_MS: u64 = 5_000;

/// What is known of a pool's commands.
#[derive(Clone, Default)]
pub struct Learning {
    /// When it was asked last.
    asked_ms: Option<u64>,
    /// What it said; none: nobody has been asked.
    pub found: Option<Arc<ForeignByName>>,
}

impl Control {
    /// A client has called a command that is not known.
    pub(super) fn learn(&mut self, pool: usize, now_ms: u64) {
        if self.learning.len() < self.pools.len() {
            self.learning
                .resize_with(self.pools.len(), Learning::default);
        }
        let Some(learning) = self.learning.get_mut(pool) else {
            return;
        };
        if learning
            .asked_ms
            .is_some_and(|asked_ms| now_ms < asked_ms + EVERY_MS)
        {
            return;
        }
        learning.asked_ms = Some(now_ms);
        let is_well = |node: &u16| {
            let known = self.nodes.get(*node);
            *node != NOBODY && known.is_some_and(|known| !known.health.is_ejected())
        };
        let shards = self.pools[pool].replicas();
        let node = shards.iter().map(|(primary, _)| *primary).find(is_well);
        match node {
            Some(node) => self.ask(
                Peer::Node(node),
                Question::Commands(pool),
                &["COMMAND"],
                now_ms,
            ),
            None => self.took_commands(pool, None),
        }
    }

    /// Takes in what a server has; none: it did not say.
    pub(super) fn took_commands(&mut self, pool: usize, reply: Option<&Value>) {
        let Some(learning) = self.learning.get_mut(pool) else {
            return;
        };
        match reply {
            Some(reply) => learning.found = Some(Arc::new(learned(reply))),
            // Who waits for it is told that there is no such command.
            None => drop(learning.found.get_or_insert_default()),
        }
        self.is_changed = true;
    }
}
