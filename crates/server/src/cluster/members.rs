//! Changes of a cluster of several nodes, as transactions on its records: who joins, leaves, follows, and owns slots.
//!
//! A change is planned on a listing of the records and guarded by the revisions of all that it relied on. So it is made in
//! the state that it was planned for, or not at all, and is planned anew.
//!
//! Must not know: connections, threads, who asked for it.

use std::ops::RangeInclusive;

use redline_cluster::{
    Owners, Picture, SLOTS,
    control::{Known, Refusal},
    moves,
    records::{
        ALIVE, MAP_KEY, META_KEY, MOVES_KEY, Move, NODES, NodeRecord, OPEN_KEY, Open, Record,
        SHARDS, ShardRecord, VERSION,
    },
};
use redline_etcd::{Condition, Listing, Operation, Range, Transaction};

use super::{alone, moves::CANCELLED, picture_of, put};
use crate::start::random_id;

/// A change that a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// ADDSLOTS: slots that nobody owns become this node's.
    Add(Vec<RangeInclusive<u16>>),
    /// DELSLOTS: slots of this node become nobody's.
    Remove(Vec<RangeInclusive<u16>>),
    /// FLUSHSLOTS: all slots of this node become nobody's.
    RemoveAll,
    /// MEET: the node with this address and this one are of one cluster.
    Meet(String, u16),
    /// REPLICATE: this node follows the primary with this id.
    Follow(String),
    /// FORGET: the node with this id leaves.
    Forget(String),
    /// RESET: this node leaves, and gives its slots away.
    Leave,
    /// SETSLOT MIGRATING: keys of a slot leave to the primary with this id.
    Leaves(u16, String),
    /// SETSLOT IMPORTING: keys of a slot arrive from the primary with this id.
    Arrives(u16, String),
    /// SETSLOT STABLE: they do so no more.
    Settle(u16),
    /// SETSLOT NODE: a slot is the primary's with this id.
    Assign(u16, String),
    /// MIGRATESLOTS: slots of a shard move with all their keys, each part to the primary with this id. `None`: this node's.
    Move(Option<String>, Vec<(Vec<RangeInclusive<u16>>, String)>),
    /// CANCELSLOTMIGRATIONS: moves of this node's shard are given up; that with this id, or all.
    GiveUp(Option<String>),
    /// Nothing: but the node sees what the store has now.
    See,
    /// FAILOVER TAKEOVER: nothing yet, but nobody who leads this node's shard or may take over is alive.
    MayTakeOver,
    /// SET-CONFIG-EPOCH: the term with which the node's shard begins.
    Epoch(u64),
}

/// The step that makes a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// It is so already.
    Nothing,
    /// This transaction.
    Transaction(Transaction),
}

/// The records that a change is planned on.
struct Records<'a> {
    listing: &'a Listing,
    picture: Picture,
    /// Id and run of this node.
    own: &'a str,
    incarnation: &'a str,
    guarded: Vec<String>,
    writes: Vec<Operation>,
}

/// Plans a change for the node with this id and run. The error is for the client.
pub(super) fn plan(
    change: &Change,
    own: &str,
    incarnation: &str,
    listing: &Listing,
) -> Result<Plan, String> {
    let picture = picture_of(listing).map_err(|error| format!("ERR {error}"))?;
    let mut records = Records {
        listing,
        picture,
        own,
        incarnation,
        guarded: vec![META_KEY.into()],
        writes: Vec::new(),
    };
    match change {
        Change::Add(slots) => records.add_slots(slots)?,
        Change::Remove(slots) => records.remove_slots(slots)?,
        Change::RemoveAll => records.remove_all(),
        Change::Meet(ip, port) => records.meet(ip, *port)?,
        Change::Follow(primary) => records.follow(primary)?,
        Change::Forget(node) => records.forget(node)?,
        Change::Leave => records.leave()?,
        Change::Epoch(epoch) => records.set_epoch(*epoch)?,
        Change::Leaves(slot, to) => records.leaves(*slot, to)?,
        Change::Arrives(slot, from) => records.arrives(*slot, from)?,
        Change::Settle(slot) => records.settle(*slot),
        Change::Assign(slot, to) => records.assign(*slot, to)?,
        Change::Move(from, parts) => return records.begin_moves(from.as_deref(), parts),
        Change::GiveUp(id) => return records.give_up_moves(id.as_deref()),
        Change::See => {}
        Change::MayTakeOver => records.may_take_over()?,
    }
    if records.writes.is_empty() {
        return Ok(Plan::Nothing);
    }
    let conditions = records.guarded.iter();
    let conditions =
        conditions.map(|key| Condition::Unchanged(key.clone(), revision(listing, key)));
    Ok(Plan::Transaction(Transaction {
        conditions: conditions.collect(),
        success: records.writes,
        failure: Vec::new(),
    }))
}

