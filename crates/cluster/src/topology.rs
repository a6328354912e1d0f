//! Owner of each slot, as a node reports it: the replies to CLUSTER SLOTS and CLUSTER SHARDS. Knows addresses only as
//! text, and not which node was asked: a node without a host is on the host of the one that replied.

use std::ops::RangeInclusive;

use redline_resp::Value;

use crate::SLOTS;

/// Largest number of nodes that are accepted: more than any cluster has, and few enough for a hostile reply.
const NODES_MAX: usize = 4_096;

/// A cluster as one of its nodes knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Shards in the order of the reply.
    pub shards: Vec<Shard>,
}

/// A primary and its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Slots that the shard owns; may be none.
    pub slots: Vec<RangeInclusive<u16>>,
    /// Primary, followed by its replicas.
    pub nodes: Vec<Node>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Id of the node in the cluster; empty for servers before 4.0, which do not report it.
    pub id: String,
    /// Host on which the node is reached; `None`: the host that replied.
    pub host: Option<String>,
    /// Port for plain connections, or for the kind of connection that was asked (CLUSTER SLOTS). 0: none.
    pub port: u16,
    /// Port for TLS, if the reply has it separately (CLUSTER SHARDS).
    pub tls_port: Option<u16>,
    /// Role in the shard: only a primary takes writes.
    pub role: Role,
    /// True if the node's data can be used: it has neither failed nor is it loading.
    pub is_online: bool,
}

/// Role of a node in its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Owns the shard's slots.
    Primary,
    /// Copies the primary.
    Replica,
}

impl Topology {
    /// Reads the reply to CLUSTER SLOTS. Returns `None` if it is invalid.
    pub fn from_slots(reply: &Value) -> Option<Topology> {
        let Value::Array(ranges) = reply else {
            return None;
        };
        let mut topology = Topology::default();
        let mut nodes_left = NODES_MAX;
        if ranges.len() > SLOTS {
            return None;
        }
        for range in ranges {
            let Value::Array(range) = range else {
                return None;
            };
            let [first, last, primary, copies @ ..] = range.as_slice() else {
                return None;
            };
            let slots = range_of(first, last)?;
            let primary = listed(primary, Role::Primary)?;
            // A shard has a line for each of its ranges.
            let known = topology.shards.iter_mut();
            let mut known = known.filter(|shard| same(&shard.nodes[0], &primary));
            if let Some(shard) = known.next() {
                shard.slots.push(slots);
                continue;
            }
            let copies = copies.iter().filter_map(|copy| listed(copy, Role::Replica));
            let nodes: Vec<Node> = std::iter::once(primary).chain(copies).collect();
            nodes_left = nodes_left.checked_sub(nodes.len())?;
            let slots = vec![slots];
            topology.shards.push(Shard { slots, nodes });
        }
        Some(topology)
    }

    /// Reads the reply to CLUSTER SHARDS, of either protocol. Returns `None` if it is invalid.
    pub fn from_shards(reply: &Value) -> Option<Topology> {
        let Value::Array(shards) = reply else {
            return None;
        };
        let mut topology = Topology::default();
        let (mut nodes_left, mut ranges_left) = (NODES_MAX, SLOTS);
        for shard in shards {
            let Value::Array(bounds) = field(shard, "slots")? else {
                return None;
            };
            let slots = bounds.chunks(2).map(|pair| match pair {
                [first, last] => range_of(first, last),
                _ => None,
            });
            let slots = slots.collect::<Option<Vec<_>>>()?;
            ranges_left = ranges_left.checked_sub(slots.len())?;
            let Value::Array(nodes) = field(shard, "nodes")? else {
                return None;
            };
            let mut nodes: Vec<Node> = nodes.iter().filter_map(described).collect();
            nodes_left = nodes_left.checked_sub(nodes.len())?;
            // A failed primary may still be listed as primary.
            nodes.sort_by_key(|node| match (node.role, node.is_online) {
                (Role::Primary, true) => 0,
                (Role::Primary, false) => 1,
                (Role::Replica, _) => 2,
            });
            if nodes.first().is_some_and(|node| node.role == Role::Primary) {
                topology.shards.push(Shard { slots, nodes });
            } else if !slots.is_empty() {
                return None;
            }
        }
        Some(topology)
    }

