//! Who owns which slot: what CLUSTER SLOTS and redirects say of a Redis Cluster, or Sentinels of their one primary.
//!
//! Opens no socket. What arrives from a server is checked: a slot or a port that cannot be leaves the map as it was.

use std::net::IpAddr;

use redline_net::Address;
use redline_resp::Value;

/// Slots of a cluster.
pub const SLOTS: usize = 16_384;
/// Nodes that are remembered: more than any cluster has, and few enough for a hostile map.
const NODES_MAX: usize = 4_096;
/// Nobody owns the slot, as far as is known.
const NOBODY: u16 = u16::MAX;

/// The slot of a key: of what stands in its first braces, if there is anything.
pub fn slot_of(key: &[u8]) -> u16 {
    let tagged = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|&byte| byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tagged.unwrap_or(key)) % SLOTS as u16
}

/// CRC-16/XMODEM: polynomial 0x1021, from 0.
fn crc16(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        while at < 256 {
            let mut crc = (at as u16) << 8;
            let mut bit = 0;
            while bit < 8 {
                crc = (crc << 1) ^ (if crc & 0x8000 == 0 { 0 } else { 0x1021 });
                bit += 1;
            }
            table[at] = crc;
            at += 1;
        }
        table
    };
    bytes.iter().fold(0, |crc: u16, &byte| {
        (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)]
    })
}

/// Where a redirect points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The slot that it is about.
    pub slot: u16,
    /// Who has it. Without a host, it is the host that said so.
    pub host: Option<String>,
    /// Its port.
    pub port: u16,
}

impl Redirect {
    /// Reads what follows `MOVED ` or `ASK `: a slot, and a host and port with a colon between them.
    pub fn parse(text: &str) -> Option<Redirect> {
        let (slot, place) = text.trim().split_once(' ')?;
        let slot: u16 = slot.parse().ok()?;
        let (host, port) = place.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (usize::from(slot) < SLOTS).then_some(())?;
        Some(Redirect {
            slot,
            host: (!host.is_empty() && host != "?").then(|| host.to_owned()),
            port: port.parse().ok().filter(|&port| port != 0)?,
        })
    }
}

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

    /// Whether every slot has an owner.
    pub fn is_whole(&self) -> bool {
        let nodes = self.nodes.len();
        self.owners.iter().all(|&owner| usize::from(owner) < nodes)
    }

    /// Those that copy an owner.
    pub fn replicas_of(&self, owner: usize) -> &[u16] {
        &self.replicas[owner]
    }

    /// Who owns a slot, if anybody is known to.
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
        let Value::Array(ranges) = reply else {
            return false;
        };
        let mut owners = vec![NOBODY; SLOTS];
        let mut replicas = vec![Vec::new(); self.nodes.len()];
        for range in ranges {
            let Value::Array(range) = range else {
                return false;
            };
            let [
                Value::Integer(first),
                Value::Integer(last),
                owner,
                copies @ ..,
            ] = range.as_slice()
            else {
                return false;
            };
            let (Ok(first), Ok(last)) = (usize::try_from(*first), usize::try_from(*last)) else {
                return false;
            };
            let Some(owner) = self.node_of(owner, from).filter(|_| last < SLOTS) else {
                return false;
            };
            for slot in owners.iter_mut().take(last + 1).skip(first) {
                *slot = owner as u16;
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

    fn node_of(&mut self, value: &Value, from: usize) -> Option<usize> {
        let Value::Array(parts) = value else {
            return None;
        };
        let host = parts.first()?.as_bytes();
        let host = host.and_then(|host| std::str::from_utf8(host).ok());
        // No host, or none that is known there: the one that was asked.
        let host = match host.filter(|host| !host.is_empty() && *host != "?") {
            Some(host) => host.to_owned(),
            None => self.host_of(from)?,
        };
        let Some(Value::Integer(port)) = parts.get(1) else {
            return None;
        };
        self.node(Address::tcp(host, u16::try_from(*port).ok()?))
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

    #[test]
    fn slots_are_those_of_redis() {
        // As CLUSTER KEYSLOT of Redis 8.2.3 says.
        for (key, slot) in [
            ("", 0),
            ("foo", 12182),
            ("bar", 5061),
            ("123456789", 12739),
            ("{foo}bar", 12182),
            ("x{foo}{bar}", 12182),
            ("foo{}", 5542),
            ("{", 4092),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

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

    #[test]
    fn redirects_are_read_and_checked() {
        let redirect = |text| Redirect::parse(text).map(|r| (r.slot, r.host, r.port));
        assert_eq!(
            redirect("3999 h:6381"),
            Some((3999, Some("h".into()), 6381))
        );
        assert_eq!(redirect("1 ::1:7000"), Some((1, Some("::1".into()), 7000)));
        assert_eq!(redirect("1 :7000"), Some((1, None, 7000)));
        for wrong in ["", "x h:1", "16384 h:1", "1 h", "1 h:0", "1 h:99999"] {
            assert_eq!(redirect(wrong), None, "{wrong}");
        }
    }
}
