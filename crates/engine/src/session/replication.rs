//! WAIT and WAITAOF: clients wait for replicas and for the append-only file.
//!
//! Must not know: how a client is suspended, who writes the file, who speaks with replicas.

use redline_commands::{Error, wait_ms};
use redline_keyspace::journal::{OnDisk, Until};
use redline_resp::Args;
use redline_spec::CommandId;
use redline_types::number;

use crate::{
    caller::Caller,
    executor::{Executor, Halt, Outlet, block},
};

pub(crate) fn wait<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    if executor.follows() {
        let text = "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured to be writable (which is not the default) writes to replicas are just local and are not propagated.";
        return Err(Error::line(text).into());
    }
    let replicas = number::parse_i64(&args[1]).ok_or(Error::NotInteger)?;
    let timeout_ms = wait_ms(&args[2], executor.now_ms)?;
    let wanted = count(replicas).map(|replicas| Until::Acked(replicas, caller.own_record));
    let id = CommandId::Wait;
    wait_for_each(executor, caller, id, args, timeout_ms, &[wanted])
}

pub(crate) fn waitaof<O: Outlet>(
    executor: &mut Executor<'_, O>,
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
    let timeout_ms = wait_ms(&args[3], executor.now_ms)?;
    if executor.follows() {
        let text = "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local and are not propagated.";
        return Err(Error::line(text).into());
    }
    let record = caller.own_record;
    let wanted = [
        (files > 0).then_some(Until::OnDisk(record)),
        count(replicas).map(|replicas| Until::AckedOnDisk(replicas, record)),
    ];
    let id = CommandId::Waitaof;
    wait_for_each(executor, caller, id, args, timeout_ms, &wanted)
}

/// Returns a number of replicas that is worth a wait.
fn count(replicas: i64) -> Option<u32> {
    (replicas > 0).then(|| u32::try_from(replicas).unwrap_or(u32::MAX))
}

/// Waits for one after the other, and replies.
fn wait_for_each<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    id: CommandId,
    args: Args<'_>,
    timeout_ms: Option<u64>,
    wanted: &[Option<Until>],
) -> Result<(), Halt> {
    let gate = &executor.engine.keyspace.journal().gate;
    for until in wanted.iter().flatten() {
        loop {
            if matches!(until, Until::OnDisk(_)) && gate.on_disk() == OnDisk::NoFile {
                let text =
                    "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
                return Err(Error::line(text).into());
            }
            if gate.is_reached(*until) || executor.compound.is_some() {
                break;
            }
            let wait = Some(*until);
            let began =
                block::begin_wait_without_keys(executor, caller, id, args, timeout_ms, wait);
            if let Some(halt) = began {
                if !matches!(until, Until::OnDisk(_)) {
                    O::ask_replicas(executor, caller.own_record);
                }
                return Err(halt);
            }
            // It came about meanwhile.
        }
    }
    write_acknowledged(executor, caller, id);
    Ok(())
}

/// Writes the current reply of WAIT or WAITAOF.
pub(crate) fn write_acknowledged<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &mut Caller,
    id: CommandId,
) {
    let gate = &executor.engine.keyspace.journal().gate;
    let is_on_disk = gate.is_reached(Until::OnDisk(caller.own_record));
    let (acked, on_disk) = gate.acked(caller.own_record);
    let mut reply = caller.reply();
    if id == CommandId::Waitaof {
        reply.array(2);
        reply.integer(is_on_disk.into());
        reply.integer(on_disk.into());
    } else {
        reply.integer(acked.into());
    }
}
