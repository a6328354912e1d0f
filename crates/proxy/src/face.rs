//! The face of a Redis Cluster, for clients that insist on one: the proxies are its nodes. Each has an equal part of the slots
//! by name, and serves all of them, so no client is ever sent elsewhere. Must not know how requests are routed.

use std::fmt::Write;

use redline_acl::NO_AUTH;
use redline_cluster::{SLOTS, slot_of};
use redline_net::PeerAddr;
use redline_proxy_config::{ClusterFace, Place};
use redline_resp::{Args, Reply};
use redline_spec::{self as spec, CommandId, Group, refusal};

use crate::errors;
use crate::route::{NO_NODE, Placement};
use crate::serve::Flow;
use crate::slab::Ref;
use crate::worker::Worker;

/// The proxies that are shown as nodes.
#[derive(Clone, Debug)]
pub struct Face {
    /// In the order of their addresses, which is the same for all of them.
    proxies: Vec<Proxy>,
    /// Which of them this one is.
    own: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Proxy {
    host: String,
    port: u16,
}

impl Face {
    /// As it is configured; none: there is no such face. Without an address to announce there is no proxy in it, and each
    /// client is shown the address that it came to.
    pub fn of(config: &ClusterFace) -> Option<Face> {
        let proxy = |place: &Place| match place {
            Place::Tcp { host, port } => Some(Proxy {
                host: host.clone(),
                port: *port,
            }),
            Place::Unix(_) => None,
        };
        let announced = config.announce.as_ref().and_then(proxy);
        let Some(own) = announced.filter(|_| config.enabled) else {
            return config.enabled.then_some(Face {
                proxies: Vec::new(),
                own: 0,
            });
        };
        let peers = config.peers.iter().filter_map(proxy);
        let mut proxies: Vec<Proxy> = peers.chain([own.clone()]).collect();
        proxies.sort();
        proxies.dedup();
        let own = proxies.iter().position(|proxy| *proxy == own).unwrap_or(0);
        Some(Face { proxies, own })
    }

    /// As a client sees it that came to this address.
    fn seen_at(&self, came_to: Option<&PeerAddr>, port: u16) -> Face {
        if !self.proxies.is_empty() {
            return self.clone();
        }
        let proxy = match came_to {
            Some(PeerAddr::Tcp(address)) => Proxy {
                host: address.ip().to_canonical().to_string(),
                port: address.port(),
            },
            // An empty host is whichever the client uses.
            _ => Proxy {
                host: String::new(),
                port,
            },
        };
        Face {
            proxies: vec![proxy],
            own: 0,
        }
    }

    /// The first and the last slot of a proxy.
    fn slots(&self, proxy: usize) -> (usize, usize) {
        let count = self.proxies.len();
        (proxy * SLOTS / count, (proxy + 1) * SLOTS / count - 1)
    }

