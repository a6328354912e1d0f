//! Map from slots to their owners: from CLUSTER SLOTS and redirects of a Redis Cluster, or from Sentinels about their
//! one primary.
//!
//! Opens no socket. Servers' data is checked: an invalid slot or port leaves the map unchanged.

use std::net::IpAddr;

use redline_cluster::{Node, Redirect, SLOTS, Topology};
use redline_net::Address;
use redline_resp::Value;

/// Largest number of nodes: more than any cluster has, and few enough for a hostile map.
const NODES_MAX: usize = 4_096;
/// The slot has no known owner.
const NOBODY: u16 = u16::MAX;

/// The map of one thread.
#[derive(Clone, Debug)]
pub struct Map {
    nodes: Vec<Address>,
    /// Owner of each slot.
    owners: Vec<u16>,
    /// The owners in `owners`, each once and in order.
    primaries: Vec<usize>,
    /// Replicas of each owner.
    replicas: Vec<Vec<u16>>,
}

impl Map {
    /// Returns a map in which one node owns everything: before the first reply.
    pub fn of(first: Address) -> Map {
        Map {
            nodes: vec![first],
            owners: vec![0; SLOTS],
            primaries: vec![0],
            replicas: vec![Vec::new()],
        }
    }

    /// Returns the node with this number.
    pub fn address(&self, node: usize) -> &Address {
        &self.nodes[node]
    }

    /// Returns the number of nodes that were ever known.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the nodes that own a slot now.
    pub fn primaries(&self) -> &[usize] {
        &self.primaries
    }

    /// Returns true if every slot has an owner.
    pub fn is_whole(&self) -> bool {
        let nodes = self.nodes.len();
        self.owners.iter().all(|&owner| usize::from(owner) < nodes)
    }

    /// Returns the replicas of an owner.
    pub fn replicas_of(&self, owner: usize) -> &[u16] {
        &self.replicas[owner]
    }

    /// Returns the owner of a slot, if one is known.
    pub fn owner(&self, slot: u16) -> Option<usize> {
        let owner = usize::from(self.owners[usize::from(slot)]);
        (owner < self.nodes.len()).then_some(owner)
    }

    /// Returns the number of a node, a new one for an unknown address; `None` when there are too many.
    pub fn node(&mut self, address: Address) -> Option<usize> {
        if let Some(known) = self.nodes.iter().position(|node| *node == address) {
            return Some(known);
        }
        if self.nodes.len() == NODES_MAX {
            return None;
        }
        self.nodes.push(address);
        self.replicas.push(Vec::new());
        Some(self.nodes.len() - 1)
    }

    /// Returns the node that a redirect names; `from` is its sender.
    pub fn target(&mut self, redirect: &Redirect, from: usize) -> Option<usize> {
        let host = redirect.host.clone().or_else(|| self.host_of(from))?;
        self.node(Address::tcp(host, redirect.port))
    }

    /// Moves a slot.
    pub fn moved(&mut self, slot: u16, to: usize) {
        let owner = &mut self.owners[usize::from(slot)];
        if *owner != to as u16 {
            *owner = to as u16;
            self.find_primaries();
        }
    }

    /// Makes one node the owner of everything, such as the primary that Sentinel names.
    pub fn all_to(&mut self, node: usize) {
        self.owners.fill(node as u16);
        self.primaries = vec![node];
    }

    fn find_primaries(&mut self) {
        let mut owns = vec![false; self.nodes.len()];
        for &owner in &self.owners {
            if let Some(owns) = owns.get_mut(usize::from(owner)) {
                *owns = true;
            }
        }
        let nodes = 0..self.nodes.len();
        self.primaries = nodes.filter(|&node| owns[node]).collect();
    }

    /// Applies a reply of `from` to CLUSTER SLOTS. Returns false if it is no map at all.
    pub fn take(&mut self, reply: &Value, from: usize) -> bool {
        let Some(topology) = Topology::from_slots(reply) else {
            return false;
        };
        let mut owners = vec![NOBODY; SLOTS];
        let mut replicas = vec![Vec::new(); self.nodes.len()];
        for shard in &topology.shards {
            let [primary, copies @ ..] = shard.nodes.as_slice() else {
                return false;
            };
            let Some(owner) = self.node_of(primary, from) else {
                return false;
            };
            for slots in &shard.slots {
                owners[usize::from(*slots.start())..=usize::from(*slots.end())].fill(owner as u16);
            }
            let copies: Vec<u16> = copies
                .iter()
                .filter_map(|copy| self.node_of(copy, from).map(|node| node as u16))
                .collect();
            replicas.resize(self.nodes.len(), Vec::new());
            replicas[owner] = copies;
        }
        replicas.resize(self.nodes.len(), Vec::new());
        (self.owners, self.replicas) = (owners, replicas);
        self.find_primaries();
        true
    }

    fn node_of(&mut self, node: &Node, from: usize) -> Option<usize> {
        // No host: that of the node that was asked.
        let host = node.host.clone().or_else(|| self.host_of(from))?;
        self.node(Address::tcp(host, node.port))
    }

    fn host_of(&self, node: usize) -> Option<String> {
        match &self.nodes[node] {
            Address::Tcp { host, .. } => Some(host.clone()),
            Address::Unix(_) => Some(IpAddr::from([127, 0, 0, 1]).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: i64) -> Value {
        Value::Array(vec![
            Value::Bulk(host.into()),
            Value::Integer(port),
            Value::Bulk(b"id".to_vec()),
        ])
    }

    fn range(first: i64, last: i64, nodes: &[Value]) -> Value {
        let mut parts = vec![Value::Integer(first), Value::Integer(last)];
        parts.extend_from_slice(nodes);
        Value::Array(parts)
    }

    #[test]
    fn a_map_names_owners_and_copies_and_leaves_gaps() {
        let mut map = Map::of(Address::tcp("a", 1));
        let reply = Value::Array(vec![
            range(0, 99, &[node("a", 1), node("b", 2)]),
            range(200, 16383, &[node("", 3)]),
        ]);
        assert!(map.take(&reply, 0));
        assert_eq!(map.owner(99), Some(0));
        assert_eq!(map.owner(100), None);
        let third = map.owner(200).unwrap();
        assert_eq!(map.address(third), &Address::tcp("a", 3));
        let copy = usize::from(map.replicas_of(0)[0]);
        assert_eq!(map.address(copy), &Address::tcp("b", 2));
        assert_eq!(map.primaries(), [0, third]);
        map.moved(100, third);
        assert_eq!(map.owner(100), Some(third));
        for slot in 0..100 {
            map.moved(slot, third);
        }
        assert_eq!(map.primaries(), [third]);
        map.all_to(0);
        assert_eq!(map.primaries(), [0]);
    }

    #[test]
    fn what_is_no_map_changes_nothing() {
        let mut map = Map::of(Address::tcp("a", 1));
        for wrong in [
            Value::Integer(1),
            Value::Array(vec![range(0, 16384, &[node("b", 1)])]),
            Value::Array(vec![range(-1, 5, &[node("b", 1)])]),
            Value::Array(vec![range(0, 5, &[node("b", 70_000)])]),
            Value::Array(vec![range(0, 5, &[])]),
        ] {
            assert!(!map.take(&wrong, 0), "{wrong:?}");
            assert_eq!(map.primaries(), [0]);
        }
    }
}
