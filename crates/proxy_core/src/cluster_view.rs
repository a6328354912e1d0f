//! The cluster that is presented to cluster clients: the proxies are its nodes. Each nominally has an equal part of the
//! slots, and serves all of them, so no client is ever redirected. Must not know how requests are routed.

use std::fmt::Write;
use std::net::SocketAddr;

use redline_cluster::SLOTS;
use redline_proxy_config::{ClusterFace, Place};
use redline_resp::Reply;
use redline_spec::{self as spec, Group};

/// The proxies that are presented as nodes.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// Ordered by address, the same in all of them.
    proxies: Vec<Proxy>,
    /// Index of this proxy.
    own: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Proxy {
    host: String,
    port: u16,
}

impl ClusterView {
    /// Returns the view of a configuration; none: no cluster is presented. Without an address to announce it has no
    /// proxies, and each client gets the address that it connected to.
    pub fn of(config: &ClusterFace) -> Option<ClusterView> {
        let proxy = |place: &Place| match place {
            Place::Tcp { host, port } => Some(Proxy {
                host: host.clone(),
                port: *port,
            }),
            Place::Unix(_) => None,
        };
        let announced = config.announce.as_ref().and_then(proxy);
        let Some(own) = announced.filter(|_| config.enabled) else {
            return config.enabled.then_some(ClusterView {
                proxies: Vec::new(),
                own: 0,
            });
        };
        let peers = config.peers.iter().filter_map(proxy);
        let mut proxies: Vec<Proxy> = peers.chain([own.clone()]).collect();
        proxies.sort();
        proxies.dedup();
        let own = proxies.iter().position(|proxy| *proxy == own).unwrap_or(0);
        Some(ClusterView { proxies, own })
    }

    /// Returns the view of a client that connected to this address.
    pub fn seen_at(&self, came_to: Option<SocketAddr>, port: u16) -> ClusterView {
        if !self.proxies.is_empty() {
            return self.clone();
        }
        let proxy = match came_to {
            Some(address) => Proxy {
                host: address.ip().to_canonical().to_string(),
                port: address.port(),
            },
            // An empty host means the address that the client uses.
            _ => Proxy {
                host: String::new(),
                port,
            },
        };
        ClusterView {
            proxies: vec![proxy],
            own: 0,
        }
    }

    /// Returns the id of this proxy.
    pub fn own_id(&self) -> String {
        self.proxies[self.own].id()
    }

    /// Returns the id of this proxy's shard.
    pub fn own_shard_id(&self) -> String {
        self.proxies[self.own].hashed("shard")
    }

    /// Returns true if a presented proxy has this id.
    pub fn has(&self, id: &[u8]) -> bool {
        self.proxies.iter().any(|proxy| proxy.id().as_bytes() == id)
    }

    /// Returns the first and the last slot of a proxy.
    fn slots(&self, proxy: usize) -> (usize, usize) {
        let count = self.proxies.len();
        (proxy * SLOTS / count, (proxy + 1) * SLOTS / count - 1)
    }

    /// Writes the reply of CLUSTER SLOTS.
    pub fn write_slots(&self, reply: &mut Reply<'_>) {
        reply.array(self.proxies.len());
        for (number, proxy) in self.proxies.iter().enumerate() {
            let (first, last) = self.slots(number);
            reply.array(3);
            reply.integer(first as i64);
            reply.integer(last as i64);
            reply.array(4);
            reply.bulk(proxy.host.as_bytes());
            reply.integer(proxy.port.into());
            reply.bulk(proxy.id().as_bytes());
            reply.map(0);
        }
    }

    /// Writes the reply of CLUSTER SHARDS.
    pub fn write_shards(&self, reply: &mut Reply<'_>) {
        reply.array(self.proxies.len());
        for (number, proxy) in self.proxies.iter().enumerate() {
            let (first, last) = self.slots(number);
            reply.map(2);
            reply.bulk(b"slots");
            reply.array(2);
            reply.integer(first as i64);
            reply.integer(last as i64);
            reply.bulk(b"nodes");
            reply.array(1);
            reply.map(7);
            reply.bulk(b"id");
            reply.bulk(proxy.id().as_bytes());
            reply.bulk(b"port");
            reply.integer(proxy.port.into());
            for name in ["ip", "endpoint"] {
                reply.bulk(name.as_bytes());
                reply.bulk(proxy.host.as_bytes());
            }
            reply.bulk(b"role");
            reply.bulk(b"master");
            reply.bulk(b"replication-offset");
            reply.integer(0);
            reply.bulk(b"health");
            reply.bulk(b"online");
        }
    }

