//! ROLE, REPLICAOF, and what replicas say: REPLCONF, PSYNC, SYNC.
//!
//! Must not know: what a replica is sent, and when; how a primary is followed.

use std::sync::atomic::Ordering;

use redline_commands::{Error, Words};
use redline_engine::{
    Caller, Halt,
    caller::{ReplyMode, flag, state},
};
use redline_net::clock;
use redline_replica::{
    link::NodeName,
    primary::{Answer, Part, State},
};
use redline_resp::{Args, split_words};
use redline_spec::CommandId;
use redline_types::number;

use crate::{failover, following, log, replication, worker::Worker};

/// Length of an address that a replica may tell: bytes.
const IP_BYTES_MAX: usize = 255;
const NO_PRIMARY_LINK: Error =
    Error::line("NOMASTERLINK Can't SYNC while not connected with my master");

/// Replies with the role: of a primary the offset of its stream and each replica that is online with its own; of a replica its
/// primary, the state of the link and the offset.
pub(crate) fn role(worker: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    let primary = worker.shared.replication.primary();
    let offset = primary.log().identity().offset() as i64;
    if let Some((host, port)) = &worker.outlet.settings.primary {
        let state = worker.shared.following.link().state;
        let mut reply = caller.reply();
        reply.array(5);
        reply.bulk(b"slave");
        reply.bulk(host.as_bytes());
        reply.integer((*port).into());
        reply.bulk(state.name().as_bytes());
        reply.integer(offset);
        return Ok(());
    }
    let online = || {
        let replicas = primary.replicas().iter();
        replicas.filter(|replica| replica.state == State::Online)
    };
    let mut reply = caller.reply();
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(offset);
    reply.array(online().count());
    for replica in online() {
        reply.array(3);
        reply.bulk(replica.peer.shown_ip().as_bytes());
        reply.bulk(replica.peer.port.to_string().as_bytes());
        reply.bulk(replica.acked.to_string().as_bytes());
    }
    Ok(())
}

/// Asks for the stream from an offset on: `PSYNC replid offset`.
pub(crate) fn psync(worker: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    let asked = number::parse_i64(&args[2]);
    let replid = args[1].to_vec();
    let asks_to_take_over = Words::new(CommandId::Psync, &args, 3).undocumented("FAILOVER");
    if asks_to_take_over && caller.info.flags.load(Ordering::Relaxed) & flag::REPLICA == 0 {
        take_over(worker, caller, &replid)?;
    }
    let asked = asked.ok_or_else(|| {
        let addr = &caller.info.addr;
        log::warning(&format!(
            "Replica {addr} asks for synchronization but with a wrong offset"
        ));
        Error::NotInteger
    })?;
    become_replica(worker, caller, Some((&replid, asked)))
}

/// Asks for a snapshot and the stream behind it.
pub(crate) fn sync(worker: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    become_replica(worker, caller, None)
}

/// Takes over from the primary that this server follows, which asks for it, and for the stream in the same request.
fn take_over(worker: &mut Worker, caller: &mut Caller, replid: &[u8]) -> Result<(), Halt> {
    let shared = worker.shared;
    if shared.settings.current().primary.is_none() {
        return Err(Error::line("ERR PSYNC FAILOVER can't be sent to a master.").into());
    }
    if replication::identity(shared).replid().as_bytes() != replid {
        return Err(Error::line("ERR PSYNC FAILOVER replid must match my replid.").into());
    }
    following::follow_for(worker, caller, None)?;
    log::notice(&format!(
        "MASTER MODE enabled (failover request from '{}')",
        caller.info.addr
    ));
    Ok(())
}

