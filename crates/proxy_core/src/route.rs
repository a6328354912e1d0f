//! The node of each key: an immutable routing table, made by the control side and read by every worker.
//!
//! Must not know connections, clients or how the table came about.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use redline_cluster::{SLOTS, slot_of};
use redline_proxy_config::Secret;

use crate::cache::Caching;
use crate::command_names::ForeignByName;
use crate::hash::Distribution;
use crate::prefix::Prefixes;

/// A node's number: its place in [`Routes::nodes`]. It stays for as long as the process runs, so workers may index
/// connections by it; no route leads to a node that was removed.
pub type NodeId = u16;
/// No node.
pub const NO_NODE: NodeId = NodeId::MAX;
/// No shard, in [`Placement::Slots`].
pub const NO_SHARD: u16 = u16::MAX;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its address. The control side resolves names, and publishes a new table when a name resolves differently.
    pub endpoint: Endpoint,
    /// Its name in the configuration or the cluster: for messages, and to find the target of a redirect.
    pub name: String,
    /// The user to authenticate as there, if it is not the default user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// It is marked down: requests are refused at once, except probes.
    pub ejected: bool,
    /// Some route leads to it. Others may still be targets of redirects.
    pub is_used: bool,
    /// Connections to it begin with READONLY: a node of a cluster whose replicas are read from.
    pub is_readonly: bool,
    /// A replica that has not answered the question for its replication offset: reads do not wait for it.
    pub is_silent: bool,
    /// The number of its pool. A server of two pools is two nodes.
    pub pool: u16,
    /// The name of its data centre; empty: none that the configuration knows.
    pub data_center: String,
}

impl Node {
    /// Returns true if this is not the server that had its number in an earlier table, or if its name resolves
    /// differently now: state of that server does not apply to it.
    pub fn is_another(&self, before: &Node) -> bool {
        (&self.name, self.pool, &self.endpoint) != (&before.name, before.pool, &before.endpoint)
    }

    /// Returns a server of the first pool on this machine, for tests.
    pub fn here(name: &str, port: u16) -> Node {
        Node {
            endpoint: Endpoint::Tcp(([127, 0, 0, 1], port).into()),
            name: name.to_owned(),
            user: None,
            password: None,
            ejected: false,
            is_used: true,
            is_readonly: false,
            is_silent: false,
            pool: 0,
            data_center: String::new(),
        }
    }
}

/// A part of the keys, and its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The server that takes writes.
    pub primary: NodeId,
    /// The servers that have its keys beside the primary.
    pub replicas: Vec<NodeId>,
    /// The servers that take reads, the primary perhaps among them; empty: the primary, and if it fails none.
    pub readers: Vec<Reader>,
}

impl Shard {
    /// Returns true if a server is one of the shard's.
    pub fn has(&self, node: NodeId) -> bool {
        self.primary == node || self.replicas.contains(&node)
    }

    /// Swaps a replica and the primary; until the servers say more, both stay in this shard. Returns false if it had
    /// that place already.
    pub fn promote(&mut self, node: NodeId) -> bool {
        if self.primary == node {
            return false;
        }
        self.replicas.retain(|&replica| replica != node);
        let before = std::mem::replace(&mut self.primary, node);
        self.replicas.extend((before != NO_NODE).then_some(before));
        true
    }
}

/// A server that may take reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// The server.
    pub node: NodeId,
    /// Its share of the reads among those of its shard; 0: only if no other can take them.
    pub weight: u32,
}

/// The distribution of keys over the shards of a pool.
#[derive(Clone, Debug)]
pub enum Placement {
    /// There is one shard.
    One,
    /// By a hash and a distribution: the shard's number for a key.
    Hashed(Arc<Distribution>),
    /// By the slots of a cluster: the shard's number for each, [`NO_SHARD`] where none is known.
    Slots(Box<[u16; SLOTS]>),
}

