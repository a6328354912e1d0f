//! CLUSTER's subcommands that move slots with all their keys: Valkey's, by which the node that has them gives them away, and
//! Redis's, by which the other one asks for them. And what nodes say to each other.
//!
//! Must not know: how keys are copied, the records.

use std::ops::RangeInclusive;

use redline_cluster::{
    SLOTS,
    records::{Move, MoveState},
};
use redline_commands::{Error, Words};
use redline_engine::{
    Caller, Halt,
    caller::{Suspended, state},
    errors,
    executor::{block, units},
    tracking::By,
};
use redline_keyspace::{Classes, Keyspace, Unit, lock::StripeSet};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::number;

use super::{node_of, slot_argument};
use crate::{
    cluster::{
        etcd::{Asked, Membership},
        members::Change,
        moves::{self, CANCELLED, Logged},
    },
    shared::Shared,
    worker::Worker,
};

const ALONE: Error = Error::line(
    "ERR this node keeps its cluster in a file; start it with --cluster-etcd to join others",
);
/// Length of an id.
const ID_BYTES: usize = 40;

/// Runs of slots, and the node to which they are to go.
type Part = (Vec<RangeInclusive<u16>>, String);

/// Returns the state of a node with others.
fn with_others(shared: &Shared) -> Result<&Membership, Halt> {
    node_of(shared)?.etcd.as_ref().ok_or_else(|| ALONE.into())
}

/// Asks for a change; the call runs again when it is made.
fn ask(worker: &Worker, caller: &Caller, change: Change) -> Result<(), Halt> {
    if worker.executor.compound.is_some() {
        return Err(Error::line(
            "ERR a cluster in etcd is not changed by a transaction or a script",
        )
        .into());
    }
    match with_others(worker.shared)?.ask(caller.info.id, change) {
        Asked::Waits => Err(Halt::Suspended(Suspended::File)),
        Asked::Done(Ok(())) => Ok(()),
        Asked::Done(Err(why)) => Err(Error::Line(why.into()).into()),
    }
}

/// Parses pairs of slots, as far as they go. `seen`: slots of earlier ones.
fn ranges(words: &mut Words<'_>, seen: &mut [bool]) -> Result<Vec<RangeInclusive<u16>>, Error> {
    let mut runs: Vec<RangeInclusive<u16>> = Vec::new();
    while words
        .peek()
        .is_some_and(|word| number::parse_i64(word).is_some())
    {
        let (first, last) = (slot_argument(words.read()?)?, slot_argument(words.read()?)?);
        if first > last {
            let text =
                format!("ERR Start slot number {first} is greater than end slot number {last}.");
            return Err(Error::Line(text.into()));
        }
        let run = first..=last;
        for slot in run.clone() {
            if std::mem::replace(&mut seen[usize::from(slot)], true) {
                let text = format!("ERR Slot range {first}-{last} overlaps with a previous range.");
                return Err(Error::Line(text.into()));
            }
        }
        runs.push(run);
    }
    match runs.is_empty() {
        true => Err(Error::line("ERR No slot ranges specified")),
        false => Ok(runs),
    }
}

/// Parses the parts of MIGRATESLOTS.
fn parts(args: Args<'_>) -> Result<Vec<Part>, Error> {
    let mut words = Words::new(CommandId::ClusterMigrateslots, &args, 2);
    let (mut parts, mut seen) = (Vec::new(), vec![false; SLOTS]);
    while !words.is_empty() {
        if !words.flag("SLOTSRANGE") {
            return Err(Error::Syntax);
        }
        let runs = ranges(&mut words, &mut seen)?;
        let node = words.value("NODE").ok_or(Error::Syntax)?;
        if node.len() != ID_BYTES {
            return Err(Error::quoting("ERR Invalid node name: ", node, ""));
        }
        parts.push((runs, String::from_utf8_lossy(node).into_owned()));
    }
    Ok(parts)
}

/// Moves slots of this node to others.
pub(crate) fn cluster_migrateslots(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    let parts = parts(args)?;
    let view = cluster.view();
    // One that runs again has begun the moves, which may have ended.
    let is_asked = with_others(worker.shared)?.is_asked(caller.info.id);
    for (runs, node) in parts.iter().filter(|_| !is_asked) {
        if !view.picture.nodes.contains_key(node) {
            return Err(Error::quoting("ERR Unknown node name: ", node.as_bytes(), "").into());
        }
        if *node == cluster.node {
            return Err(Error::line("ERR Target node can not be this node.").into());
        }
        if !runs
            .iter()
            .flat_map(Clone::clone)
            .all(|slot| view.has(slot))
        {
            return Err(Error::line("ERR Slots are not served by this node.").into());
        }
    }
    ask(worker, caller, Change::Move(None, parts))?;
    caller.reply().ok();
    Ok(())
}