fn become_replica(
    worker: &mut Worker,
    caller: &mut Caller,
    wanted: Option<(&[u8], i64)>,
) -> Result<(), Halt> {
    let shared = worker.shared;
    if shared.following.is_cut_off(&shared.settings.current()) {
        return Err(NO_PRIMARY_LINK.into());
    }
    let (client, now_ms) = (caller.info.id, clock::monotonic_ms());
    // What is a replica already is not answered.
    if caller.info.flags.load(Ordering::Relaxed) & flag::REPLICA != 0 {
        return Ok(());
    }
    introduce(worker, caller);
    let mut primary = shared.replication.primary();
    let answer = match wanted {
        Some((replid, asked)) => {
            primary.psync(client, replid, asked, replication::fresh_id, now_ms)
        }
        None => primary.sync(client, false, replication::fresh_id, now_ms),
    };
    shared.replication.note_kept(&primary);
    let peer = primary.peer_mut(client, now_ms);
    let name = format!("{}:{}", peer.shown_ip(), peer.port);
    drop(primary);
    caller.info.set_flag(flag::REPLICA, true);
    // It is sent the stream and nothing else.
    caller.reply_mode = ReplyMode::Off;
    caller.set_state(state::REPLY, true);
    log::notice(&format!(
        "Replica {name} asks for synchronization: {}",
        match answer {
            Answer::Partial => "it goes on where it was",
            Answer::Full => "it gets a snapshot",
        }
    ));
    replication::wish(shared);
    Ok(())
}

/// Makes the caller known as one that speaks of replication.
fn introduce(worker: &Worker, caller: &mut Caller) {
    let (host, _) = caller
        .info
        .addr
        .rsplit_once(':')
        .unwrap_or((&caller.info.addr, ""));
    let ip = host.trim_start_matches('[').trim_end_matches(']');
    let mut primary = worker.shared.replication.primary();
    let peer = primary.peer_mut(caller.info.id, clock::monotonic_ms());
    if peer.ip.is_empty() {
        ip.clone_into(&mut peer.ip);
    }
    drop(primary);
    caller.set_state(state::REPLICA, true);
}

/// Notes what a replica tells of itself, and how far it is: `REPLCONF option value …`. Acknowledgements are not answered.
pub(crate) fn replconf(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let option = |at: usize| args.get(at).map(<[u8]>::to_ascii_lowercase);
    match option(1).as_deref() {
        Some(b"ack") => {
            acknowledge(worker, caller, args);
            return Ok(());
        }
        // It is for the other side.
        Some(b"getack") => return Ok(()),
        Some(b"cluster-message") => {
            hear(worker, args);
            return Ok(());
        }
        _ => {}
    }
    if args.len().is_multiple_of(2) {
        return Err(Error::Syntax.into());
    }
    introduce(worker, caller);
    for at in (1..args.len()).step_by(2) {
        tell(worker, caller, &args[at], &args[at + 1])?;
    }
    caller.reply().ok();
    Ok(())
}

/// Takes a message of another node of the cluster: `REPLCONF CLUSTER-MESSAGE cluster node word …`. It is not answered.
fn hear(worker: &Worker, args: Args<'_>) {
    let (Some(etcd), Some(cluster)) = (worker.shared.etcd(), &worker.shared.cluster) else {
        return;
    };
    let words: Vec<&[u8]> = args.iter().skip(2).collect();
    if let [of, from, words @ ..] = &words[..]
        && *of == cluster.view().picture.meta.cluster.as_bytes()
        && let Ok(from) = std::str::from_utf8(from)
    {
        etcd.deciding.hear(from, words);
    }
}

/// Returns the name of a replica that is a node of this one's shard, if it follows the term in which this one leads.
fn node_name(worker: &Worker, value: &[u8]) -> Result<NodeName, Error> {
    let name = std::str::from_utf8(value).ok().and_then(NodeName::parse);
    let name = name.ok_or(Error::Syntax)?;
    let leads = worker.shared.etcd().and_then(|etcd| etcd.deciding.leads());
    // One that has yet to carry that out would answer PSYNC as a replica, and be asked again late.
    let leads = leads.filter(|_| worker.outlet.settings.primary.is_none());
    match leads == Some(name.term) {
        true => Ok(name),
        false => Err(Error::Line(
            format!("ERR this node does not lead in the term {}", name.term).into(),
        )),
    }
}

