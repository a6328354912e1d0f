//! CLUSTER's subcommands that change the cluster: who owns a slot, who is a member, who follows whom.
//!
//! With etcd a change is made by a thread of the cluster, for which its client is suspended. A node alone makes it at once,
//! and those that concern other nodes find none.
//!
//! Must not know: how a change is kept.

use std::ops::RangeInclusive;

use redline_cluster::{Owners, SLOTS};
use redline_commands::{Error, Words};
use redline_engine::{Caller, Halt, caller::Suspended, errors, executor::units};
use redline_keyspace::{Unit, lock::StripeSet};
use redline_replica::link::State;
use redline_resp::Args;
use redline_spec::CommandId;
use redline_types::number;

use super::{node_of, slot_argument, unknown_node};
use crate::{
    cluster::{self, Cluster, etcd::Asked, members::Change},
    log,
    worker::Worker,
};

/// Slots of a call, in the order of its arguments.
type Slots = Vec<RangeInclusive<u16>>;

/// Asks for a change of a cluster with etcd; the call runs again when it is made. Returns false if the node is alone.
fn ask(
    worker: &Worker,
    caller: &mut Caller,
    change: impl FnOnce() -> Change,
) -> Result<bool, Halt> {
    let Some(etcd) = &node_of(worker.shared)?.etcd else {
        return Ok(false);
    };
    if worker.executor.compound.is_some() {
        return Err(Error::line(
            "ERR a cluster in etcd is not changed by a transaction or a script",
        )
        .into());
    }
    match etcd.ask(caller.info.id, change()) {
        Asked::Waits => Err(Halt::Suspended(Suspended::File)),
        Asked::Done(Ok(())) => {
            caller.reply().ok();
            Ok(true)
        }
        Asked::Done(Err(why)) => Err(Error::Line(why.into()).into()),
    }
}

pub(crate) fn cluster_addslots(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    give(worker, caller, single_slots(args)?, true)
}

pub(crate) fn cluster_addslotsrange(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    let slots = ranges(CommandId::ClusterAddslotsrange, args)?;
    give(worker, caller, slots, true)
}

pub(crate) fn cluster_delslots(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    give(worker, caller, single_slots(args)?, false)
}

pub(crate) fn cluster_delslotsrange(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    let slots = ranges(CommandId::ClusterDelslotsrange, args)?;
    give(worker, caller, slots, false)
}

/// Gives all slots of this node to nobody.
fn give_away(worker: &mut Worker, caller: &mut Caller) -> Result<(), Halt> {
    change_map(worker, caller, |owners, _| {
        *owners = Owners::none();
        Ok(())
    })
}

pub(crate) fn cluster_flushslots(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    if worker.shared.keyspace.key_count(0) > 0 {
        return Err(Error::line("ERR DB must be empty to perform CLUSTER FLUSHSLOTS.").into());
    }
    match ask(worker, caller, || Change::RemoveAll)? {
        true => Ok(()),
        false => give_away(worker, caller),
    }
}

/// Makes the node leave the cluster: SOFT, the default, gives its slots away. The data of a replica goes.
pub(crate) fn cluster_reset(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    let mut words = Words::new(CommandId::ClusterReset, &args, 2);
    let is_hard = words.flag("HARD");
    if !is_hard && !words.is_empty() && !words.flag("SOFT") || !words.is_empty() {
        return Err(Error::Syntax.into());
    }
    let follows = worker.shared.settings.current().primary.is_some();
    if !follows && worker.shared.keyspace.key_count(0) > 0 {
        return Err(Error::line(
            "ERR CLUSTER RESET can't be called with master nodes containing keys",
        )
        .into());
    }
    if is_hard {
        return Err(Error::line(
            "ERR CLUSTER RESET HARD is not built yet: a node with a new id is one with a new cluster-config-file",
        )
        .into());
    }
    match ask(worker, caller, || Change::Leave)? {
        true => Ok(()),
        false => give_away(worker, caller),
    }
}