    /// Returns true if every slot has an owner.
    pub fn is_whole(&self) -> bool {
        let mut owned = vec![false; SLOTS];
        for slots in self.shards.iter().flat_map(|shard| &shard.slots) {
            owned[usize::from(*slots.start())..=usize::from(*slots.end())].fill(true);
        }
        owned.iter().all(|&owned| owned)
    }
}

fn same(one: &Node, other: &Node) -> bool {
    (&one.host, one.port) == (&other.host, other.port)
}

fn range_of(first: &Value, last: &Value) -> Option<RangeInclusive<u16>> {
    let slot = |value: &Value| match value {
        Value::Integer(slot) => u16::try_from(*slot).ok(),
        _ => None,
    };
    let (first, last) = (slot(first)?, slot(last)?);
    (first <= last && usize::from(last) < SLOTS).then_some(first..=last)
}

/// Returns the host, unless it is unknown: null, empty or a question mark.
fn host_of(value: &Value) -> Option<String> {
    let host = text_of(value)?;
    (!host.is_empty() && host != "?").then_some(host)
}

fn text_of(value: &Value) -> Option<String> {
    String::from_utf8(value.as_bytes()?.to_vec()).ok()
}

fn port_of(value: &Value) -> Option<u16> {
    match value {
        Value::Integer(port) => u16::try_from(*port).ok(),
        _ => None,
    }
}

/// Reads a node of CLUSTER SLOTS.
fn listed(value: &Value, role: Role) -> Option<Node> {
    let Value::Array(parts) = value else {
        return None;
    };
    Some(Node {
        host: host_of(parts.first()?),
        port: port_of(parts.get(1)?)?,
        tls_port: None,
        id: parts.get(2).and_then(text_of).unwrap_or_default(),
        role,
        is_online: true,
    })
}

/// Reads a node of CLUSTER SHARDS.
fn described(value: &Value) -> Option<Node> {
    let text = |name| field(value, name).and_then(text_of);
    let port = |name| field(value, name).and_then(port_of);
    let host = match field(value, "endpoint") {
        Some(endpoint) => host_of(endpoint),
        None => field(value, "ip").and_then(host_of),
    };
    let tls_port = port("tls-port");
    Some(Node {
        id: text("id")?,
        host,
        port: port("port").or(tls_port.map(|_| 0))?,
        tls_port,
        role: match text("role")?.as_str() {
            "master" | "primary" => Role::Primary,
            _ => Role::Replica,
        },
        is_online: text("health").is_none_or(|health| health == "online"),
    })
}