fn tell(worker: &Worker, caller: &Caller, option: &[u8], value: &[u8]) -> Result<(), Error> {
    let mut primary = worker.shared.replication.primary();
    let peer = primary.peer_mut(caller.info.id, clock::monotonic_ms());
    match option.to_ascii_lowercase().as_slice() {
        b"listening-port" => {
            let port = number::parse_i64(value).ok_or(Error::NotInteger)?;
            peer.port = u16::try_from(port).map_err(|_| Error::NotInteger)?;
        }
        b"ip-address" if value.len() > IP_BYTES_MAX => {
            return Err(Error::Line(
                format!(
                    "ERR REPLCONF ip-address provided by replica instance is too long: {} bytes",
                    value.len()
                )
                .into(),
            ));
        }
        b"ip-address" => peer.announced_ip = String::from_utf8_lossy(value).into_owned(),
        b"capa" => peer.note_capability(value),
        b"version" => {
            let text = String::from_utf8_lossy(value);
            if !peer.note_version(&text) {
                return Err(Error::quoting(
                    "ERR Unrecognized version format: ",
                    value,
                    "",
                ));
            }
        }
        b"rdb-only" => {
            peer.rdb_only = match value {
                b"0" => false,
                b"1" => true,
                _ => return Err(Error::NotInteger),
            };
        }
        b"cluster-node" => peer.node = Some(node_name(worker, value)?),
        b"rdb-filter-only" => peer.part = part_of(value)?,
        _ => {
            let text = "ERR Unrecognized REPLCONF option: ";
            return Err(Error::quoting(text, option, ""));
        }
    }
    Ok(())
}

/// Parses the words of `rdb-filter-only`.
fn part_of(text: &[u8]) -> Result<Part, Error> {
    let missing = Error::line("ERR Missing rdb-filter-only values");
    let words = split_words(text).ok_or(missing)?;
    Part::of_filters(&words)
        .map_err(|other| Error::quoting("ERR Unsupported rdb-filter-only option: ", other, ""))
}

/// Takes an acknowledgement: `REPLCONF ACK offset [FACK offset]`.
fn acknowledge(worker: &Worker, caller: &Caller, args: Args<'_>) {
    let Some(offset) = args.get(2).and_then(number::parse_i64) else {
        return;
    };
    let synced = match Words::new(CommandId::Replconf, &args, 3).undocumented("FACK") {
        true => args.get(4).and_then(number::parse_i64),
        false => None,
    };
    let at_least_0 = |offset: i64| u64::try_from(offset).unwrap_or(0);
    let synced = synced.map(at_least_0);
    let (client, now_ms) = (caller.info.id, clock::monotonic_ms());
    let mut primary = worker.shared.replication.primary();
    let is_replica = primary.ack(client, at_least_0(offset), synced, now_ms);
    drop(primary);
    if is_replica {
        replication::acknowledged(worker.shared);
    }
}

/// Has the server follow a primary, or nobody any more.
pub(crate) fn replicaof(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    if worker.shared.cluster.is_some() {
        return Err(Error::line("ERR REPLICAOF not allowed in cluster mode.").into());
    }
    if failover::is_on(worker.shared) {
        return Err(Error::line("ERR REPLICAOF not allowed while failing over.").into());
    }
    let current = worker.shared.settings.current().primary.clone();
    let mut words = Words::new(CommandId::Replicaof, &args, 1);
    let primary = if words.flag("NO") && words.flag("ONE") {
        None
    } else {
        let port = number::parse_i64(&args[2]).and_then(|port| u16::try_from(port).ok());
        let port = port.ok_or(Error::line("ERR Invalid master port"))?;
        let host = String::from_utf8(args[1].to_vec());
        let host = host.map_err(|_| Error::line("ERR Invalid master host"))?;
        Some((host, port))
    };
    if primary == current {
        if let Some((host, port)) = &current {
            log::notice(&format!(
                "REPLICAOF would result into synchronization with the master we are already connected with ({host}:{port}). No operation performed."
            ));
            caller
                .reply()
                .simple("OK Already connected to specified master");
        } else {
            caller.reply().ok();
        }
        return Ok(());
    }
    following::follow_for(worker, caller, primary.clone())?;
    let who = caller.info.addr.clone();
    match &primary {
        None => log::notice(&format!("MASTER MODE enabled (user request from '{who}')")),
        Some((host, port)) => log::notice(&format!(
            "REPLICAOF {host}:{port} enabled (user request from '{who}')"
        )),
    }
    caller.reply().ok();
    Ok(())
}
