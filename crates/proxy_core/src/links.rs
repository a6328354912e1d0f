//! A worker's connections to servers, by place and by server. Must not know clients, nor how connections are made.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use redline_resp::Proto;

use crate::route::{Node, NodeId};
use crate::shell::Shell;
use crate::slab::{Ref, Slab};
use crate::upstream::{Purpose, Upstream};

/// No place.
pub(crate) const NONE: u32 = u32::MAX;

/// A worker's connections, by place and by server.
pub struct Links<S: Shell> {
    /// By their places.
    pub slab: Slab<Upstream<S>>,
    pub(crate) nodes: Vec<NodeLinks>,
    /// Connections to which something was queued.
    pub dirty: Vec<u32>,
    /// Connections to read, in this turn or the next.
    pub ready: VecDeque<u32>,
    /// Connections whose requests wait for more.
    pub lingering: Vec<u32>,
}

/// Connections to one server.
#[derive(Default)]
pub(crate) struct NodeLinks {
    /// The shared connections: two for each database, one for each protocol.
    pub(crate) shared: Vec<u32>,
    /// Unused connections: the next client, or the shared traffic, takes one.
    pub(crate) idle: Vec<Ref>,
    /// Number of private connections, unused ones included.
    pub(crate) private: usize,
    /// Number of connections that get no new requests and are not closed yet.
    pub(crate) detached: usize,
    /// Number of failed attempts since the last success.
    pub(crate) failures: u32,
    /// Time before which no attempt is made.
    pub(crate) retry_at_ms: u64,
    /// The reason of the last failure.
    pub(crate) reason: String,
}

/// Returns the index of a server's shared connection for this database and protocol.
#[inline]
pub(crate) fn lane(db: u16, proto: Proto) -> usize {
    usize::from(db) * 2 + usize::from(proto == Proto::Resp3)
}

/// Finding a connection is finding it in the slab: every function of that is one of the connections.
impl<S: Shell> Deref for Links<S> {
    type Target = Slab<Upstream<S>>;

    #[inline]
    fn deref(&self) -> &Slab<Upstream<S>> {
        &self.slab
    }
}

impl<S: Shell> DerefMut for Links<S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Slab<Upstream<S>> {
        &mut self.slab
    }
}

impl<S: Shell> Links<S> {
    /// Returns no connections.
    pub(crate) fn new() -> Links<S> {
        Links {
            slab: Slab::new(),
            nodes: Vec::new(),
            dirty: Vec::new(),
            ready: VecDeque::new(),
            lingering: Vec::new(),
        }
    }

    /// Returns the shared connection, if there is one.
    #[inline]
    pub(crate) fn shared(&self, node: NodeId, db: u16, proto: Proto) -> Option<u32> {
        let at = *self
            .nodes
            .get(usize::from(node))?
            .shared
            .get(lane(db, proto))?;
        (at != NONE).then_some(at)
    }

    /// Returns the connections to a server.
    pub(crate) fn of(&mut self, node: NodeId) -> &mut NodeLinks {
        of(&mut self.nodes, node)
    }

    /// Forgets the results of earlier attempts where they no longer apply.
    pub fn adopt(&mut self, before: &[Node], now: &[Node]) {
        let links = self.nodes.iter_mut();
        for (links, (before, now)) in links.zip(before.iter().zip(now)) {
            if now.is_another(before) {
                links.forget_failures();
            } else if before.ejected && !now.ejected {
                // A probe was answered: the pause after the last attempt ends. The reason of the refusal was logged, and
                // is logged again only if it changes.
                (links.failures, links.retry_at_ms) = (0, 0);
            }
        }
    }
}

/// Returns the connections to a server.
pub(crate) fn of(nodes: &mut Vec<NodeLinks>, node: NodeId) -> &mut NodeLinks {
    let at = usize::from(node);
    if at >= nodes.len() {
        nodes.resize_with(at + 1, NodeLinks::default);
    }
    &mut nodes[at]
}

