//! Names that clients are subscribed to: the subscribers of each, the servers at which it is subscribed, and their
//! progress. Must not know connections.

use std::collections::{HashMap, HashSet};

use super::Space;
use super::handover::{Due, Handover};
use super::servers::{is_ejected, servers_of};
use crate::route::{NodeId, Routes};
use crate::slab::Ref;

/// All names, by their spaces.
#[derive(Default)]
pub(crate) struct Topics {
    pub(super) by_space: HashMap<Space, HashMap<Vec<u8>, Topic>>,
}

/// A name with subscribers, or with ones to come.
#[derive(Default)]
pub(crate) struct Topic {
    pub(super) clients: Vec<Ref>,
    /// Calls that wait for it; one that names it twice is here twice.
    pub(super) calls: Vec<u64>,
    /// The servers at which it has to be subscribed, and the progress of each.
    pub(super) nodes: Vec<(NodeId, Step)>,
    /// Number of redirects in a row.
    pub(super) redirects: u8,
    /// The handover from the last node of a cluster, as long as it matters.
    pub(super) handover: Option<Box<Handover>>,
}

/// Progress of a name at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is not subscribed, or was refused, or the connection broke since.
    Unasked,
    /// By the request of this number: the confirmation of an earlier, withdrawn request does not count.
    Asked(u64),
    Confirmed,
}

impl Topic {
    pub(super) fn is_confirmed(&self) -> bool {
        self.nodes.iter().all(|(_, step)| *step == Step::Confirmed)
    }

    /// Returns true if it is subscribed at the servers that have the name.
    pub(super) fn is_asked_of(&self, servers: impl Iterator<Item = NodeId>) -> bool {
        let asked = self.nodes.iter().map(|(node, _)| *node);
        asked.eq(servers)
    }

    pub(super) fn is_unasked(&self, node: NodeId) -> bool {
        self.nodes.contains(&(node, Step::Unasked))
    }

    /// Returns true if it is subscribed at a node, or the node's messages still count.
    pub(super) fn concerns(&self, node: NodeId) -> bool {
        let last = self.handover.as_ref().and_then(|it| it.heard());
        last == Some(node) || self.nodes.iter().any(|(asked, _)| *asked == node)
    }

    /// Returns true if a node's message for it is to be passed on. `same`: the subscribed node sends the same messages.
    pub(super) fn hears(
        &mut self,
        node: NodeId,
        frame: &[u8],
        ticks: u32,
        same: impl FnOnce(NodeId) -> bool,
    ) -> bool {
        let is_confirmed = self.nodes.contains(&(node, Step::Confirmed));
        match &mut self.handover {
            Some(handover) => {
                (is_confirmed || handover.heard() == Some(node))
                    && handover.passes(node, frame, ticks)
            }
            None => is_confirmed || !self.nodes.first().is_some_and(|(asked, _)| same(*asked)),
        }
    }

    /// Makes another node of a cluster the one to subscribe at. Returns the nodes to unsubscribe from: the last one only
    /// after the next one has confirmed.
    pub(super) fn hand_over(&mut self, next: NodeId) -> Vec<NodeId> {
        let asked = std::mem::replace(&mut self.nodes, vec![(next, Step::Unasked)]);
        let last = self.handover.as_ref().and_then(|it| it.kept());
        match (last, &asked[..]) {
            // It returns to the one that was never left.
            (Some(last), _) if last == next => {
                self.handover = None;
                self.nodes = vec![(last, Step::Confirmed)];
            }
            (Some(_), _) => {
                if let Some(handover) = &mut self.handover {
                    handover.begin_anew();
                }
            }
            (None, [(last, Step::Confirmed)]) => {
                self.handover = Some(Box::new(Handover::new(*last)));
                return Vec::new();
            }
            (None, _) => self.handover = None,
        }
        asked.into_iter().map(|(node, _)| node).collect()
    }
}

impl Topics {
    /// Returns a name, if it has subscribers.
    pub(super) fn find(&mut self, space: Space, name: &[u8]) -> Option<&mut Topic> {
        self.by_space.get_mut(&space)?.get_mut(name)
    }

    fn look(&self, space: Space, name: &[u8]) -> Option<&Topic> {
        self.by_space.get(&space)?.get(name)
    }

    /// Returns a name, and true if it had no subscribers.
    pub(super) fn find_or_add(&mut self, space: Space, name: &[u8]) -> (&mut Topic, bool) {
        let topics = self.by_space.entry(space).or_default();
        let is_new = !topics.contains_key(name);
        (topics.entry(name.to_vec()).or_default(), is_new)
    }

    /// Returns true if this name is subscribed at a server.
    pub(super) fn is_asked_of(&self, space: Space, name: &[u8], node: NodeId) -> bool {
        let topic = self.look(space, name);
        topic.is_some_and(|topic| topic.nodes.iter().any(|(asked, _)| *asked == node))
    }

    /// Returns true if any name concerns a server.
    pub(super) fn concern(&self, node: NodeId) -> bool {
        let mut topics = self.by_space.values().flat_map(HashMap::values);
        topics.any(|topic| topic.concerns(node))
    }

    /// Returns true if a name is wanted of a server and not subscribed there.
    pub(super) fn lacks_something(&self, node: NodeId) -> bool {
        let mut topics = self.by_space.values().flat_map(HashMap::values);
        topics.any(|topic| topic.is_unasked(node))
    }

