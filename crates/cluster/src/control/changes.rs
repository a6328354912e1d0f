//! Changes of a cluster, each of which is one transaction: the conditions under which it holds, and what it writes.
//!
//! Each wants unchanged what its decision relied on, so each is a compare-and-swap from a state that was whole.
//!
//! Must not know: time, promises, when a change is due.

use std::fmt;

use redline_etcd::{Condition, Operation, Range};

use super::{desk::Change, known::Known};
use crate::{
    Owners, SLOTS,
    records::{
        ALIVE, Incarnation, MAP_KEY, META_KEY, Map, NODES, NodeRecord, Record, SHARDS, ShardRecord,
        VERSION,
    },
};

/// A change that somebody has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// T1: the cluster begins with these records, if the store has none.
    Create(Vec<(String, Vec<u8>)>),
    /// T2: this node becomes a member; with a shard of its own that has no slot, or as what it is in a shard.
    Join {
        /// Its record.
        record: NodeRecord,
        /// Id of the new shard. `None`: it has one.
        shard: Option<String>,
    },
    /// T3: a node without slots leaves.
    Leave {
        /// Id of the node.
        node: String,
    },
    /// T4: this node, which has no slot, follows a shard.
    Follow {
        /// Id of the shard.
        shard: String,
    },
    /// This node's shard takes slots that have no owner. First and last slot of each run.
    AddSlots(Vec<(u16, u16)>),
    /// This node's shard gives slots away, to nobody. The server stops serving them before it says so.
    RemoveSlots(Vec<(u16, u16)>),
    /// T15: this node becomes the primary of its shard, of which nobody is left who leads it or may take over. What only those had
    /// is lost.
    TakeOver,
    /// T8: a replica that is a candidate becomes the primary in this node's place. `None`: whoever has most.
    HandOver {
        /// Id of the replica.
        to: Option<String>,
        /// True if this node is about to end: it is no candidate then, whose promises would be waited for.
        ends: bool,
        /// Time in which it must be done: milliseconds, at most [`HAND_OVER_MS`](super::HAND_OVER_MS).
        time_ms: u64,
    },
}

/// Reason why an order is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such node.
    UnknownNode(String),
    /// There is no such shard.
    UnknownShard(String),
    /// The node is a member of no shard.
    NoShard,
    /// The shard of this node owns slots.
    OwnsSlots(String),
    /// Other nodes follow this node.
    HasReplicas(String),
    /// The slot is taken by a shard.
    Busy(u16, String),
    /// The slot is not this shard's.
    NotOwned(u16),
    /// There is no such run of slots.
    BadSlots(u16, u16),
    /// The cluster exists already.
    Exists,
    /// The cluster does not exist yet.
    NoCluster,
    /// The node is not the primary.
    NotPrimary,
    /// The node is no candidate, so it may miss what was acknowledged.
    NoCandidate(String),
    /// This node leads the shard, or may take over, and is alive.
    Alive(String),
    /// The node's data are not whole: it is being sent them.
    NotWhole,
    /// It took too long.
    TimedOut,
    /// Others have changed the cluster in the meantime.
    Changed,
    /// The store has not done it, with its reason.
    Store(String),
    /// Too many orders wait.
    TooMany,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::UnknownNode(node) => write!(f, "Unknown node {node}"),
            Refusal::UnknownShard(shard) => write!(f, "there is no shard {shard}"),
            Refusal::NoShard => f.write_str("this node is in no shard of the cluster"),
            Refusal::OwnsSlots(shard) => write!(f, "the shard {shard} owns slots"),
            Refusal::HasReplicas(node) => write!(f, "other nodes follow {node}"),
            Refusal::Busy(slot, _) => write!(f, "Slot {slot} is already busy"),
            Refusal::NotOwned(slot) => write!(f, "Slot {slot} is already unassigned"),
            Refusal::BadSlots(first, last) => write!(f, "{first} to {last} is no run of slots"),
            Refusal::Exists => f.write_str("the cluster exists already"),
            Refusal::NoCluster => f.write_str("the cluster does not exist yet"),
            Refusal::NotPrimary => f.write_str("this node is not the primary of its shard"),
            Refusal::NoCandidate(node) => {
                write!(
                    f,
                    "{node} may miss what was acknowledged, so it cannot take over"
                )
            }
            Refusal::Alive(node) => {
                write!(f, "{node} is alive, and leads the shard or may take over")
            }
            Refusal::NotWhole => f.write_str("this node has only a part of the shard's data"),
            Refusal::TimedOut => f.write_str("it took too long"),
            Refusal::Changed => f.write_str("the cluster has changed in the meantime; try again"),
            Refusal::Store(why) => f.write_str(why),
            Refusal::TooMany => f.write_str("too many changes wait; try again later"),
        }
    }
}

/// T1.
pub(crate) fn create(known: &Known, records: Vec<(String, Vec<u8>)>) -> Result<Change, Refusal> {
    if known.pair(META_KEY).is_some() {
        return Err(Refusal::Exists);
    }
    Ok(Change {
        conditions: vec![Condition::Absent(META_KEY.into())],
        reads: records.iter().map(|(key, _)| key.clone()).collect(),
        writes: records
            .into_iter()
            .map(|(key, json)| put(&key, json))
            .collect(),
    })
}