/// Returns a field of a map, which RESP2 writes as an array.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let is = |key: &Value| key.as_bytes() == Some(name.as_bytes());
    match value {
        Value::Map(pairs) => pairs
            .iter()
            .find(|(key, _)| is(key))
            .map(|(_, value)| value),
        Value::Array(parts) => parts
            .chunks_exact(2)
            .find(|pair| is(&pair[0]))
            .map(|pair| &pair[1]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn node(host: &str, port: i64) -> Value {
        Value::Array(vec![bulk(host), Value::Integer(port), bulk("id")])
    }

    fn range(first: i64, last: i64, nodes: &[Value]) -> Value {
        let mut parts = vec![Value::Integer(first), Value::Integer(last)];
        parts.extend_from_slice(nodes);
        Value::Array(parts)
    }

    #[test]
    fn slots_name_owners_and_copies_and_leave_gaps() {
        let reply = Value::Array(vec![
            range(0, 99, &[node("a", 1), node("b", 2)]),
            range(200, 300, &[node("", 3)]),
            range(400, 16383, &[node("a", 1), node("b", 2)]),
        ]);
        let topology = Topology::from_slots(&reply).unwrap();
        assert_eq!(topology.shards.len(), 2);
        let [first, second] = [&topology.shards[0], &topology.shards[1]];
        assert_eq!(first.slots, [0..=99, 400..=16383]);
        assert_eq!(first.nodes[1].host.as_deref(), Some("b"));
        assert_eq!(first.nodes[1].role, Role::Replica);
        assert_eq!(second.nodes[0].host, None);
        assert!(!topology.is_whole());
        let whole = Value::Array(vec![range(0, 16383, &[node("a", 1)])]);
        assert!(Topology::from_slots(&whole).unwrap().is_whole());
    }

    #[test]
    fn what_is_no_topology_is_none() {
        for wrong in [
            Value::Integer(1),
            Value::Array(vec![range(0, 16384, &[node("b", 1)])]),
            Value::Array(vec![range(-1, 5, &[node("b", 1)])]),
            Value::Array(vec![range(5, 1, &[node("b", 1)])]),
            Value::Array(vec![range(0, 5, &[node("b", 70_000)])]),
            Value::Array(vec![range(0, 5, &[])]),
            Value::Array(vec![range(1, 1, &[node("b", 1)]); SLOTS + 1]),
        ] {
            assert_eq!(Topology::from_slots(&wrong), None, "{wrong:?}");
        }
        // Shards with slots and without a primary.
        let nobody = [bulk("slots"), Value::Array(vec![Value::Integer(0); 2])];
        let nobody = [&nobody[..], &[bulk("nodes"), Value::Array(Vec::new())]].concat();
        let nobody = Value::Array(vec![Value::Array(nobody)]);
        assert_eq!(Topology::from_shards(&nobody), None);
        // More ranges than there are slots.
        let slots = Value::Array(vec![Value::Integer(1); 2 * SLOTS + 2]);
        let nodes = Value::Array(vec![flat(member("master", "online", 1))]);
        let many = [bulk("slots"), slots, bulk("nodes"), nodes];
        let many = Value::Array(vec![Value::Array(many.to_vec())]);
        assert_eq!(Topology::from_shards(&many), None);
    }

    fn member(role: &str, health: &str, port: i64) -> Vec<(Value, Value)> {
        vec![
            (bulk("id"), bulk("x")),
            (bulk("port"), Value::Integer(port)),
            (bulk("tls-port"), Value::Integer(port + 1)),
            (bulk("ip"), bulk("10.0.0.1")),
            (bulk("endpoint"), bulk("name.example")),
            (bulk("role"), bulk(role)),
            (bulk("health"), bulk(health)),
        ]
    }

    fn flat(pairs: Vec<(Value, Value)>) -> Value {
        Value::Array(pairs.into_iter().flat_map(|(k, v)| [k, v]).collect())
    }

    #[test]
    fn shards_are_read_in_both_protocols_and_a_dead_primary_is_not_the_primary() {
        let members = [
            member("replica", "online", 1),
            member("master", "fail", 3),
            member("master", "online", 5),
        ];
        let slots = Value::Array([0, 5, 7, 7].map(Value::Integer).to_vec());
        let shard = |nodes: Vec<Value>| {
            vec![
                (bulk("slots"), slots.clone()),
                (bulk("nodes"), Value::Array(nodes)),
            ]
        };
        let two = flat(shard(members.iter().cloned().map(flat).collect()));
        let three = Value::Map(shard(members.iter().cloned().map(Value::Map).collect()));
        for reply in [two, three] {
            let topology = Topology::from_shards(&Value::Array(vec![reply])).unwrap();
            let shard = &topology.shards[0];
            assert_eq!(shard.slots, [0..=5, 7..=7]);
            let ports: Vec<u16> = shard.nodes.iter().map(|node| node.port).collect();
            assert_eq!(ports, [5, 3, 1]);
            assert_eq!(shard.nodes[0].tls_port, Some(6));
            assert_eq!(shard.nodes[0].host.as_deref(), Some("name.example"));
            assert!(!shard.nodes[1].is_online);
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::Integer),
            (0..17_000i64).prop_map(Value::Integer),
            prop_oneof!["slots", "nodes", "id", "port", "role", "master", ""]
                .prop_map(|t| bulk(&t)),
            Just(Value::NullBulk),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            prop::collection::vec(inner, 0..8).prop_map(Value::Array)
        })
    }

    proptest! {
        #[test]
        fn no_answer_panics(value in any_value()) {
            for topology in [Topology::from_slots(&value), Topology::from_shards(&value)] {
                topology.map(|topology| topology.is_whole());
            }
        }
    }
}