/// Opens a slot whose keys a client moves one by one (MIGRATING, IMPORTING), closes it (STABLE), or gives it to a node (NODE).
pub(crate) fn cluster_setslot(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    const WRONG: Error =
        Error::line("ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP");
    let cluster = node_of(worker.shared)?;
    let view = cluster.view();
    if view.is_member && !view.is_primary {
        return Err(Error::line("ERR Please use SETSLOT only with masters.").into());
    }
    let slot = slot_argument(&args[2])?;
    let mut words = Words::new(CommandId::ClusterSetslot, &args, 3);
    let is_known = |id: &[u8]| {
        let mut known = view.picture.nodes.keys();
        known.any(|known| known.as_bytes() == id)
    };
    if words.flag("STABLE") && words.is_empty() {
        if !ask(worker, caller, || Change::Settle(slot))? {
            caller.reply().ok();
        }
        return Ok(());
    }
    let moving = words.value_of(&[("MIGRATING", true), ("IMPORTING", false)]);
    if let Some((leaves, id)) = moving
        && words.is_empty()
    {
        let says = |what: &str| Error::Line(format!("ERR {what} of hash slot {slot}").into());
        return match (leaves, view.has(slot)) {
            (true, false) => Err(says("I'm not the owner").into()),
            (false, true) => Err(says("I'm already the owner").into()),
            _ if !is_known(id) => {
                Err(Error::quoting("ERR I don't know about node ", id, "").into())
            }
            _ => match ask(worker, caller, || match leaves {
                true => Change::Leaves(slot, id_of(id)),
                false => Change::Arrives(slot, id_of(id)),
            })? {
                true => Ok(()),
                // A node alone knows no other.
                false => Err(unknown_node(id)),
            },
        };
    }
    match words.value("NODE") {
        Some(id) if words.is_empty() && moving.is_none() => assign(worker, caller, slot, id),
        _ => Err(WRONG.into()),
    }
}

/// Gives a slot to a primary: SETSLOT NODE.
fn assign(worker: &mut Worker, caller: &mut Caller, slot: u16, id: &[u8]) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    let view = cluster.view();
    let node = super::known_node(&view, id)?;
    if view
        .picture
        .shard_of_node(node)
        .is_none_or(|(_, shard)| shard.primary.node != node)
    {
        return Err(Error::line("ERR Target node is not a master").into());
    }
    let is_own = node == cluster.node;
    if !is_own && view.has(slot) && worker.shared.keyspace.slot_key_count(0, slot) > 0 {
        let text = format!(
            "ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
        );
        return Err(Error::Line(text.into()).into());
    }
    let owner = view.picture.owners().of_slot(slot);
    let change = || match owner {
        None if is_own => Change::Add(vec![slot..=slot]),
        _ => Change::Assign(slot, node.to_owned()),
    };
    if ask(worker, caller, change)? {
        return Ok(());
    }
    change_map(worker, caller, |owners, cluster| {
        owners.give(slot..=slot, Some(&cluster.view().shard));
        Ok(())
    })
}

/// Reports that the state is kept: every change is, before it is answered.
pub(crate) fn cluster_saveconfig(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    caller.reply().ok();
    Ok(())
}

/// Leaves the epoch as it is: it is the shard's term, which changes with its primary only.
pub(crate) fn cluster_bumpepoch(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let term = node_of(worker.shared)?.view().picture.newest_term();
    caller.reply().simple(&format!("STILL {term}"));
    Ok(())
}

pub(crate) fn cluster_set_config_epoch(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    let epoch = number::parse_i64(&args[2]).ok_or(Error::NotInteger)?;
    if epoch < 0 {
        let text = "ERR Invalid config epoch specified: ";
        return Err(Error::quoting(text, epoch.to_string().as_bytes(), "").into());
    }
    if ask(worker, caller, || Change::Epoch(epoch.unsigned_abs()))? {
        return Ok(());
    }
    // A shard begins with term 1.
    Err(Error::line("ERR Node config epoch is already non-zero").into())
}

