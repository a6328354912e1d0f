//! Which node has a key: an immutable picture of the servers, made by the control side and read by every worker.
//!
//! Must not know connections, clients or how the picture came about.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redline_cluster::{SLOTS, slot_of};
use redline_net::Endpoint;
use redline_net::tls::ClientTls;
use redline_proxy_config::Secret;

use crate::cache::Caching;
use crate::custom::ForeignByName;
use crate::hash::Distribution;
use crate::prefix::Prefixes;

/// A node's number: its place in [`Routes::nodes`]. It keeps its number for as long as the process runs, so workers may
/// keep connections by it; a node that left has nothing that routes to it any more.
pub type NodeId = u16;
/// No node has it.
pub const NO_NODE: NodeId = NodeId::MAX;
/// No shard has it, in [`Placement::Slots`].
pub const NO_SHARD: u16 = u16::MAX;

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where it is. A name was resolved by the control side, which publishes anew when the name points elsewhere.
    pub endpoint: Endpoint,
    /// As the configuration or the cluster writes it: for messages, and to find the target of a redirect.
    pub name: String,
    /// The user to authenticate as there, if it is not the default user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// It does not answer: requests are refused at once, except probes.
    pub ejected: bool,
    /// Something routes to it. What does not may still be where a redirect points.
    pub is_used: bool,
    /// Connections to it begin with READONLY: a node of a cluster whose replicas are read from.
    pub is_readonly: bool,
    /// A replica that was asked how far it is and has not answered: reads do not wait for it.
    pub is_silent: bool,
    /// The number of its pool. A server of two pools is two nodes.
    pub pool: u16,
    /// The name of the data centre that it is in; empty: none that the configuration knows.
    pub data_center: String,
}

impl Node {
    /// Returns true if this is not the server that had its number in an earlier picture, or its name leads to another one now:
    /// the known state of that one does not apply to it.
    pub fn is_another(&self, before: &Node) -> bool {
        (&self.name, self.pool, &self.endpoint) != (&before.name, before.pool, &before.endpoint)
    }

    /// One of the first pool, on this machine.
    #[cfg(test)]
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

/// One part of the keys, and who has it.
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

    /// A replica takes the primary's place, and the primary that of a replica: until the servers say more, both are of this
    /// shard. False if it had that place.
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

/// Somebody who may take reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// The server.
    pub node: NodeId,
    /// Its share of the reads among those of its shard; 0: only if no other can take them.
    pub weight: u32,
}

/// How keys are spread over the shards of a pool.
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
    /// Which of them has a key.
    pub placement: Placement,
    /// How many databases SELECT may name.
    pub databases: u32,
    /// Some shard has readers.
    pub spreads_reads: bool,
    /// Commands that its servers have and the table has not; none: nobody has asked.
    pub learned: Option<Arc<ForeignByName>>,
    /// TCP's keepalive on connections to its servers: seconds; 0: none.
    pub keepalive_s: u32,
    /// Cache of replies to GET; none: nothing is cached.
    pub caching: Option<Arc<Caching>>,
    /// TLS to its servers: for connections that are made from now on.
    pub tls: Option<ClientTls>,
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

    /// [`group_of`](Self::group_of) of each of many keys, added to `groups`.
    fn groups_of<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, groups: &mut Vec<u32>) {
        match &self.placement {
            Placement::Hashed(hashed) => hashed.shards(keys, groups),
            _ => groups.extend(keys.map(|key| u32::from(self.group_of(key)))),
        }
    }

    /// The server of a group's keys; [`NO_NODE`] if none is known.
    #[inline]
    pub fn node_of_group(&self, group: u16) -> NodeId {
        match self.shard_of_group(group) {
            Some(shard) => shard.primary,
            None => NO_NODE,
        }
    }

    /// Everybody who has a group's keys.
    #[inline]
    pub fn shard_of_group(&self, group: u16) -> Option<&Shard> {
        let shard = match &self.placement {
            Placement::Slots(shards) => shards[usize::from(group)],
            _ => group,
        };
        self.shards.get(usize::from(shard))
    }

    /// The server of a key; [`NO_NODE`] if none is known.
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

    /// Returns true if every key is on the same server as in `other`. `false` is also said where it would take long to tell.
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

/// The picture.
#[derive(Clone, Debug)]
pub struct Routes {
    /// All servers that there ever were.
    pub nodes: Vec<Node>,
    /// At least one. A pool keeps its number for as long as the process runs.
    pub pools: Vec<Pool>,
    /// Which keys are in another pool than that of the client's listener.
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

    /// The same for each key of a call, in place of what is in `groups`.
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

    /// The server of a group's keys; [`NO_NODE`] if none is known.
    #[inline]
    pub fn node_of_group(&self, group: u32) -> NodeId {
        self.pool_of(group).node_of_group(group as u16)
    }

    /// The group of a key whose call goes to its servers as it is; `None` if it has to be written anew.
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

    /// The group of a key that the servers of this pool know by this name.
    #[inline]
    pub fn group_in(&self, pool: u16, key: &[u8]) -> u32 {
        u32::from(pool) << 16 | u32::from(self.pools[usize::from(pool)].group_of(key))
    }

    /// The pool of a group.
    #[inline]
    pub fn pool_of(&self, group: u32) -> &Pool {
        &self.pools[(group >> 16) as usize]
    }

    /// Everybody who has a group's keys.
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

    /// The server of a client's key; [`NO_NODE`] if none is known.
    #[inline]
    pub fn node_of(&self, home: u16, key: &[u8]) -> NodeId {
        self.node_of_group(self.group_of(home, key))
    }
}

/// Where the control side publishes pictures and workers find them.
#[derive(Debug)]
pub struct Published {
    epoch: AtomicU64,
    routes: Mutex<Arc<Routes>>,
}

impl Published {
    /// Begins with this picture.
    pub fn new(routes: Routes) -> Published {
        Published {
            epoch: AtomicU64::new(1),
            routes: Mutex::new(Arc::new(routes)),
        }
    }

    /// Replaces the picture; workers take it up in their next turn.
    pub fn publish(&self, routes: Routes) {
        *self.lock() = Arc::new(routes);
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Changes with every publication: one load a turn.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The picture as it is now.
    pub fn current(&self) -> Arc<Routes> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<Routes>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publication_is_seen_by_its_epoch() {
        let routes = |pools| Routes {
            nodes: Vec::new(),
            pools,
            prefixes: Arc::default(),
        };
        let published = Published::new(routes(Vec::new()));
        let before = published.epoch();
        assert!(published.current().pools.is_empty());
        published.publish(routes(vec![Pool {
            name: "a".to_owned(),
            shards: Vec::new(),
            placement: Placement::One,
            databases: 16,
            spreads_reads: false,
            learned: None,
            keepalive_s: 0,
            caching: None,
            tls: None,
        }]));
        assert_ne!(published.epoch(), before);
        assert_eq!(published.current().pools.len(), 1);
    }
}