    /// Returns the names that are wanted of a server and not subscribed there.
    pub(super) fn unasked_of(&self, node: NodeId) -> Vec<(Space, Vec<u8>)> {
        let mut wanted = Vec::new();
        for (space, topics) in &self.by_space {
            let unasked = topics.iter().filter(|(_, topic)| topic.is_unasked(node));
            wanted.extend(unasked.map(|(name, _)| (*space, name.clone())));
        }
        wanted
    }

    /// Returns the names that are subscribed at other servers than have them by this routing table.
    pub(super) fn elsewhere(&self, routes: &Routes) -> Vec<(Space, Vec<u8>)> {
        let mut moved = Vec::new();
        for (space, topics) in &self.by_space {
            let Some(pool) = routes.pools.get(usize::from(space.pool)) else {
                continue;
            };
            let topics = topics.iter();
            let elsewhere = topics.filter(|(name, topic)| {
                let is_ejected = is_ejected(&routes.nodes);
                !topic.is_asked_of(servers_of(space.names, name, pool, is_ejected))
            });
            moved.extend(elsewhere.map(|(name, _)| (*space, name.clone())));
        }
        moved
    }

    /// Returns the servers whose messages count for any of these names.
    pub(super) fn heard_for(&self, space: Space, names: &[&Vec<u8>]) -> HashSet<NodeId> {
        let mut heard = HashSet::new();
        for topic in names.iter().filter_map(|name| self.look(space, name)) {
            heard.extend(topic.nodes.iter().map(|(node, _)| *node));
            heard.extend(topic.handover.as_ref().and_then(|it| it.heard()));
        }
        heard
    }

    /// Returns the action that is due for the handover of a name.
    pub(super) fn handover_due(&self, space: Space, name: &[u8], ticks: u32) -> Due {
        let topic = self.look(space, name);
        let handover = topic.and_then(|topic| topic.handover.as_ref());
        handover.map_or(Due::Forget, |handover| handover.due(ticks))
    }

    /// Removes a subscriber of a name. Returns the servers to unsubscribe from.
    pub(super) fn leave(&mut self, me: Ref, space: Space, name: &[u8]) -> Vec<NodeId> {
        let Some(topics) = self.by_space.get_mut(&space) else {
            return Vec::new();
        };
        let Some(topic) = topics.get_mut(name) else {
            return Vec::new();
        };
        topic.clients.retain(|client| *client != me);
        if !topic.clients.is_empty() || !topic.calls.is_empty() {
            return Vec::new();
        }
        let Some(topic) = topics.remove(name) else {
            return Vec::new();
        };
        if topics.len() < topics.capacity() / 8 {
            topics.shrink_to(topics.len() * 2);
        }
        let last = topic.handover.and_then(|handover| handover.kept());
        let asked = topic.nodes.iter().map(|(node, _)| *node);
        asked.chain(last).collect()
    }

    /// Handles the loss of the connection to a server: all its names have to be subscribed again. Returns the names of
    /// which it was the last node whose messages counted.
    pub(super) fn connection_lost(&mut self, node: NodeId) -> Vec<(Space, Vec<u8>)> {
        let mut left = Vec::new();
        for (space, topics) in &mut self.by_space {
            for (name, topic) in topics.iter_mut().filter(|(_, it)| it.concerns(node)) {
                let mut is_next = false;
                for (_, step) in topic.nodes.iter_mut().filter(|(asked, _)| *asked == node) {
                    (*step, is_next) = (Step::Unasked, true);
                }
                match &mut topic.handover {
                    Some(handover) if is_next && handover.kept().is_some() => handover.begin_anew(),
                    Some(_) => left.push((*space, name.clone())),
                    None => {}
                }
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Names, unasked};
    use super::*;

    const SPACE: Space = Space {
        names: Names::Channels,
        pool: 0,
    };

    fn client(at: u32) -> Ref {
        Ref { at, generation: 0 }
    }

    #[test]
    fn a_name_is_forgotten_with_the_last_who_hears_it_and_its_servers_are_told() {
        let mut topics = Topics::default();
        let (topic, is_new) = topics.find_or_add(SPACE, b"a");
        assert!(is_new);
        topic.nodes = unasked(&[3, 4]);
        topic.clients = vec![client(1), client(2)];
        assert!(!topics.find_or_add(SPACE, b"a").1);
        assert!(topics.leave(client(1), SPACE, b"a").is_empty());
        assert_eq!(topics.leave(client(2), SPACE, b"a"), [3, 4]);
        assert!(topics.find(SPACE, b"a").is_none());
        assert!(topics.leave(client(2), SPACE, b"a").is_empty());
    }

    #[test]
    fn what_a_lost_server_was_asked_for_is_unasked_again() {
        let mut topics = Topics::default();
        let (topic, _) = topics.find_or_add(SPACE, b"a");
        topic.nodes = vec![(3, Step::Confirmed), (4, Step::Asked(1))];
        assert!(!topics.lacks_something(3) && topics.concern(3));
        assert!(topics.connection_lost(3).is_empty());
        assert_eq!(topics.unasked_of(3), [(SPACE, b"a".to_vec())]);
        assert!(topics.unasked_of(4).is_empty() && topics.is_asked_of(SPACE, b"a", 4));
        assert_eq!(
            topics.heard_for(SPACE, &[&b"a".to_vec()]),
            HashSet::from([3, 4])
        );
    }
}
