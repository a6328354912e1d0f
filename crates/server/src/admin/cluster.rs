//! CLUSTER: what a node tells of its cluster. The subcommands that change it are in `cluster/changes.rs`.
//!
//! Every reply is made of one picture. Addresses are told as Redis tells them, but for a node without an announced address:
//! that tells each client the address by which the client has reached it, where Redis tells none.
//!
//! Must not know: the store.

mod changes;

use std::{fmt::Write, net::SocketAddr, ops::RangeInclusive, sync::Arc};

use redline_cluster::{Picture, SLOTS, slot_of};
use redline_commands::{Error, Words};
use redline_engine::{Caller, Halt, errors, executor::units};
use redline_keyspace::{Keyspace, Unit, lock::StripeSet};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::number;

use super::command;
use crate::{
    cluster::Cluster,
    settings::{EndpointType, Settings},
    shared::{Shared, TcpPort},
    worker::Worker,
};

pub(crate) use changes::{
    cluster_addslots, cluster_addslotsrange, cluster_bumpepoch, cluster_delslots,
    cluster_delslotsrange, cluster_failover, cluster_flushslots, cluster_forget, cluster_meet,
    cluster_replicate, cluster_reset, cluster_saveconfig, cluster_set_config_epoch,
    cluster_setslot,
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

/// Addresses of this node, in words for one client.
struct Endpoint<'a> {
    ip: String,
    port: u16,
    /// Both ports; 0: there is none.
    plain_port: u16,
    tls_port: u16,
    hostname: &'a str,
    preferred: EndpointType,
}