pub(crate) fn cluster_meet(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    if args.len() > 5 {
        return Err(errors::wrong_subcommand_arity(CommandId::Cluster, args).into());
    }
    let invalid =
        |what: &str, word| Error::quoting(&format!("ERR Invalid {what} specified: "), word, "");
    if number::parse_i64(&args[3]).is_none() {
        return Err(invalid("base port", &args[3]).into());
    }
    if let Some(port) = args.get(4)
        && number::parse_i64(port).is_none()
    {
        return Err(invalid("bus port", port).into());
    }
    let is_port = |word| number::parse_i64(word).is_some_and(|port| (1..=65535).contains(&port));
    let address = std::str::from_utf8(&args[2]).ok();
    let address = address.and_then(|text| text.parse::<std::net::IpAddr>().ok());
    let port = number::parse_i64(&args[3]).and_then(|port| u16::try_from(port).ok());
    let (Some(ip), Some(port), true) = (address, port, args.iter().skip(3).all(is_port)) else {
        let address = [&args[2], b":", &args[3]].concat();
        return Err(invalid("node address", &address).into());
    };
    if ask(worker, caller, || {
        Change::Meet(ip.to_canonical().to_string(), port)
    })? {
        return Ok(());
    }
    Err(Error::line(
        "ERR this node keeps its cluster in a file; start it with --cluster-etcd to join others",
    )
    .into())
}

pub(crate) fn cluster_replicate(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    if args[2] == *cluster.node.as_bytes() {
        return Err(Error::line("ERR Can't replicate myself").into());
    }
    let view = cluster.view();
    let follows = worker.shared.settings.current().primary.is_some();
    if cluster.etcd.is_some() && !follows && worker.shared.keyspace.key_count(0) > 0 {
        super::known_node(&view, &args[2])?;
        return Err(Error::line(
            "ERR To set a master the node must be empty and without assigned slots.",
        )
        .into());
    }
    match ask(worker, caller, || Change::Follow(id_of(&args[2])))? {
        true => Ok(()),
        false => Err(unknown_node(&args[2])),
    }
}

pub(crate) fn cluster_forget(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    if args[2] == *cluster.node.as_bytes() {
        return Err(Error::line("ERR I tried hard but I can't forget myself...").into());
    }
    match ask(worker, caller, || Change::Forget(id_of(&args[2])))? {
        true => Ok(()),
        false => Err(unknown_node(&args[2])),
    }
}

pub(crate) fn cluster_failover(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    let mut words = Words::new(CommandId::ClusterFailover, &args, 2);
    let is_forced = words.flag("FORCE");
    let takes_over = !is_forced && words.flag("TAKEOVER");
    if !words.is_empty() {
        return Err(Error::Syntax.into());
    }
    let view = cluster.view();
    let shard = view.own_shard().filter(|_| view.is_member);
    let is_replica = shard.is_some_and(|shard| shard.primary.node != cluster.node);
    // Neither is a primary that has come back without its data.
    let leads = cluster.etcd.as_ref().and_then(|it| it.deciding.leads());
    let is_asked = is_replica || takes_over && shard.is_some() && leads.is_none();
    let Some(etcd) = cluster.etcd.as_ref().filter(|_| is_asked) else {
        return Err(Error::line("ERR You should send CLUSTER FAILOVER to a replica").into());
    };
    if takes_over {
        if ask(worker, caller, || Change::MayTakeOver)? {
            etcd.deciding.take_over();
        }
        return Ok(());
    }
    let is_up = worker.shared.following.link().state == State::Streaming;
    if !is_forced && !is_up {
        return Err(
            Error::line("ERR Master is down or failed, please use CLUSTER FAILOVER FORCE").into(),
        );
    }
    // A primary that does not hear it is replaced without it.
    etcd.deciding
        .ask_to_hand_over(&worker.shared.this(), cluster);
    caller.reply().ok();
    Ok(())
}

