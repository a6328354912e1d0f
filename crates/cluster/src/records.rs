//! Records of a cluster: what its store has under each key, as JSON with a version.
//!
//! Must not know: the store, who writes a record.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Version of a record's form.
pub const VERSION: u32 = 1;
/// Version of the form of all records together.
pub const FORMAT: u32 = 1;
/// Key of [`Meta`].
pub const META_KEY: &str = "meta";
/// Key of [`Map`].
pub const MAP_KEY: &str = "map";
/// Key of [`Open`].
pub const OPEN_KEY: &str = "open";
/// Key of [`Moves`].
pub const MOVES_KEY: &str = "moves";
/// Key of [`Own`], in the file of a node alone.
pub const OWN_KEY: &str = "own";
/// Beginning of the keys of [`NodeRecord`]; the id follows.
pub const NODES: &str = "nodes/";
/// Beginning of the keys of [`ShardRecord`]; the id follows.
pub const SHARDS: &str = "shards/";
/// Beginning of the keys of [`Alive`]; the node's id follows.
pub const ALIVE: &str = "alive/";

/// A record.
pub trait Record: Serialize + DeserializeOwned {
    /// Returns the version of its form.
    fn version(&self) -> u32;

    /// Returns its JSON.
    fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers, texts and lists have a JSON form")
    }

    /// Reads it. The error is the reason, without the key.
    fn from_json(json: &[u8]) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        match record.version() {
            VERSION => Ok(record),
            other => Err(format!(
                "it has the form {other}, and this program knows {VERSION}"
            )),
        }
    }
}

macro_rules! records {
    ($($record:ident),*) => {
        $(impl Record for $record {
            fn version(&self) -> u32 {
                self.v
            }
        })*
    };
}

records!(Meta, Own, NodeRecord, Alive, ShardRecord, Map, Open, Moves);

/// The cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// See [`VERSION`].
    pub v: u32,
    /// Id of the cluster.
    pub cluster: String,
    /// See [`FORMAT`].
    pub format: u32,
}

/// The node that a file belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// See [`VERSION`].
    pub v: u32,
    /// Id of the node.
    pub node: String,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// See [`VERSION`].
    pub v: u32,
    /// Version of the program.
    pub version: String,
    /// True if it is a member of the cluster, and not only ready to be.
    pub joined: bool,
    /// Address by which clients and nodes reach it; empty in the file of a node alone.
    #[serde(default)]
    pub ip: String,
    /// Host name that clients are told; empty: none.
    #[serde(default)]
    pub hostname: String,
    /// Port without TLS; 0: none.
    #[serde(default)]
    pub port: u16,
    /// Port with TLS; 0: none.
    #[serde(default)]
    pub tls_port: u16,
    /// Id of the shard that it makes when it joins.
    #[serde(default)]
    pub shard: String,
    /// First and last slot of runs that it takes with it when it joins.
    #[serde(default)]
    pub wants: Vec<(u16, u16)>,
    /// Term with which its shard begins, if it was set.
    #[serde(default)]
    pub epoch: u64,
}

/// A process that runs, under a lease. It never is a right: it guards what wants the process to have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// See [`VERSION`].
    pub v: u32,
    /// See [`Incarnation`].
    pub incarnation: String,
    /// Term and number up to which the files held data at the start; `None`: there were none.
    pub files: Option<(u64, u64)>,
}

/// One run of a node's process. A node that comes back has another one, since it may have lost what it had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    /// Id of the node.
    pub node: String,
    /// Random number of the run, in hexadecimal digits.
    pub incarnation: String,
}

/// A shard: a primary and its replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardRecord {
    /// See [`VERSION`].
    pub v: u32,
    /// Rises with every change of the primary, a restart included. Clients see it as the configuration epoch.
    pub term: u64,
    /// The primary.
    pub primary: Incarnation,
    /// Those that may take over, since they have all that was acknowledged.
    pub candidates: Vec<Incarnation>,
    /// Ids of all nodes that follow.
    pub replicas: Vec<String>,
}

