//! CLUSTER: what a node tells of its cluster. The subcommands that change it are in `cluster/changes.rs`.
//!
//! Every reply is made of one picture. Addresses are told as Redis tells them, but for a node without an announced address:
//! that tells each client the address by which the client has reached it, where Redis tells none.
//!
//! Must not know: the store.

mod changes;
mod endpoints;
mod moves;

use std::{fmt::Write, ops::RangeInclusive};

use redline_cluster::{SLOTS, records::ShardRecord, slot_of};
use redline_commands::{Error, Words};
use redline_engine::{Caller, Halt, errors, executor::units};
use redline_keyspace::{Keyspace, Unit, lock::StripeSet};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::number;

use super::command;
use crate::{
    cluster::{Cluster, View},
    shared::{Shared, TcpPort},
    worker::Worker,
};
use endpoints::Endpoint;

pub(crate) use changes::{
    cluster_addslots, cluster_addslotsrange, cluster_bumpepoch, cluster_delslots,
    cluster_delslotsrange, cluster_failover, cluster_flushslots, cluster_forget, cluster_meet,
    cluster_replicate, cluster_reset, cluster_saveconfig, cluster_set_config_epoch,
    cluster_setslot,
};
pub(crate) use endpoints::unserved;
pub(crate) use moves::{
    cluster_cancelslotmigrations, cluster_flushslot, cluster_getslotmigrations,
    cluster_migrateslots, cluster_migration, cluster_syncslots,
};

/// Returns the node that this server is.
fn node_of(shared: &Shared) -> Result<&Cluster, Halt> {
    let cluster = shared.cluster.as_ref();
    cluster.ok_or_else(|| errors::CLUSTER_DISABLED.into())
}

/// Returns the error for an id that no node has.
fn unknown_node(id: &[u8]) -> Halt {
    Error::quoting("ERR Unknown node ", id, "").into()
}

/// Returns the id of a member.
fn known_node<'a>(view: &'a View, id: &[u8]) -> Result<&'a str, Halt> {
    let mut known = view.picture.nodes.keys();
    let found = known.find(|known| known.as_bytes() == id);
    found.map(String::as_str).ok_or_else(|| unknown_node(id))
}

pub(crate) fn cluster_help(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    command::help(worker, caller, args)
}

pub(crate) fn cluster_info(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    let view = cluster.view();
    let picture = &view.picture;
    let assigned = picture.owners().assigned();
    let state = match cluster.is_down(&worker.outlet.settings) {
        true => "fail",
        false => "ok",
    };
    let mut owners: Vec<&str> = picture.owners().runs().iter().map(|(_, id)| *id).collect();
    owners.sort_unstable();
    owners.dedup();
    let failed = owners.iter().filter(|owner| {
        let shard = picture.shards.get(**owner);
        shard.is_some_and(|shard| view.is_failed(&shard.primary.node))
    });
    let failed = failed.map(|owner| picture.owners().runs_of(owner));
    let failed: usize = failed.flatten().map(|run| run.count()).sum();
    let mut text = format!("cluster_state:{state}\r\n");
    for (name, value) in [
        ("cluster_slots_assigned", assigned as u64),
        ("cluster_slots_ok", (assigned - failed) as u64),
        ("cluster_slots_pfail", 0),
        ("cluster_slots_fail", failed as u64),
        ("cluster_known_nodes", picture.nodes.len() as u64),
        ("cluster_size", owners.len() as u64),
        ("cluster_current_epoch", picture.newest_term()),
        (
            "cluster_my_epoch",
            view.own_shard().map_or(0, |shard| shard.term),
        ),
        // There is no bus.
        ("cluster_stats_messages_sent", 0),
        ("cluster_stats_messages_received", 0),
        ("total_cluster_links_buffer_limit_exceeded", 0),
    ] {
        // A text takes what is written to it.
        let _ = write!(text, "{name}:{value}\r\n");
    }
    if let Some(etcd) = &cluster.etcd {
        let is_reached = u8::from(etcd.is_reached());
        let _ = write!(
            text,
            "cluster_etcd_ok:{is_reached}\r\ncluster_etcd_revision:{}\r\n",
            picture.revision
        );
        // A right without an end is shown as -1: nobody may take over.
        let left_ms = etcd.right.left_ms();
        let left_ms = left_ms.map_or(-1, |left_ms| i64::try_from(left_ms).unwrap_or(i64::MAX));
        let _ = write!(
            text,
            "cluster_right_ms:{left_ms}\r\ncluster_candidates:{}\r\ncluster_short_seconds:{}\r\n",
            etcd.deciding.candidates(),
            etcd.acks.short_seconds(),
        );
    }
    caller.reply().verbatim("txt", text.as_bytes());
    Ok(())
}