/// A set of servers that hold one set of keys.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its parts; at least one.
    pub shards: Vec<Shard>,
    /// The shard of each key.
    pub placement: Placement,
    /// Number of databases that SELECT accepts.
    pub databases: u32,
    /// Some shard has readers.
    pub spreads_reads: bool,
    /// Commands that its servers have and the table has not; none: not asked for.
    pub learned: Option<Arc<ForeignByName>>,
    /// TCP keepalive of connections to its servers: seconds; 0: none.
    pub keepalive_s: u32,
    /// Cache of replies to GET; none: nothing is cached.
    pub caching: Option<Arc<Caching>>,
    /// New connections to its servers use TLS.
    pub has_tls: bool,
}

impl Pool {
    /// Returns the group of a key, which has to be the same for all keys of one call: the number of the shard, of a cluster
    /// that of the slot.
    #[inline]
    pub fn group_of(&self, key: &[u8]) -> u16 {
        match &self.placement {
            Placement::One => 0,
            Placement::Hashed(hashed) => hashed.shard(key) as u16,
            Placement::Slots(_) => slot_of(key),
        }
    }

    /// Adds [`group_of`](Self::group_of) of each of many keys to `groups`.
    fn groups_of<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, groups: &mut Vec<u32>) {
        match &self.placement {
            Placement::Hashed(hashed) => hashed.shards(keys, groups),
            _ => groups.extend(keys.map(|key| u32::from(self.group_of(key)))),
        }
    }

    /// Returns the server of a group's keys; [`NO_NODE`] if none is known.
    #[inline]
    pub fn node_of_group(&self, group: u16) -> NodeId {
        match self.shard_of_group(group) {
            Some(shard) => shard.primary,
            None => NO_NODE,
        }
    }

    /// Returns the shard of a group.
    #[inline]
    pub fn shard_of_group(&self, group: u16) -> Option<&Shard> {
        let shard = match &self.placement {
            Placement::Slots(shards) => shards[usize::from(group)],
            _ => group,
        };
        self.shards.get(usize::from(shard))
    }

    /// Returns the server of a key; [`NO_NODE`] if none is known.
    #[inline]
    pub fn node_of(&self, key: &[u8]) -> NodeId {
        self.node_of_group(self.group_of(key))
    }

    /// Returns true if it has keys for which no server is known.
    pub fn lacks_somebody(&self) -> bool {
        self.shards.iter().any(|shard| shard.primary == NO_NODE)
            || match &self.placement {
                Placement::Slots(shards) => shards.contains(&NO_SHARD),
                _ => false,
            }
    }

    /// Returns true if every key is on the same server as in `other`. May return `false` where a comparison would take long.
    pub fn has_keys_as(&self, other: &Pool) -> bool {
        let primary = |shard: &Shard| shard.primary;
        let others = other.shards.iter().map(primary);
        self.shards.iter().map(primary).eq(others)
            && match (&self.placement, &other.placement) {
                (Placement::One, Placement::One) => true,
                (Placement::Hashed(mine), Placement::Hashed(others)) => Arc::ptr_eq(mine, others),
                (Placement::Slots(mine), Placement::Slots(others)) => mine == others,
                _ => false,
            }
    }
}

/// The routing table.
#[derive(Clone, Debug)]
pub struct Routes {
    /// All servers, past ones included.
    pub nodes: Vec<Node>,
    /// At least one. A pool keeps its number for as long as the process runs.
    pub pools: Vec<Pool>,
    /// The prefixes of keys that are in another pool than that of the client's listener.
    pub prefixes: Arc<Prefixes>,
}

impl Routes {
    /// Returns the group of a key, which has to be the same for all keys of one call, for a client whose own pool is `home`:
    /// the pool's number in the upper half, in the lower one the result of [`Pool::group_of`].
    #[inline]
    pub fn group_of(&self, home: u16, key: &[u8]) -> u32 {
        let (pool, key) = match self.prefixes.is_empty() {
            true => (home, key),
            false => self.prefixes.find(home, key),
        };
        self.group_in(pool, key)
    }