/// Returns true if the listing has what the transaction puts, and not what it removes: so it was done, or might as well
/// have been.
pub(super) fn is_done(transaction: &Transaction, listing: &Listing) -> bool {
    transaction.success.iter().all(|operation| match operation {
        Operation::Put { key, value, .. } => {
            let found = listing.pairs.iter().find(|pair| pair.key == *key);
            found.is_some_and(|pair| pair.value == *value)
        }
        Operation::Delete(Range::Key(key)) => listing.pairs.iter().all(|pair| pair.key != *key),
        _ => true,
    })
}

/// Returns the revision of a key; 0: it is not there.
pub(super) fn revision(listing: &Listing, key: &str) -> u64 {
    let found = listing.pairs.iter().find(|pair| pair.key == key);
    found.map_or(0, |pair| pair.mod_revision)
}

fn node_key(id: &str) -> String {
    format!("{NODES}{id}")
}

fn shard_key(id: &str) -> String {
    format!("{SHARDS}{id}")
}

impl Records<'_> {
    fn guard(&mut self, key: String) {
        if !self.guarded.contains(&key) {
            self.guarded.push(key);
        }
    }

    /// Writes a record that was read, if it is as it was then.
    fn write(&mut self, key: String, record: &impl Record) {
        self.writes.push(put(&key, record));
        self.guard(key);
    }

    fn remove(&mut self, key: String) {
        self.writes.push(Operation::Delete(Range::Key(key.clone())));
        self.guard(key);
    }

    /// Reads a node, and relies on it.
    fn node(&mut self, id: &str) -> Result<NodeRecord, String> {
        let node = self.picture.nodes.get(id).cloned();
        self.guard(node_key(id));
        node.ok_or_else(|| unknown(id))
    }

    fn has_members(&self) -> bool {
        self.picture.nodes.values().any(|node| node.joined)
    }

    /// Returns the shard whose primary is this node.
    fn own_shard(&self) -> Option<(String, ShardRecord)> {
        let (id, shard) = self.picture.shard_of_node(self.own)?;
        (shard.primary.node == self.own).then(|| (id.to_owned(), shard.clone()))
    }

    fn write_map(&mut self, owners: &Owners) {
        self.write(MAP_KEY.into(), &owners.to_map());
    }

    fn add_slots(&mut self, slots: &[RangeInclusive<u16>]) -> Result<(), String> {
        let mut own = self.node(self.own)?;
        if own.joined {
            let Some((shard, _)) = self.own_shard() else {
                return Err("ERR a replica owns no slots".into());
            };
            self.guard(shard_key(&shard));
            let mut owners = self.picture.owners().clone();
            take(&mut owners, slots, &shard)?;
            self.write_map(&owners);
            return Ok(());
        }
        let mut wanted = owners_of(&own.wants);
        take(&mut wanted, slots, &own.shard)?;
        own.wants = runs_of(&wanted);
        if self.has_members() {
            // It takes them with it when it joins.
            self.write(node_key(self.own), &own);
            return Ok(());
        }
        let mut owners = self.picture.owners().clone();
        let (id, incarnation) = (self.own.to_owned(), self.incarnation.to_owned());
        self.join(&id, own, &incarnation, &mut owners)?;
        self.write_map(&owners);
        Ok(())
    }

    fn remove_slots(&mut self, slots: &[RangeInclusive<u16>]) -> Result<(), String> {
        let mut own = self.node(self.own)?;
        let shard = self.own_shard().map(|(id, _)| id);
        let mut owners = match own.joined {
            true => self.picture.owners().clone(),
            false => owners_of(&own.wants),
        };
        for slot in slots.iter().flat_map(Clone::clone) {
            match owners.of_slot(slot) {
                None => return Err(format!("ERR Slot {slot} is already unassigned")),
                Some(owner) if own.joined && Some(owner) != shard.as_deref() => {
                    return Err(format!(
                        "ERR Slot {slot} is another node's, which has to give it away"
                    ));
                }
                Some(_) => owners.give(slot..=slot, None),
            }
        }
        match own.joined {
            true => self.write_map(&owners),
            false => {
                own.wants = runs_of(&owners);
                self.write(node_key(self.own), &own);
            }
        }
        Ok(())
    }

    fn remove_all(&mut self) {
        let Ok(mut own) = self.node(self.own) else {
            return;
        };
        if !own.joined {
            own.wants.clear();
            self.write(node_key(self.own), &own);
        } else if let Some((shard, _)) = self.own_shard() {
            let mut owners = self.picture.owners().clone();
            for run in owners.runs_of(&shard) {
                owners.give(run, None);
            }
            self.write_map(&owners);
        }
    }

    fn meet(&mut self, ip: &str, port: u16) -> Result<(), String> {
        let mut nodes = self.picture.nodes.iter();
        let found = nodes.find(|(_, node)| {
            let is_port = node.port == port || node.tls_port == port;
            is_port && port != 0 && (node.ip == ip || node.hostname == ip)
        });
        let Some((other, _)) = found else {
            return Err(format!(
                "ERR no node in this node's etcd has the address {ip}:{port}: a node to be met is started with the same cluster-etcd and cluster-name"
            ));
        };
        let mut ids = vec![self.own.to_owned(), other.clone()];
        ids.dedup();
        let mut owners = self.picture.owners().clone();
        let mut gives = false;
        for id in ids {
            let node = self.node(&id)?;
            if !node.joined {
                let incarnation = match id == self.own {
                    true => self.incarnation.to_owned(),
                    false => self.incarnation_of(&id)?,
                };
                gives |= !node.wants.is_empty();
                self.join(&id, node, &incarnation, &mut owners)?;
            }
        }
        if gives {
            self.write_map(&owners);
        }
        Ok(())
    }

    fn may_take_over(&self) -> Result<(), String> {
        let mut known = Known::new();
        known.learn_listing(self.listing);
        let shard = known.shard_of_node(self.own);
        let alive = shard.and_then(|(_, shard)| known.alive_in_shard(&shard, self.own));
        match alive {
            Some(node) => Err(format!("ERR {}", Refusal::Alive(node))),
            None => Ok(()),
        }
    }

    /// Returns the present run of a node that is alive.
    fn incarnation_of(&mut self, id: &str) -> Result<String, String> {
        let key = format!("{ALIVE}{id}");
        let found = self.listing.pairs.iter().find(|pair| pair.key == key);
        let Some(pair) = found else {
            return Err(format!("ERR the node {id} is not running"));
        };
        let alive = redline_cluster::records::Alive::from_json(&pair.value);
        let alive = alive.map_err(|why| format!("ERR the record {key}: {why}"))?;
        self.guard(key);
        Ok(alive.incarnation)
    }

    /// Makes a node a member, with the slots that it takes with it.
    fn join(
        &mut self,
        id: &str,
        mut node: NodeRecord,
        incarnation: &str,
        owners: &mut Owners,
    ) -> Result<(), String> {
        let shard = node.shard.clone();
        let runs: Vec<_> = node
            .wants
            .iter()
            .map(|(first, last)| *first..=*last)
            .collect();
        take(owners, &runs, &shard)?;
        let mut record = alone(id, node.epoch.max(1));
        record.primary.incarnation = incarnation.to_owned();
        self.write(shard_key(&shard), &record);
        node.joined = true;
        node.wants.clear();
        self.write(node_key(id), &node);
        Ok(())
    }

    fn follow(&mut self, primary: &str) -> Result<(), String> {
        if primary == self.own {
            return Err("ERR Can't replicate myself".into());
        }
        let own = self.node(self.own)?;
        let target = self.node(primary)?;
        if !own.joined || !target.joined {
            return Err(unknown(primary));
        }
        let found = self.picture.shard_of_node(primary);
        let (target, mut shard) = found
            .map(|(id, shard)| (id.to_owned(), shard.clone()))
            .ok_or_else(|| unknown(primary))?;
        if shard.primary.node != primary {
            return Err("ERR I can only replicate a master, not a replica.".into());
        }
        if shard.replicas.iter().any(|replica| replica == self.own) {
            return Ok(());
        }
        self.guard(MAP_KEY.into());
        self.take_out(
            self.own.to_owned().as_str(),
            "ERR To set a master the node must be empty and without assigned slots.",
        )?;
        shard.replicas.push(self.own.to_owned());
        self.write(shard_key(&target), &shard);
        Ok(())
    }

    /// Takes a node out of its shard; one that has nobody left is removed. It owns no slots, or that is the error.
    fn take_out(&mut self, id: &str, owns: &str) -> Result<(), String> {
        let found = self.picture.shard_of_node(id);
        let Some((key, mut shard)) = found.map(|(key, shard)| (key.to_owned(), shard.clone()))
        else {
            return Ok(());
        };
        if shard.primary.node != id {
            shard.replicas.retain(|replica| replica != id);
            shard.candidates.retain(|candidate| candidate.node != id);
            self.write(shard_key(&key), &shard);
            return Ok(());
        }
        if !self.picture.owners().runs_of(&key).is_empty() {
            return Err(owns.into());
        }
        if !shard.replicas.is_empty() {
            return Err(format!(
                "ERR the node {id} has replicas, which have to follow another primary first"
            ));
        }
        self.remove(shard_key(&key));
        Ok(())
    }

    fn forget(&mut self, id: &str) -> Result<(), String> {
        if id == self.own {
            return Err("ERR I tried hard but I can't forget myself...".into());
        }
        let Ok(node) = self.node(id) else {
            return Err(unknown(id));
        };
        let own = self.picture.shard_of_node(self.own);
        if own.is_some_and(|(_, shard)| shard.primary.node == id) {
            return Err("ERR Can't forget my master!".into());
        }
        if !node.joined {
            return Ok(());
        }
        self.part(
            id,
            node,
            "ERR the node still owns slots, which would be nobody's",
        )
    }

    fn leave(&mut self) -> Result<(), String> {
        let own = self.node(self.own)?;
        if !own.joined {
            self.remove_all();
            return Ok(());
        }
        let mut owners = self.picture.owners().clone();
        if let Some((shard, record)) = self.own_shard() {
            if !record.replicas.is_empty() {
                return Err(
                    "ERR this node has replicas, which have to follow another primary first".into(),
                );
            }
            let runs = owners.runs_of(&shard);
            if !runs.is_empty() {
                runs.into_iter().for_each(|run| owners.give(run, None));
                self.write_map(&owners);
            }
            self.remove(shard_key(&shard));
        } else {
            let id = self.own.to_owned();
            self.take_out(&id, "")?;
        }
        self.unjoin(self.own.to_owned().as_str(), own);
        Ok(())
    }

    /// Makes a member one that is only ready to be; one that is not running is removed.
    fn part(&mut self, id: &str, node: NodeRecord, owns: &str) -> Result<(), String> {
        self.guard(MAP_KEY.into());
        self.take_out(id, owns)?;
        let alive = format!("{ALIVE}{id}");
        let is_alive = revision(self.listing, &alive) != 0;
        self.guard(alive);
        match is_alive {
            true => self.unjoin(id, node),
            false => self.remove(node_key(id)),
        }
        Ok(())
    }

    fn unjoin(&mut self, id: &str, mut node: NodeRecord) {
        node.joined = false;
        node.wants.clear();
        node.epoch = 0;
        self.write(node_key(id), &node);
    }

    fn set_epoch(&mut self, epoch: u64) -> Result<(), String> {
        let mut own = self.node(self.own)?;
        if own.joined {
            let members = self
                .picture
                .nodes
                .values()
                .filter(|node| node.joined)
                .count();
            if members > 1 {
                return Err("ERR The user can assign a config epoch only when the node does not know any other node.".into());
            }
            let Some((id, mut shard)) = self.own_shard() else {
                return Ok(());
            };
            // A shard begins with term 1, and a term never falls.
            if shard.term > 1 {
                return Err("ERR Node config epoch is already non-zero".into());
            }
            if epoch > 1 {
                shard.term = epoch;
                self.write(shard_key(&id), &shard);
            }
            return Ok(());
        }
        if own.epoch != 0 {
            return Err("ERR Node config epoch is already non-zero".into());
        }
        own.epoch = epoch;
        self.write(node_key(self.own), &own);
        Ok(())
    }
}