pub(crate) fn cluster_nodes(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    let view = cluster.view();
    let nodes = view.picture.nodes.keys();
    let text: String = nodes
        .map(|id| node_line(worker, caller, cluster, &view, id))
        .collect();
    caller.reply().verbatim("txt", text.as_bytes());
    Ok(())
}

/// Returns the line of a node in CLUSTER NODES. The port of the bus is 0: there is none.
fn node_line(worker: &Worker, caller: &Caller, cluster: &Cluster, view: &View, id: &str) -> String {
    let settings = &worker.outlet.settings;
    let endpoint = Endpoint::of_node(worker.shared, settings, caller, cluster, view, id);
    let shard = view.picture.shard_of_node(id);
    let term = shard.map_or(0, |(_, shard)| shard.term);
    let mut line = format!("{id} {}:{}@0", endpoint.ip, endpoint.port);
    if !endpoint.hostname.is_empty() {
        line += &format!(",{}", endpoint.hostname);
    }
    let primary = shard.map_or(id, |(_, shard)| shard.primary.node.as_str());
    let is_own = if id == cluster.node { "myself," } else { "" };
    let (role, follows) = match primary == id {
        true => ("master", "-"),
        false => ("slave", primary),
    };
    let (fails, link) = match id != cluster.node && view.is_failed(id) {
        true => (",fail", "disconnected"),
        false => ("", "connected"),
    };
    line += &format!(" {is_own}{role}{fails} {follows} 0 0 {term} {link}");
    if let Some((shard, _)) = shard.filter(|_| primary == id) {
        for run in view.picture.owners().runs_of(shard) {
            line += &match run.start() == run.end() {
                true => format!(" {}", run.start()),
                false => format!(" {}-{}", run.start(), run.end()),
            };
        }
        if id == cluster.node {
            line += &open_slots(view, shard);
        }
    }
    line + "\n"
}

/// Returns the slots of this node that are open, as CLUSTER NODES shows them: with the node to which each leaves, or from
/// which it arrives.
fn open_slots(view: &View, shard: &str) -> String {
    let picture = &view.picture;
    let primary = |shard: &str| picture.shards.get(shard).map(|it| it.primary.node.as_str());
    let leaving = picture.open.leaving.iter().filter_map(|(slot, _)| {
        let to = picture.leaving(shard, *slot).and_then(primary)?;
        Some(format!(" [{slot}->-{to}]"))
    });
    let arriving = picture.open.arriving.iter().filter_map(|(slot, to, _)| {
        let from = picture.arriving(shard, *slot).filter(|_| to == shard);
        Some(format!(" [{slot}-<-{}]", from.and_then(primary)?))
    });
    leaving.chain(arriving).collect()
}