/// Gives up the moves from and to this node.
pub(crate) fn cluster_cancelslotmigrations(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let etcd = with_others(worker.shared)?;
    // A call that runs again has ended them.
    if !etcd.is_asked(caller.info.id) && under_way(worker.shared, None)?.is_empty() {
        return Err(Error::line("ERR No migrations ongoing").into());
    }
    ask(worker, caller, Change::GiveUp(None))?;
    caller.reply().ok();
    Ok(())
}

/// Returns the ids of moves from and to this node that have not ended.
fn under_way(shared: &Shared, id: Option<&[u8]>) -> Result<Vec<String>, Halt> {
    let view = node_of(shared)?.view();
    let moves = view.picture.moves.iter().filter(|it| {
        let is_own = it.from.shard == view.shard || it.to.shard == view.shard;
        is_own && it.is_under_way() && id.is_none_or(|id| it.id.as_bytes() == id)
    });
    Ok(moves.map(|it| it.id.clone()).collect())
}

/// Returns the moves from and to this node, the last ones first.
fn logged(shared: &Shared) -> Result<Vec<Logged>, Halt> {
    let cluster = node_of(shared)?;
    let Some(etcd) = &cluster.etcd else {
        return Ok(Vec::new());
    };
    etcd.moves.note(&cluster.view());
    Ok(etcd.moves.logged())
}