/// T2.
pub(crate) fn join(
    known: &Known,
    me: &Incarnation,
    record: &NodeRecord,
    shard: Option<&str>,
) -> Result<Change, Refusal> {
    known.pair(META_KEY).ok_or(Refusal::NoCluster)?;
    let key = format!("{NODES}{}", me.node);
    let mut change = Change::default();
    change.wants(known, META_KEY);
    change.wants(known, &key);
    change.puts(&key, record);
    if let Some(id) = shard
        && known.shard_of_node(&me.node).is_none()
    {
        let shard = ShardRecord {
            v: VERSION,
            term: 1,
            primary: me.clone(),
            candidates: Vec::new(),
            replicas: Vec::new(),
        };
        let key = format!("{SHARDS}{id}");
        change.wants(known, &key);
        change.puts(&key, &shard);
    }
    Ok(change)
}

/// T3. A candidate that leaves stays in its shard's candidates until the primary takes it out, which alone decides whom
/// it waits for; it does not take over, since it is in no shard.
pub(crate) fn leave(known: &Known, node: &str) -> Result<Change, Refusal> {
    let key = format!("{NODES}{node}");
    if known.pair(&key).is_none() {
        return Err(Refusal::UnknownNode(node.to_owned()));
    }
    let mut change = Change::default();
    change.wants(known, &key);
    change.wants(known, MAP_KEY);
    change.deletes(&key);
    if let Some((id, mut shard)) = known.shard_of_node(node) {
        let key = format!("{SHARDS}{id}");
        change.wants(known, &key);
        if shard.primary.node == node {
            empty_shard(known, node, &id, &shard)?;
            change.deletes(&key);
        } else {
            shard.replicas.retain(|replica| replica != node);
            change.puts(&key, &shard);
        }
    }
    Ok(change)
}

/// T4.
pub(crate) fn follow(known: &Known, me: &Incarnation, target: &str) -> Result<Change, Refusal> {
    let key = format!("{SHARDS}{target}");
    let unknown = || Refusal::UnknownShard(target.to_owned());
    let mut shard = known.record::<ShardRecord>(&key).ok_or_else(unknown)?;
    let mut change = Change::default();
    if let Some((own, mut record)) = known.shard_of_node(&me.node) {
        if record.primary.node == me.node {
            empty_shard(known, &me.node, &own, &record)?;
        }
        if own != target {
            let own = format!("{SHARDS}{own}");
            change.wants(known, &own);
            if record.primary.node == me.node {
                change.deletes(&own);
            } else {
                record.replicas.retain(|replica| *replica != me.node);
                change.puts(&own, &record);
            }
        }
    }
    change.wants(known, &key);
    change.wants(known, MAP_KEY);
    if !shard.replicas.contains(&me.node) {
        shard.replicas.push(me.node.clone());
    }
    change.puts(&key, &shard);
    Ok(change)
}

fn empty_shard(known: &Known, node: &str, id: &str, shard: &ShardRecord) -> Result<(), Refusal> {
    if known.owns_slots(id) {
        return Err(Refusal::OwnsSlots(id.to_owned()));
    }
    if !shard.replicas.is_empty() {
        return Err(Refusal::HasReplicas(node.to_owned()));
    }
    Ok(())
}

/// ADDSLOTS and DELSLOTS: the map with these runs given to the node's shard, or to nobody.
pub(crate) fn slots(
    known: &Known,
    me: &Incarnation,
    runs: &[(u16, u16)],
    add: bool,
) -> Result<Change, Refusal> {
    let map = known.record::<Map>(MAP_KEY).ok_or(Refusal::NoCluster)?;
    let mut owners = Owners::of(&map).map_err(Refusal::Store)?;
    let (shard, record) = known.shard_of_node(&me.node).ok_or(Refusal::NoShard)?;
    if record.primary.node != me.node {
        return Err(Refusal::NotPrimary);
    }
    for &(first, last) in runs {
        if first > last || usize::from(last) >= SLOTS {
            return Err(Refusal::BadSlots(first, last));
        }
        for slot in first..=last {
            match owners.of_slot(slot) {
                Some(owner) if add => return Err(Refusal::Busy(slot, owner.to_owned())),
                owner if !add && owner != Some(&shard) => return Err(Refusal::NotOwned(slot)),
                _ => {}
            }
        }
        owners.give(first..=last, add.then_some(shard.as_str()));
    }
    let mut change = Change::default();
    change.wants(known, MAP_KEY);
    change.wants(known, &format!("{SHARDS}{shard}"));
    change.puts(MAP_KEY, &owners.to_map());
    Ok(change)
}

/// T5 to T8: the shard with another record.
pub(crate) fn shard(known: &Known, id: &str, record: &ShardRecord) -> Change {
    let key = format!("{SHARDS}{id}");
    let mut change = Change::default();
    change.wants(known, &key);
    change.puts(&key, record);
    change
}

/// T9 and T15: the shard with another record, as long as these nodes' processes are those that are known, or not there.
pub(crate) fn take_up(known: &Known, id: &str, record: &ShardRecord, old: &[String]) -> Change {
    let mut change = shard(known, id, record);
    for node in old {
        change.wants(known, &format!("{ALIVE}{node}"));
    }
    change
}

impl Change {
    /// Wants a key as it is known. Its new value is told afterwards.
    fn wants(&mut self, known: &Known, key: &str) {
        self.reads.push(key.to_owned());
        self.conditions.push(match known.revision_of(key) {
            0 => Condition::Absent(key.to_owned()),
            revision => Condition::Unchanged(key.to_owned(), revision),
        });
    }

    fn puts(&mut self, key: &str, record: &impl Record) {
        self.writes.push(put(key, record.to_json()));
    }

    fn deletes(&mut self, key: &str) {
        let range = Range::Key(key.to_owned());
        self.writes.push(Operation::Delete(range));
    }
}

fn put(key: &str, value: Vec<u8>) -> Operation {
    Operation::Put {
        key: key.to_owned(),
        value,
        lease: None,
    }
}