/// Moves of slots with all their keys.
impl Records<'_> {
    fn begin_moves(
        &self,
        from: Option<&str>,
        parts: &[(Vec<RangeInclusive<u16>>, String)],
    ) -> Result<Plan, String> {
        let own = self.own_shard().map(|(id, _)| id);
        let own = own.ok_or("ERR this node is no primary of the cluster")?;
        let ids: Vec<String> = parts.iter().map(|_| random_id()).collect();
        let begun = moves::begin(self.listing, from.unwrap_or(&own), parts, &ids)?;
        Ok(Plan::Transaction(begun))
    }

    fn give_up_moves(&self, id: Option<&str>) -> Result<Plan, String> {
        let own = self.own_shard().map(|(id, _)| id).unwrap_or_default();
        let is_such = |it: &Move| {
            (it.from.shard == own || it.to.shard == own) && id.is_none_or(|id| it.id == id)
        };
        let aborted = moves::abort_all(self.listing, is_such, CANCELLED)?;
        Ok(aborted.map_or(Plan::Nothing, Plan::Transaction))
    }
}

/// Keys of slots that are moved one by one by a client, as redis-cli does: SETSLOT.
impl Records<'_> {
    /// Returns the id of the shard whose primary is this node, which the change relies on.
    fn shard_of_primary(&mut self, node: &str) -> Result<String, String> {
        let found = self.picture.shard_of_node(node);
        let found = found.filter(|(_, shard)| shard.primary.node == node);
        let id = found.map(|(id, _)| id.to_owned());
        let id = id.ok_or("ERR Target node is not a master")?;
        self.guard(shard_key(&id));
        Ok(id)
    }

    fn write_open(&mut self, mut open: Open) {
        self.guard(MAP_KEY.into());
        open.v = VERSION;
        if open != self.picture.open {
            self.write(OPEN_KEY.into(), &open);
        }
    }

    fn leaves(&mut self, slot: u16, to: &str) -> Result<(), String> {
        let (own, to) = (self.own.to_owned(), self.shard_of_primary(to)?);
        let own = self.shard_of_primary(&own)?;
        if self.picture.owners().of_slot(slot) != Some(&own) || to == own {
            return Err(format!("ERR I'm not the owner of hash slot {slot}"));
        }
        self.guard(MOVES_KEY.into());
        let mut moves = self.picture.moves.iter();
        if moves.any(|it| it.is_under_way() && it.has(slot)) {
            return Err(format!("ERR slot {slot} is being moved already"));
        }
        let mut open = self.picture.open.clone();
        open.leaving.retain(|(other, _)| *other != slot);
        open.leaving.push((slot, to));
        self.write_open(open);
        Ok(())
    }

    fn arrives(&mut self, slot: u16, from: &str) -> Result<(), String> {
        let (own, from) = (self.own.to_owned(), self.shard_of_primary(from)?);
        let own = self.shard_of_primary(&own)?;
        if self.picture.owners().of_slot(slot) == Some(&own) {
            return Err(format!("ERR I'm already the owner of hash slot {slot}"));
        }
        let mut open = self.picture.open.clone();
        open.arriving
            .retain(|(other, to, _)| *other != slot || *to != own);
        open.arriving.push((slot, own, from));
        self.write_open(open);
        Ok(())
    }

    fn settle(&mut self, slot: u16) {
        let Some((own, _)) = self.own_shard() else {
            return;
        };
        let mut open = self.picture.open.clone();
        if self.picture.owners().of_slot(slot) == Some(&own) {
            open.leaving.retain(|(other, _)| *other != slot);
        }
        open.arriving
            .retain(|(other, to, _)| *other != slot || *to != own);
        self.write_open(open);
    }

    /// Gives a slot to a primary. The one that has it must have said that it leaves: then no key of it comes into being there.
    fn assign(&mut self, slot: u16, to: &str) -> Result<(), String> {
        let to = self.shard_of_primary(to)?;
        let own = self.own_shard().map(|(id, _)| id).unwrap_or_default();
        let owner = self.picture.owners().of_slot(slot).map(str::to_owned);
        let mut open = self.picture.open.clone();
        open.close(slot);
        if owner.as_deref() == Some(&to) {
            self.write_open(open);
            return Ok(());
        }
        if own != to && owner.as_deref() != Some(&own) {
            return Err(format!(
                "ERR slot {slot} is given away by the node that has it, or taken by the one that is to have it"
            ));
        }
        if let Some(owner) = owner {
            if self.picture.leaving(&owner, slot) != Some(&to) {
                return Err(format!(
                    "ERR slot {slot} still takes keys where it is: there it has to be MIGRATING first"
                ));
            }
            self.guard(shard_key(&owner));
        }
        let mut owners = self.picture.owners().clone();
        owners.give(slot..=slot, Some(&to));
        self.write_map(&owners);
        self.write_open(open);
        Ok(())
    }
}

