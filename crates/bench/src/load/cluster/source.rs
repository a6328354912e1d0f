//! The source of the topology, and the questions to it. Opens no socket.

use redline_net::Address;
use redline_resp::Value;

use super::map::Map;

/// The source of the topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The nodes of a Redis Cluster.
    Cluster,
    /// Sentinels, of the primary that they monitor under a name.
    Sentinels {
        /// The name.
        name: String,
        /// Their addresses.
        at: Vec<Address>,
        /// The arguments of AUTH of each, or none: their users differ from those of the data.
        auth: Vec<Vec<Vec<u8>>>,
    },
    /// The servers themselves: the one that reports to be the primary.
    Roles {
        /// Their addresses.
        at: Vec<Address>,
    },
}

impl Source {
    /// Returns the nodes that are asked; none if any known one is.
    pub fn asked(&self) -> &[Address] {
        match self {
            Source::Cluster => &[],
            Source::Sentinels { at, .. } | Source::Roles { at } => at,
        }
    }

    /// Returns the authentication of a Sentinel: the arguments of AUTH, or none. `None` if it is no Sentinel.
    pub fn sentinel_auth(&self, address: &Address) -> Option<&[Vec<u8>]> {
        let Source::Sentinels { at, auth, .. } = self else {
            return None;
        };
        let place = at.iter().position(|sentinel| sentinel == address)?;
        auth.get(place).map(Vec::as_slice)
    }

    /// Returns the question.
    pub fn question(&self) -> Vec<&str> {
        match self {
            Source::Cluster => vec!["CLUSTER", "SLOTS"],
            Source::Sentinels { name, .. } => vec!["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name],
            Source::Roles { .. } => vec!["ROLE"],
        }
    }

    /// Applies the reply of `from` to the map. Returns false if it is of no use.
    pub fn take(&self, map: &mut Map, reply: &Value, from: usize) -> bool {
        let primary = match self {
            Source::Cluster => return map.take(reply, from),
            Source::Sentinels { .. } => primary_of(reply).and_then(|address| map.node(address)),
            Source::Roles { .. } => match reply {
                Value::Array(parts) => {
                    let role = parts.first().and_then(Value::as_bytes);
                    (role == Some(b"master")).then_some(from)
                }
                _ => None,
            },
        };
        if let Some(primary) = primary {
            map.all_to(primary);
        }
        primary.is_some()
    }
}

/// Where reads go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Reads {
    /// To the primaries
    #[default]
    Primaries,
    /// To replicas, where there are any
    Replicas,
    /// To both
    All,
}

/// Returns the primary that a Sentinel names.
pub fn primary_of(value: &Value) -> Option<Address> {
    let Value::Array(parts) = value else {
        return None;
    };
    let [host, port] = parts.as_slice() else {
        return None;
    };
    let text = |value: &Value| String::from_utf8(value.as_bytes()?.to_vec()).ok();
    Some(Address::tcp(text(host)?, text(port)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentinels_answer_is_an_address() {
        let answer = Value::Array(vec![
            Value::Bulk(b"10.0.0.1".to_vec()),
            Value::Bulk(b"6380".to_vec()),
        ]);
        assert_eq!(primary_of(&answer), Some(Address::tcp("10.0.0.1", 6380)));
        assert_eq!(primary_of(&Value::NullArray), None);
    }
}