impl NodeLinks {
    pub(crate) fn forget_failures(&mut self) {
        (self.failures, self.retry_at_ms) = (0, 0);
        self.reason.clear();
    }
}

impl<S: Shell> Links<S> {
    /// Returns an unused connection, if one is established.
    pub(crate) fn unused_idle_link(&mut self, node: NodeId, db: u16, proto: Proto) -> Option<Ref> {
        let place = self.idle_link(node, db, proto)?;
        of(&mut self.nodes, node).private -= 1;
        if let Some(upstream) = self.slab.find(place) {
            upstream.purpose = Purpose::Shared;
        }
        Some(place)
    }

    /// Takes an unused connection, if there is one.
    pub(crate) fn idle_link(&mut self, node: NodeId, db: u16, proto: Proto) -> Option<Ref> {
        let links = self.nodes.get_mut(usize::from(node))?;
        if links.idle.is_empty() {
            return None;
        }
        let mut idle = std::mem::take(&mut links.idle);
        let found = idle.iter().position(|place| {
            self.slab.find(*place).is_some_and(|upstream| {
                upstream.db == db && upstream.proto == proto && !upstream.closed
            })
        });
        let place = found.map(|found| idle.swap_remove(found));
        of(&mut self.nodes, node).idle = idle;
        place
    }

    /// Marks the lingering connections whose replies have all arrived, so that their queued requests are written.
    pub fn end_lingering(&mut self) {
        let (upstreams, dirty) = (&mut self.slab, &mut self.dirty);
        self.lingering.retain(|at| {
            let waits = upstreams.get(*at).is_some_and(|it| it.is_under_way());
            if !waits {
                dirty.push(*at);
            }
            waits
        });
    }

    /// Queues the server to be read in this turn, or in the next if this one has read it already.
    pub fn enqueue(&mut self, at: u32) {
        if let Some(upstream) = self.slab.get(at)
            && !upstream.queued
        {
            upstream.queued = true;
            self.ready.push_back(at);
        }
    }

    /// Marks the server as having something to send.
    #[inline]
    pub fn mark(&mut self, at: u32) {
        if let Some(upstream) = self.slab.get(at)
            && !upstream.dirty
        {
            upstream.dirty = true;
            self.dirty.push(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestShell;

    #[test]
    fn a_server_is_not_left_alone_for_what_another_of_its_number_did() {
        let before = Node::here("a:1", 1);
        let of_other_pool = Node {
            pool: 1,
            ..before.clone()
        };
        for (now, is_kept) in [
            (before.clone(), true),
            (Node::here("b:1", 1), false),
            (Node::here("a:1", 2), false),
            (of_other_pool, false),
        ] {
            let mut links = Links::<TestShell>::new();
            let of_node = links.of(0);
            (of_node.failures, of_node.retry_at_ms) = (7, 5_000);
            of_node.reason = "refused".to_owned();
            links.adopt(std::slice::from_ref(&before), std::slice::from_ref(&now));
            let of_node = links.of(0);
            let left = (
                of_node.failures,
                of_node.retry_at_ms,
                of_node.reason.as_str(),
            );
            let expected = if is_kept {
                (7, 5_000, "refused")
            } else {
                (0, 0, "")
            };
            assert_eq!(left, expected, "{now:?}");
        }
    }

    #[test]
    fn a_server_that_is_back_is_tried_at_once_and_named_no_more_for_the_same() {
        let back = Node::here("a:1", 1);
        let ejected = Node {
            ejected: true,
            ..back.clone()
        };
        let mut links = Links::<TestShell>::new();
        let of_node = links.of(0);
        (of_node.failures, of_node.retry_at_ms) = (7, 5_000);
        of_node.reason = "refused".to_owned();
        links.adopt(&[ejected], &[back]);
        let of_node = links.of(0);
        assert_eq!((of_node.failures, of_node.retry_at_ms), (0, 0));
        assert_eq!(of_node.reason, "refused");
    }
}
