//! Map from slots to their owners: what CLUSTER SLOTS and redirects say of a Redis Cluster, or Sentinels of their one
//! primary.
//!
//! Opens no socket. What arrives from a server is checked: a slot or a port that cannot be leaves the map as it was.

use std::net::IpAddr;

use redline_cluster::{Node, Redirect, SLOTS, Topology};
use redline_net::Address;
use redline_resp::Value;

/// Nodes that are remembered: more than any cluster has, and few enough for a hostile map.
const NODES_MAX: usize = 4_096;
/// Nobody owns the slot, as far as is known.
const NOBODY: u16 = u16::MAX;

/// The map of one thread.
#[derive(Clone, Debug)]
pub struct Map {
    nodes: Vec<Address>,
    /// By slot.
    owners: Vec<u16>,
    /// Those among `owners`, each once and in order.
    primaries: Vec<usize>,
    /// By owner: the nodes that copy it.
    replicas: Vec<Vec<u16>>,
}

impl Map {
    /// A map in which one node owns everything: what is known before the first answer.
    pub fn of(first: Address) -> Map {
        Map {
            nodes: vec![first],
            owners: vec![0; SLOTS],
            primaries: vec![0],
            replicas: vec![Vec::new()],
        }
    }

    /// The node with this number.
    pub fn address(&self, node: usize) -> &Address {
        &self.nodes[node]
    }

    /// Nodes that were ever heard of.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Those that own a slot now.
    pub fn primaries(&self) -> &[usize] {
        &self.primaries
    }

    /// Returns true if every slot has an owner.
    pub fn is_whole(&self) -> bool {
        let nodes = self.nodes.len();
        self.owners.iter().all(|&owner| usize::from(owner) < nodes)
    }

    /// Those that copy an owner.
    pub fn replicas_of(&self, owner: usize) -> &[u16] {
        &self.replicas[owner]
    }

    /// Returns the owner of a slot, if one is known.
    pub fn owner(&self, slot: u16) -> Option<usize> {
        let owner = usize::from(self.owners[usize::from(slot)]);
        (owner < self.nodes.len()).then_some(owner)
    }

    /// The number of a node, which is a new one for one not heard of before; `None` when there are too many.
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

    /// The node that a redirect names; `from` is who has sent it.
    pub fn target(&mut self, redirect: &Redirect, from: usize) -> Option<usize> {
        let host = redirect.host.clone().or_else(|| self.host_of(from))?;
        self.node(Address::tcp(host, redirect.port))
    }

    /// That a slot has moved.
    pub fn moved(&mut self, slot: u16, to: usize) {
        let owner = &mut self.owners[usize::from(slot)];
        if *owner != to as u16 {
            *owner = to as u16;
            self.find_primaries();
        }
    }

    /// That one node owns everything, as a primary does that Sentinel names.
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

    /// Takes in the reply to CLUSTER SLOTS that `from` gave. False if it is no map at all.
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
        // No host: the one that was asked.
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