pub(crate) fn cluster_slots(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    let view = cluster.view();
    let settings = &worker.outlet.settings;
    let runs = view.picture.owners().runs();
    let runs: Vec<(RangeInclusive<u16>, &ShardRecord)> = runs
        .into_iter()
        .filter_map(|(run, id)| Some((run, view.picture.shards.get(id)?)))
        .collect();
    let described = runs
        .into_iter()
        .map(|(run, shard)| {
            let replicas = shard.replicas.iter().map(String::as_str);
            let nodes = std::iter::once(shard.primary.node.as_str())
                .chain(replicas.filter(|replica| !view.is_failed(replica)));
            let shared = worker.shared;
            let of = |id| {
                (
                    id,
                    Endpoint::of_node(shared, settings, caller, cluster, &view, id),
                )
            };
            (run, nodes.map(of).collect::<Vec<(&str, Endpoint)>>())
        })
        .collect::<Vec<_>>();
    let mut reply = caller.reply();
    reply.array(described.len());
    for (run, nodes) in described {
        reply.array(2 + nodes.len());
        reply.integer(i64::from(*run.start()));
        reply.integer(i64::from(*run.end()));
        for (id, endpoint) in nodes {
            reply.array(4);
            endpoint.write_host(&mut reply);
            reply.integer(i64::from(endpoint.port));
            reply.bulk(id.as_bytes());
            let others = endpoint.others();
            reply.map(others.len());
            for (name, value) in others {
                reply.bulk(name.as_bytes());
                reply.bulk(value.as_bytes());
            }
        }
    }
    Ok(())
}

pub(crate) fn cluster_shards(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    let view = cluster.view();
    let log = worker.shared.replication.primary();
    let offset = log.log().identity().offset();
    drop(log);
    let settings = &worker.outlet.settings;
    let shards = view.picture.shards.iter().map(|(id, shard)| {
        let replicas = shard.replicas.iter().map(String::as_str);
        let nodes = std::iter::once(shard.primary.node.as_str()).chain(replicas);
        let of = |id| Endpoint::of_node(worker.shared, settings, caller, cluster, &view, id);
        let nodes: Vec<(&str, Endpoint)> = nodes.map(|id| (id, of(id))).collect();
        (view.picture.owners().runs_of(id), nodes)
    });
    let shards: Vec<_> = shards.collect();
    let mut reply = caller.reply();
    reply.array(shards.len());
    for (runs, nodes) in shards {
        reply.map(2);
        reply.bulk(b"slots");
        reply.array(2 * runs.len());
        for slot in runs.iter().flat_map(|run| [run.start(), run.end()]) {
            reply.integer(i64::from(*slot));
        }
        reply.bulk(b"nodes");
        reply.array(nodes.len());
        for (number, (id, endpoint)) in nodes.iter().enumerate() {
            // Another node's offset is not known here.
            let offset = if *id == cluster.node { offset } else { 0 };
            let role = if number == 0 { "master" } else { "replica" };
            let is_failed = *id != cluster.node && view.is_failed(id);
            write_of_shard(&mut reply, id, endpoint, role, offset, is_failed);
        }
    }
    Ok(())
}

/// Writes a node in CLUSTER SHARDS.
fn write_of_shard(
    reply: &mut Reply<'_>,
    id: &str,
    endpoint: &Endpoint,
    role: &str,
    offset: u64,
    is_failed: bool,
) {
    let ports = [
        (TcpPort::Plain, endpoint.plain_port),
        (TcpPort::Tls, endpoint.tls_port),
    ];
    let ports = ports.iter().filter(|(_, port)| *port != 0);
    let has_name = !endpoint.hostname.is_empty();
    reply.map(6 + ports.clone().count() + usize::from(has_name));
    reply.bulk(b"id");
    reply.bulk(id.as_bytes());
    for (which, port) in ports {
        reply.bulk(which.parameter().as_bytes());
        reply.integer(i64::from(*port));
    }
    reply.bulk(b"ip");
    reply.bulk(endpoint.ip.as_bytes());
    reply.bulk(b"endpoint");
    // Here no host is an empty one, as in Redis.
    reply.bulk(endpoint.host().unwrap_or_default().as_bytes());
    if has_name {
        reply.bulk(b"hostname");
        reply.bulk(endpoint.hostname.as_bytes());
    }
    reply.bulk(b"role");
    reply.bulk(role.as_bytes());
    reply.bulk(b"replication-offset");
    reply.integer(offset as i64);
    reply.bulk(b"health");
    reply.bulk(if is_failed { b"fail" } else { b"online" });
}