/// Returns the state of a move, in a server's words for one that is under way, done, called off, failed.
fn state_in(entry: &Move, words: [&'static str; 4]) -> &'static str {
    let [copying, done, cancelled, failed] = words;
    match entry.state {
        MoveState::Copying => copying,
        MoveState::Done => done,
        MoveState::Aborted if entry.why == CANCELLED => cancelled,
        MoveState::Aborted => failed,
    }
}

/// Returns the slots of a move, in words.
fn slots_of(entry: &Move, between: &str) -> String {
    let runs = entry.runs.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    runs.collect::<Vec<_>>().join(between)
}

fn write_pair(reply: &mut Reply<'_>, name: &str, value: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(value.as_bytes());
}

fn write_number(reply: &mut Reply<'_>, name: &str, value: u64) {
    reply.bulk(name.as_bytes());
    reply.integer(value as i64);
}

/// Lists the moves as Valkey does. Bytes of copies are not known: no process is forked.
pub(crate) fn cluster_getslotmigrations(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let known = logged(worker.shared)?;
    let mut reply = caller.reply();
    reply.array(known.len());
    for it in known {
        let entry = &it.entry;
        let state = state_in(entry, ["replicating", "success", "cancelled", "failed"]);
        reply.map(12);
        write_pair(&mut reply, "name", &entry.id);
        let operation = if it.leaves { "EXPORT" } else { "IMPORT" };
        write_pair(&mut reply, "operation", operation);
        write_pair(&mut reply, "slot_ranges", &slots_of(entry, " "));
        write_pair(&mut reply, "target_node", &entry.to.primary.node);
        write_pair(&mut reply, "source_node", &entry.from.primary.node);
        write_number(&mut reply, "create_time", it.began_ms / 1000);
        write_number(&mut reply, "last_update_time", it.changed_ms / 1000);
        write_number(&mut reply, "last_ack_time", it.changed_ms / 1000);
        write_pair(&mut reply, "state", state);
        write_pair(&mut reply, "message", &entry.why);
        write_number(&mut reply, "cow_size", 0);
        write_number(&mut reply, "remaining_repl_size", 0);
    }
    Ok(())
}

/// Redis 8.4's moves: IMPORT has slots moved to this node, STATUS lists moves, CANCEL gives them up.
pub(crate) fn cluster_migration(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    let mut words = Words::new(CommandId::ClusterMigration, &args, 2);
    if words.flag("IMPORT") {
        let runs = ranges(&mut words, &mut vec![false; SLOTS])?;
        return match words.is_empty() {
            true => import(worker, caller, runs),
            false => Err(Error::Syntax.into()),
        };
    }
    let is_status = words.flag("STATUS");
    if !is_status && !words.flag("CANCEL") {
        return Err(Error::Syntax.into());
    }
    let id = words.value("ID");
    if id.is_none() && !words.flag("ALL") || !words.is_empty() {
        return Err(Error::Syntax.into());
    }
    match is_status {
        true => write_status(worker.shared, caller, id),
        false => {
            let is_asked = with_others(worker.shared)?.is_asked(caller.info.id);
            if !is_asked && under_way(worker.shared, id)?.is_empty() {
                caller.reply().integer(0);
                return Ok(());
            }
            let one = id.map(|id| String::from_utf8_lossy(id).into_owned());
            ask(worker, caller, Change::GiveUp(one))?;
            let given_up = logged(worker.shared)?;
            let given_up = given_up
                .iter()
                .filter(|it| it.is_fresh() && id.is_none_or(|id| it.entry.id.as_bytes() == id));
            caller.reply().integer(given_up.count() as i64);
            Ok(())
        }
    }
}

/// Has slots moved to this node: all are one other node's. The reply is the id of the move.
fn import(
    worker: &mut Worker,
    caller: &mut Caller,
    runs: Vec<RangeInclusive<u16>>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    let view = cluster.view();
    let is_asked = with_others(worker.shared)?.is_asked(caller.info.id);
    let first = *runs[0].start();
    let owner = view.picture.owners().of_slot(first).map(str::to_owned);
    let is_one = |slot| view.picture.owners().of_slot(slot) == owner.as_deref();
    if !is_asked {
        if view.has(first) {
            return Err(Error::line("ERR this node is already the owner of the slot range").into());
        }
        if owner.is_none() || !runs.iter().flat_map(Clone::clone).all(is_one) {
            return Err(Error::line("ERR slots belong to different source nodes").into());
        }
    }
    let parts = vec![(runs, cluster.node.clone())];
    ask(worker, caller, Change::Move(owner, parts))?;
    let view = cluster.view();
    let mut moves = view.picture.moves.iter().rev();
    let begun = moves.find(|it| it.to.shard == view.shard && it.has(first));
    let id = begun.map(|it| it.id.clone()).unwrap_or_default();
    caller.reply().bulk(id.as_bytes());
    Ok(())
}

fn write_status(shared: &Shared, caller: &mut Caller, id: Option<&[u8]>) -> Result<(), Halt> {
    let mut known = logged(shared)?;
    known.retain(|it| id.is_none_or(|id| it.entry.id.as_bytes() == id));
    let mut reply = caller.reply();
    reply.array(known.len());
    for it in known {
        let entry = &it.entry;
        let state = state_in(entry, ["in-progress", "completed", "canceled", "failed"]);
        let ended_ms = match entry.is_under_way() {
            true => 0,
            false => it.changed_ms,
        };
        reply.map(12);
        write_pair(&mut reply, "id", &entry.id);
        write_pair(&mut reply, "slots", &slots_of(entry, " "));
        write_pair(&mut reply, "source", &entry.from.primary.node);
        write_pair(&mut reply, "dest", &entry.to.primary.node);
        let operation = if it.leaves { "migrate" } else { "import" };
        write_pair(&mut reply, "operation", operation);
        write_pair(&mut reply, "state", state);
        write_pair(&mut reply, "last_error", &entry.why);
        write_pair(&mut reply, "retries", "0");
        write_number(&mut reply, "create_time", it.began_ms);
        write_number(&mut reply, "start_time", it.began_ms);
        write_number(&mut reply, "end_time", ended_ms);
        write_number(&mut reply, "write_pause_ms", it.fenced_ms);
    }
    Ok(())
}

/// Removes all keys of a slot.
pub(crate) fn cluster_flushslot(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    let slot = slot_argument(&args[2])?;
    let mut words = Words::new(CommandId::ClusterFlushslot, &args, 3);
    let _ = words.flag("ASYNC") || words.flag("SYNC");
    if !words.is_empty() {
        return Err(Error::Syntax.into());
    }
    if worker.shared.keyspace.hides_slot(slot) {
        let line = format!(
            "ERR Slot {slot} is not this node's yet: its keys are being moved here (CLUSTER CANCELSLOTMIGRATIONS at the other node ends that)"
        );
        return Err(Error::Line(line.into()).into());
    }
    let stripe = Keyspace::stripe_of_slot(slot);
    match worker.executor.compound.take() {
        Some(mut compound) => {
            compound.unit.add(stripe);
            compound.changes += flush(worker, &mut compound.unit, slot);
            worker.executor.compound = Some(compound);
        }
        None => {
            let mut set = StripeSet::EMPTY;
            set.insert(stripe);
            let mut unit = units::take_set_for_call(worker.executor, caller, args, &set)?;
            flush(worker, &mut unit, slot);
            worker.publish_events(By::Client(&caller.info));
            if let Some(number) = block::commit(worker.executor, unit) {
                caller.own_record = number;
            }
        }
    }
    caller.reply().ok();
    Ok(())
}

/// Removes the keys of a slot; returns their number.
fn flush(worker: &mut Worker, unit: &mut Unit<'_>, slot: u16) -> u64 {
    let mut keys: Vec<Box<[u8]>> = Vec::new();
    unit.visit_slot(0, slot, u64::MAX, |key| keys.push(key.into()));
    let now_ms = worker.now_ms;
    let mut view = unit.view(&mut worker.local, 0, now_ms);
    for key in &keys {
        if view.remove(key) {
            view.changed(Classes::GENERIC, "del", key);
            view.propagate(&[&b"DEL"[..], key]);
        }
    }
    let changes = view.changes();
    view.finish();
    changes
}

/// Words of one node to another: `NODE` says whose connection it is, `BEGIN` asks if a move may begin, `CHECK` if all that was
/// sent of it is still there, `SEE` if the node has seen what the store has.
pub(crate) fn cluster_syncslots(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    let mut words = Words::new(CommandId::ClusterSyncslots, &args, 2);
    if let Some([id, node]) = words.values("NODE") {
        let view = cluster.view();
        let knows = id == view.picture.meta.cluster.as_bytes();
        super::known_node(&view, node)?;
        if !knows || !view.is_member {
            return Err(Error::line("ERR this node is of another cluster").into());
        }
        caller.set_state(state::NODE, true);
        caller.reply().ok();
        return Ok(());
    }
    if !caller.is(state::NODE) {
        return Err(Error::line("ERR only a node of the cluster may say that").into());
    }
    if let Some(id) = words.value("CHECK") {
        let id = String::from_utf8_lossy(id);
        let etcd = cluster.etcd.as_ref();
        if !etcd.is_some_and(|etcd| moves::has_all(worker.shared, etcd, &id)) {
            return Err(
                Error::line("ERR the data was flushed, or is that of another start").into(),
            );
        }
        caller.reply().ok();
        return Ok(());
    }
    let begin = words.value("BEGIN");
    if begin.is_none() && !words.flag("SEE") || !words.is_empty() {
        return Err(errors::wrong_subcommand_arity(CommandId::Cluster, args).into());
    }
    ask(worker, caller, Change::See)?;
    if let Some(id) = begin {
        let id = String::from_utf8_lossy(id);
        let view = cluster.view();
        if let Some(why) = moves::refuses(worker.shared, &view, &cluster.node, &id) {
            return Err(Error::Line(why.into()).into());
        }
        if let Some(etcd) = &cluster.etcd {
            moves::begin(worker.shared, etcd, &view, &id);
        }
    }
    caller.reply().ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use redline_resp::ArgsBuf;

    use super::*;

    #[test]
    fn slots_are_read_as_pairs_up_to_their_node() {
        let parsed = |line: &str| {
            let args: ArgsBuf = line.split(' ').map(str::as_bytes).collect();
            let parts = parts(args.as_args());
            parts.map_err(|error| String::from_utf8_lossy(&error.text()).into_owned())
        };
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        assert_eq!(
            parsed(&format!(
                "cluster migrateslots slotsrange 0 1 5 5 node {a} SLOTSRANGE 9 9 NODE {b}"
            )),
            Ok(vec![(vec![0..=1, 5..=5], a.clone()), (vec![9..=9], b)])
        );
        for (words, why) in [
            (
                format!("slotsrange node {a}"),
                "ERR No slot ranges specified",
            ),
            ("slotsrange 0 1 node".to_owned(), "ERR syntax error"),
            (
                "slotsrange 0 node x".to_owned(),
                "ERR Invalid or out of range slot",
            ),
            (format!("foo 0 1 node {a}"), "ERR syntax error"),
            (
                format!("slotsrange 0 16384 node {a}"),
                "ERR Invalid or out of range slot",
            ),
            (
                format!("slotsrange 0 5 node {a} slotsrange 5 6 node {a}"),
                "ERR Slot range 5-6 overlaps with a previous range.",
            ),
        ] {
            assert_eq!(
                parsed(&format!("cluster migrateslots {words}")),
                Err(why.into())
            );
        }
    }
}
