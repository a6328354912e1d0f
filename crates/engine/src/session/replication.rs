//! WAIT and WAITAOF: clients wait for replicas, of which there are none, and for the append-only file.
//!
//! Must not know: how a client is suspended, who writes the file.

use redline_commands::{Error, wait_ms};
use redline_keyspace::journal::{OnDisk, Until};
use redline_resp::Args;
use redline_spec::CommandId;
use redline_types::number;

use crate::{
    caller::Caller,
    executor::{Executor, Halt, Outlet, block},
};

/// Number of replicas that have acknowledged all writes.
const ACKNOWLEDGED: i64 = 0;

pub(crate) fn wait<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let replicas = number::parse_i64(&args[1]).ok_or(Error::NotInteger)?;
    let timeout_ms = wait_ms(&args[2], executor.now_ms)?;
    if replicas > ACKNOWLEDGED
        && executor.compound.is_none()
        && let Some(halt) = block::begin_wait_without_keys(
            executor,
            caller,
            CommandId::Wait,
            args,
            timeout_ms,
            None,
        )
    {
        return Err(halt);
    }
    write_acknowledged(executor, caller, CommandId::Wait);
    Ok(())
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
    let id = CommandId::Waitaof;
    loop {
        let gate = &executor.engine.keyspace.journal().gate;
        if files > 0 && gate.on_disk() == OnDisk::NoFile {
            let text =
                "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
            return Err(Error::line(text).into());
        }
        let wanted = Until::OnDisk(caller.own_record);
        let until = (files > 0 && !gate.is_reached(wanted)).then_some(wanted);
        let is_enough = until.is_none() && replicas <= ACKNOWLEDGED;
        if is_enough || executor.compound.is_some() {
            break;
        }
        let began = block::begin_wait_without_keys(executor, caller, id, args, timeout_ms, until);
        if let Some(halt) = began {
            return Err(halt);
        }
        // The disk was quicker.
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
    let mut reply = caller.reply();
    if id == CommandId::Waitaof {
        reply.array(2);
        reply.integer(is_on_disk.into());
    }
    reply.integer(ACKNOWLEDGED);
}