fn unknown(id: &str) -> String {
    format!("ERR Unknown node {id}")
}

/// Gives slots that nobody owns to a shard. The error is Redis's.
fn take(owners: &mut Owners, slots: &[RangeInclusive<u16>], shard: &str) -> Result<(), String> {
    let mut seen = vec![false; SLOTS];
    for slot in slots.iter().flat_map(Clone::clone) {
        if std::mem::replace(&mut seen[usize::from(slot)], true) {
            return Err(format!("ERR Slot {slot} specified multiple times"));
        }
        if owners.of_slot(slot).is_some() {
            return Err(format!("ERR Slot {slot} is already busy"));
        }
    }
    for run in slots {
        owners.give(run.clone(), Some(shard));
    }
    Ok(())
}

/// Returns the owners of slots that a node that has not joined takes with it.
pub(super) fn owners_of(wants: &[(u16, u16)]) -> Owners {
    let mut owners = Owners::none();
    for (first, last) in wants {
        if first <= last && usize::from(*last) < SLOTS {
            owners.give(*first..=*last, Some(""));
        }
    }
    owners
}

/// Returns all slots that have an owner, as runs.
fn runs_of(owners: &Owners) -> Vec<(u16, u16)> {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for (run, _) in owners.runs() {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *run.start() => *last = *run.end(),
            _ => runs.push((*run.start(), *run.end())),
        }
    }
    runs
}