/// Returns the id in an argument; one that is no text is nobody's.
fn id_of(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn single_slots(args: Args<'_>) -> Result<Slots, Error> {
    let slots = args.iter().skip(2).map(slot_argument);
    slots.map(|slot| slot.map(|slot| slot..=slot)).collect()
}

fn ranges(id: CommandId, args: Args<'_>) -> Result<Slots, Error> {
    if !args.len().is_multiple_of(2) {
        return Err(errors::wrong_arity(id));
    }
    let mut ranges = Slots::new();
    let mut words = args.iter().skip(2);
    while let (Some(first), Some(last)) = (words.next(), words.next()) {
        let (first, last) = (slot_argument(first)?, slot_argument(last)?);
        if first > last {
            let text =
                format!("ERR start slot number {first} is greater than end slot number {last}");
            return Err(Error::Line(text.into()));
        }
        ranges.push(first..=last);
    }
    Ok(ranges)
}

/// Gives slots that nobody owns to this node, or slots that it owns to nobody.
fn give(
    worker: &mut Worker,
    caller: &mut Caller,
    slots: Slots,
    to_this_node: bool,
) -> Result<(), Halt> {
    let wish = || match to_this_node {
        true => Change::Add(slots.clone()),
        false => Change::Remove(slots.clone()),
    };
    if ask(worker, caller, wish)? {
        return Ok(());
    }
    change_map(worker, caller, |owners, cluster| {
        let mut seen = vec![false; SLOTS];
        let refused = |slot, why| Err(Error::Line(format!("ERR Slot {slot} {why}").into()));
        for slot in slots.iter().flat_map(Clone::clone) {
            match (to_this_node, owners.of_slot(slot)) {
                (true, Some(_)) => return refused(slot, "is already busy"),
                (false, None) => return refused(slot, "is already unassigned"),
                _ if std::mem::replace(&mut seen[usize::from(slot)], true) => {
                    return refused(slot, "specified multiple times");
                }
                _ => {}
            }
        }
        let owner = to_this_node.then(|| cluster.view().shard.clone());
        for run in &slots {
            owners.give(run.clone(), owner.as_deref());
        }
        Ok(())
    })
}

/// Changes the map, and what is served, in one step: every stripe is held until the map has been written.
fn change_map(
    worker: &mut Worker,
    caller: &mut Caller,
    change: impl FnOnce(&mut Owners, &Cluster) -> Result<(), Error>,
) -> Result<(), Halt> {
    let shared = worker.shared;
    let cluster = node_of(shared)?;
    let all = StripeSet::all();
    let mut alone: Option<Unit<'_>> = None;
    let unit = match &mut worker.executor.compound {
        // EXEC has all; a script takes them.
        Some(compound) => {
            compound.unit.add_set(&all);
            &mut compound.unit
        }
        None => alone.insert(units::take_set(worker.executor, caller, &all)?),
    };
    // Taken under the stripes, so nobody waits for it.
    let _change = cluster.begin_change();
    let mut owners = cluster.view().picture.owners().clone();
    change(&mut owners, cluster)?;
    let written = cluster.write_map(&owners);
    cluster.serve_owned(unit);
    drop(alone);
    cluster::adopt(shared);
    written.map_err(|error| {
        log::warning(&format!(
            "The map of the cluster could not be changed: {error}"
        ));
        Error::line("ERR error saving the cluster node config: see the log")
    })?;
    caller.reply().ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use redline_resp::ArgsBuf;

    use super::*;

    #[test]
    fn slots_are_read_as_written_and_checked() {
        let parsed = |line: &str| {
            let args: ArgsBuf = line.split(' ').map(str::as_bytes).collect();
            let (args, id) = (args.as_args(), CommandId::ClusterAddslotsrange);
            let slots = match args[1] == *b"addslots" {
                true => single_slots(args),
                false => ranges(id, args),
            };
            slots.map_err(|error| String::from_utf8_lossy(&error.text()).into_owned())
        };
        assert_eq!(parsed("cluster addslots 5 0"), Ok(vec![5..=5, 0..=0]));
        assert_eq!(
            parsed("cluster addslotsrange 1 2 16383 16383"),
            Ok(vec![1..=2, 16383..=16383])
        );
        for (line, why) in [
            ("cluster addslots 16384", "ERR Invalid or out of range slot"),
            ("cluster addslots -1", "ERR Invalid or out of range slot"),
            ("cluster addslots 65536", "ERR Invalid or out of range slot"),
            (
                "cluster addslotsrange 1 2 3",
                "ERR wrong number of arguments for 'cluster|addslotsrange' command",
            ),
            (
                "cluster addslotsrange 0 0 3 2",
                "ERR start slot number 3 is greater than end slot number 2",
            ),
        ] {
            assert_eq!(parsed(line), Err(why.to_owned()));
        }
    }
}