pub(crate) fn cluster_myid(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    caller.reply().bulk(cluster.node.as_bytes());
    Ok(())
}

pub(crate) fn cluster_myshardid(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    caller.reply().bulk(cluster.view().shard.as_bytes());
    Ok(())
}

/// Lists the links of the bus, which does not exist.
pub(crate) fn cluster_links(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    caller.reply().array(0);
    Ok(())
}

pub(crate) fn cluster_replicas(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    let view = cluster.view();
    let id = known_node(&view, &args[2])?;
    let shard = view.picture.shard_of_node(id).map(|(_, shard)| shard);
    let Some(shard) = shard.filter(|shard| shard.primary.node == id) else {
        return Err(Error::line("ERR The specified node is not a master").into());
    };
    let replicas = shard.replicas.iter();
    let lines: Vec<String> = replicas
        .map(|replica| node_line(worker, caller, cluster, &view, replica))
        .collect();
    let mut reply = caller.reply();
    reply.array(lines.len());
    for line in lines {
        reply.bulk(line.trim_end().as_bytes());
    }
    Ok(())
}

pub(crate) fn cluster_slaves(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    cluster_replicas(worker, caller, args)
}

/// Counts the nodes that report a node as failed. None does: that is decided elsewhere.
pub(crate) fn cluster_count_failure_reports(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    known_node(&cluster.view(), &args[2])?;
    caller.reply().integer(0);
    Ok(())
}

pub(crate) fn cluster_keyslot(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    caller.reply().integer(i64::from(slot_of(&args[2])));
    Ok(())
}

pub(crate) fn cluster_countkeysinslot(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    node_of(worker.shared)?;
    let slot = number::parse_i64(&args[2]).ok_or(Error::NotInteger)?;
    let slot = slot_number(slot).ok_or(Error::line("ERR Invalid slot"))?;
    let keys = worker.shared.keyspace.slot_key_count(0, slot);
    caller.reply().integer(keys as i64);
    Ok(())
}