impl ShardRecord {
    /// Returns the shard with this node as its primary in the next term, and without a node that may take over.
    pub(crate) fn led_by(&self, node: &Incarnation) -> ShardRecord {
        let mut next = self.clone();
        next.term += 1;
        next.primary = node.clone();
        next.candidates.clear();
        next.replicas.retain(|replica| *replica != node.node);
        if self.primary.node != node.node {
            next.replicas.push(self.primary.node.clone());
        }
        next
    }
}

/// Owner of each slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// See [`VERSION`].
    pub v: u32,
    /// First and last slot of a run, and the id of the shard that owns it; in order.
    pub runs: Vec<(u16, u16, String)>,
}

/// Slots whose keys are being moved one by one by a client, as SETSLOT MIGRATING and IMPORTING say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// See [`VERSION`].
    pub v: u32,
    /// A slot, and the id of the shard to which its owner sends who asks for keys that are not there any more.
    pub leaving: Vec<(u16, String)>,
    /// A slot, the id of a shard that takes its keys, and of the one from which they come.
    pub arriving: Vec<(u16, String, String)>,
}

/// Moves of slots with all their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    /// See [`VERSION`].
    pub v: u32,
    /// In the order of their beginnings.
    pub moves: Vec<Move>,
}

/// A move of slots from one shard to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Its id.
    pub id: String,
    /// First and last slot of runs.
    pub runs: Vec<(u16, u16)>,
    /// The shard that has them at the beginning.
    pub from: Side,
    /// The shard that is to have them.
    pub to: Side,
    /// See [`MoveState`].
    pub state: MoveState,
    /// Reason of an abort.
    #[serde(default)]
    pub why: String,
}

/// One side of a move: a shard, and its primary at the beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// Id of the shard.
    pub shard: String,
    /// The primary.
    pub primary: Incarnation,
}

/// State of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MoveState {
    /// Keys are copied; the slots are the first shard's.
    Copying,
    /// The slots are the other shard's.
    Done,
    /// It was given up: the slots are the first shard's.
    Aborted,
}

impl Move {
    /// Returns true if it has not ended.
    pub fn is_under_way(&self) -> bool {
        self.state == MoveState::Copying
    }

    /// Returns true if it moves this slot.
    pub fn has(&self, slot: u16) -> bool {
        self.runs
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&slot))
    }

    /// Returns its slots.
    pub fn slots(&self) -> impl Iterator<Item = u16> {
        self.runs.iter().flat_map(|(first, last)| *first..=*last)
    }
}

impl Open {
    /// Forgets that a slot is open.
    pub fn close(&mut self, slot: u16) {
        self.leaving.retain(|(open, _)| *open != slot);
        self.arriving.retain(|(open, ..)| *open != slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_what_was_written_and_nothing_else() {
        let map = Map {
            v: VERSION,
            runs: vec![(0, 5, "a".into()), (7, 16383, "b".into())],
        };
        let json = br#"{"v":1,"runs":[[0,5,"a"],[7,16383,"b"]]}"#;
        assert_eq!(map.to_json(), json);
        assert_eq!(Map::from_json(json), Ok(map));
        for (wrong, why) in [
            (&b"{\"v\":2,\"runs\":[]}"[..], "it has the form 2"),
            (b"{\"v\":1}", "missing field `runs`"),
            (b"{\"v\":1,\"runs\":[[0,65536,\"a\"]]}", "invalid value"),
            (b"{\"v\":1,\"runs\":[[0]]}", "invalid length"),
            (b"\xff", "expected value"),
            (b"", "EOF"),
        ] {
            let error = Map::from_json(wrong).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_later_program_may_add_to_a_record() {
        let json = br#"{"v":1,"cluster":"c","format":1,"acks":"one"}"#;
        assert_eq!(Meta::from_json(json).unwrap().cluster, "c");
    }
}