    /// Returns the reply of CLUSTER NODES.
    pub fn nodes(&self) -> String {
        let mut text = String::new();
        for (number, proxy) in self.proxies.iter().enumerate() {
            let (first, last) = self.slots(number);
            let flags = if number == self.own {
                "myself,master"
            } else {
                "master"
            };
            // Writing into a string cannot fail.
            let _ = writeln!(
                text,
                "{} {}:{}@0 {flags} - 0 0 {} connected {first}-{last}",
                proxy.id(),
                proxy.host,
                proxy.port,
                number + 1,
            );
        }
        text
    }

    /// Returns the reply of CLUSTER INFO.
    pub fn info(&self) -> String {
        let count = self.proxies.len();
        let mut text = String::new();
        for (name, value) in [
            ("state", "ok".to_owned()),
            ("slots_assigned", SLOTS.to_string()),
            ("slots_ok", SLOTS.to_string()),
            ("slots_pfail", "0".to_owned()),
            ("slots_fail", "0".to_owned()),
            ("known_nodes", count.to_string()),
            ("size", count.to_string()),
            ("current_epoch", count.to_string()),
            ("my_epoch", (self.own + 1).to_string()),
            ("stats_messages_sent", "0".to_owned()),
            ("stats_messages_received", "0".to_owned()),
        ] {
            let _ = write!(text, "cluster_{name}:{value}\r\n");
        }
        text
    }
}

impl Proxy {
    /// Returns a node's id: 40 hexadecimal digits, the same in every proxy.
    fn id(&self) -> String {
        self.hashed("node")
    }

    fn hashed(&self, what: &str) -> String {
        let text = format!("{what} {}:{}", self.host, self.port);
        sha1_smol::Sha1::from(text).digest().to_string()
    }
}

/// Returns true if this names a command of a cluster.
pub fn is_of_cluster(name: &[u8]) -> bool {
    spec::lookup(name).is_some_and(|id| spec::row(id).group == Group::Cluster)
}

/// The lines of CLUSTER HELP.
pub const HELP: [&str; 21] = [
    "CLUSTER <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "COUNTKEYSINSLOT <slot>",
    "    How many keys the servers behind the proxy have in a slot, if they are a cluster.",
    "GETKEYSINSLOT <slot> <count>",
    "    Some of them.",
    "INFO",
    "    The state: the proxies are the nodes, and all is well.",
    "KEYSLOT <key>",
    "    The slot of a key.",
    "MYID",
    "    The id of this proxy.",
    "MYSHARDID",
    "    The id of this proxy's shard.",
    "NODES",
    "    The proxies, as nodes with an equal part of the slots each.",
    "SHARDS",
    "    The same, as maps.",
    "SLOTS",
    "    The same, by slots.",
    "HELP",
    "    This text.",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn view(announce: &str, peers: &[&str]) -> ClusterView {
        ClusterView::of(&ClusterFace {
            enabled: true,
            announce: Some(announce.parse().unwrap()),
            peers: peers.iter().map(|peer| peer.parse().unwrap()).collect(),
        })
        .unwrap()
    }

    #[test]
    fn every_proxy_shows_the_same_nodes_and_all_slots_once() {
        let one = view("10.0.0.1:7617", &["10.0.0.3:7617", "10.0.0.2:7617"]);
        let other = view(
            "10.0.0.2:7617",
            &["10.0.0.1:7617", "10.0.0.3:7617", "10.0.0.2:7617"],
        );
        assert_eq!(one.proxies, other.proxies);
        assert_eq!((one.own, other.own), (0, 1));
        let slots: Vec<_> = (0..3).map(|proxy| one.slots(proxy)).collect();
        assert_eq!(slots, [(0, 5460), (5461, 10921), (10922, 16383)]);
        assert_eq!(
            one.nodes().replace("myself,", ""),
            other.nodes().replace("myself,", "")
        );
    }

    #[test]
    fn who_announces_nothing_is_where_the_client_came_to() {
        let view = ClusterView::of(&ClusterFace {
            enabled: true,
            ..ClusterFace::default()
        })
        .unwrap();
        let came_to = "127.0.0.1:99".parse().unwrap();
        assert!(
            view.seen_at(Some(came_to), 7)
                .nodes()
                .contains(" 127.0.0.1:99@0 myself")
        );
        assert!(view.seen_at(None, 7).nodes().contains(" :7@0 "));
        assert!(ClusterView::of(&ClusterFace::default()).is_none());
    }
}