pub(crate) fn cluster_getkeysinslot(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    const INVALID: Error = Error::line("ERR Invalid slot or number of keys");
    node_of(worker.shared)?;
    let slot = number::parse_i64(&args[2]).ok_or(Error::NotInteger)?;
    let count = number::parse_i64(&args[3]).ok_or(Error::NotInteger)?;
    let slot = slot_number(slot).ok_or(INVALID)?;
    let count = u64::try_from(count).map_err(|_| INVALID)?;
    let stripe = Keyspace::stripe_of_slot(slot);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut read = |unit: &Unit<'_>| unit.visit_slot(0, slot, count, |key| keys.push(key.to_vec()));
    match &mut worker.compound {
        Some(compound) => {
            // A script takes what it has not yet; EXEC has all.
            compound.unit.add(stripe);
            read(&compound.unit);
        }
        None => {
            let mut set = StripeSet::EMPTY;
            set.insert(stripe);
            read(&units::take_set(worker.executor, caller, &set)?);
        }
    }
    let mut reply = caller.reply();
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

/// Writes the number of keys of slots that this node owns: `SLOTSRANGE first last`, or `ORDERBY KEY-COUNT [LIMIT n] [ASC |
/// DESC]`. Other figures are not kept, and as in Redis not known then.
pub(crate) fn cluster_slot_stats(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    let view = cluster.view();
    let mut words = Words::new(CommandId::ClusterSlotStats, &args, 2);
    let (slots, order) = if let Some([first, last]) = words.values("SLOTSRANGE")
        && words.is_empty()
    {
        let (first, last) = (slot_argument(first)?, slot_argument(last)?);
        if first > last {
            return Err(Error::Line(
                format!("ERR Start slot number {first} is greater than end slot number {last}")
                    .into(),
            )
            .into());
        }
        (first..=last, None)
    } else if words.flag("ORDERBY") {
        if !words.undocumented("KEY-COUNT") {
            return Err(Error::line("ERR Unrecognized sort metric for ORDERBY.").into());
        }
        (0..=SLOTS as u16 - 1, Some(stats_order(words)?))
    } else {
        return Err(errors::wrong_subcommand_arity(CommandId::Cluster, args).into());
    };
    let space = &worker.shared.keyspace;
    let mut found = own_counts(&view, slots, space);
    if let Some((descends, limit)) = order {
        found.sort_by_key(|(slot, keys)| match descends {
            true => (u64::MAX - keys, *slot),
            false => (*keys, *slot),
        });
        found.truncate(limit);
    }
    let mut reply = caller.reply();
    reply.array(found.len());
    for (slot, keys) in found {
        reply.array(2);
        reply.integer(i64::from(slot));
        reply.map(1);
        reply.bulk(b"key-count");
        reply.integer(keys as i64);
    }
    Ok(())
}

/// Returns the slots among these that the node owns, and the numbers of their keys.
fn own_counts(view: &View, slots: RangeInclusive<u16>, space: &Keyspace) -> Vec<(u16, u64)> {
    slots
        .filter(|slot| view.has(*slot))
        .map(|slot| (slot, space.slot_key_count(0, slot)))
        .collect()
}

/// Parses the rest of `ORDERBY metric`: whether the order descends, and the number of slots.
fn stats_order(mut words: Words<'_>) -> Result<(bool, usize), Error> {
    const TWICE: Error = Error::line("ERR Multiple filters of the same type are disallowed.");
    let (mut descends, mut limit) = (None, None);
    while !words.is_empty() {
        if let Some(text) = words.value("LIMIT") {
            let number = number::parse_i64(text).filter(|n| (1..=SLOTS as i64).contains(n));
            let number = number.ok_or(Error::line(
                "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
            ))?;
            if limit.replace(number as usize).is_some() {
                return Err(TWICE);
            }
        } else if let Some(direction) = words.one_of(&[("ASC", false), ("DESC", true)]) {
            if descends.replace(direction).is_some() {
                return Err(TWICE);
            }
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok((descends.unwrap_or(true), limit.unwrap_or(SLOTS)))
}

/// Returns a number as that of a slot, if there is such a slot.
fn slot_number(number: i64) -> Option<u16> {
    let slot = u16::try_from(number).ok();
    slot.filter(|slot| usize::from(*slot) < SLOTS)
}

/// Parses the number of a slot.
fn slot_argument(word: &[u8]) -> Result<u16, Error> {
    let slot = number::parse_i64(word).and_then(slot_number);
    slot.ok_or(Error::line("ERR Invalid or out of range slot"))
}

#[cfg(test)]
mod tests {
    use redline_resp::ArgsBuf;

    use super::*;

    #[test]
    fn the_order_of_statistics_has_each_word_once() {
        let parsed = |line: &str| {
            let args: ArgsBuf = line.split_whitespace().map(str::as_bytes).collect();
            let args = args.as_args();
            let order = stats_order(Words::new(CommandId::ClusterSlotStats, &args, 2));
            order.map_err(|error| String::from_utf8_lossy(&error.text()).into_owned())
        };
        assert_eq!(parsed("cluster slot-stats"), Ok((true, SLOTS)));
        assert_eq!(parsed("cluster slot-stats LIMIT 3 ASC"), Ok((false, 3)));
        for line in [
            "ASC DESC",
            "LIMIT 1 LIMIT 1",
            "LIMIT 0",
            "LIMIT 16385",
            "UP",
        ] {
            assert!(
                parsed(&format!("cluster slot-stats {line}")).is_err(),
                "{line}"
            );
        }
    }
}