    fn write_slots(&self, reply: &mut Reply<'_>) {
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

    fn write_shards(&self, reply: &mut Reply<'_>) {
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

    /// CLUSTER NODES.
    fn nodes(&self) -> String {
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

    /// CLUSTER INFO.
    fn info(&self) -> String {
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
    /// A node's id: 40 hexadecimal digits, the same whichever proxy is asked.
    fn id(&self) -> String {
        self.hashed("node")
    }

    fn hashed(&self, what: &str) -> String {
        let text = format!("{what} {}:{}", self.host, self.port);
        sha1_smol::Sha1::from(text).digest().to_string()
    }
}

/// Returns true if this names a command of a cluster.
fn is_of_cluster(name: &[u8]) -> bool {
    spec::lookup(name).is_some_and(|id| spec::row(id).group == Group::Cluster)
}

const HELP: [&str; 21] = [
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

impl Worker {
    /// Answers a command of a cluster; none: it is no such command, or there is no such face.
    pub(crate) fn face(&mut self, me: Ref, raw: &[u8], args: Args<'_>) -> Option<Flow> {
        let face = self.shared.face.as_ref()?;
        if !is_of_cluster(&args[0]) {
            return None;
        }
        let client = self.clients.find(me)?;
        let face = face.seen_at(client.card.laddr.as_ref(), self.shared.port);
        let restricted = client.restricted;
        if self.is_nobody(me) {
            return Some(self.abort(me, NO_AUTH));
        }
        let name = String::from_utf8_lossy(&args[0]).to_ascii_lowercase();
        if restricted {
            return Some(self.refuse(me, &refusal::subscribed(&name)));
        }
        if self.is_in_multi(me) {
            let line = format!("ERR '{name}' is not available inside MULTI through the proxy");
            return Some(self.abort(me, &line));
        }
        let wrong = refusal::wrong_arity;
        if name != "cluster" {
            // Every proxy answers for every slot, whoever asks.
            return Some(match args.len() {
                1 => self.status(me, "OK"),
                _ => self.refuse(me, &wrong(&name)),
            });
        }
        let Some(sub) = args.get(1) else {
            return Some(self.refuse(me, &wrong("cluster")));
        };
        let sub = String::from_utf8_lossy(sub).to_ascii_lowercase();
        let full = format!("cluster|{sub}");
        if spec::lookup_subcommand(CommandId::Cluster, &args[1]).is_none() {
            let line = refusal::unknown_subcommand("CLUSTER", &args[1]);
            return Some(self.refuse(me, &line));
        }
        Some(match (sub.as_str(), args.len()) {
            ("slots", 2) => self.answer(me, |reply| face.write_slots(reply)),
            ("shards", 2) => self.answer(me, |reply| face.write_shards(reply)),
            ("nodes", 2) => self.answer(me, |reply| reply.verbatim("txt", face.nodes().as_bytes())),
            ("info", 2) => self.answer(me, |reply| reply.verbatim("txt", face.info().as_bytes())),
            ("myid", 2) => self.answer(me, |reply| {
                reply.bulk(face.proxies[face.own].id().as_bytes())
            }),
            ("myshardid", 2) => {
                let id = face.proxies[face.own].hashed("shard");
                self.answer(me, |reply| reply.bulk(id.as_bytes()))
            }
            ("links", 2) => self.answer(me, |reply| reply.array(0)),
            ("keyslot", 3) => {
                let slot = slot_of(&args[2]);
                self.answer(me, |reply| reply.integer(slot.into()))
            }
            ("replicas" | "slaves" | "count-failure-reports", 3) => {
                let id = &args[2];
                let is_known = face.proxies.iter().any(|proxy| proxy.id().as_bytes() == id);
                match (is_known, sub.as_str()) {
                    (true, "count-failure-reports") => self.answer(me, |reply| reply.integer(0)),
                    (true, _) => self.answer(me, |reply| reply.array(0)),
                    (false, _) => {
                        let line = refusal::quoting("ERR Unknown node ", id, "");
                        self.refuse(me, &line)
                    }
                }
            }
            ("countkeysinslot", 3) | ("getkeysinslot", 4) => {
                self.ask_about_slot(me, &full, raw, args)
            }
            ("help", 2) => self.answer(me, |reply| {
                reply.array(HELP.len());
                HELP.iter().for_each(|line| reply.simple(line));
            }),
            (
                "slots"
                | "shards"
                | "nodes"
                | "info"
                | "myid"
                | "myshardid"
                | "links"
                | "keyslot"
                | "replicas"
                | "slaves"
                | "count-failure-reports"
                | "countkeysinslot"
                | "getkeysinslot"
                | "help",
                _,
            ) => self.refuse(me, &wrong(&full)),
            _ => {
                let line = errors::refused_name(&full);
                self.refuse(me, &line)
            }
        })
    }

    /// Forwards a question about the keys of a slot to the server that has the slot.
    fn ask_about_slot(&mut self, me: Ref, full: &str, raw: &[u8], args: Args<'_>) -> Flow {
        let slot = std::str::from_utf8(&args[2])
            .ok()
            .and_then(|text| text.parse::<i64>().ok());
        let Some(slot) = slot else {
            return self.refuse(me, errors::NOT_AN_INTEGER);
        };
        if !(0..SLOTS as i64).contains(&slot) {
            return self.refuse(me, "ERR Invalid slot");
        }
        if let Some(line) = self.refusal_of_every_key(me) {
            return self.refuse(me, &line);
        }
        let pool = self.home(me);
        if !matches!(pool.placement, Placement::Slots(_)) {
            let line = errors::refused_name(full);
            return self.refuse(me, &line);
        }
        match pool.node_of_group(slot as u16) {
            NO_NODE => self.refuse(me, errors::CLUSTER_DOWN),
            node => self.forward(me, node, raw),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn face(announce: &str, peers: &[&str]) -> Face {
        Face::of(&ClusterFace {
            enabled: true,
            announce: Some(announce.parse().unwrap()),
            peers: peers.iter().map(|peer| peer.parse().unwrap()).collect(),
        })
        .unwrap()
    }

    #[test]
    fn every_proxy_shows_the_same_nodes_and_all_slots_once() {
        let one = face("10.0.0.1:7617", &["10.0.0.3:7617", "10.0.0.2:7617"]);
        let other = face(
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
        let face = Face::of(&ClusterFace {
            enabled: true,
            ..ClusterFace::default()
        })
        .unwrap();
        let came_to = PeerAddr::Tcp("127.0.0.1:99".parse().unwrap());
        assert!(
            face.seen_at(Some(&came_to), 7)
                .nodes()
                .contains(" 127.0.0.1:99@0 myself")
        );
        assert!(face.seen_at(None, 7).nodes().contains(" :7@0 "));
        assert!(Face::of(&ClusterFace::default()).is_none());
    }
}