    /// Sets `groups` to the group of each key of a call.
    pub fn groups_of<'k>(
        &self,
        home: u16,
        keys: impl Iterator<Item = &'k [u8]>,
        groups: &mut Vec<u32>,
    ) {
        groups.clear();
        if !self.prefixes.is_empty() {
            return groups.extend(keys.map(|key| self.group_of(home, key)));
        }
        self.pools[usize::from(home)].groups_of(keys, groups);
        for group in groups {
            *group |= u32::from(home) << 16;
        }
    }

    /// Returns the server of a group's keys; [`NO_NODE`] if none is known.
    #[inline]
    pub fn node_of_group(&self, group: u32) -> NodeId {
        self.pool_of(group).node_of_group(group as u16)
    }

    /// Returns the group of a key whose call is forwarded unchanged; `None` if it has to be rewritten.
    #[inline]
    pub fn group_as_is(&self, home: u16, key: &[u8]) -> Option<u32> {
        let pool = match self.prefixes.is_empty() {
            true => home,
            false => {
                let (pool, short) = self.prefixes.find(home, key);
                if short.len() != key.len() {
                    return None;
                }
                pool
            }
        };
        Some(self.group_in(pool, key))
    }

    /// Returns the group of a key that the servers of this pool know by this name.
    #[inline]
    pub fn group_in(&self, pool: u16, key: &[u8]) -> u32 {
        u32::from(pool) << 16 | u32::from(self.pools[usize::from(pool)].group_of(key))
    }

    /// Returns the pool of a group.
    #[inline]
    pub fn pool_of(&self, group: u32) -> &Pool {
        &self.pools[(group >> 16) as usize]
    }

    /// Returns the shard of a group.
    pub fn shard_of_group(&self, group: u32) -> Option<&Shard> {
        self.pool_of(group).shard_of_group(group as u16)
    }

    /// Returns true if calls of a client may be answered by replicas.
    pub fn spreads_reads(&self, home: u16) -> bool {
        match self.prefixes.is_empty() {
            true => self.pools[usize::from(home)].spreads_reads,
            false => self.pools.iter().any(|pool| pool.spreads_reads),
        }
    }

    /// Returns the server of a client's key; [`NO_NODE`] if none is known.
    #[inline]
    pub fn node_of(&self, home: u16, key: &[u8]) -> NodeId {
        self.node_of_group(self.group_of(home, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(placement: Placement, primaries: &[NodeId]) -> Pool {
        let shard = |&primary: &NodeId| Shard {
            primary,
            replicas: Vec::new(),
            readers: Vec::new(),
        };
        Pool {
            name: "a".to_owned(),
            shards: primaries.iter().map(shard).collect(),
            placement,
            databases: 16,
            spreads_reads: false,
            learned: None,
            keepalive_s: 0,
            caching: None,
            has_tls: false,
        }
    }

    #[test]
    fn keys_with_a_prefix_belong_to_its_pool_and_the_others_to_the_clients() {
        let mut slots = Box::new([NO_SHARD; SLOTS]);
        slots[usize::from(slot_of(b"k"))] = 1;
        let routes = Routes {
            nodes: Vec::new(),
            pools: vec![
                pool(Placement::One, &[0]),
                pool(Placement::Slots(slots), &[1, 2]),
            ],
            prefixes: Arc::new(Prefixes::new([("a:", 1, true)])),
        };
        assert_eq!(routes.node_of(0, b"k"), 0);
        assert_eq!(routes.node_of(0, b"a:k"), 2);
        assert_eq!(routes.node_of(1, b"k"), 2);
        assert_eq!(routes.node_of(1, b"other"), NO_NODE);
        // A key that loses its prefix has to be rewritten.
        assert_eq!(routes.group_as_is(0, b"a:k"), None);
        assert_eq!(routes.group_as_is(0, b"k"), Some(0));
        let mut groups = Vec::new();
        routes.groups_of(0, [&b"k"[..], b"a:k"].into_iter(), &mut groups);
        assert_eq!(groups, [0, 1 << 16 | u32::from(slot_of(b"k"))]);
        assert!(routes.pools[1].lacks_somebody() && !routes.pools[0].lacks_somebody());
    }

    #[test]
    fn a_replica_that_is_promoted_changes_places_with_the_primary() {
        let mut shard = Shard {
            primary: 3,
            replicas: vec![4, 5],
            readers: Vec::new(),
        };
        assert!(shard.promote(5) && !shard.promote(5));
        assert_eq!((shard.primary, &shard.replicas[..]), (5, &[4, 3][..]));
        assert!([3, 4, 5].iter().all(|node| shard.has(*node)) && !shard.has(6));
    }
}