impl<'a> Endpoint<'a> {
    fn of(shared: &Shared, settings: &'a Settings, caller: &Caller) -> Endpoint<'a> {
        let own = caller.info.laddr.parse::<SocketAddr>().ok();
        let announced = |port: Option<u16>, which| port.unwrap_or(shared.bound_port(which));
        let plain_port = announced(settings.cluster_announce_port, TcpPort::Plain);
        let tls_port = announced(settings.cluster_announce_tls_port, TcpPort::Tls);
        let tls_bound = shared.bound_port(TcpPort::Tls);
        let is_tls = tls_bound != 0 && own.is_some_and(|own| own.port() == tls_bound);
        let ip = match settings.cluster_announce_ip.as_str() {
            "" => own.map_or_else(String::new, |own| own.ip().to_canonical().to_string()),
            announced => announced.to_owned(),
        };
        Endpoint {
            ip,
            port: match is_tls || plain_port == 0 {
                true => tls_port,
                false => plain_port,
            },
            plain_port,
            tls_port,
            hostname: &settings.cluster_announce_hostname,
            preferred: settings.cluster_preferred_endpoint_type,
        }
    }

    /// Returns the host that clients are to use; `None`: the one that they have used.
    fn host(&self) -> Option<&str> {
        match self.preferred {
            EndpointType::Ip => Some(&self.ip),
            EndpointType::Hostname if self.hostname.is_empty() => Some("?"),
            EndpointType::Hostname => Some(self.hostname),
            EndpointType::UnknownEndpoint => None,
        }
    }

    fn write_host(&self, reply: &mut Reply<'_>) {
        match self.host() {
            Some(host) => reply.bulk(host.as_bytes()),
            None => reply.null(),
        }
    }

    /// Returns the names and values of those ways to reach the node that are not the preferred one.
    fn others(&self) -> Vec<(&'static str, &str)> {
        let ip = (self.preferred != EndpointType::Ip).then_some(("ip", self.ip.as_str()));
        let has_other_name = self.preferred != EndpointType::Hostname && !self.hostname.is_empty();
        let hostname = has_other_name.then_some(("hostname", self.hostname));
        ip.into_iter().chain(hostname).collect()
    }
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
    let picture = cluster.picture();
    let assigned = picture.owners().assigned();
    let state = match cluster.is_down(&worker.outlet.settings) {
        true => "fail",
        false => "ok",
    };
    let owners = picture.shards.keys();
    let size = owners.filter(|shard| !picture.owners().runs_of(shard).is_empty());
    let own = picture.shards.get(&cluster.shard);
    let mut text = format!("cluster_state:{state}\r\n");
    for (name, value) in [
        ("cluster_slots_assigned", assigned as u64),
        ("cluster_slots_ok", assigned as u64),
        ("cluster_slots_pfail", 0),
        ("cluster_slots_fail", 0),
        ("cluster_known_nodes", picture.nodes.len() as u64),
        ("cluster_size", size.count() as u64),
        ("cluster_current_epoch", picture.newest_term()),
        ("cluster_my_epoch", own.map_or(0, |shard| shard.term)),
        // There is no bus.
        ("cluster_stats_messages_sent", 0),
        ("cluster_stats_messages_received", 0),
        ("total_cluster_links_buffer_limit_exceeded", 0),
    ] {
        // A text takes what is written to it.
        let _ = write!(text, "{name}:{value}\r\n");
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
    let endpoint = Endpoint::of(worker.shared, &worker.outlet.settings, caller);
    let text = node_line(cluster, &cluster.picture(), &endpoint);
    caller.reply().verbatim("txt", text.as_bytes());
    Ok(())
}

/// Returns this node's line of CLUSTER NODES. The port of the bus is 0: there is none.
fn node_line(cluster: &Cluster, picture: &Picture, endpoint: &Endpoint<'_>) -> String {
    let term = picture.shards.get(&cluster.shard);
    let term = term.map_or(0, |shard| shard.term);
    let mut line = format!("{} {}:{}@0", cluster.node, endpoint.ip, endpoint.port);
    if !endpoint.hostname.is_empty() {
        line += &format!(",{}", endpoint.hostname);
    }
    line += &format!(" myself,master - 0 0 {term} connected");
    for run in picture.owners().runs_of(&cluster.shard) {
        line += &match run.start() == run.end() {
            true => format!(" {}", run.start()),
            false => format!(" {}-{}", run.start(), run.end()),
        };
    }
    line + "\n"
}

pub(crate) fn cluster_slots(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let cluster = node_of(worker.shared)?;
    let runs = cluster.picture().owners().runs_of(&cluster.shard);
    let endpoint = Endpoint::of(worker.shared, &worker.outlet.settings, caller);
    let mut reply = caller.reply();
    reply.array(runs.len());
    for run in runs {
        reply.array(3);
        reply.integer(i64::from(*run.start()));
        reply.integer(i64::from(*run.end()));
        reply.array(4);
        endpoint.write_host(&mut reply);
        reply.integer(i64::from(endpoint.port));
        reply.bulk(cluster.node.as_bytes());
        let others = endpoint.others();
        reply.map(others.len());
        for (name, value) in others {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
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
    let runs = cluster.picture().owners().runs_of(&cluster.shard);
    let endpoint = Endpoint::of(worker.shared, &worker.outlet.settings, caller);
    let offset = worker
        .shared
        .replication
        .primary()
        .log()
        .identity()
        .offset();
    let mut reply = caller.reply();
    reply.array(1);
    reply.map(2);
    reply.bulk(b"slots");
    reply.array(2 * runs.len());
    for slot in runs.iter().flat_map(|run| [run.start(), run.end()]) {
        reply.integer(i64::from(*slot));
    }
    reply.bulk(b"nodes");
    reply.array(1);
    let ports = [
        (TcpPort::Plain, endpoint.plain_port),
        (TcpPort::Tls, endpoint.tls_port),
    ];
    let ports = ports.iter().filter(|(_, port)| *port != 0);
    let has_name = !endpoint.hostname.is_empty();
    reply.map(6 + ports.clone().count() + usize::from(has_name));
    reply.bulk(b"id");
    reply.bulk(cluster.node.as_bytes());
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
    reply.bulk(b"master");
    reply.bulk(b"replication-offset");
    reply.integer(offset as i64);
    reply.bulk(b"health");
    reply.bulk(b"online");
    Ok(())
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
    caller.reply().bulk(cluster.shard.as_bytes());
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
    if args[2] != *cluster.node.as_bytes() {
        return Err(unknown_node(&args[2]));
    }
    caller.reply().array(0);
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
    if args[2] != *cluster.node.as_bytes() {
        return Err(unknown_node(&args[2]));
    }
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
    let picture = cluster.picture();
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
    let mut found = own_counts(cluster, &picture, slots, space);
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
fn own_counts(
    cluster: &Cluster,
    picture: &Arc<Picture>,
    slots: RangeInclusive<u16>,
    space: &Keyspace,
) -> Vec<(u16, u64)> {
    let own = slots.filter(|slot| picture.owners().of_slot(*slot) == Some(&cluster.shard));
    own.map(|slot| (slot, space.slot_key_count(0, slot)))
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
    use super::*;

    #[test]
    fn the_other_ways_to_a_node_are_those_that_are_not_preferred() {
        let endpoint = |hostname, preferred| Endpoint {
            ip: "1.2.3.4".into(),
            port: 1,
            plain_port: 1,
            tls_port: 0,
            hostname,
            preferred,
        };
        for (hostname, preferred, host, others) in [
            ("", EndpointType::Ip, Some("1.2.3.4"), &[][..]),
            ("h", EndpointType::Ip, Some("1.2.3.4"), &["hostname"]),
            ("h", EndpointType::Hostname, Some("h"), &["ip"]),
            ("", EndpointType::Hostname, Some("?"), &["ip"]),
            (
                "h",
                EndpointType::UnknownEndpoint,
                None,
                &["ip", "hostname"],
            ),
            ("", EndpointType::UnknownEndpoint, None, &["ip"]),
        ] {
            let endpoint = endpoint(hostname, preferred);
            assert_eq!(endpoint.host(), host);
            let names: Vec<&str> = endpoint.others().iter().map(|(name, _)| *name).collect();
            assert_eq!(names, others);
        }
    }
}