/// Returns the record of a node of this version that has not joined.
pub(super) fn fresh(shard: &str) -> NodeRecord {
    NodeRecord {
        v: VERSION,
        version: redline_engine::REDLINE_VERSION.into(),
        shard: shard.into(),
        ..NodeRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use redline_cluster::records::{Alive, FORMAT, Map, Meta};
    use redline_etcd::{Memory, Store};

    use super::*;

    /// A store with nodes that have not joined; their ids are letters, and their ports 1, 2 and so on.
    fn store(nodes: &[&str]) -> Memory {
        let store = Memory::new();
        let meta = Meta {
            v: VERSION,
            cluster: "c".into(),
            format: FORMAT,
        };
        let mut writes = vec![
            put(META_KEY, &meta),
            put(
                MAP_KEY,
                &Map {
                    v: VERSION,
                    runs: Vec::new(),
                },
            ),
        ];
        for (number, id) in nodes.iter().enumerate() {
            let mut node = fresh(&format!("shard-{id}"));
            (node.ip, node.port) = ("127.0.0.1".into(), number as u16 + 1);
            writes.push(put(&node_key(id), &node));
            let alive = Alive {
                v: VERSION,
                incarnation: format!("run-{id}"),
                files: None,
            };
            writes.push(put(&format!("{ALIVE}{id}"), &alive));
        }
        let founding = Transaction {
            success: writes,
            ..Transaction::default()
        };
        store.transact(&founding).unwrap();
        store
    }

    fn list(store: &Memory) -> Listing {
        store.range(&Range::Prefix(String::new())).unwrap()
    }

    fn change(store: &Memory, node: &str, change: Change) -> Result<(), String> {
        match plan(&change, node, &format!("run-{node}"), &list(store))? {
            Plan::Nothing => Ok(()),
            Plan::Transaction(transaction) => {
                assert!(
                    store.transact(&transaction).unwrap().succeeded,
                    "{transaction:?}"
                );
                assert!(is_done(&transaction, &list(store)));
                Ok(())
            }
        }
    }

    fn picture(store: &Memory) -> Picture {
        picture_of(&list(store)).unwrap()
    }

    fn meet(store: &Memory, node: &str, port: u16) -> Result<(), String> {
        change(store, node, Change::Meet("127.0.0.1".into(), port))
    }

    #[test]
    fn nodes_are_met_with_the_slots_that_they_were_given_before() {
        let store = store(&["a", "b", "c"]);
        change(&store, "a", Change::Epoch(1)).unwrap();
        change(&store, "a", Change::Add(vec![0..=99])).unwrap();
        change(&store, "b", Change::Add(vec![100..=150, 151..=199])).unwrap();
        change(&store, "b", Change::Epoch(2)).unwrap();
        let before = picture(&store);
        assert!(before.nodes["a"].joined, "the first one has nobody to meet");
        assert!(!before.nodes["b"].joined && before.owners().of_slot(100).is_none());
        assert_eq!(before.nodes["b"].wants, [(100, 199)]);
        meet(&store, "b", 1).unwrap();
        meet(&store, "a", 3).unwrap();
        let after = picture(&store);
        assert!(
            after
                .nodes
                .values()
                .all(|node| node.joined && node.wants.is_empty())
        );
        assert_eq!(after.owners().runs_of("shard-b"), [100..=199]);
        assert_eq!(
            (after.shards["shard-b"].term, after.shards["shard-c"].term),
            (2, 1)
        );
        assert_eq!(after.shards["shard-c"].primary.incarnation, "run-c");
        assert!(meet(&store, "a", 9).unwrap_err().contains("127.0.0.1:9"));
        let busy = change(&store, "c", Change::Add(vec![99..=99]));
        assert_eq!(busy.unwrap_err(), "ERR Slot 99 is already busy");
        let foreign = change(&store, "a", Change::Remove(vec![100..=100]));
        assert!(foreign.unwrap_err().contains("another node's"));
        change(&store, "b", Change::Remove(vec![100..=100])).unwrap();
        change(&store, "c", Change::Add(vec![100..=100])).unwrap();
        assert_eq!(picture(&store).owners().of_slot(100), Some("shard-c"));
    }

    #[test]
    fn a_node_follows_and_leaves_and_nothing_is_left_of_it() {
        let store = store(&["a", "b", "c"]);
        change(&store, "a", Change::Add(vec![0..=16383])).unwrap();
        meet(&store, "b", 1).unwrap();
        meet(&store, "c", 1).unwrap();
        change(&store, "b", Change::Follow("a".into())).unwrap();
        change(&store, "b", Change::Follow("a".into())).unwrap();
        let followed = picture(&store);
        assert_eq!(followed.shards["shard-a"].replicas, ["b"]);
        assert!(!followed.shards.contains_key("shard-b"));
        for (node, wish, why) in [
            (
                "a",
                Change::Follow("a".into()),
                "ERR Can't replicate myself",
            ),
            (
                "a",
                Change::Follow("c".into()),
                "ERR To set a master the node must be empty",
            ),
            (
                "c",
                Change::Follow("b".into()),
                "ERR I can only replicate a master",
            ),
            ("c", Change::Follow("x".into()), "ERR Unknown node x"),
            (
                "c",
                Change::Forget("a".into()),
                "ERR the node still owns slots",
            ),
            ("c", Change::Forget("c".into()), "ERR I tried hard"),
            ("c", Change::Forget("x".into()), "ERR Unknown node x"),
            (
                "b",
                Change::Forget("a".into()),
                "ERR Can't forget my master!",
            ),
            ("a", Change::Leave, "ERR this node has replicas"),
            ("b", Change::Add(vec![1..=1]), "ERR a replica owns no slots"),
        ] {
            let error = change(&store, node, wish).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        change(&store, "a", Change::Forget("b".into())).unwrap();
        change(&store, "c", Change::Forget("b".into())).unwrap();
        change(&store, "c", Change::Leave).unwrap();
        let left = picture(&store);
        assert!(left.shards["shard-a"].replicas.is_empty() && left.shards.len() == 1);
        assert!(!left.nodes["b"].joined && !left.nodes["c"].joined);
        // One that does not run is removed.
        meet(&store, "b", 1).unwrap();
        let gone = Transaction {
            success: vec![Operation::Delete(Range::Key(format!("{ALIVE}b")))],
            ..Transaction::default()
        };
        store.transact(&gone).unwrap();
        change(&store, "a", Change::Forget("b".into())).unwrap();
        assert!(!picture(&store).nodes.contains_key("b"));
    }

    #[test]
    fn a_slot_is_given_away_by_who_has_said_that_it_leaves() {
        let store = store(&["a", "b", "c"]);
        change(&store, "a", Change::Add(vec![0..=9])).unwrap();
        meet(&store, "b", 1).unwrap();
        meet(&store, "c", 1).unwrap();
        let assign = || Change::Assign(5, "b".into());
        let taken = change(&store, "b", assign()).unwrap_err();
        assert!(taken.contains("has to be MIGRATING first"), "{taken}");
        let foreign = change(&store, "c", assign()).unwrap_err();
        assert!(
            foreign.contains("given away by the node that has it"),
            "{foreign}"
        );
        for (node, wish, why) in [
            (
                "b",
                Change::Leaves(5, "c".into()),
                "ERR I'm not the owner of hash slot 5",
            ),
            (
                "a",
                Change::Arrives(5, "b".into()),
                "ERR I'm already the owner of hash slot 5",
            ),
            (
                "a",
                Change::Leaves(5, "x".into()),
                "ERR Target node is not a master",
            ),
        ] {
            assert_eq!(change(&store, node, wish), Err(why.into()));
        }
        change(&store, "b", Change::Arrives(5, "a".into())).unwrap();
        change(&store, "a", Change::Leaves(5, "c".into())).unwrap();
        assert!(
            change(&store, "b", assign()).is_err(),
            "it leaves to another one"
        );
        change(&store, "a", Change::Leaves(5, "b".into())).unwrap();
        let open = picture(&store);
        assert_eq!(open.leaving("shard-a", 5), Some("shard-b"));
        assert_eq!(open.arriving("shard-b", 5), Some("shard-a"));
        assert_eq!(
            (open.leaving("shard-b", 5), open.arriving("shard-a", 5)),
            (None, None)
        );
        change(&store, "a", Change::Settle(5)).unwrap();
        assert_eq!(picture(&store).leaving("shard-a", 5), None);
        change(&store, "a", Change::Leaves(5, "b".into())).unwrap();
        let early = plan(&assign(), "b", "run-b", &list(&store)).unwrap();
        change(&store, "b", assign()).unwrap();
        let given = picture(&store);
        assert_eq!(given.owners().runs_of("shard-b"), [5..=5]);
        assert!(given.open.leaving.is_empty() && given.open.arriving.is_empty());
        // All say it, to be sure.
        change(&store, "a", assign()).unwrap();
        change(&store, "c", assign()).unwrap();
        let Plan::Transaction(early) = early else {
            panic!("{early:?}");
        };
        assert!(!store.transact(&early).unwrap().succeeded);
    }

    #[test]
    fn a_slot_is_moved_in_one_way_at_a_time() {
        let store = store(&["a", "b"]);
        change(&store, "a", Change::Add(vec![0..=9])).unwrap();
        meet(&store, "b", 1).unwrap();
        let moved = |slot: u16| Change::Move(None, vec![(vec![slot..=slot], "b".into())]);
        change(&store, "a", Change::Leaves(5, "b".into())).unwrap();
        let open = change(&store, "a", moved(5)).unwrap_err();
        assert_eq!(open, "ERR slot 5 is being moved by SETSLOT");
        change(&store, "a", moved(6)).unwrap();
        let moving = change(&store, "a", Change::Leaves(6, "b".into())).unwrap_err();
        assert_eq!(moving, "ERR slot 6 is being moved already");
        change(&store, "b", Change::GiveUp(None)).unwrap();
        assert!(picture(&store).moves.iter().all(|it| !it.is_under_way()));
        change(&store, "a", Change::Leaves(6, "b".into())).unwrap();
    }

    #[test]
    fn a_plan_is_of_no_use_when_what_it_relied_on_has_changed() {
        let store = store(&["a", "b", "c"]);
        change(&store, "a", Change::Add(vec![0..=9])).unwrap();
        meet(&store, "b", 1).unwrap();
        let early = plan(&Change::Follow("a".into()), "b", "run-b", &list(&store)).unwrap();
        change(&store, "b", Change::Add(vec![10..=10])).unwrap();
        let Plan::Transaction(early) = early else {
            panic!("{early:?}");
        };
        assert!(!store.transact(&early).unwrap().succeeded);
        assert!(!is_done(&early, &list(&store)));
    }
}
