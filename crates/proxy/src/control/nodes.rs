//! All servers, present and past, by number. Knows no connection and no pool.
//!
//! Workers index connections by a server's number, so a number stays with its server; one without routes for a while is
//! reused, or servers that come and go under new addresses would use up all numbers.

use redline_net::{Address, Endpoint};
use redline_proxy_config::{Place, Secret};

use super::health::Health;
use super::replication::Replication;
use crate::route::{self, NO_NODE, Node, NodeId};

/// Time without routes after which a number is reused.
const REST_MS: u64 = 60_000;

/// A server.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its address as written.
    pub address: Address,
    /// The user to authenticate as.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The endpoint of the address; none while that is not known.
    pub endpoint: Option<Endpoint>,
    /// The number of its pool, whose policies apply.
    pub pool: usize,
    /// Health of the server.
    pub health: Health,
    /// Some route leads to it.
    pub is_used: bool,
    /// Time since which no route does.
    pub idle_since_ms: u64,
    /// Replication state of its data, if replicas are read from.
    pub replication: Replication,
}

/// The credentials for a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Who<'a> {
    /// The user; none: the default one.
    pub user: Option<&'a str>,
    /// The password; none: no authentication.
    pub password: Option<&'a str>,
}

/// All servers.
#[derive(Debug, Default)]
pub struct Nodes {
    known: Vec<Known>,
}

impl Nodes {
    /// Returns the number of a server of a pool; a new one, if it was not known. [`NO_NODE`] when there are too many.
    pub fn number(&mut self, address: &Address, pool: usize, who: Who<'_>, now_ms: u64) -> NodeId {
        let same = |known: &Known| known.address == *address && known.pool == pool;
        if let Some(at) = self.known.iter().position(same) {
            let known = &mut self.known[at];
            (known.user, known.password) =
                (who.user.map(str::to_owned), who.password.map(Secret::from));
            return at as NodeId;
        }
        let known = Known {
            address: address.clone(),
            user: who.user.map(str::to_owned),
            password: who.password.map(Secret::from),
            endpoint: literal(address),
            pool,
            health: Health::new(now_ms),
            is_used: false,
            idle_since_ms: now_ms,
            replication: Replication::default(),
        };
        let free = |known: &Known| !known.is_used && now_ms >= known.idle_since_ms + REST_MS;
        if let Some(at) = self.known.iter().position(free) {
            self.known[at] = known;
            return at as NodeId;
        }
        if self.known.len() >= usize::from(NO_NODE) {
            return NO_NODE;
        }
        self.known.push(known);
        (self.known.len() - 1) as NodeId
    }

    /// Returns a server.
    pub fn get(&self, node: NodeId) -> Option<&Known> {
        self.known.get(usize::from(node))
    }

    /// Returns a server, mutably.
    pub fn get_mut(&mut self, node: NodeId) -> Option<&mut Known> {
        self.known.get_mut(usize::from(node))
    }

    /// Returns all servers, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Known)> {
        self.known
            .iter()
            .enumerate()
            .map(|(at, known)| (at as NodeId, known))
    }

    /// Returns the servers in use, or ejected, whose probes are due.
    pub fn due_for_probe(&self, now_ms: u64) -> Vec<NodeId> {
        let is_due = |known: &Known| {
            (known.is_used || known.health.is_ejected()) && now_ms >= known.health.probe_at_ms()
        };
        let due = self.iter().filter(|(_, known)| is_due(known));
        due.map(|(node, _)| node).collect()
    }

    /// Returns the servers whose addresses are names, which have to be resolved.
    pub fn named(&self) -> Vec<(NodeId, Address)> {
        let named = self
            .iter()
            .filter(|(_, known)| literal(&known.address).is_none());
        named
            .map(|(node, known)| (node, known.address.clone()))
            .collect()
    }

    /// Sets which servers have routes.
    pub fn mark_used(&mut self, is_used: impl Fn(NodeId) -> bool, now_ms: u64) {
        for (at, known) in self.known.iter_mut().enumerate() {
            let used = is_used(at as NodeId);
            if known.is_used && !used {
                known.idle_since_ms = now_ms;
            }
            if !known.is_used && used {
                known.health = Health::new(now_ms);
                known.replication.forget();
            }
            known.is_used = used;
        }
    }

    /// Returns the servers for the routing table.
    pub fn routed(&self) -> Vec<Node> {
        let seen = self.known.iter().map(|known| Node {
            endpoint: match known.endpoint.clone() {
                Some(Endpoint::Tcp(address)) => route::Endpoint::Tcp(address),
                Some(Endpoint::Unix(path)) => route::Endpoint::Unix(path),
                None => route::Endpoint::Unix("".into()),
            },
            name: known.address.to_string(),
            user: known.user.clone(),
            password: known.password.clone(),
            ejected: known.health.is_ejected() || known.endpoint.is_none(),
            is_used: known.is_used,
            is_readonly: false,
            is_silent: false,
            data_center: String::new(),
            pool: known.pool as u16,
        });
        seen.collect()
    }
}

/// Returns the address of a configured place.
pub fn address_of(place: &Place) -> Address {
    match place {
        Place::Tcp { host, port } => Address::tcp(host, *port),
        Place::Unix(path) => Address::unix(path),
    }
}

/// Returns true if a configured place has this address, as it is written.
pub fn is_at(place: &Place, address: &Address) -> bool {
    match (place, address) {
        (
            Place::Tcp { host, port },
            Address::Tcp {
                host: other,
                port: at,
            },
        ) => host == other && port == at,
        (Place::Unix(path), Address::Unix(other)) => path == other,
        _ => false,
    }
}

/// Returns the endpoint of an address that needs no resolution.
pub fn literal(address: &Address) -> Option<Endpoint> {
    match address {
        Address::Unix(path) => Some(Endpoint::Unix(path.clone())),
        Address::Tcp { host, port } => {
            let ip = host.parse().ok()?;
            Some(Endpoint::Tcp(std::net::SocketAddr::new(ip, *port)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_at_its_own_address_and_at_no_other() {
        let texts = ["a:1", "a:2", "b:1", "[::1]:1", "/a", "/b"];
        let places: Vec<Place> = texts.iter().map(|text| text.parse().unwrap()).collect();
        for (at, place) in places.iter().enumerate() {
            let address = address_of(place);
            assert_eq!(address.to_string(), place.to_string());
            let found: Vec<usize> = (0..places.len())
                .filter(|&other| is_at(&places[other], &address))
                .collect();
            assert_eq!(found, [at], "{place}");
        }
    }

    #[test]
    fn numbers_stay_and_are_given_again_after_a_rest() {
        let mut nodes = Nodes::default();
        let number = |nodes: &mut Nodes, name: &str, now_ms| {
            nodes.number(&Address::tcp(name, 1), 0, Who::default(), now_ms)
        };
        assert_eq!(number(&mut nodes, "a", 0), 0);
        assert_eq!(number(&mut nodes, "b", 0), 1);
        assert_eq!(number(&mut nodes, "a", 0), 0);
        nodes.mark_used(|_| true, 0);
        assert_eq!(number(&mut nodes, "c", 100_000), 2);
        nodes.mark_used(|node| node != 0, 100_000);
        assert_eq!(number(&mut nodes, "d", 159_999), 3);
        // A server whose address changes with every start does not use up the numbers.
        assert_eq!(number(&mut nodes, "e", 160_000), 0);
        assert_eq!(nodes.routed()[0].name, "e:1");
        assert!(
            nodes.routed()[0].ejected,
            "a name that was not looked up is nowhere"
        );
    }
}
