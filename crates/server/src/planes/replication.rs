//! ROLE, REPLICAOF, WAIT, WAITAOF: what clients ask of replication and of the append-only file, neither of which exists.
//!
//! So there are no replicas, none has acknowledged anything, and nothing is synced to a file. Must not know: how a client
//! is put aside.

use redline_commands::{Error, Words, wait_ms};
use redline_resp::Args;
use redline_spec::CommandId;
use redline_types::number;

use crate::{exec::Halt, session::Caller, worker::Worker};

/// Replicas that have acknowledged, and local files that have synced, all that anybody has written.
const ACKNOWLEDGED: i64 = 0;

/// A primary without replicas: nothing has an offset.
pub(crate) fn role(_: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    let mut reply = caller.reply();
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(0);
    reply.array(0);
    Ok(())
}

/// To be no replica is what the server is; to be one is not built.
pub(crate) fn replicaof(_: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    let mut words = Words::new(CommandId::Replicaof, &args, 1);
    if words.flag("NO") && words.flag("ONE") {
        caller.reply().ok();
        return Ok(());
    }
    let port = number::parse_i64(&args[2]).filter(|port| (0..=i64::from(u16::MAX)).contains(port));
    let text = match port {
        Some(_) => "ERR replication is not built yet: this server is nobody's replica",
        None => "ERR Invalid master port",
    };
    Err(Error::line(text).into())
}

pub(crate) fn wait(worker: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    let replicas = number::parse_i64(&args[1]).ok_or(Error::NotInteger)?;
    let timeout_ms = wait_ms(&args[2], worker.now_ms)?;
    let enough = replicas <= ACKNOWLEDGED;
    acknowledge(worker, caller, CommandId::Wait, args, enough, timeout_ms)
}

pub(crate) fn waitaof(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let files = number::parse_i64(&args[1]).ok_or(Error::NotInteger)?;
    if !(0..=1).contains(&files) {
        let text = "ERR value is out of range, value must between 0 and 1";
        return Err(Error::line(text).into());
    }
    let replicas = number::parse_i64(&args[2]).filter(|replicas| *replicas >= 0);
    let replicas = replicas.ok_or(Error::NOT_POSITIVE)?;
    let timeout_ms = wait_ms(&args[3], worker.now_ms)?;
    if files > 0 {
        let text = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
        return Err(Error::line(text).into());
    }
    let enough = replicas <= ACKNOWLEDGED;
    acknowledge(worker, caller, CommandId::Waitaof, args, enough, timeout_ms)
}

/// Answers if that is enough, or if this caller may not wait; otherwise waits.
fn acknowledge(
    worker: &mut Worker,
    caller: &mut Caller,
    id: CommandId,
    args: Args<'_>,
    enough: bool,
    timeout_ms: Option<u64>,
) -> Result<(), Halt> {
    if !enough && worker.compound.is_none() {
        return Err(worker.begin_wait_without_keys(caller, id, args, timeout_ms));
    }
    write_acknowledged(caller, id);
    Ok(())
}

/// The reply of WAIT or WAITAOF, now.
pub(crate) fn write_acknowledged(caller: &mut Caller, id: CommandId) {
    let mut reply = caller.reply();
    if id == CommandId::Waitaof {
        reply.array(2);
        reply.integer(ACKNOWLEDGED);
    }
    reply.integer(ACKNOWLEDGED);
}
